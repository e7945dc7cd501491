"""Processor time of a process and all processes below it, read from ``/proc``.

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
    seconds, pending = 0.0, [os.getpid() if pid is None else pid]
    while pending:
        process = Path(f"/proc/{pending.pop()}")
        try:
            # The name of the program, in brackets, may hold spaces.
            fields = (process / "stat").read_text("utf-8").rpartition(")")[2].split()
            tasks = list((process / "task").iterdir())
            pending += [int(child) for task in tasks for child in _children(task)]
        except OSError:
            continue
        seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text("utf-8").split()
    except OSError:
        return []
