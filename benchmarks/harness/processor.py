"""Processes below a process, and their processor time, read from ``/proc``.

On a busy machine the wall clock counts the neighbours too. Processor time hardly does. The module
needs Python's own packages only, so the environments of peers can import it.
"""

from __future__ import annotations

import os
from pathlib import Path


def seconds_below(pid: int | None = None) -> float:
    """Return the processor time of a process and its living descendants (s).

    Time of a child that has ended counts as its parent's, as soon as the parent has waited for it.

    Args:
        pid: the process; this one if omitted.
    """
    own = os.getpid() if pid is None else pid
    ticks = sum(map(_ticks, (own, *processes_below(own))))
    return ticks / os.sysconf("SC_CLK_TCK")


def processes_below(pid: int) -> list[int]:
    """Return the living descendants of a process."""
    below, pending = [], [pid]
    while pending:
        try:
            tasks = list(Path(f"/proc/{pending.pop()}/task").iterdir())
        except OSError:
            continue
        children = [int(child) for task in tasks for child in _children(task)]
        below += children
        pending += children
    return below


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text("utf-8").split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    """Return the processor time of a process and of its children that have ended (ticks)."""
    try:
        # The name of the program, in brackets, may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))
