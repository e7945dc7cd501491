"""Spark half of every operator.

It extends a DataFrame, and learns from the job. The life of a batch is the same for all:
``prepare``, ``lay``, the job runs, ``close`` (what is durable, committed once for all operators of
the query), ``learn``. Learning runs no job and commits nothing. ``spark.operators`` lists the
operators by their steps.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eddyline.errors import StateError
from eddyline.runtime.journal import newest_attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from eddyline.query.predicates import Predicate
    from eddyline.query.result_times import ResultTimes
    from eddyline.query.steps import Step
    from eddyline.report.sections import Section
    from eddyline.runtime.by_hand import ChangeableRules
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry, TaskReport
    from eddyline.runtime.records import History, Record
    from eddyline.spark.prepared import Counted
    from eddyline.spark.relation import Relation
    from eddyline.spark.stream_files import BatchFiles
    from eddyline.spark.task_results import ArrowStep, TaskResults
    from eddyline.state.manifest import StatePart, StatePlace

PREFIX = "__eddyline"
"""Start of the names of temporary columns; none of them is left in a result."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch, or the job of a batch DataFrame."""

    id: int = -1
    """Number of the micro-batch; -1 for the job of a batch DataFrame."""
    expected_rows: int = 0
    """Rows, as far as that can be foreseen (0: unknown)."""
    is_first: bool = False
    """Whether nothing was learned yet."""
    n_rows: int | None = None
    """Rows that an operator was laid over, where that is known; None: it is not."""
    is_taken_whole: bool = False
    """Whether its sink is known to run a job over all of its results."""
    files: BatchFiles | None = None
    """The files that its rows are read from, where these say what it has; None: they do not."""
    rows: DataFrame | None = None
    """The rows of a micro-batch as Spark hands them over, which nothing observes."""
    calls_user: bool = False
    """Whether code of the user's gets the results."""
    takes_arrow: bool = False
    """Whether what comes behind the operator takes an Arrow table, up to the sink."""
    takes_tasks: bool = False
    """Whether every later operator and the sink can run inside the tasks."""
    tables_noted: set[str] = field(default_factory=set)
    """Tables whose version this attempt of the batch is the first one to note."""


class Metrics(Protocol):
    """Observations of a job, known once it has run."""

    def get(self, timeout_s: float) -> dict[str, Any] | None:
        """Return it, or None if it is not there after so many seconds."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Observations that a job will make for one operator."""

    name: str
    """Its name in the operator, such as the component that it reports of."""
    metrics: Metrics
    facts: Any = None
    """Facts that the operator needs to read it."""

    def observed(self, timeout_s: float) -> Observed | None:
        """Return the observations, None if the job has not run after so many seconds."""
        metrics = self.metrics.get(timeout_s)
        return None if metrics is None else Observed(self.name, metrics, self.facts)


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of a job for one operator."""

    name: str
    metrics: Mapping[str, Any]
    facts: Any = None

    def reports(self, metric: str) -> list[TaskReport[Any]]:
        """Return the reports of the job's tasks, each task once."""
        values = self.metrics.get(metric) or []
        # The progress of a stream gives binaries as text in base 64.
        return newest_attempts(
            [
                base64.b64decode(value) if isinstance(value, str) else bytes(value)
                for value in values
            ]
        )


@dataclass(frozen=True, slots=True)
class Laid:
    """An operator laid over a DataFrame."""

    df: DataFrame
    """Its result."""
    pending: tuple[Pending, ...] = ()
    """Its reports, which come when the result is computed."""
    look_at: DataFrame | None = None
    """The same rows without any observation of them, where the next operator may look at them."""
    counted: Counted | int | None = None
    """The number of its rows, if it is known or its reports tell it: each row that is observed once
    more crosses from one piece of Spark's code to another."""
    table: pa.Table | None = None
    """The result, where the driver holds it and ``Batch.takes_arrow``; ``df`` then only tells the
    columns."""
    tasks: TaskResults | None = None
    """The result, where tasks give it and ``Batch.takes_tasks``; ``df`` then only tells the
    columns."""
    is_local: bool = False
    """Whether ``df`` has few rows, which the driver has given to Spark."""


@dataclass(frozen=True, slots=True)
class UnboundedState:
    """State that grows with the rows of a stream without a limit."""

    grows: str
    """A sentence that names the stream and the values that the state keeps."""
    bounds: str
    """Advice how to bound the state."""


class Clock(Protocol):
    """Event time of the rows that an operator is laid over, in the batch that is being laid."""

    @property
    def before(self) -> int:
        """The instant before which all rows had come before the batch (µs)."""

    @property
    def after(self) -> int:
        """The instant before which all rows are there once the batch is (µs)."""

    @property
    def offset(self) -> int:
        """The µs from the value of the time column to the event time of a row.

        Results of [start, end) are of the last instant before their end.
        """

    @property
    def is_idle(self) -> bool:
        """Whether the batch has no rows at all, so that no time passes."""

    @property
    def has_late(self) -> bool:
        """Whether the batch has rows that are late: of before ``before``."""

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:
        """Take note that an operator asks for the event time of batches.

        Args:
            runs_ahead: says whether, in the batch that is being laid, it runs a job over all rows
                before it asks.
        """


class Covering(Protocol):
    """An operator whose tasks may read files, and then evaluate the filters before it."""

    name: str

    def plan_coverage(self, df: DataFrame, batch: Batch) -> None:
        """Decide whether it does so in a batch; called once, before the filters are laid."""

    @property
    def is_covering(self) -> bool:
        """Whether it does so in the batch that was decided on last."""


@dataclass(frozen=True, slots=True)
class Site:
    """The place of an operator: the rows that it will be laid over, and its query."""

    df: DataFrame
    """A DataFrame with the columns of its input, for analysis only; of several, of the first."""
    query: str
    """Name of the query."""
    options: Mapping[str, Any]
    """Options of the query as they were given; the operator takes those of its kind."""
    is_source: bool = True
    """Whether the rows are those of a stream, and not the result of another operator."""
    filters: tuple[Operator, ...] | None = ()
    """The filters between the rows and those of the stream; None if there are other steps."""
    stream: DataFrame | None = None
    """The rows of the stream; None if these rows are they."""
    is_alone: bool = True
    """Whether no other inputs come with these rows, as those of a join or of UNION ALL do."""
    is_filtered: bool = True
    """Whether nothing but filters and columns stands between its rows and those of the stream."""
    time: str | None = None
    """The event-time column of the stream, where it is among the columns."""
    lateness: str | None = None
    """Most lateness of the rows of the stream, such as ``1 minute``."""
    clock: Clock | None = None
    """Event time of the rows; None if they have none."""
    times: ResultTimes | None = None
    """Of results of joins: the columns that are event times, which may be behind that of the rows;
    None of rows that have none, or that of their stream."""
    asks_files: bool = False
    """Whether the query asks which file a row is of."""
    before: tuple[Step, ...] = ()
    """The steps that make the inputs of an operator over several of them, which runs them, too."""
    relations: Mapping[str, Relation] = field(default_factory=dict)
    """The streams and tables that these read, by name."""
    lay_out: Callable[[Sequence[Step], str], LaidOut] | None = None
    """Lays out steps that make one input of such an operator, which is called by the name."""


@dataclass(frozen=True)
class LaidOut:
    """Steps as operators: the rows that they read, and what is known of their results."""

    source: DataFrame
    """The rows that they read."""
    shape: DataFrame
    """A DataFrame with the columns of the results, for analysis only."""
    time: str | None
    """The event-time column of the results, if they have one."""
    clock: Clock | None
    """Event time of the results."""
    make: Callable[[], Sequence[Operator]] = field(repr=False)
    """Returns the operators; called when it is known whether event time is asked for."""
    times: ResultTimes | None = None
    """See ``Site.times``."""


class Operator:
    """One step of a query on Spark, and what was learned of it; derive operators from it.

    Everything but ``lay`` may be left as it is: an operator without a plan has nothing to learn,
    to save or to show.
    """

    name: str = ""
    """Name in the query's manifest and saved state; unique in the query."""
    takes: type[Any] | None = None
    """The kind of options, a dataclass, that it takes from those of its query."""
    options: Any = None
    """Its options as such a dataclass; None if it has none."""
    keeps_late: tuple[str, ...] = ()
    """The inputs of which it keeps rows that came too late."""
    without_lateness: tuple[str, ...] = ()
    """The streams whose event time it asks for and that were given no lateness."""
    unbounded: tuple[UnboundedState, ...] = ()
    """The parts of its state that grow without a limit."""
    by_hand: ChangeableRules | None = None
    """Its rules, if it has some that a person may change while it runs."""
    adjustable: tuple[str, ...] = ()
    """Those of ``options.ADJUSTABLE`` that a person may change while it runs; see ``adjust``."""

    task_module: str = ""
    """The module of its tasks in Python workers, if it has some that import much."""
    predicates: tuple[Predicate, ...] = ()
    """Its conjuncts as written, if it is a filter that an operator behind it may evaluate."""
    covered_by: Covering | None = None
    """That operator; None if there is none."""
    keeps_few: bool = False
    """Whether it makes no more rows than there are: of few, which the driver has given to Spark,
    the result may go back to the driver."""
    passes_all: bool = False
    """Whether its result has each row that it is laid over, as it was: it only looks at them."""

    def option(self, name: str) -> Any:
        """Return the value of one of those that are adjustable."""
        return getattr(self.options, name)

    def with_options(self, values: Mapping[str, Any]) -> Any:
        """Return options of which some that are adjustable have other values.

        Raises:
            OptionError: a value is out of range.
        """
        return replace(self.options, **values)

    def adjust(self, options: Any) -> None:
        """Go on with options of which those that are adjustable have other values.

        Raises:
            OptionError: a value is not possible; nothing is changed.
        """
        self.options = options

    @property
    def is_plain(self) -> bool:
        """Whether it makes one result of each row, of that row alone, and learns nothing.

        Spark then plans it once, with what reads the stream: its columns are those of ``shape``.
        """
        return False

    @property
    def may_read_files(self) -> bool:
        """Whether its tasks are to read the files of the next batch, if there are files."""
        return False

    @property
    def runs_ahead(self) -> bool:
        """Whether ``prepare`` computes the result of a batch, in a job over all of its rows."""
        return False

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Get ready for a micro-batch; may run small jobs of its own.

        Called before each ``lay``; applies pending changes.

        Args:
            df: the rows of the batch; of one that runs ahead, with what others observe of them.
            batch: which it is.
        """

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        """Return the result over the rows of a batch, with the plan in force; runs nothing.

        May be called again for the same batch, where a sink did not take all of the result.
        """
        raise NotImplementedError

    @property
    def arrow_step(self) -> ArrowStep | None:
        """Step that makes the result of Arrow tables without Spark; it then learns nothing.

        None if Spark makes it.
        """
        return None

    def once(self, df: DataFrame) -> DataFrame:
        """Return the result over all rows of batch DataFrames; nothing is kept.

        An operator with durable state is neither attached nor opened before.
        """
        batch = Batch(is_first=True)
        self.prepare(df, batch)
        return self.lay(df, batch).df

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df

    def event_time(self, site: Site, columns: Sequence[str]) -> tuple[str | None, Clock | None]:
        """Return the event-time column of the result, if it has one, and the clock of that.

        Args:
            site: the place of the operator.
            columns: of its result.
        """
        return (site.time if site.time in columns else None), site.clock

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Take in what a job has observed; runs no job, writes nothing.

        Called once for each batch, after its results and its state are safe. Never called for a
        batch that runs again.

        Returns:
            The decisions, those of tasks included.
        """
        return []

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions that were taken outside of ``learn`` since the last call."""
        return []

    # -- what people see ------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The operator's part of the query as its author wrote it, if that changes in a run."""
        return ""

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of an input that came too late; one of ``keeps_late``.

        Raises:
            StateError: they cannot be read.
        """
        raise NotImplementedError

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Its plans that could be others, each of a component of its own."""
        return ()

    @property
    def saves(self) -> tuple[Choice, ...]:
        """The choices whose state is saved; also those that have only one plan."""
        return self.choices

    def records(self) -> tuple[Record, ...]:
        """Return the numbers of each part of the operator after a batch.

        Metrics, figures and progress are made of them (``report.progress`` has their lines).
        """
        records = (choice.record() for choice in self.choices)
        return tuple(record for record in records if record is not None)

    def describe(self, history: History) -> list[Section]:  # noqa: ARG002
        """Return for people what the plan is, why, and what it did; there is no other way to them.

        Args:
            history: the batches and decisions so far; empty outside of a run.
        """
        return []

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the learned state, as values that msgspec encodes; None if nothing is saved.

        That is the state of what it ``saves``, by component, unless it has more.
        """
        states = {choice.component: choice.snapshot() for choice in self.saves}
        return {name: state for name, state in states.items() if state} or None

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged, or of something else.
        """
        if not isinstance(state, dict):
            msg = f"the saved state of {self.name!r} is damaged: {state!r:.80} is no JSON object"
            raise StateError(msg, operator=self.name)
        for choice in self.saves:
            if choice.component in state:
                choice.restore(state[choice.component])


@runtime_checkable
class Stateful(Protocol):
    """An operator with durable state, which the query's manifest names batch by batch."""

    name: str

    def attach(self, place: StatePlace) -> None:
        """Take note of where durable state is written; called once, before the first batch.

        Args:
            place: where the operator keeps its files.
        """

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:
        """Start from the state after the batch before; called first of all for a batch.

        Called with the newest state, too, when a run starts from a checkpoint.

        Args:
            part: that state; None before the first batch.
            again: the state that an earlier attempt at this batch has committed, if one did.
            batch: which it is.

        Raises:
            StateError: it cannot be read.
        """

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether the job did all of the work that the state needs.

        A sink may take no rows, or a part of them; the batch is then run to its end.
        """

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:
        """Return the state after the batch; what it names is written already.

        Raises:
            StateError: it cannot be told.
        """


@runtime_checkable
class Merging(Protocol):
    """An operator over several inputs, which are laid out as one DataFrame."""

    source: DataFrame
    """The rows of all inputs."""
    before: tuple[Operator, ...]
    """The operators that come before it: those of steps over one of the inputs."""
    other_options: Mapping[str, Any]
    """The options of the query that other operators take."""
    time: str | None
    """The event-time column of its results, if they have one."""
    clock: Clock | None
    """Event time of its results."""
    times: ResultTimes | None
    """See ``Site.times``."""

    def then(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps over its result, with what is left for them to do."""
