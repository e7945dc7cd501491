"""The physical plan of a DataFrame as text.

``DataFrame.explain`` is the one public call that both kinds of sessions have, and it prints.
Queries run on threads of one process, so the print of this thread is caught and no other.
"""

from __future__ import annotations

import io
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDS_SHUFFLE = re.compile(r"Exchange|Sort|Aggregate|Join|Window|CartesianProduct|CollectMetrics")
"""Work that a second job would do again, or see: an observation belongs to the user's own job."""

_COMPUTES = re.compile(r" AS |EvalPython")
_RENAMES = re.compile(r"(?:(?<=\[)|(?<=, ))[^\s,()\[~-][^,()\[]*#\d+L?(?:\.\w+)* AS ")
"""``column#7 AS name`` or ``struct#7.field AS name``: what a plan says of a column that stands."""

_printing = threading.Lock()


class _CaughtPrint(io.TextIOBase):
    """Catches what one thread prints and lets the others through."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out
        self.thread = threading.get_ident()
        self.caught: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self.thread:
            return int(self.out.write(text))
        self.caught.append(text)
        return len(text)

    def flush(self) -> None:
        self.out.flush()


def printed_plan(df: DataFrame) -> str:
    """Return the physical plan, as ``explain`` prints it."""
    with _printing:
        out, sys.stdout = sys.stdout, _CaughtPrint(sys.stdout)
        try:
            df.explain()
            return "".join(sys.stdout.caught)
        finally:
            sys.stdout = out


def is_narrow(df: DataFrame) -> bool:
    """Return whether the first rows can be had without running a shuffle or a join."""
    return not _NEEDS_SHUFFLE.search(_without_cached(printed_plan(df)))


def computes_nothing(df: DataFrame) -> bool:
    """Return whether all columns are those of the sources, at most under other names."""
    return not _COMPUTES.search(_RENAMES.sub("", _without_cached(printed_plan(df))))


def _without_cached(plan: str) -> str:
    """Return a physical plan without what stands below a cached table."""
    lines, depth = [], None
    for line in plan.splitlines():
        indent = len(line) - len(line.lstrip(" +-:*"))
        if depth is not None and indent > depth:
            continue
        depth = indent if "InMemoryTableScan" in line else None
        lines.append(line)
    return "\n".join(lines)
