"""Operator of a conjunction: its parts and what they learned."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from eddyline.filters.loop import BlockView, FilterLoop, FilterView, check_options
from eddyline.lane.results import Kept
from eddyline.lane.scan import is_plain
from eddyline.options import FilterOptions
from eddyline.ordering import policy as find_policy
from eddyline.query.predicates import named
from eddyline.report import filters as words
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.filters.binding import bind_to, is_narrow
from eddyline.spark.filters.guard import EVERY_ROW, MAX_CONJUNCTS
from eddyline.spark.filters.native_block import NativeBlock
from eddyline.spark.filters.parts import ArrowPart, LastPart, Laying, NativePart, PinnedPart
from eddyline.spark.lane import Lane, Refused, guarded
from eddyline.spark.operator import PREFIX, Laid, Operator
from eddyline.spark.projection import computed_values
from eddyline.spark.session import is_ansi
from eddyline.spark.task_results import ArrowStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.filters.binding import BoundConjunction, Segment
    from eddyline.query.steps import FilterStep
    from eddyline.report.sections import Section
    from eddyline.routing.table import Attribute
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.records import History, OrderRecord
    from eddyline.spark.filters.guard import Guard
    from eddyline.spark.lane import PlainScan
    from eddyline.spark.operator import Batch, Observed, Site

LearningPart = NativePart | ArrowPart
FilterPart = LearningPart | PinnedPart | LastPart

LONG = (
    f"more than {MAX_CONJUNCTS} native predicates stay in their written order: to profile them, "
    f"Spark would compile each one again"
)

READ_SAMPLE_ROWS = 2_000
"""Rows of a batch input that are read before the job, to order native predicates by."""

SAMPLE_TIME_FRAC = 0.01
"""Most time that reading samples may take, as a share of the time between two of them."""


class FilterOperator(Operator):
    """A conjunction over one input, and what has been learned of it.

    ``query``, the name of the conjunction or query, is part of the seed of every sample, and
    ``relation``, the input where a query has several, of the names of components. At most
    ``max_handed_over`` attributes are handed over to workers, unless the user named them.
    """

    takes = FilterOptions

    def __init__(
        self,
        bound: BoundConjunction,
        options: FilterOptions,
        query: str,
        *,
        relation: str = "",
        guard: Guard = EVERY_ROW,
        max_handed_over: int = 8,
    ) -> None:
        self.bound = bound
        self.options = options = options.resolved()
        self.query = query
        self.name = f"filter {relation}" if relation else "filter"
        self.guard = guard
        self.notes: dict[str, str] = {}
        self._results: tuple[DataFrame, bool] | None = None
        """A DataFrame with the columns of its rows, where these are results, for analysis only, and
        whether ANSI mode is on."""
        self._of = f" of {relation}" if relation else ""
        self._max_handed_over = max_handed_over
        self._run_id = uuid.uuid4().hex
        self.parts: tuple[FilterPart, ...] = (
            *(
                part
                for number, segment in enumerate(bound.segments)
                for part in self._parts(segment, number)
            ),
            LastPart(bound.checks, guard),
        )
        self._entries: list[JournalEntry] = []
        self._lock = threading.RLock()
        """Reports of plain streaming queries arrive on Spark's listener thread."""
        self._sampled_at = -float("inf")
        self._sample_cost_s = 0.0
        component = f"lane{self._of}"
        self.lane = Lane(self, component, options.lane, is_adaptive=options.adaptive)

    @property
    def may_read_files(self) -> bool:
        """Whether its tasks are to read the files of the next batch, if there are files."""
        return self.lane.may_read

    @classmethod
    def from_step(cls, step: FilterStep, site: Site) -> Self:
        """Return the operator of a step."""
        options, _ = FilterOptions.taken(site.options)
        check_options(options)
        relation = "" if site.is_source else step.input
        bound = bind_to(site.df, named(step.predicates), options)
        operator = cls(bound, options, site.query, relation=relation)
        operator.predicates = step.predicates
        if not site.is_source:
            operator.follow_results(site.df)
        if site.is_source and site.is_alone and site.df.isStreaming:
            operator.lane.follow(site.df, asks_files=site.asks_files)
        return operator

    @property
    def adjustable(self) -> tuple[str, ...]:  # type: ignore[override]
        """The limits of profiling, and the threshold of a policy that takes another one."""
        limits = ("sample_prob", "max_overhead")
        loops = (part.loop for part in self.parts if isinstance(part, NativePart | ArrowPart))
        options = (getattr(loop.policy, "options", None) for loop in loops)
        return (*limits, "hysteresis") if any(hasattr(o, "hysteresis") for o in options) else limits

    @property
    def _policy(self) -> Any:
        return find_policy(self.options.policy)

    def option(self, name: str) -> Any:
        """Return the value of an option that is adjustable, or of its policy."""
        return getattr(self.options if hasattr(self.options, name) else self._policy, name)

    def with_options(self, values: Mapping[str, Any]) -> FilterOptions:
        """Return options of which some, or some of their policy, have other values."""
        of_options = {name: value for name, value in values.items() if hasattr(self.options, name)}
        of_policy = {name: value for name, value in values.items() if name not in of_options}
        if of_policy:
            of_options["policy"] = replace(self._policy, **of_policy)
        changed: FilterOptions = replace(self.options, **of_options)
        return changed

    def adjust(self, options: FilterOptions) -> None:
        """Go on with other options; its blocks learn by them from the next batch on."""
        super().adjust(options)
        for part in self.parts:
            if isinstance(part, NativePart | ArrowPart):
                part.loop.adjust(options)

    def _parts(self, segment: Segment, number: int) -> Iterator[FilterPart]:
        suffix = f"#{number + 1}" if number else ""
        if segment.native:
            block = NativeBlock(
                tuple(predicate.name for predicate in segment.native),
                tuple(predicate.safe_text for predicate in segment.native),
                f"{PREFIX}_{number}",
                self.bound.attributes,
                self.guard,
            )
            loop = FilterLoop(
                f"native{suffix}{self._of}",
                block.filter_ids,
                self.options,
                attributes=block.attributes,
                reads=tuple(predicate.columns for predicate in segment.native),
                in_workers=False,
                meets_all=number == 0 and not self._of and self.guard is EVERY_ROW,
                thinks_freely=True,
            )
            if block.is_long:
                self.notes[loop.component] = LONG
            yield NativePart(block, loop, self.query)
        if segment.functions:
            loop = FilterLoop(
                f"arrow{suffix}{self._of}",
                tuple(predicate.name for predicate in segment.functions),
                self.options,
                attributes=self._useful(segment.columns),
                reads=segment.columns,
                thinks_freely=True,
            )
            yield ArrowPart(
                segment.functions,
                segment.columns,
                loop,
                f"{PREFIX}_{number}_arrow",
                self.query,
                self._run_id,
                carries_errors=bool(self.bound.checks) or len(self.bound.segments) > 1,
                guard=self.guard,
            )
        if segment.barrier is not None:
            column = f"{PREFIX}_{number}_pinned"
            yield PinnedPart(segment.barrier, column, self.options, self.query, self.guard)

    def _useful(self, columns: tuple[frozenset[str], ...]) -> tuple[Attribute, ...]:
        """Return the attributes that do not decide every filter, as far as they go."""
        is_named = self.options.route_by is not None
        useful = [
            attribute
            for attribute in self.bound.attributes
            if is_named or not all(map(attribute.decides, columns))
        ]
        return tuple(useful[: None if is_named else self._max_handed_over])

    @property
    def learning(self) -> dict[str, LearningPart]:
        """The parts whose order is learned, by component."""
        parts = (part for part in self.parts if isinstance(part, LearningPart))
        return {part.loop.component: part for part in parts}

    # -- a batch ------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether it has no predicate, as that of a query without WHERE."""
        return len(self.parts) == 1 and not self.bound.checks

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Look at a micro-batch before it runs: for an order of native filters, for names."""
        df = self.guard.only(df)
        if batch.is_first:
            self.read_sample(df)
        self.label_texts(df)

    def lay(
        self,
        df: DataFrame,
        batch: Batch,
        *,
        observation: Callable[[str], Any] = lambda _component: Observation(),
    ) -> Laid:
        """Lay the conjunction over a DataFrame, with the orders in force; see ``Laying``."""
        is_one_job = len(self.parts) == 2 and not self.bound.checks
        laid_batch = replace(batch, takes_tasks=batch.takes_tasks and is_one_job)
        with self._lock:
            laying = Laying(df, laid_batch, observation)
            laying.files = files = self.lane.files(df, batch)
            for part in self.parts:
                part.lay(laying)
        is_guarded = files is not None and batch.id < 0
        kept = guarded(df, laying.df) if is_guarded else laying.df
        return Laid(kept, tuple(laying.pending), tasks=laying.tasks)

    def follow_results(self, df: DataFrame) -> None:
        """Take note that its rows are results, with the columns of a DataFrame."""
        self._results = df, is_ansi(df.sparkSession)

    @cached_property
    def arrow_step(self) -> ArrowStep | None:
        """How results of a join are kept, where Arrow has the answer of each predicate."""
        segment, *others = self.bound.segments
        is_sql = not (segment.functions or segment.barrier or self.bound.checks or others)
        if self._results is None or not is_sql or not segment.native or self.guard.marks:
            return None
        (rows, ansi), kept = self._results, []
        for predicate in segment.native:
            text = predicate.safe_text
            if self.guard.rows:
                text = f"NOT ({self.guard.rows}) OR ({text}\n)"
            condition = computed_values(text, rows.schema, BooleanType(), ansi=ansi)
            if condition is None:
                return None
            kept.append(condition)
        return ArrowStep(rows, Kept(tuple(kept)))

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in outcome codes and the reports of tasks."""
        by_part: dict[str, list[Observed]] = {}
        for observation in observed:
            by_part.setdefault(observation.name, []).append(observation)
        with self._lock:
            parts = self.learning
            if batch.id >= 0:
                for part in parts.values():
                    if isinstance(part, NativePart):
                        part.passed(batch.n_rows)
            entries = [
                entry
                for name, observations in by_part.items()
                for entry in parts[name].learn(observations, batch)
            ]
            return entries + self.lane.learn(observed, batch)

    @property
    def passes_all(self) -> bool:  # type: ignore[override]
        """Whether it has no predicate."""
        return self.is_plain

    # -- the lane -------------------------------------------------------------------------------

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        if not isinstance(self.parts[0], ArrowPart):
            raise Refused("SQL goes first, so its first predicates are no Python functions")
        if self.guard.condition:
            raise Refused("its rows are not those of one input alone")

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if predicates, or classes of rows, need more than columns of a scan."""
        part = self.parts[0]
        assert isinstance(part, ArrowPart)
        kinds = {column.name: column.type_text for column in scan.columns}
        for text in part.handed:
            if text not in kinds:
                raise Refused(f"a predicate reads {text!r}, which is no column of that very name")
        routes = part.loop.routes
        for attribute in routes.attributes if routes is not None else ():
            if not is_plain(attribute, kinds.get(attribute.name, "")):
                raise Refused(f"classes of rows are told apart by {attribute.name!r}")

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions that samples led to."""
        with self._lock:
            taken, self._entries = self._entries, []
        return taken

    # -- the one chance of a batch job ----------------------------------------------------------

    def read_sample(self, df: DataFrame) -> None:
        """Order the native parts by a bounded sample of a batch input, if that is cheap."""
        parts = [
            part
            for part in self.learning.values()
            if isinstance(part, NativePart) and part.loop.is_adaptive and not part.block.is_long
        ]
        if not parts or not self._wants_sample():
            return
        if not is_narrow(df):
            self.notes["sample"] = (
                "no sample was read before the job: it would run a shuffle or a join of the input "
                "a second time, or be seen by an observation of it; native predicates start as "
                "written"
            )
            return
        started = time.monotonic()
        for part in parts:
            self._read_sample(df, part)
        self._sampled_at = time.monotonic()
        self._sample_cost_s = self._sampled_at - started

    def _wants_sample(self) -> bool:
        if not (self.options.read_sample and self.options.adaptive):
            return False
        since = time.monotonic() - self._sampled_at
        return since * SAMPLE_TIME_FRAC >= self._sample_cost_s

    def _read_sample(self, df: DataFrame, part: NativePart) -> None:
        loop = part.loop
        code = part.block.timed_code("monotonically_increasing_id()")
        column = f"{PREFIX}_code"  # a column of the user's may be called code
        observed = part.block.observed(column, is_learning=loop.is_learning_routes)
        try:
            coded = df.withColumn(column, F.expr(code)).select(F.expr(observed).alias("seen"))
            # Of a limit that comes last, Spark runs as few tasks as have the rows.
            rows = [row["seen"] for row in coded.limit(READ_SAMPLE_ROWS).collect()]
        except Exception as error:  # noqa: BLE001 - a sample is a chance, never a reason to fail
            self.notes["sample"] = f"no sample could be read before the job: {error}"[:300]
            return
        fresh = part.block.parse(rows, prob=1.0)
        with self._lock:
            before = loop.order
            self._entries += loop.step(fresh, -1)
            if not rows:
                return
            self.notes["sample"] = (
                f"native predicates were ordered by a sample of {len(rows)} rows read before the "
                f"job (read_sample=False switches it off)"
            )
            if loop.order == before:
                evidence = {"n_rows": len(rows), "profile_tuples": fresh.n_tuples}
                names = loop.names(before)
                entry = JournalEntry(-1, loop.component, "sample", names, names, evidence)
                self._entries.append(entry)

    def label_texts(self, df: DataFrame) -> None:
        """Find out, for people, which texts stand behind the hashes that tell classes apart."""
        lacking = [
            (routes, routes.unlabelled)
            for routes in (part.loop.routes for part in self.learning.values())
            if routes is not None and routes.unlabelled is not None
        ]
        may_read = self.options.read_sample and not df.isStreaming
        if not lacking or not may_read or not is_narrow(df):
            return
        for routes, attribute in lacking:
            pairs = df.selectExpr(f"{attribute.sql} AS hash", f"{attribute.text_sql} AS label")
            try:
                rows = pairs.limit(READ_SAMPLE_ROWS).collect()
            except Exception as error:  # noqa: BLE001 - a name is a help, no reason to fail
                self.notes["labels"] = f"texts of {attribute.name!r} could not be read: {error}"[
                    :300
                ]
                rows = []
            hashed = [row for row in rows if row["hash"] is not None]
            routes.labels[attribute.name] = {row["hash"]: repr(row["label"]) for row in hashed}

    # -- what people see ------------------------------------------------------------------------

    def facts(self) -> FilterView:
        """Return the conjunction as it stands."""
        with self._lock:
            blocks = tuple(map(self._block_view, self.learning.values()))
        has_python = any(isinstance(part, ArrowPart) for part in self.parts)
        lane = (self.lane.note,) if has_python and self.lane.note else ()
        if by := self._evaluated_by:
            lane = (f"lane: the filters run where files are read for the {by}",)
        notes = (*self.notes.values(), *lane)
        return FilterView(self.query, blocks, self.bound.pinned, notes)

    def _block_view(self, part: LearningPart) -> BlockView:
        loop = part.loop
        return BlockView(
            component=loop.component,
            written=tuple(range(len(loop.order))),
            order=loop.order,
            profile=loop.window.profile(),
            texts=part.texts,
            is_adaptive=loop.is_adaptive and not loop.is_held,
            note=self._note(loop.component),
            totals=loop.totals,
            routes=() if loop.routes is None else loop.routes.views(),
            routed_by=() if loop.table is None else (loop.table.attribute,),
            route_note="" if loop.routes is None else loop.routes.note,
        )

    @property
    def _evaluated_by(self) -> str:
        """The operator that evaluates the filters in the batch that is laid; "" if none does."""
        by = self.covered_by
        return by.name if by is not None and by.is_covering else ""

    def _note(self, component: str) -> str:
        if by := self._evaluated_by:
            return f"this order is not used while the filters run where files are read for the {by}"
        if not self.options.adaptive:
            return "adaptation is switched off: the order stands as written"
        return self.notes.get(component, "")

    def records(self) -> tuple[OrderRecord, ...]:
        """Return the state of each part whose order is learned after a batch."""
        return tuple(part.loop.record() for part in self.learning.values())

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The order of each part that has several predicates."""
        parts = (part for part in self.learning.values() if len(part.loop.filter_ids) > 1)
        return (*(part.loop for part in parts), *self.lane.choices)

    @property
    def saves(self) -> tuple[Choice, ...]:
        """The same with the profiles of parts that have one predicate."""
        return (*(part.loop for part in self.learning.values()), *self.lane.choices)

    def describe(self, history: History) -> list[Section]:
        """Return for people what the orders are, why, and what they did."""
        return words.sections(self.facts(), history)
