"""Manifest part, view and record of a windowed join."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.constraints.bounds import LearnedLateness
from eddyline.joins.leaving import DiscardState
from eddyline.joins.plan import BUCKETS, pipeline_of
from eddyline.runtime.records import Numbers, event_time_levels
from eddyline.state.bucket_state import BucketState, files_of
from eddyline.state.grid import Grid
from eddyline.state.manifest import StatePart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.joins.arrival_order import ClusterView
    from eddyline.joins.leaving import InputDiscards
    from eddyline.joins.orders.classes import ClassView
    from eddyline.joins.tables import DropView
    from eddyline.joins.tiers import DoneRows, TierView
    from eddyline.state.run_files import RunFile


class JoinPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a join after a batch."""

    grid: Grid
    """Cut of the rows into buckets."""
    buckets: dict[int, BucketState] = msgspec.field(default_factory=dict)
    """The files of each bucket, by its number."""
    n_late: dict[str, int] = msgspec.field(default_factory=dict)
    """Late rows of each input so far."""
    discards: DiscardState | None = None
    """What is known of which rows are dropped; None if none are."""
    versions: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """The version of each table that is refreshed."""

    def files(self, name: str) -> list[RunFile]:
        """Return the runs of the window of an input, without the cold ones."""
        return [file for bucket in self.buckets.values() for file in bucket.runs.get(name, ())]

    def cold(self, name: str) -> tuple[int, int, int]:
        """Return rows, runs, and bytes (those of filters included) of a window's cold tier."""
        parts = [part for bucket in self.buckets.values() for part in bucket.cold.get(name, ())]
        runs = [run for part in parts for run in part.runs]
        filters = [file for part in parts for file in part.filters]
        n_bytes = sum(file.n_bytes for file in (*runs, *filters))
        return sum(file.n_rows for file in runs), len(runs), n_bytes

    def dropped_bytes(self, name: str) -> int:
        """Return the size of what is known of rows of an input that were dropped (bytes)."""
        files = [file for bucket in self.buckets.values() for file in bucket.dropped.get(name, ())]
        return sum(file.n_bytes for file in files)

    def n_waiting(self, name: str) -> int:
        """Return how many rows of an input are in files of rows that wait for event time."""
        files = [file for bucket in self.buckets.values() for file in bucket.waiting.get(name, ())]
        return sum(file.n_rows for file in files)

    def packed(self) -> StatePart:
        """Return the part as a manifest holds it."""
        return StatePart.from_content(self, files_of(self.buckets.values()))


class InputsPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the inputs of a join after a batch."""

    latest: dict[str, int]
    """The latest event time of each stream so far (µs)."""
    learned: dict[str, LearnedLateness] = msgspec.field(default_factory=dict)
    """The lateness of streams for which it is learned."""
    passed: dict[str, int] = msgspec.field(default_factory=dict)
    """The instant before which rows of each stream are late (µs); see ``EventTime.passed``."""


STATIC, REFRESHED = "static", "refreshed"
"""Stand for the window of a table."""


@dataclass(frozen=True, slots=True)
class InputView:
    """One input of a join as it stands."""

    name: str
    stream: str
    """The stream or table it is of."""
    window: str
    """Its window in words, such as ``RANGE 10 SECONDS``; of a table ``static`` or ``refreshed``."""
    n_arrived: int
    """Rows that arrived, whether they can join or not."""
    n_joined: int
    """Of those, rows that met the windows of the others."""
    n_late: int
    """Rows that came too late; they are kept apart."""
    n_untimed: int
    """Rows without an event time, which are in no stream."""
    latest: int | None
    """The latest event time so far (µs since 1970); None if there was none, or it is a table."""
    n_kept: int
    """Rows that its window holds, a few more that will go with a later run included."""
    n_bytes: int
    """Size of their files."""
    n_runs: int
    """Files that they are in (runs)."""
    awaited_from: int | None = None
    """Rows of the stream from this instant on are still awaited, earlier ones are late (µs since
    1970): the latest event time without the lateness that is allowed. None if it has none."""
    n_waiting: int = 0
    """Rows that are kept back until no earlier one can come, a few that are due included."""
    n_cold: int = 0
    """Rows in its cold tier, beside those that it holds."""
    cold_bytes: int = 0
    """Size of their files."""
    dropped_bytes: int = 0
    """Size of what is known of rows that were dropped."""

    @property
    def is_table(self) -> bool:
        """Whether it is a table, whose rows do not arrive."""
        return self.window in (STATIC, REFRESHED)


@dataclass(frozen=True, slots=True)
class ProbeView:
    """The rows of one pipeline at one window."""

    other: str
    """The input whose window it is."""
    n_in: int
    """Rows, or combinations of rows, that were looked up."""
    n_out: int
    """Combinations that were found."""
    ns: int
    """Time that it took (ns)."""
    drop_frac: float
    """Share of the sampled rows of the pipeline that find no partner there ([0, 1]; nan: none was
    sampled)."""


@dataclass(frozen=True, slots=True)
class CacheView:
    """A cache of joined rows that is in use."""

    pipeline: str
    """The input whose rows it is asked by."""
    windows: tuple[str, ...]
    """The inputs whose joined rows it keeps."""
    n_probes: int
    """Keys that it was asked for."""
    n_hits: int
    """Of those, the ones that it had."""
    benefit_ns: float
    """Time that it saves per batch by the newest estimate (ns)."""
    cost_ns: float
    """Time that keeping it true costs per batch (ns)."""
    n_bytes: int
    """Size of its rows."""
    partners: tuple[str, ...] = ()
    """The inputs without a row of which a joined row may be missing."""


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The probes of one input: its new rows are looked up in the windows of the others."""

    name: str
    """The input."""
    probes: tuple[ProbeView, ...]
    """In the order in force."""
    written: tuple[str, ...]
    """The order as written."""
    classes: tuple[ClassView, ...] = ()
    """The orders of classes of its rows, where they differ."""
    query: str = ""
    """Whose pipeline it is, where several queries share the join."""

    @property
    def component(self) -> str:
        """The name of its choice."""
        return pipeline_of(self.name, self.query)


@dataclass(frozen=True, slots=True)
class MemberView:
    """One of several queries that share the windows of a join."""

    name: str
    windows: tuple[tuple[str, str], ...]
    """Its own windows in words, by input; those of streams."""
    wheres: tuple[tuple[str, str], ...]
    """The condition on the rows that it needs, by input, where others need other rows."""
    n_results: int
    """Combinations that were found for it."""
    ns: int
    """Time that its pipelines took (ns)."""
    pipelines: tuple[PipelineView, ...]
    is_here: bool = True
    """Whether it runs; one that has left keeps the windows as they are."""


@dataclass(frozen=True, slots=True)
class JoinView:
    """A windowed join as it stands."""

    name: str
    emits: str
    """``istream``, ``dstream`` or ``rstream``."""
    inputs: tuple[InputView, ...]
    pipelines: tuple[PipelineView, ...]
    caches: tuple[CacheView, ...]
    keys: tuple[str, ...]
    """Each key class in words, such as ``s.k = t.k``."""
    grid: tuple[int, ...]
    """In how many parts each key class is cut."""
    fullest: float
    """New rows of the fullest bucket, with copies, over the mean (nan: no row was joined)."""
    n_results: int
    """Combinations that were found, and rows that were decided, before conditions that are no
    equalities."""
    is_adaptive: bool
    notes: tuple[str, ...] = ()
    """Other things worth knowing."""
    kind: str = "inner"
    """``inner``, ``left``, ``semi`` or ``anti``."""
    learned: Mapping[str, LearnedLateness] = field(default_factory=dict)
    """The streams whose lateness is learned, and what is known of it."""
    tiers: tuple[TierView, ...] = ()
    """The windows that may have a cold tier."""
    done: Mapping[tuple[str, str], DoneRows] = field(default_factory=dict)
    """The rows that may leave once they are done, by rule and input."""
    discards: Mapping[str, InputDiscards] = field(default_factory=dict)
    """The inputs of which rows may be dropped, and what that cost."""
    clusters: tuple[ClusterView, ...] = ()
    """How long after its first row a key still comes, by stream and key class."""
    drops: tuple[DropView, ...] = ()
    """The streams of whose rows tables may drop some before the shuffle."""
    declared: tuple[str, ...] = ()
    """The declared keys that are checked, such as ``id of s``."""
    splits: tuple[str, ...] = ()
    """Of each key that is cut by event time, too, in how many parts the inputs are, in words."""
    way: str = BUCKETS
    """Where rows meet, one of ``plan.WAYS``."""
    members: tuple[MemberView, ...] = ()
    """The queries that share it, if several do."""


@dataclass(frozen=True, slots=True)
class JoinRecord:
    """A join in one micro-batch."""

    component = "join"
    plan = None

    inputs: tuple[str, ...]
    n_kept: tuple[int, ...]
    """Rows that the window of each input holds after the batch."""
    n_bytes: tuple[int, ...]
    """Size of their files."""
    n_late: int
    """Rows of the batch that came too late."""
    n_results: int
    """Combinations that the batch found, and rows that it decided, before conditions that are no
    equalities."""
    n_filtered: int = 0
    """Rows of the batch that were dropped before the shuffle, as a table has no key for them."""
    n_waiting: int = 0
    """Rows that are kept back after the batch until event time has passed them."""
    n_cold: int = 0
    """Rows in the cold tiers of all windows after the batch, beside those that these hold."""
    cold_bytes: int = 0
    """Size of their files."""
    cold_rows: tuple[int, ...] = ()
    """Rows in the cold tier of each input."""
    within_us: tuple[int | None, ...] = ()
    """The time that holds nearly all pairs with a row of each input (µs); None if none is known."""
    closes_us: tuple[int | None, ...] = ()
    """The time within which nearly all rows of a key of each input come, from the first one on, of
    the key class of which it is the least (µs); None if none is known."""
    n_found_cold: int = 0
    """Pairs that were found in cold tiers so far."""
    n_dropped: int = 0
    """Rows of windows that the batch dropped."""
    n_missing_at_most: int = 0
    """No more results are missing of the batch for want of rows that were dropped."""
    n_missing_about: float = 0.0
    """About so many are."""
    dropped_bytes: int = 0
    """Size of what is known after the batch of rows that were dropped."""
    reached: tuple[int | None, int | None] = (None, None)
    """How far event time is after the batch (µs); see ``EventTime.reached``."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return its counts, and what its windows hold."""
        sums: dict[str, float] = {
            "n_rows": n_rows,
            "n_late": self.n_late,
            "n_results": self.n_results,
        }
        if self.n_dropped or self.n_missing_at_most:
            sums |= {"n_dropped": self.n_dropped, "n_missing_at_most": self.n_missing_at_most}
            sums["n_missing_about"] = self.n_missing_about
        held: dict[str, float] = {"n_kept": sum(self.n_kept), "n_bytes": sum(self.n_bytes)}
        held |= {"n_waiting": self.n_waiting}
        windows: dict[str, dict[str, float]] = {
            name: {"n_kept": n_kept, "n_bytes": n_bytes}
            for name, n_kept, n_bytes in zip(self.inputs, self.n_kept, self.n_bytes, strict=True)
        }
        for name, n_cold in zip(self.inputs, self.cold_rows, strict=False):
            windows[name]["n_cold"] = n_cold
        return Numbers(sums, held | event_time_levels(self.reached), windows)

    def with_earlier(self, earlier: JoinRecord, share: float) -> JoinRecord:  # noqa: ARG002
        """Return one record for several batches: counts add up, windows are as after the last."""
        summed = (
            "n_late",
            "n_results",
            "n_dropped",
            "n_filtered",
            "n_missing_at_most",
            "n_missing_about",
        )
        sums = {name: getattr(self, name) + getattr(earlier, name) for name in summed}
        return replace(self, **sums)
