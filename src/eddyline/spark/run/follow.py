"""Waits for runs and shows their progress meanwhile."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

from rich.console import Console

from eddyline.spark.run.group import stop_all
from eddyline.watch.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eddyline.spark.run.running_query import RunFace

LOOK_EVERY_S = 0.2
"""How often new batches are looked for (s)."""


def watch(runs: Sequence[RunFace], *, quiet: bool = False) -> None:
    """Show the progress of runs until all have ended; Ctrl-C stops them.

    Raises:
        EddylineError: a run failed in a way that eddyline has words for.
    """
    console = Console(stderr=True)
    lines = {run.name: ProgressLine(run.name, console=console, quiet=quiet) for run in runs}
    with contextlib.ExitStack() as stack:
        for line in lines.values():
            stack.enter_context(line)
        is_interrupted = stack.enter_context(_interrupts())
        try:
            active = list(runs)
            while active and not is_interrupted():
                active = [run for run in active if not _has_ended(run, lines[run.name])]
        finally:
            stop_all(runs)


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Take note of Ctrl-C instead of raising in the middle of a call to Spark."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _signal, _frame: event.set())
    try:
        yield event.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _has_ended(run: RunFace, line: ProgressLine) -> bool:
    """Wait a little, show the batches that have ended meanwhile, and say whether the run has."""
    ended = run.await_termination(LOOK_EVERY_S)
    for record in run.records[line.n_batches :]:
        line.update(record)
    return ended
