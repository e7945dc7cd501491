"""Models of a stream as they stand, for people, and what is saved of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.errors import StateError
from eddyline.models.fitting import FitReport
from eddyline.models.sketch import Sketch
from eddyline.models.streaming import COMPONENT
from eddyline.models.work import Work, bounds_of_results
from eddyline.runtime.records import Numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.models.planning.view import JoinView, StepView
    from eddyline.models.streaming import BucketState, StreamPlan


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """How models stand after a batch."""

    n_rows: int
    """Rows that segments stand for."""
    n_segments: int
    n_waiting: int
    """Rows of which no segment is final yet."""
    n_bytes: int
    """Size of what is kept (bytes)."""
    n_kept: int = 0
    """Segments that later results look back at."""
    n_dropped: int = 0
    """Of the rows, those that declared models predicted near enough."""
    n_broken: int = 0
    """Declared models that a row broke."""
    n_early: int = 0
    """Results that were given before they were final."""
    n_taken_back: int = 0
    """Rows that took results back."""
    n_outside: int = 0
    """Rows with values that they were said not to have."""
    n_beyond: int = 0
    """Results whose error is above the bound that was asked of them."""
    ns: Mapping[str, int] = field(default_factory=dict)
    """Time of tasks by step (ns)."""
    component: str = COMPONENT
    plan: Mapping[str, Any] | None = None
    """What joins ask before, by their texts; None if there is nothing to plan."""
    n_open: int = 0
    """Number of waiting rows in open runs."""
    open_until: int | None = None
    """Event time at which open runs are final if no more rows of their entity come (µs)."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return what is kept; its rows and segments are of all batches, and so no counts."""
        n_kept = self.n_waiting + self.n_kept
        kept = {"n_kept": n_kept, "n_waiting": self.n_waiting, "n_bytes": self.n_bytes}
        kept["n_in_open_runs"] = self.n_open
        every = {"n_rows_in_all": self.n_rows, "n_segments_in_all": self.n_segments}
        every |= {"n_early_in_all": self.n_early, "n_taken_back_in_all": self.n_taken_back}
        every |= {"n_dropped_in_all": self.n_dropped, "n_broken_in_all": self.n_broken}
        every |= {"n_outside_in_all": self.n_outside, "n_beyond_in_all": self.n_beyond}
        task_seconds = {"task_seconds_in_all": sum(self.ns.values()) / 1e9}
        return Numbers({"n_rows": n_rows}, {**kept, **every, **task_seconds})

    def with_earlier(self, earlier: ModelRecord, share: float) -> ModelRecord:  # noqa: ARG002
        """Return one record for several batches: the last one, for all counts go on."""
        return self


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows of an input that are in no final segment, and why."""

    stream: str
    n_ahead: int
    """Rows that event time has not passed."""
    n_open: int
    """Rows of open runs."""
    until: int | None
    """Event time at which open runs are final if no more rows of their entity come (µs)."""
    wait_us: int
    """Time after its last row at which a run ends (µs): ``max_gap``, or the horizon."""
    prefix_rows: int | None
    """Rows that a run needs to choose its method; None if the method is given."""
    is_fitted: bool = True
    """Whether segments are fitted, and not declared."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """Models as they stand."""

    name: str
    step: str
    """What is fitted and solved, in words."""
    total: FitReport
    """Of all batches of the run."""
    n_results: int
    n_kept: int
    """Segments that later results look back at."""
    n_bytes: int
    waiting: tuple[WaitingRows, ...] = ()
    """One for each input that segments are made from."""
    bounds: str = ""
    """The bounds that results were given, and those in which inputs are, in words."""
    n_early: int = 0
    """Of the results, those that were given before they were final."""
    n_taken_back: int = 0
    """Of the results, those that take others back."""
    work: Work = field(default_factory=Work)
    """Of all batches."""
    asked: tuple[AskedBound, ...] = ()
    """The bound of each attribute, of models and of results."""
    sketch: Sketch = field(default_factory=Sketch)
    """What is drawn."""
    plan: StreamPlan | None = None
    """By which it is drawn."""
    steps: tuple[StepView, ...] = ()
    """What steps give, and what that was estimated to be."""
    joins: tuple[JoinView, ...] = ()
    """What joins ask before."""
    ways: Mapping[str, Any] | None = None
    """The plan of these as plain values; None: there is nothing to plan."""
    notes: tuple[str, ...] = ()

    @property
    def n_waiting(self) -> int:
        """Number of rows that are in no final segment."""
        return sum(each.n_ahead + each.n_open for each in self.waiting)

    @property
    def record(self) -> ModelRecord:
        """The record after a batch."""
        total = self.total
        untils = [each.until for each in self.waiting if each.n_open and each.until is not None]
        return ModelRecord(
            total.n_rows, total.n_segments, self.n_waiting, self.n_bytes, self.n_kept,
            total.n_dropped, total.n_broken, self.n_early, self.n_taken_back,
            total.n_outside, self.work.n_beyond, self.work.ns, plan=self.ways,
            n_open=sum(each.n_open for each in self.waiting),
            open_until=max(untils, default=None),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskedBound:
    """A bound, and where the largest error that there is stands in ``Work``."""

    name: str
    """The attribute, with its input if there are several."""
    bound: str
    """What was given, "" if nothing was."""
    key: str
    is_of_result: bool = False

    def largest(self, work: Work) -> float | None:
        """Return the largest error so far; None if nothing has one."""
        return (work.off if self.is_of_result else work.errors).get(self.key)


def waiting_rows(
    plan: StreamPlan, inputs: Sequence[str], states: Sequence[BucketState], offset: int
) -> tuple[WaitingRows, ...]:
    """Return how many rows of each input wait, until when, and why.

    Args:
        plan: the plan of the query.
        inputs: the names of its inputs.
        states: the states of the buckets after a batch.
        offset: from the time of a row to its instant (µs).
    """
    found = []
    for at, (each, stream) in enumerate(zip(plan.inputs, inputs, strict=True)):
        if each.maker is None:
            continue
        counts = [state.counted(at) for state in states]
        # All rows of open runs are before ``since``, up to which a bucket has read rows.
        until = max((state.since for state in states if state.counted(at).open), default=None)
        wait, options = each.maker.wait_us, getattr(each.maker, "options", None)
        found.append(
            WaitingRows(
                stream,
                sum(count.ahead for count in counts),
                sum(count.open for count in counts),
                None if until is None else until + offset + wait,
                wait,
                options.prefix_rows if options and options.method == "auto" else None,
                is_fitted=options is not None,
            )
        )
    return tuple(found)


def told_bounds(plan: StreamPlan, inputs: Sequence[str]) -> tuple[AskedBound, ...]:
    """Return the bounds of models and of results."""
    found = []
    for at, (each, stream) in enumerate(zip(plan.inputs, inputs, strict=True)):
        for name in each.shape.attributes if each.maker else ():
            bound = each.maker.within.get(name) if each.maker else None
            label = name if len(inputs) == 1 else f"{stream}.{name}"
            found.append(AskedBound(label, "" if bound is None else str(bound), f"{at} {name}"))
    given = bounds_of_results(plan.node)
    for name in plan.node.shape.attributes:
        bound = given.get(name)
        found.append(AskedBound(name, "" if bound is None else str(bound), name, True))
    return tuple(found)


class ModelCounts(msgspec.Struct, forbid_unknown_fields=True):
    """What is saved: the counts so far."""

    n_rows: int = 0
    n_segments: int = 0
    n_without: int = 0
    n_conflicts: int = 0
    fitters: dict[str, int] = {}
    n_results: int = 0
    n_dropped: int = 0
    n_broken: int = 0
    n_early: int = 0
    n_taken_back: int = 0
    n_outside: int = 0
    work: Work = Work()
    n_off_earth: int = 0

    @classmethod
    def of(
        cls, total: FitReport, n_results: int, n_early: int, n_taken_back: int, work: Work
    ) -> ModelCounts:
        """Return the counts of all batches."""
        return cls(
            total.n_rows,
            total.n_segments,
            total.n_without,
            total.n_conflicts,
            dict(total.fitters),
            n_results,
            total.n_dropped,
            total.n_broken,
            n_early,
            n_taken_back,
            total.n_outside,
            work,
            total.n_off_earth,
        )

    @classmethod
    def read(cls, state: object) -> ModelCounts:
        """Return counts that were saved.

        Raises:
            StateError: they are damaged.
        """
        try:
            return msgspec.convert(state, cls)
        except msgspec.ValidationError as error:
            msg = f"what is known of models cannot be read: {error}"
            raise StateError(msg) from error

    @property
    def total(self) -> FitReport:
        """The counts of fits."""
        return FitReport(
            self.n_rows, self.n_segments, self.n_without, self.n_conflicts, self.fitters,
            self.n_dropped, self.n_broken, self.n_outside, self.n_off_earth,
        )  # fmt: skip
