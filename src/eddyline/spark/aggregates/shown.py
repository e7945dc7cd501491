"""What people see of an aggregate on Spark, and what is saved of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.aggregates.view import AggregateView
from eddyline.report import aggregates as words
from eddyline.spark.operator import Operator

if TYPE_CHECKING:
    import threading

    from eddyline.aggregates.loop import AggregateLoop, AggregateRecord
    from eddyline.aggregates.plan import AggregatePart
    from eddyline.aggregates.profile import AggregateProfile
    from eddyline.options import AggregateOptions
    from eddyline.report.sections import Section
    from eddyline.runtime.records import History, Record
    from eddyline.spark.aggregates.grouping import Groups
    from eddyline.spark.aggregates.lifting import LiftedCall, LiftedPartial


class Shown(Operator):
    """An aggregate as it stands."""

    query: str
    options: AggregateOptions
    groups: Groups
    calls: tuple[LiftedCall, ...]
    loop: AggregateLoop
    part: AggregatePart
    total: AggregateProfile
    _loads: tuple[int, ...]
    _lock: threading.RLock

    @property
    def n_buckets(self) -> int:
        """Parts into which groups are cut."""
        raise NotImplementedError

    @property
    def lifts(self) -> list[LiftedPartial]:
        """The partial aggregates of all calls."""
        return [each for call in self.calls for each in call.partials]

    def plan(self) -> str | None:
        """Return where rows become cells."""
        return self.loop.plan

    def records(self) -> tuple[Record, ...]:
        """Return the record after a batch."""
        return (self._record(),)

    def _record(self) -> AggregateRecord:
        with self._lock:
            files = [file for each in self.part.buckets.values() for file in each.files]
            n_kept, n_bytes = (
                sum(getattr(f, name) for f in files) for name in ("n_rows", "n_bytes")
            )
        return replace(self.loop.record(), n_kept=n_kept, n_bytes=n_bytes)

    def lines(self, n_rows: int, seconds: float) -> tuple[str, ...]:  # noqa: ARG002
        """Return what is kept in words, for the progress."""
        return words.lines(self._record())

    def sections(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.view(), history)

    def view(self) -> AggregateView:
        """Return the aggregate as it stands."""
        with self._lock:
            states = list(self.part.buckets.values())
            waiting = [file for each in states for file in each.waiting]
            files = [file for each in states for file in each.files]
            loads = np.array(self._loads, dtype=np.float64)
            mean = loads.mean() if loads.size else 0.0
            return AggregateView(
                name=self.query,
                windows=self.windows,
                groups=tuple(" ".join(text.split()) for _, text in self.groups.columns),
                calls=tuple(each.call.text for each in self.calls),
                plan=self.plan() or "",
                newest=self.loop.newest,
                total=self.total,
                n_waiting=sum(each.n_rows for each in waiting),
                n_kept=sum(each.n_rows for each in files) - sum(each.n_rows for each in waiting),
                n_bytes=sum(each.n_bytes for each in files),
                n_files=len(files),
                n_buckets=self.n_buckets,
                fullest=float(loads.max() / mean) if mean > 0 else float("nan"),
                is_adaptive=self.options.adaptive,
            )

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows as a query would write them."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """Return the learned state."""
        return msgspec.to_builtins(self.loop.snapshot())

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        self.loop.restore(state)
