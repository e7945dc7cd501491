"""Waits for runs and shows their progress meanwhile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console

from eddyline.watch.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.spark.run import Run

LOOK_EVERY_S = 0.2
"""How often new batches are looked for (s)."""


def watch(runs: Sequence[Run], *, quiet: bool = False) -> None:
    """Show the progress of runs until all have ended; Ctrl-C stops them in order.

    Raises:
        EddylineError: a run failed in a way that eddyline has words for.
    """
    console = Console(stderr=True)
    lines = {run.name: ProgressLine(run.name, console=console, quiet=quiet) for run in runs}
    shown = dict.fromkeys(lines, 0)
    with contextlib.ExitStack() as stack:
        for line in lines.values():
            stack.enter_context(line)
        try:
            active = list(runs)
            while active:
                for run in list(active):
                    ended = run.await_termination(LOOK_EVERY_S / len(active))
                    records = run.records
                    for record in records[shown[run.name] :]:
                        lines[run.name].update(record)
                    shown[run.name] = len(records)
                    if ended:
                        active.remove(run)
        except KeyboardInterrupt:
            for run in runs:
                run.stop()
        except BaseException:
            for run in runs:
                if run.isActive:
                    run.stop()
            raise
