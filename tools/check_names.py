"""Empty names in ``src/``: bindings that do not say what they hold, counted by room.

``each found at known own given made left of said told`` name nothing, and neither does a
classmethod ``of``. ``left`` beside ``right`` says which side. Each room has a number in
``tools/empty_names.json`` that it may not exceed. ``python tools/check_names.py --update`` lowers
the numbers; it never raises one.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "eddyline"
LIMITS = ROOT / "tools" / "empty_names.json"
EMPTY = frozenset(
    ["each", "found", "at", "known", "own", "given", "made", "left", "of", "said", "told"]
)


def empty_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each empty binding of a module: variables, parameters, ``of``."""
    tree = ast.parse(text)
    sides = {
        line
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and "right" in {name for _, name in bound(function)}
        for line, name in bound(function)
        if name == "left"
    }
    for line, name in bound(tree):
        if name in EMPTY and not (name == "left" and line in sides):
            yield line, name
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "of":
            yield node.lineno, "of"


def bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable and parameter that a part of a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def count_by_room(source: Path) -> dict[str, int]:
    """Return how many empty names each room has; files beside the rooms are ``eddyline``."""
    counts: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        room = inside[0] if len(inside) > 1 else "eddyline"
        counts[room] += sum(1 for _ in empty_names(path.read_text("utf-8")))
    return dict(counts)


def problems(counts: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Return a line for each room with more empty names than it may have."""
    return [
        f"{room} binds {count} empty names and may bind {limits.get(room, 0)}: give the new ones "
        f"the noun of what they hold ({', '.join(sorted(EMPTY))} say nothing)"
        for room, count in counts.items()
        if count > limits.get(room, 0)
    ]


def main() -> None:
    """Check the source, or lower the numbers.

    Raises:
        SystemExit: a room has more empty names than before.
    """
    counts, limits = count_by_room(SOURCE), json.loads(LIMITS.read_text("utf-8"))
    if wrong := problems(counts, limits):
        sys.exit("\n".join(wrong))
    if "--update" in sys.argv:
        LIMITS.write_text(json.dumps(counts, indent=2) + "\n", "utf-8")
    print(f"{sum(counts.values()):,} empty names, {sum(limits.values()):,} allowed")


if __name__ == "__main__":
    main()
