"""Check who imports whom: a room imports only rooms above it, and only ``spark/`` imports pyspark.

Run by ``make lint``; prints each line that breaks a rule and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "eddyline"

ROOMS = [
    "errors", "options", "registry",
    "data", "sql", "query", "stats",
    "change", "ordering", "routing",
    "state", "runtime",
    "filters", "rules", "joins",
    "watch", "spark", "sigma", "cli", "testing",
]  # fmt: skip
"""Top to bottom: a room imports itself and what stands above it."""

TECHNIQUES = {"ordering", "routing", "change"}
"""Rooms that never import each other, although the list gives them an order."""

PYSPARK_ROOMS = {"spark"}
"""Rooms that may import pyspark."""

TO_MEND = {
    ("runtime/records.py", "filters"),
    ("runtime/records.py", "joins"),
    ("runtime/records.py", "rules"),
    ("sql/analysis.py", "query"),
    ("sql/error_free.py", "query"),
    ("sql/like.py", "query"),
    ("sql/literals.py", "query"),
    ("sql/required_literals.py", "query"),
}
"""Imports upwards that are left over from before the rooms were cut anew; each is to go."""

FACE = {"__init__", "__main__", "demo"}
"""Modules that stand above all rooms: the public face and the commands."""


def imported(tree: ast.AST, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return line and name of every module that is imported, wherever it stands.

    Args:
        tree: a module.
        package: the package it is in, where relative imports start from.
    """
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append((node.lineno, module))
            if module == "eddyline":
                found += [(node.lineno, f"eddyline.{alias.name}") for alias in node.names]
    return found


def breaches(path: Path) -> list[str]:
    """Return what a module breaks, one line each."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    room = parts[0]
    if room in FACE:
        return []
    file = path.relative_to(SOURCE.parents[1])
    if room not in ROOMS:
        return [f"{file}:1: {room} is not a room; add it to tools/check_imports.py"]
    wrong = []
    for line, name in imported(ast.parse(path.read_text("utf-8")), ("eddyline", *parts[:-1])):
        where = f"{file}:{line}"
        if name.split(".")[0] == "pyspark" and room not in PYSPARK_ROOMS:
            wrong.append(f"{where}: {room}/ imports pyspark; only spark/ does")
        target = name.split(".")[1:2]
        is_face = room == "cli" and target[:1] == ["demo"]
        if name.startswith("eddyline.") and target and not is_face:
            if target[0] not in ROOMS:
                wrong.append(
                    f"{where}: {target[0]} is not a room; add it to tools/check_imports.py"
                )
            elif (path.relative_to(SOURCE).as_posix(), target[0]) in TO_MEND:
                continue
            elif ROOMS.index(target[0]) > ROOMS.index(room):
                wrong.append(f"{where}: {room}/ imports {target[0]}/, which stands below it")
            elif {room, target[0]} <= TECHNIQUES and room != target[0]:
                wrong.append(f"{where}: techniques do not import each other: {room}, {target[0]}")
    return wrong


def main() -> int:
    """Check every module of the package."""
    wrong = [line for path in sorted(SOURCE.rglob("*.py")) for line in breaches(path)]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
