"""Plan, saved state and reports of models of a stream.

The query looks at a row when the watermark has passed it, so nothing depends on how rows are cut
into batches. It gives a segment when no later row changes it, and a result when no later segment
does. It gives results once and never takes them back, unless early results are wanted (``bucket``).

``StreamPlan`` has the inputs and the graph. ``ModelStep`` is that as a step of a query. ``staged``
cuts the graph where its entities become other ones. Pairs and values over entities are stages of
their own: steps before them are by entity, and steps behind them by pair or group.

``BucketState`` and ``ModelPart`` are the saved state. ``BucketReport`` is what a bucket tells the
driver after a batch. A ``Sketch`` in it has rows, segments and results of a few entities to draw,
and is no part of any answer. It has the newest rows of the entities with the least codes. Codes are
hashes of keys, so these entities are the same in any order of rows and in any bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.data.arrays import distinct
from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.entities.kept import EntityRuns, Files, codes_of
from eddyline.models.fitting.fit import Fit, FitReport
from eddyline.models.planning.watching import Work
from eddyline.models.segments import micros_of, table_of
from eddyline.models.solving.expressions import Attribute
from eddyline.models.steps import (
    SINCE,
    TIME,
    UNTIL,
    AverageDistance,
    Changes,
    OverEntities,
    Project,
    Where,
    Within,
)
from eddyline.query.steps import RESULT
from eddyline.sql.parsing import quoted
from eddyline.state.manifest import StatePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.fitting.declared import Declared
    from eddyline.models.fitting.fit import Part
    from eddyline.models.fitting.stored import Stored
    from eddyline.models.planning.expected import ModelProfile
    from eddyline.models.segments import Keyed
    from eddyline.models.steps import DifferentEntities, Shape
    from eddyline.state.run_files import RunFile

COMPONENT = "models"
NEVER = np.iinfo(np.int64).min


class StageState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a stage of a bucket between batches."""

    wakes: Files = ()
    """When which entities are looked at although no row or segment of them comes."""
    entities: EntityRuns = ()
    """By entity until when results were given, and ranges that may go on."""
    segments: dict[int, Files] = struct_field(default_factory=dict)
    """Segments that later results look back at, by what they are of; see ``Stage.inputs``."""
    low: int = NEVER
    """The instant (µs) at or before which segments have ended that nothing looks at any more."""

    @property
    def files(self) -> Iterator[RunFile]:
        """All files."""
        yield from self.wakes
        for files in self.segments.values():
            yield from files
        for run in self.entities:
            yield from run.files.values()


class RowCounts(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Numbers of rows of an input that are in no final segment."""

    ahead: int = 0
    """Rows that event time has not passed."""
    open: int = 0
    """Rows of open runs."""


class BucketState(StageState, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a bucket between batches.

    If its graph is one stage, these are the files of that stage, too. Records of entities also say
    what is known of open runs.
    """

    since: int = NEVER
    """The instant before which all rows have been looked at (µs)."""
    waiting: dict[int, Files] = struct_field(default_factory=dict)
    """Rows from that instant on, by input."""
    rows: dict[int, Files] = struct_field(default_factory=dict)
    """Rows of open runs, by input; see ``entities.fronts``."""
    stages: dict[int, StageState] = struct_field(default_factory=dict)
    """Of graphs that are cut into stages what each keeps, by number."""
    counts: dict[int, RowCounts] = struct_field(default_factory=dict)
    """How many rows wait, by input."""
    early: Files = ()
    """Results that were given and are not final, where these are of all entities together."""
    members: dict[str, dict[int, StageState]] = struct_field(default_factory=dict)
    """Of queries that share segments what the stages of each keep, by its name."""

    @property
    def files(self) -> Iterator[RunFile]:
        """All files."""
        yield from super().files
        for files in (*self.waiting.values(), *self.rows.values()):
            yield from files
        for stage in self._stages:
            yield from stage.files
        yield from self.early

    @property
    def _stages(self) -> Iterator[StageState]:
        for states in (self.stages, *self.members.values()):
            yield from states.values()

    def counted(self, number: int) -> RowCounts:
        """Return how many rows of an input wait.

        A state of an earlier version has no counts; its files give an upper limit.
        """
        if number in self.counts:
            return self.counts[number]
        files = (self.waiting.get(number, ()), self.rows.get(number, ()))
        ahead, held = (sum(file.n_rows for file in every) for every in files)
        return RowCounts(ahead, held)

    @property
    def n_segments(self) -> int:
        """Segments that are kept."""
        every = (state.segments.values() for state in (self, *self._stages))
        return sum(file.n_rows for kept in every for files in kept for file in files)


class ModelPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state after a batch."""

    n_buckets: int
    buckets: dict[int, BucketState] = struct_field(default_factory=dict)

    def packed(self) -> StatePart:
        """Return it as the query's manifest has it."""
        return StatePart.from_content(
            self, [file.name for state in self.buckets.values() for file in state.files]
        )


class ModelCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Counts of work in a batch, or in all batches of a run, which are saved."""

    total: FitReport = struct_field(default_factory=FitReport)
    """What became of rows."""
    n_results: int = 0
    n_early: int = 0
    """Of the results, those that were given before they were final."""
    n_taken_back: int = 0
    """Of the results, those that say that there is none any more."""
    work: Work = Work()

    def __add__(self, other: ModelCounts) -> ModelCounts:
        return ModelCounts(
            self.total + other.total,
            self.n_results + other.n_results,
            self.n_early + other.n_early,
            self.n_taken_back + other.n_taken_back,
            self.work + other.work,
        )


@dataclass(frozen=True, slots=True)
class BucketReport:
    """Report of a bucket's work in a batch."""

    bucket: int
    after: BucketState
    counts: ModelCounts = field(default_factory=ModelCounts)
    sketch: Sketch | None = None
    """Of a few entities, to be drawn."""
    observed: Any = None
    """What a step that makes ranges has observed; see ``RangeStep``."""
    profile: ModelProfile | None = None
    """What steps gave, and what joins asked."""


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One of the inputs of a graph."""

    maker: Fit | Declared | Stored | None
    """How rows become segments; None if they are segments, which are all there from the start."""
    shape: Shape
    """The columns of its segments."""


@dataclass(frozen=True)
class StreamPlan:
    """Plan of the work on streams' rows, sent to workers."""

    inputs: tuple[StreamInput, ...]
    node: graph.Node
    is_early: bool = False
    """Whether results are given before they are final, and taken back; see ``bucket``."""
    samples: bool = False
    """Whether tasks look at how coefficients are spread; see ``planning``."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity, the same of all inputs."""
        return self.inputs[0].shape.keys

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The graph in stages; without pairs and values over entities it is one as a rule."""
        return staged(self.node, len(self.inputs))

    @property
    def together(self) -> tuple[str, ...]:
        """Keys by which entities share a bucket: equal keys, same bucket.

        For pairs there are none: any two entities may be a pair.
        """
        keys = self.keys
        for part in graph.parts(self.node):
            if isinstance(part, graph.OtherEntities):
                return ()
            if isinstance(part, graph.Unary) and isinstance(part.step, OverEntities):
                keys = tuple(name for name in keys if name in part.step.by)
        return keys

    @property
    def row_times(self) -> tuple[str, ...]:
        """For each input the column that says when a row was."""
        return tuple(source.maker.time if source.maker else TIME for source in self.inputs)

    @property
    def bounds(self) -> str:
        """Bounds of results and of inputs, in words."""
        bounds = graph.told_bounds(self.node)
        makers = (source.maker for source in self.inputs if source.maker is not None)
        used = ", ".join(
            f"{name} within {bound}" for maker in makers for name, bound in maker.within.items()
        )
        return f"{bounds}; inputs: {used}" if bounds else used


MEMBER = "__member"
"""The column of the query that a result is of, by its place among those that share segments."""


@dataclass(frozen=True)
class SharedPlan(StreamPlan):
    """Plan of several queries over the same segments, which are ``node``."""

    members: tuple[tuple[str, graph.Node], ...] = ()
    """The graph of each query, by its name."""

    @cached_property
    def plans(self) -> dict[str, StreamPlan]:
        """Plans of the queries, each by itself."""
        return {name: StreamPlan(self.inputs, node) for name, node in self.members}

    @property
    def together(self) -> tuple[str, ...]:
        """As of each query: all are in the same buckets."""
        return next(iter(self.plans.values())).together

    @staticmethod
    def column(number: int, name: str) -> str:
        """Return the name of a query's result column among those of all queries."""
        return f"__{number}_{name}"


def check_streams(plan: StreamPlan) -> None:
    """Check that what is asked can be told of streams without keeping all that was.

    Raises:
        OptionError: it is not said what a gap is.
        NotSupportedError: a step that would have to look back at any time.
    """
    for source in plan.inputs:
        if isinstance(source.maker, Fit) and source.maker.options.max_gap_us is None:
            msg = (
                "models of a stream need max_gap, such as '10 minutes': after so long without a "
                "row the last segment of an entity is over"
            )
            raise OptionError(msg)
    for pairs in graph.parts(plan.node):
        if not isinstance(pairs, graph.OtherEntities) or not pairs.step.is_whole:
            continue
        # Only windows in which pairs are near may be asked of pairs for all their time.
        if pairs.step.within and not _asks_near(plan.node, pairs, pairs.step):
            msg = (
                "of a stream, pairs that once come near are not told for all the time before: that "
                "would be known when it is too late; leave out within or whole=True, ask for "
                "avg_distance(…, below=…) of no more than within, or ask a batch DataFrame"
            )
            raise NotSupportedError(msg, within=dict(pairs.step.within))


def _asks_near(node: graph.Node, part: graph.Node, pairs: DifferentEntities) -> bool:
    """Return whether all that reads a part asks for windows in which pairs come that near."""
    readers = [reader for reader in graph.parts(node) if part in graph.below(reader)]
    return bool(readers) and all(_is_near(node, reader, pairs) for reader in readers)


def _is_near(node: graph.Node, reader: graph.Node, pairs: DifferentEntities) -> bool:
    step = reader.step if isinstance(reader, graph.Unary) else None
    axes = [tuple(f"{side}_{name}" for side in pairs.names) for name in pairs.within]
    if isinstance(step, Project):
        names = [name for both in axes for name in both]
        if any(step.columns.get(name) != Attribute(name) for name in names):
            return False
    if isinstance(step, Within | Where | Project):
        return _asks_near(node, reader, pairs)
    if not isinstance(step, AverageDistance) or step.below is None:
        return False
    asked = {*step.axes.items(), *((other, one) for one, other in step.axes.items())}
    return {*axes} <= asked and all(step.below <= most for most in pairs.within.values())


# -- the step of a query --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelStep:
    """Rows of relations as segments, what is done with these, and its results as rows."""

    inputs: tuple[str, ...]
    """A relation for each input of the plan."""
    plan: StreamPlan
    output: str = RESULT

    def texts_of(self, relation: str) -> tuple[str, ...] | None:
        """Return SQL of the values that an input must have; None if it needs whole rows."""
        texts: list[str] = []
        for name, source in zip(self.inputs, self.plan.inputs, strict=True):
            if name == relation:
                if source.maker is None:
                    return None
                columns = source.maker.columns.values()
                texts += [*map(quoted, (*source.maker.keys, source.maker.time)), *columns]
        return tuple(texts)

    def renamed(self, names: Callable[[str], str]) -> ModelStep:
        """Return the step over relations of other names."""
        return replace(self, inputs=tuple(map(names, self.inputs)), output=names(self.output))

    def __str__(self) -> str:
        node = self.plan.node
        phrases = [
            f"{source.maker or 'segments'}{f' of {name}' if len(self.inputs) > 1 else ''}"
            for name, source in zip(self.inputs, self.plan.inputs, strict=True)
        ]
        phrases += [str(part) for part in graph.parts(node) if not isinstance(part, graph.Input)]
        phrases += ["results early"] if self.plan.is_early else []
        return f"models of {', '.join(self.inputs)}: {'; '.join(phrases)}"


@dataclass(frozen=True, slots=True)
class SharedModelStep(ModelStep):
    """The models of several queries, made once; its plan is a ``SharedPlan``."""

    def __str__(self) -> str:
        assert isinstance(self.plan, SharedPlan)
        names = ", ".join(name for name, _ in self.plan.members)
        return f"{super(SharedModelStep, self).__str__()}; solved for {names}"


# -- stages of a graph ----------------------------------------------------------------------------


@runtime_checkable
class RangeStep(Protocol):
    """Step that makes ranges by more keys than the entities have, given as changes."""

    def watched(self, block: Keyed) -> tuple[Keyed, Any]:
        """Return the ranges, and what was observed on the way: None, or what ``merged`` adds up."""

    def are_asked(self, ranges: pa.Table) -> Mask:
        """Return which ranges are still asked for, by their keys; what others were is over."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Stage: steps over segments of the same entities, or one step over several."""

    inputs: tuple[int, ...]
    """By place in ``node`` what each input is: an input of the plan, or a stage behind these."""
    node: graph.Node

    @cached_property
    def shapes(self) -> Mapping[int, Shape]:
        """The columns of each input by its place in ``node``."""
        every = graph.parts(self.node)
        return {part.at: part.shape for part in every if isinstance(part, graph.Input)}

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity, of inputs."""
        return self.shapes[0].keys

    @property
    def told(self) -> graph.Node:
        """Steps on segments before their ranges are given as changes."""
        match self.node:
            case graph.Unary(Changes(), of):
                return of
        return self.node

    @property
    def ranges(self) -> RangeStep | None:
        """Step that makes these ranges, if it must follow every step that looks back."""
        match self.told:
            case graph.Unary(RangeStep() as step):
                return step
        return None

    @property
    def given(self) -> graph.Node:
        """Steps on segments before that one."""
        match self.told:
            case graph.Unary(RangeStep(), of):
                return of
        return self.told

    @property
    def looks_back(self) -> bool:
        """Whether results depend on earlier segments."""
        return graph.sees_entities(self.given)

    @property
    def is_crossing(self) -> bool:
        """Whether the stage is one step over several entities."""
        return graph.is_crossing(self.node)


def staged(node: graph.Node, n_inputs: int) -> tuple[Stage, ...]:
    """Return a graph as stages, in the order of reading; the last has the results."""
    cutting = _Cutting(n_inputs)
    for parent in graph.parts(node):
        if graph.is_crossing(parent):
            for part in (*graph.below(parent), parent):
                cutting.source_of(part)
    return (*cutting.stages, cutting.stage(node))


def alike(stages: Sequence[Stage], n_inputs: int) -> tuple[bool, ...]:
    """Return for each stage whether all of its inputs have the same code for an entity.

    The code of an entity is a hash of its keys, that of a pair is made of both, and that of a group
    is a hash of the keys that it is by: one that is of all, and entities that come from inputs with
    different codes, share one.
    """
    kinds: list[object] = ["entity"] * n_inputs
    are_alike = []
    for stage in stages:
        input_kinds = [kinds[number] for number in stage.inputs]
        are_alike.append(len({*input_kinds}) == 1)
        match stage.node:
            case graph.OtherEntities(graph.Input(left), graph.Input(right)) if are_alike[-1]:
                kinds.append((input_kinds[left], input_kinds[right]))
            case graph.Unary(OverEntities(by=by)) if by and are_alike[-1]:
                kinds.append(("group", by))
            case _:
                is_one = stage.is_crossing or not are_alike[-1]
                kinds.append("group" if is_one else input_kinds[0])
    return tuple(are_alike)


class _Cutting:
    """Cuts a graph into stages."""

    def __init__(self, n_inputs: int) -> None:
        self.stages: list[Stage] = []
        self._n_inputs = n_inputs
        self._sources: dict[int, int] = {}

    def source_of(self, part: graph.Node) -> int:
        """Return where what a part gives comes from, a stage of its own unless it is one."""
        if id(part) not in self._sources:
            stage = self.stage(part)
            if isinstance(stage.node, graph.Input):
                self._sources[id(part)] = stage.inputs[0]
            else:
                self.stages.append(stage)
                self._sources[id(part)] = self._n_inputs + len(self.stages) - 1
        return self._sources[id(part)]

    def stage(self, root: graph.Node) -> Stage:
        """Return what is done from the stages that there are to a part."""
        inputs: list[int] = []
        copies: dict[int, graph.Node] = {}

        def input_of(source: int, shape: Shape) -> graph.Node:
            if source not in inputs:
                inputs.append(source)
            return graph.Input(inputs.index(source), shape)

        def copy(part: graph.Node) -> graph.Node:
            if id(part) not in copies:
                copies[id(part)] = cut(part)
            return copies[id(part)]

        def cut(part: graph.Node) -> graph.Node:
            if id(part) in self._sources:
                return input_of(self._sources[id(part)], part.shape)
            if isinstance(part, graph.Input):
                return input_of(part.at, part.shape)
            return graph.over(part, [*map(copy, graph.below(part))])

        node = copy(root)
        return Stage(tuple(inputs), node)


# -- rows, segments and results to draw -----------------------------------------------------------


MOST_ENTITIES = 3
MOST_ROWS = 200
"""Rows, segments and results of an entity that are kept, the newest ones of each."""
ANY = np.iinfo(np.int64).max
"""The code up to which entities are kept, as long as there are few."""


@dataclass(frozen=True)
class Sketch:
    """Sketch of a few entities for drawing, in tables with ``CODE``.

    Attributes:
        rows: by input.
        segments: by input.
        results: all of them have the same columns.
        n_entities: how many entities are kept at most.
        n_rows: how many rows of each.
    """

    rows: Mapping[int, pa.Table] = field(default_factory=dict)
    segments: Mapping[int, pa.Table] = field(default_factory=dict)
    results: pa.Table | None = None
    n_entities: int = MOST_ENTITIES
    n_rows: int = MOST_ROWS

    @property
    def codes(self) -> Ints:
        """Codes of the entities in the sketch, ascending."""
        every = [*self.rows.values(), *self.segments.values()]
        codes = [codes_of(table) for table in every if len(table)]
        return distinct(np.concatenate(codes)) if codes else np.zeros(0, np.int64)

    @property
    def cut(self) -> int:
        """The greatest code of an entity that would be kept."""
        codes = self.codes
        return int(codes[self.n_entities - 1]) if len(codes) >= self.n_entities else ANY

    def with_later(self, later: Iterable[Sketch], times: Sequence[str]) -> Sketch:
        """Return what is kept when more has come; ``times`` as for ``sketched``."""
        every = [self, *later]
        whole = Sketch(
            _by_input([sketch.rows for sketch in every]),
            _by_input([sketch.segments for sketch in every]),
            _joined(sketch.results for sketch in every),
            self.n_entities,
            self.n_rows,
        )
        return whole.of(whole.codes[: self.n_entities], times)

    def of(self, codes: Ints, times: Sequence[str]) -> Sketch:
        """Return the newest of some entities; ``times`` as for ``sketched``."""
        rows = {
            number: newest(table, codes, times[number], self.n_rows)
            for number, table in self.rows.items()
        }
        segments = {
            number: newest(table, codes, "lo", self.n_rows)
            for number, table in self.segments.items()
        }
        results = self.results
        if results is not None:
            results = newest(results, codes, time_of_results(results), self.n_rows)
        return Sketch(rows, segments, results, self.n_entities, self.n_rows)


def sketched(
    times: Sequence[str],
    due: Sequence[pa.Table | None],
    parts: Sequence[Part | None],
    results: pa.Table | None,
    codes: Ints,
    zone: str | None,
) -> Sketch:
    """Return what one batch of a bucket brings of a few entities.

    Args:
        times: for each input the column that says when a row was.
        due: the rows of each input that were looked at.
        parts: what came of them.
        results: with ``CODE``.
        codes: of the entities, ascending.
        zone: of timestamps; see ``table_of``.
    """
    if not codes.size:
        return Sketch()
    rows = {place: table for place, table in enumerate(due) if table is not None}
    segments = {}
    for number, part in enumerate(parts):
        if part is not None:
            block = part.segments
            few = np.isin(codes_of(block.entities), codes)[block.segments.keys]
            segments[number] = table_of(type(block)(block.segments.take(few), block.entities), zone)
    # Results that are none may have no columns, either.
    has_results = results is not None and len(results) > 0
    return Sketch(rows, segments, results if has_results else None).of(codes, times)


def time_of_results(table: pa.Table) -> str:
    """Return the column that says when results are, or begin; keys may have names of others."""
    names = table.column_names
    if "lo" in names:
        return "lo"
    return SINCE if {SINCE, UNTIL} <= {*names} else TIME


def newest(table: pa.Table, codes: Ints, time: str, n: int) -> pa.Table:
    """Return the last rows of each of some entities, by entity and time.

    Args:
        table: with ``CODE``.
        codes: of the entities, ascending.
        time: the column of instants.
        n: how many of each at most.
    """
    # Of many rows few are below the greatest code: a comparison costs less than a look-up.
    every = codes_of(table)
    few = np.flatnonzero(every <= codes[-1]) if len(codes) else np.zeros(0, np.int64)
    table = table.take(pa.array(few[np.isin(every[few], codes)]))
    owners = codes_of(table)
    order = np.lexsort((micros_of(table.column(time)), owners))
    ends = np.searchsorted(owners[order], owners[order], "right")
    return table.take(pa.array(order[ends - np.arange(len(order)) <= n]))


def _by_input(mappings: Sequence[Mapping[int, pa.Table]]) -> dict[int, pa.Table]:
    inputs = sorted({number for mapping in mappings for number in mapping})
    return {number: _joined(mapping.get(number) for mapping in mappings) for number in inputs}


def _joined(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    parts = [table for table in tables if table is not None]
    filled = [part for part in parts if len(part)] or parts[:1]
    return pa.concat_tables(filled).combine_chunks() if filled else None
