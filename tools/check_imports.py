"""Check who imports whom: rooms only rooms above them, no circles, and pyspark only in ``spark/``.

Run by ``make lint``; prints each line that breaks a rule and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(__file__).resolve().parents[1] / "src" / "eddyline"

ROOMS = [
    "errors", "registry", "options",
    "data", "sql", "query", "stats", "estimates",
    "change", "ordering", "routing",
    "state", "runtime", "constraints", "lane", "sources",
    "filters", "rules", "joins", "aggregates", "models", "alarms",
    "report", "serve", "spark", "care", "sigma", "cli", "testing",
]  # fmt: skip
"""Top to bottom: a room imports itself and what stands above it."""

TECHNIQUES = {"ordering", "routing", "change"}
"""Rooms that never import each other, although the list gives them an order."""

PYSPARK_ROOMS = {"spark"}
"""Rooms that may import pyspark."""

OPERATORS = {"filters", "rules", "joins", "aggregates", "models", "alarms"}
"""Rooms of an operator each; ``report/`` and ``spark/`` have a sub-room for each of them."""

NAMELESS = {"runtime", "report", "serve", "spark/run", "spark/operator", "spark/query"}
"""What serves every operator and so names none, but for the sub-rooms of operators in it."""

TABLES = {"report/progress"}
"""Modules of such rooms that are a table of all operators."""

FACE = {"__init__", "__main__", "demo"}
"""Modules that stand above all rooms: the public face and the commands."""


def imported(tree: ast.AST, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return line and name of every module that is imported, wherever it stands.

    Args:
        tree: a module.
        package: the package it is in, where relative imports start from.
    """
    return [each for node in ast.walk(tree) for each in imported_by(node, package)]


def imported_by(node: ast.AST, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return line and name of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [(node.lineno, alias.name) for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) + 1 - node.level] if node.level else ()
    module = ".".join([*base, *([node.module] if node.module else [])])
    found = [(node.lineno, module)]
    if module == "eddyline":
        found += [(node.lineno, f"eddyline.{alias.name}") for alias in node.names]
    return found


def operator_of(parts: Sequence[str]) -> str | None:
    """Return the operator whose room or sub-room a module is in, None for any other."""
    sub_room = parts[1:2] if parts[0] in {"report", "spark"} else ()
    return next((each for each in (parts[0], *sub_room) if each in OPERATORS), None)


def named_operators(path: Path) -> list[str]:
    """Return where a module that serves every operator names one."""
    inner = path.relative_to(SOURCE).with_suffix("")
    homes = {"/".join(inner.parts[:depth]) for depth in (1, 2)}
    is_table = inner.as_posix() in TABLES
    if is_table or operator_of(inner.parts) or not homes & NAMELESS:
        return []
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for line, module in imported_by(node, ("eddyline", *inner.parts[:-1])):
            members = [f"{module}.{alias.name}" for alias in getattr(node, "names", ())]
            parts = [each.split(".")[1:] for each in (module, *members)]
            operators = (operator_of(each) for each in parts if each and each[0] in ROOMS)
            named = {each for each in operators if each is not None}
            found += [
                f"{path.relative_to(SOURCE.parents[1])}:{line}: {inner} serves every operator, "
                f"and imports {each}/"
                for each in sorted(named)
            ]
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
    wrong = named_operators(path)
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
            elif ROOMS.index(target[0]) > ROOMS.index(room):
                wrong.append(f"{where}: {room}/ imports {target[0]}/, which stands below it")
            elif {room, target[0]} <= TECHNIQUES and room != target[0]:
                wrong.append(f"{where}: techniques do not import each other: {room}, {target[0]}")
    return wrong


def modules() -> dict[str, Path]:
    """Return the file of every module of the package by its full name."""
    named = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def import_graph() -> dict[str, set[str]]:
    """Return the modules of the package that each of them imports.

    Imports for type checking and imports in functions count: both are ways round a circle.
    """
    files = modules()
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        package = tuple(name.split(".")) if path.stem == "__init__" else tuple(name.split(".")[:-1])
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for _, module in imported_by(node, package):
                members = [f"{module}.{alias.name}" for alias in getattr(node, "names", ())]
                graph[name] |= {each for each in members if each in files} or {module} & {*files}
    return graph


def circles() -> list[list[str]]:
    """Return each set of modules that import one another, without the name of the package."""
    graph = import_graph()
    reach = {name: _reachable(graph, name) for name in graph}
    found = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
    return sorted(sorted(name.removeprefix("eddyline.") for name in circle) for circle in found)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [*graph[start]]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph[name]
    return found


def main() -> int:
    """Check every module of the package."""
    wrong = [line for path in sorted(SOURCE.rglob("*.py")) for line in breaches(path)]
    wrong += [f"modules that import one another: {', '.join(circle)}" for circle in circles()]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
