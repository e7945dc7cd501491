"""The runs of this process, as the page asks for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from eddyline.runtime.records import Backlog
from eddyline.serve.runs import Failure
from eddyline.spark.run.job import SinkOutlet
from eddyline.spark.run.run import started_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eddyline.report.metrics import Metric
    from eddyline.report.sections import RunView
    from eddyline.runtime.by_hand import ChangeableRules, Property, RuleChange
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.spark.run.running_query import RunFace, RunGroup

PHASES = 60
"""Newest batches whose time is taken apart."""


class LiveRun:
    """A run of this process. It costs nothing until somebody asks."""

    place = ""

    def __init__(self, run: RunFace) -> None:
        self.run = run
        self.name = run.name
        self._phases: dict[int, dict[str, float]] = {}

    def is_running(self) -> bool:
        """Tell whether it runs."""
        with contextlib.suppress(Exception):  # a session that was stopped answers nothing
            return self.run.isActive
        return False

    def error(self) -> Failure | None:
        """Return what the run failed with, or None."""
        with contextlib.suppress(Exception):
            error = self.run.exception()
            return None if error is None else Failure.from_error(error)
        return None

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""
        return self.run.records_after(batch_id)

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""
        return self.run.decisions

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return in what time each part of the newest batches was done (s), as Spark has it."""
        with contextlib.suppress(Exception):
            # Of many batches at first, then of the newest.
            progresses = [self.run.lastProgress] if self._phases else self.run.recentProgress
            for progress in filter(None, progresses):
                self._phases[int(progress["batchId"])] = {
                    name: ms / 1e3 for name, ms in progress["durationMs"].items()
                }
        newest = sorted(self._phases)[-PHASES:]
        self._phases = {batch_id: self._phases[batch_id] for batch_id in newest}
        return self._phases

    def backlog(self) -> Backlog:
        """Return the input that waits."""
        with contextlib.suppress(Exception):  # a session that was stopped answers nothing
            return self.run.backlog()
        return Backlog(why="Spark does not answer")

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        return self.run.run_view()

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of the run."""
        return self.run.metrics()

    # -- where a person may change it -------------------------------------------------------------

    def plans(self) -> Mapping[str, Any]:
        """Return the plans in force that could be others, by component."""
        return self.run.steering.plans_in_words()

    def pin(self, component: str | None) -> None:
        """Keep the plan in force of a component, or of all."""
        self.run.pin(component=component)

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again."""
        self.run.adapt(component=component)

    def properties(self) -> Sequence[Property]:
        """Return the options that a person may change."""
        return self.run.steering.properties()

    def adjust(self, component: str, name: str, value: float) -> None:
        """Give an option another value."""
        self.run.adjust(component=component, **{name: value})

    def rules(self) -> ChangeableRules | None:
        """Return its rules, if it has some that a person may change."""
        return self.run.steering.rules()

    def change_rules(self, change: RuleChange) -> None:
        """Change the rules from the next micro-batch on."""
        self.run.steering.change_rules(change)

    def stop(self) -> None:
        """Stop the run; a batch that is under way is interrupted."""
        self.run.stop()


def runs_of(groups: Callable[[], Iterable[RunGroup]]) -> LiveRuns:
    """Return the runs of this process; ``groups`` tells of queries that run together.

    What runs queries together is no query, and not among them.
    """
    return LiveRuns(
        lambda: [
            *(run for run in started_runs() if isinstance(run.outlet, SinkOutlet)),
            *(run for group in groups() for run in group.runs),
        ]
    )


class LiveRuns:
    """Runs as they start; one that has ended is kept until another has its name.

    Args:
        found: returns the runs that there are now.
    """

    def __init__(self, find_runs: Callable[[], Iterable[RunFace]]) -> None:
        self._found = find_runs
        self._known: dict[str, LiveRun] = {}

    def runs(self) -> Sequence[LiveRun]:
        """Return the runs, one for each name: that which started last."""
        for run in {run.name: run for run in self._found()}.values():
            live_run = self._known.get(run.name)
            if live_run is None or live_run.run is not run:
                self._known[run.name] = LiveRun(run)
        return list(self._known.values())
