"""Inputs of a join on Spark: arrivals, event time and filters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.constraints.bounds import changes
from eddyline.data.learned import restored
from eddyline.errors import StateError
from eddyline.joins.plan import BUCKETS
from eddyline.joins.view import InputsPart
from eddyline.spark.event_time import Asked, counted, disorders, warned_of_late
from eddyline.spark.filters.guard import Guard
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.joins.layout import INPUT, PASSES, START
from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.run.observations import PendingMetrics
from eddyline.state.late_rows import late_delays
from eddyline.state.manifest import StatePart
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.constraints.bounds import Disorder, LatenessRule
    from eddyline.joins.plan import BucketReport
    from eddyline.options import FilterOptions
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.joins.source import InputPredicates, Source
    from eddyline.spark.operator import Batch, Observed
    from eddyline.state.manifest import StatePlace


class ArrivalCounts(msgspec.Struct, forbid_unknown_fields=True):
    """Rows that arrived of one input."""

    n_arrived: int = 0
    n_untimed: int = 0
    """Those of them without an event time."""


@dataclass(frozen=True, slots=True)
class BatchMode:
    """Mode of one batch of a join, fixed before the batch is read."""

    strategy: str = BUCKETS
    """Where rows meet, one of ``plan.WAYS``."""
    looks_ahead: bool = False
    """Whether the rows of the streams are counted before the job; else the job observes them."""
    has_tables: bool = False
    """Whether the state before the batch has all static tables; else they come with the rows."""
    tables: BucketReport | None = None
    """The work of keeping the tables, if that was done for this batch, and without its rows."""


class JoinInputs(Operator):
    """Counts what arrives, keeps the latest event time of each stream, and adds the tables.

    Args:
        source: the inputs.
        lateness: the inputs that are streams, and by how much their rows may be late.
        mode_of: returns the mode of a batch; takes the mode of one whose rows meet in buckets.
        counts_keyed: whether the job observes, too, how early rows are and how many have their
            keys.
    """

    name = "inputs"
    offset = 0
    """See ``operator.Clock``."""

    def __init__(
        self,
        source: Source,
        lateness: LatenessRule,
        mode_of: Callable[[Batch, BatchMode], BatchMode],
        *,
        counts_keyed: bool = False,
    ) -> None:
        self.source = source
        self._mode_of, self._counts_keyed = mode_of, counts_keyed
        self.mode = BatchMode()
        """The mode of the newest batch."""
        self.lateness = lateness
        self.learned = lateness.known({})
        """What is known of streams whose lateness is learned."""
        self.streams = lateness.streams(self.learned, {})
        """The lateness that is in force."""
        self.timed = tuple(lateness.given)
        self.before, self.after = ALWAYS, ALWAYS
        """The instants before which all results have come (µs); see ``operator.Clock``."""
        self.is_idle = False  # tables may have rows where no stream has any
        self.has_late = False  # of its results, which are those that others ask for
        self._is_asked = False
        self.latest: dict[str, int] = {}
        self.counts = {layout.name: ArrivalCounts() for layout in source.layouts}
        self._n_late: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._is_empty = True
        self._seen: dict[str, Disorder] = {}
        self._changed: list[JournalEntry] = []
        self._rows: DataFrame | None = None
        self.arrived: DataFrame | None = None
        """The rows of the newest batch, as they came."""
        self.earliest: dict[str, int] = {}
        """The least event time of each stream in the newest batch (µs), once it is closed."""
        self._n_keyed: dict[int, int] = {}
        self._looked: dict[str, int] = {}
        """Counts of the rows of the batch where it was looked at, as they are observed else."""
        self.ready_counts: Sequence[Any] | None = None
        if source.trunk is not None and source.streams is not None:
            source.trunk.looking[0] = self

    def attach(self, place: StatePlace) -> None:
        """Do nothing: inputs keep no files."""

    def open(
        self,
        part: StatePart | None,
        again: StatePart | None,  # noqa: ARG002 - of the protocol
        batch: Batch,  # noqa: ARG002
    ) -> None:
        """Start from the event times after the batch before."""
        saved = InputsPart({}) if part is None else part.read(InputsPart)
        self.latest, self.learned = saved.latest, self.lateness.known(saved.learned)
        # Kept, as a lateness that is less now would skip what no batch has answered.
        passed = saved.passed or self.lateness.streams(self.learned, {}).lows(saved.latest)
        self.streams = self.lateness.streams(self.learned, passed)
        self.before = self.after = self.streams.until({})
        self._is_empty = part is None

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Keep the rows for who looks at some of them before the job; look at their times."""
        self._rows, self._seen, self.arrived = self.source.of_streams(df), {}, df
        counts, self.ready_counts = self.ready_counts, None
        is_in_files = False
        if counts is None:
            counts = self.asks.of_files(batch.files, self.source.in_files)
            is_in_files = counts is not None
        has_tables = not self._is_empty or self.source.tables is None
        in_buckets = BatchMode(looks_ahead=is_in_files, has_tables=has_tables)
        self.mode = self._mode_of(batch, in_buckets)
        if self.looks or self.mode.looks_ahead:
            if counts is None and self._rows is not None:
                counts = counted(self._rows, self.asks)
            self._looked = _as_observed(counts or ())
            seen = disorders(counts or ())
            for number, disorder in seen.items():
                if (name := self.source.layouts[number].name) in self.timed:
                    self._seen[name] = disorder
            learned = self.lateness.after(self.learned, self._seen, self.latest)
            self.streams = self.lateness.streams(learned, self.streams.passed)
            latest = dict(self.latest)
            for name, disorder in self._seen.items():
                latest[name] = max(latest.get(name, disorder.latest), disorder.latest)
            for made_input in self.source.made_inputs:
                name = self.source.layouts[made_input.number].name
                latest[name] = max(latest.get(name, ALWAYS), made_input.clock.after)
            self.after = self.streams.until(latest)

    @property
    def looks(self) -> bool:
        """Whether the inputs read event times before the job of a batch; see ``Looking``."""
        return self._is_asked or bool(self.lateness.shares)

    @property
    def asks(self) -> Asked:
        """Questions about rows; see ``Looking``."""
        names, before = [layout.name for layout in self.source.layouts], None
        if self.lateness.shares:
            latest = [self.latest.get(name, ALWAYS) for name in names]
            before = (
                latest,
                [self.streams.low(n, {}) if n in self.timed else ALWAYS for n in names],
            )
        return Asked(*self._asked_columns, len(names), before)

    @cached_property
    def _asked_columns(self) -> tuple[Column, Column]:
        """The event time of a row and its input, made once: each takes calls of the JVM."""
        return F.col(START), F.col(INPUT)

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:  # noqa: ARG002
        """Take note that an operator asks for event time; see ``operator.Clock``.

        A result comes to be with its latest row. None comes later than when all streams are past
        its instant.
        """
        self._is_asked = True

    def rows(self) -> DataFrame | None:
        """Return the rows of the newest batch, without any observation of them."""
        if self._rows is None:
            return None
        return self.source.timed(self._rows, is_first=not self.mode.has_tables)

    def has(self, number: int) -> bool:
        """Return whether the newest batch may have rows of an input."""
        name = self.source.layouts[number].name
        is_static = name not in self.timed and name not in self.source.refreshed
        return name in self.timed or (is_static and not self.mode.has_tables)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Count the rows of a batch. The first batch also brings the rows of tables."""
        df, is_first = self.source.joined(df), not self.mode.has_tables
        if self.mode.looks_ahead:
            return Laid(self.source.timed(df, is_first=is_first))
        seen = Observation()
        laid = self.source.timed(df.observe(seen, *self._counted), is_first=is_first)
        return Laid(laid, (Pending("arrived", PendingMetrics(seen)),))

    def once(self, df: DataFrame) -> DataFrame:
        """Return all rows of batch DataFrames and of the tables."""
        self.before, self.after = ALWAYS, FOREVER
        return self.source.timed(self.source.joined(df), is_first=True)

    @cached_property
    def _counted(self) -> list[Column]:
        """The counts of the rows of a batch before any is dropped."""
        columns = []
        # Those of tables come behind.
        layouts = [layout for layout in self.source.layouts if layout.name in self.timed]
        for layout in layouts:
            is_mine = tells = F.col(INPUT) == layout.number
            if len(layouts) == 1 and not self.streams.told:
                is_mine = tells = F.lit(True)
            if layout.name in self.streams.told:
                tells, is_mine = (
                    is_mine & F.col(PASSES).isNull(),
                    is_mine & F.col(PASSES).isNotNull(),
                )
            columns += [
                F.max(F.when(tells, F.col(START))).alias(f"latest{layout.number}"),
                F.count(F.when(is_mine, F.col(START))).alias(f"timed{layout.number}"),
                F.count(F.when(is_mine, 1)).alias(f"all{layout.number}"),
            ]
            if self._counts_keyed:
                is_keyed = is_mine & F.col(PASSES)
                columns += [
                    F.min(F.when(is_mine, F.col(START))).alias(f"earliest{layout.number}"),
                    F.count(F.when(is_keyed, F.col(START))).alias(f"keyed{layout.number}"),
                ]
        return columns

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether the arrivals were counted."""
        return self.mode.looks_ahead or bool(observed)

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:
        """Return the event times after the batch."""
        metrics, before = self._metrics(observed), dict(self.latest)
        self.earliest, self._n_keyed = {}, {}
        for layout in self.source.layouts:
            self._n_keyed[layout.number] = int(metrics.get(f"keyed{layout.number}") or 0)
            if (first := metrics.get(f"earliest{layout.number}")) is not None:
                self.earliest[layout.name] = int(first)
            newest = metrics.get(f"latest{layout.number}")
            if newest is not None and layout.name in self.timed:
                self.latest[layout.name] = max(self.latest.get(layout.name, newest), int(newest))
        learned = self.lateness.after(self.learned, self._seen, before)
        self._changed = changes("join", "lateness", self.learned, learned, batch.id)
        self.learned = learned
        passed = self.streams.lows(self.latest)
        return StatePart.from_content(InputsPart(self.latest, learned, passed), ())

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Count what arrived."""
        metrics = self._metrics(observed)
        for layout in self.source.layouts:
            counts = self.counts[layout.name]
            n_all, n_timed = (
                int(metrics.get(f"{kind}{layout.number}") or 0) for kind in ("all", "timed")
            )
            counts.n_arrived += n_all
            counts.n_untimed += n_all - n_timed
        return self._changed

    def n_keyed(self, name: str) -> int:
        """Return the rows of a stream without steps in the batch that have a time and all keys."""
        return self._n_keyed.get(self.source.layout(name).number, 0)

    def _metrics(self, observed: Sequence[Observed]) -> Mapping[str, Any]:
        """Return the counts of the rows of the batch; none if nothing is known of them."""
        if self.mode.looks_ahead:
            return self._looked
        return observed[0].metrics if observed else {}

    def count_late(self, n_late: Mapping[str, int], place: StatePlace, batch_id: int) -> None:
        """Add the late rows of a batch, by input; warn once of an input with many late rows."""
        self._n_late.update(n_late)
        for name in n_late.keys() - self._warned:
            n_rows, share = self.counts[name].n_arrived, self.lateness.shares.get(name)
            delays = partial(late_delays, place, name, batch_id)
            allowed = self.streams.lateness.get(name, 0)
            if warned_of_late(
                name, self._n_late[name], n_rows, "not joined", share, delays, allowed
            ):
                self._warned.add(name)

    def snapshot(self) -> Any:
        """Return the counts."""
        return self.counts

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged, or of other inputs.
        """
        counts = restored(state, dict[str, ArrivalCounts], "the inputs of a join")
        if missing := self.counts.keys() - counts.keys():
            msg = f"the learned state of a join lacks its inputs {sorted(missing)}"
            raise StateError(msg)
        self.counts = {name: counts[name] for name in self.counts}


def _as_observed(rows: Sequence[Any]) -> dict[str, int]:
    """Return what ``counted`` returned as what is observed of the same rows."""
    observed: dict[str, int] = {}
    for row in rows:
        number, instants = row["number"], (row["earliest"], row["latest"])
        for kind, n in (("all", row["n_rows"]), ("timed", row["n_timed"])):
            observed[f"{kind}{number}"] = observed.get(f"{kind}{number}", 0) + n
        for kind, pick, instant in zip(("earliest", "latest"), (min, max), instants, strict=True):
            if instant is not None:
                observed[f"{kind}{number}"] = pick(
                    observed.get(f"{kind}{number}", instant), instant
                )
    return observed


class InputFilter(FilterOperator):
    """The predicates of one input of a join."""

    def __init__(
        self,
        step: InputPredicates,
        options: FilterOptions,
        query: str,
        arrivals: JoinInputs,
    ) -> None:
        self.step = step
        self._arrivals = arrivals
        guard = Guard(f"{INPUT} = {step.own_columns.number}", step.marks, step.dropped)
        super().__init__(step.bound, options, query, relation=step.relation, guard=guard)

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Look at a micro-batch before it runs; see ``FilterOperator.prepare``."""
        if not self._arrivals.has(self.step.own_columns.number):
            return
        rows = self._arrivals.rows() if self.step.is_first else None
        super().prepare(self.step.own_columns.named(df if rows is None else rows), batch)

    def lay(
        self,
        df: DataFrame,
        batch: Batch,
        *,
        observation: Callable[[str], Any] = lambda _component: Observation(),
    ) -> Laid:
        """Lay the predicates over the rows of the input; see ``FilterOperator.lay``."""
        if not self._arrivals.has(self.step.own_columns.number):
            return Laid(df)
        laid = super().lay(self.step.own_columns.named(df), batch, observation=observation)
        return Laid(self.step.own_columns.unnamed(laid.df), laid.pending)
