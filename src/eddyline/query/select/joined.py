"""Reader of joins in FROM, EXISTS and IN.

In: the items of FROM and the conjuncts of WHERE. Out: a query of stages. Each stage is one join.

Inner joins that follow one another are one stage. Any other join is a stage of two inputs. The
results of a stage are an input of the next one, as a subquery with the columns that later stages
and output columns name (``statement.Held``). ``x FULL JOIN y`` is ``x LEFT JOIN y`` and the rows of
``y`` without a partner. ``y RIGHT JOIN x`` is ``x LEFT JOIN y``. EXISTS and IN are joins behind
those of FROM; under OR they make alternatives (``alternatives``).

A conjunct of WHERE is asked in the first stage that has its inputs. A joined row is in its window
from its latest row on, until its first row leaves. So what a later stage joins with it is compared
with the windows of all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.query import LONGEST, UNBOUNDED, WINDOW, Input, Query, RangeWindow, StayWindow
from eddyline.query.select.conditions import JoinConditions, TimeBounds
from eddyline.query.select.statement import (
    Exists,
    Held,
    JoinNames,
    Named,
    default_name,
    identifier,
    is_right,
    is_star,
    outputs_of,
)
from eddyline.sql.analysis import check_is_row_wise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.query.query import Emits, JoinKind, Window
    from eddyline.query.select.conditions import Calls
    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.statement import Fragment, Statement

INSTANT = f"{WINDOW}.end"
"""The output column of set operations that is the instant of a result."""

LATEST, TIME = "__latest", "__time"
"""The column of joined rows that is their event time, which is that of the latest row; and those
with the event times of inputs, a number behind it. No other column ends like these."""


@dataclass(frozen=True, slots=True)
class Stay:
    """How long rows of a join, or of one input, are there."""

    latest: str
    """Their event time as SQL."""
    ends: tuple[tuple[str, Window], ...]
    """Of each stream whose window ends: its event time as SQL, and the window."""
    n_streams: int
    length: int
    """The time that no row stays longer (µs)."""

    @property
    def window(self) -> Window:
        """The window of the rows; of those of several streams they have columns for it."""
        if not self.ends:
            return UNBOUNDED
        windows = [window for _, window in self.ends]
        if self.n_streams == 1:
            return windows[0]
        return StayWindow(
            tuple((f"{TIME}{place}", window) for place, window in enumerate(windows)), self.length
        )

    @property
    def columns(self) -> list[str]:
        """The columns that the rows need for it, each with its name."""
        ends = self.ends if self.n_streams > 1 else ()
        times = [f"{text} AS {TIME}{place}" for place, (text, _) in enumerate(ends)]
        return [*times, f"{self.latest} AS {LATEST}"]


@dataclass(slots=True)
class Relation:
    """One input of a stage: an item of FROM, or the results of the stage before."""

    name: str
    items: Sequence[FromItem]
    """The items whose columns it has, in the order of FROM."""
    stage: Stage | None = None
    """The stage before; None if it is an item."""
    held: Held | None = None
    """What its columns are called; None if it is an item."""

    @property
    def timed(self) -> list[FromItem]:
        """The items that are no tables."""
        return [item for item in self.items if not item.is_table]

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns, with their types: of results those that were named so far."""
        return self.items[0].columns if self.held is None else self.held.columns

    @property
    def present(self) -> list[frozenset[str]]:
        """The sets of streams that one of its rows may have rows of."""
        stage = self.stage
        if stage is None:
            return [frozenset(item.name for item in self.timed)]
        if stage.kind in ("semi", "anti"):
            return stage.relations[0].present
        alone = stage.relations if stage.twin else stage.relations[: stage.kind == "left"]
        sets = [*stage.present, *(names for relation in alone for names in relation.present)]
        return list(dict.fromkeys(sets))

    @property
    def time(self) -> str:
        """The column of its event time; of results of one stream that is its own."""
        timed = self.timed
        if len(timed) > 1 or timed[0].time is None:
            return LATEST
        named = Named(timed[0].name, timed[0].time)
        return named.column if self.held is None else self.held.column(named)


def _relation(item: FromItem) -> Relation:
    return Relation(item.name, [item])


@dataclass(slots=True)
class Stage:
    """One join, or one relation of which rows are filtered."""

    conditions: JoinConditions
    kind: JoinKind = "inner"
    added: FromItem | None = None
    """The item that a join adds which is not inner."""
    relations: list[Relation] = field(default_factory=list)
    """Its inputs; of a join that is not inner the first is the one whose rows are kept."""
    twin: Stage | None = None
    """Of a FULL JOIN: the join that has the rows of the second input without a partner."""

    def add(self, relation: Relation) -> None:
        """Add an input."""
        self.relations.append(relation)
        self.conditions.add_input(relation.name, relation.items)

    @property
    def joins(self) -> list[Stage]:
        """This join, and of a FULL JOIN the other one."""
        return [self] if self.twin is None else [self, self.twin]

    @property
    def held(self) -> dict[str, Held]:
        """By item, the relation that has its columns, where that is the stage before."""
        pairs = [(relation, relation.held) for relation in self.relations]
        return {item.name: held for relation, held in pairs if held for item in relation.items}

    @property
    def items(self) -> list[FromItem]:
        """The items that its results have columns of, in the order of FROM."""
        shown = self.relations[:1] if self.kind in ("semi", "anti") else self.relations
        return sorted(
            (item for relation in shown for item in relation.items), key=lambda item: item.place
        )

    @property
    def present(self) -> list[frozenset[str]]:
        """The sets of streams that a row may have rows of, of those that it joins."""
        sets = [relation.present for relation in self.relations]
        return [frozenset().union(*combination) for combination in product(*sets)]

    @property
    def turns(self) -> bool:
        """Whether it adds results in which the items so far have no row."""
        return self.twin is not None or (self.added is not None and is_right(self.added.added))

    @property
    def bounds(self) -> TimeBounds:
        """Bounds of event times that hold between rows that it joins, or that came joined."""
        bounds = TimeBounds(is_local=False)
        bounds.add_all(self.conditions.bounds)
        for relation in self.relations:
            if relation.stage is not None:
                bounds.add_all(relation.stage.bounds_of_results)
        return bounds

    @property
    def bounds_of_results(self) -> TimeBounds:
        """Bounds of event times that hold in its results."""
        if self.kind not in ("semi", "anti"):
            return self.bounds
        before = self.relations[0].stage
        return TimeBounds(is_local=False) if before is None else before.bounds_of_results


class JoinReader:
    """Reads the joins of a query, or of an alternative of one.

    Args:
        statement: the query.
        calls: the functions of the user.
        items: of FROM and of its EXISTS and IN.
        is_relation: whether its rows are aggregated or compared, and not results: then their
            windows are part of the answer, so that no bound of event times makes one.
    """

    def __init__(
        self,
        statement: Statement,
        calls: Calls,
        items: Sequence[FromItem],
        *,
        is_relation: bool = False,
    ) -> None:
        self._statement = statement
        self._emits = "istream" if is_relation else statement.emits or "istream"
        self._calls = calls
        self._items = items
        # Results of DSTREAM and RSTREAM depend on the windows themselves.
        self._derives = not is_relation and self._emits == "istream"
        self.names = JoinNames(statement.text)
        self._stages: list[Stage] = []
        streams = {item.stream.lower(): item for item in items if item.stream != item.name}
        self._called = {
            name: f"{item.stream} is called {item.name} here" for name, item in streams.items()
        }
        """Advice on names in lower case that are no inputs."""

    def read(self, where: Sequence[Fragment]) -> None:
        """Read the joins of all items, and the conjuncts of WHERE in which no subquery is."""
        names = self.names
        later = {
            from_item.name.lower(): f"{from_item.name} is joined after this ON"
            for from_item in self._items
        }
        names.scope = replace(names.scope, hints={**self._called, **later})
        first, *others = self._items
        names.add(first.name, first.columns, ())
        self._begin(self._stage([_relation(first)]))
        for item in others:
            self._join(item)
        if self._last.twin is not None:
            self._begin(self._stage([self.closed()]))
        names.scope = replace(names.scope, hints=self._called)
        if len(self._stages) > 1:
            self._check_times()
        self._add_where(where)
        for stage in self._stages:
            for join in stage.joins:
                names.held, added = join.held, join.added
                is_asked = added is not None and isinstance(added.added, Exists)
                phrase = added.said(self._statement) if is_asked and added is not None else None
                join.conditions.connect(phrase)
        names.held = self._last.held

    @property
    def relations(self) -> Sequence[Relation]:
        """The inputs of the last stage."""
        return self._last.relations

    @property
    def stay(self) -> Stay:
        """How long its rows are there; the event times of its inputs are known."""
        timed = [(item.name, item.time, item.window) for item in self._last.items if item.time]
        named = [(Named(name, time), window) for name, time, window in timed]
        texts = [self.text_of(column) for column, _ in named]
        ends = ((text, window) for text, (_, window) in zip(texts, named, strict=True))
        latest = texts[0] if len(texts) == 1 else f"greatest({', '.join(texts)})"
        kept = tuple((text, window) for text, window in ends if window.length < LONGEST)
        lengths = {item.name: item.window.length for item in self._last.items}
        # Rows without a partner stay for their own window, be it longer than that of the other.
        longest = max(
            min((lengths[name] for name in names), default=LONGEST)
            for names in self.closed().present
        )
        return Stay(latest, kept, len(texts), longest)

    def text_of(self, named: Named) -> str:
        """Return SQL of a column of an input in the last stage."""
        place = self.names.place_of(named)
        return place.text if len(self.relations) > 1 else identifier(place.column)

    @property
    def _last(self) -> Stage:
        return self._stages[-1]

    # -- stages -----------------------------------------------------------------------------------

    def _stage(self, relations: Sequence[Relation], kind: JoinKind = "inner") -> Stage:
        conditions = JoinConditions(self._statement, self._calls, self.names, self._items)
        stage = Stage(conditions, kind)
        for relation in relations:
            stage.add(relation)
        return stage

    def _begin(self, stage: Stage) -> None:
        self._stages.append(stage)
        self.names.held = stage.held

    def closed(self) -> Relation:
        """Return the results of the last stage as a relation."""
        items = self._last.items
        name = " ⋈ ".join(item.name for item in items)
        others = {item.name for item in self._items} - {item.name for item in items[:1]}
        while len(items) > 1 and name in others:
            name += " ⋈"
        inputs = {item.name: item.columns for item in items}
        held = Held(name, inputs, {item.name: item.place for item in items})
        return Relation(name, items, self._last, held)

    def _join(self, item: FromItem) -> None:
        """Join one more item with those before."""
        stage = self._last
        is_inner = stage.kind == "inner" and stage.twin is None
        if not is_inner or (item.kind != "inner" and len(stage.relations) > 1):
            stage = self._stage([self.closed()])
            self._begin(stage)
        if item.kind == "inner":
            stage.add(_relation(item))
            self._read(stage, item, "")
            return
        sides = [*stage.relations, _relation(item)]
        left, right = reversed(sides) if is_right(item.added) else sides
        self._check_partners(item, left, right)
        self._stages.pop()
        before = self.names.scope
        self._begin(self._stage([left, right], "left" if item.kind == "full" else item.kind))
        self._last.added = item
        self._read(self._last, item, right.name)
        if item.kind == "full":
            after, self.names.scope = self.names.scope, before
            self._last.twin = twin = self._stage([right, left], "anti")
            twin.added = item
            self._read(twin, item, left.name)
            self.names.scope = after

    def _read(self, stage: Stage, item: FromItem, partner: str) -> None:
        """Read the condition on which an item is joined.

        Args:
            stage: the join.
            item: what is added to the names.
            partner: of a join that is not inner, its second input.
        """
        names, conditions = self.names, stage.conditions
        before, word = names.scope, "ON"
        conditions.partner = partner
        pairs = names.add(item.name, item.columns, item.using, is_right=is_right(item.added))
        for one, other in pairs:
            sides = (other, one) if is_right(item.added) else (one, other)
            conditions.add_using(*sides, item.start)
        if isinstance(item.added, Exists):
            word, names.scope = f"WHERE of {item.added.said}", names.scope.preferring(item.name)
            self._check_asked(item.added)
            conditions.add_in(item.added, before)
        if item.on is not None:
            conditions.add(word, item.on)
        conditions.partner = ""
        if item.kind in ("semi", "anti"):
            self._called[item.name.lower()] = f"{item.name} is read by the condition alone"
            names.scope = replace(before, hints=self._called)

    def _check_asked(self, asked: Exists) -> None:
        """Refuse EXISTS and IN of output columns that cannot be computed row by row."""
        for column in row_wise(self._statement.items_of(asked.select), self._calls):
            self.names.inputs(column, f"output column {column.text!r}")

    def _check_partners(self, item: FromItem, left: Relation, right: Relation) -> None:
        """Refuse joins of which a row without a partner is not known, or not known yet."""
        statement, (phrase, offset) = self._statement, item.said(self._statement)
        if self._emits != "istream":
            statement.refuse(f"{phrase} with {self._emits.upper()} is not supported yet", offset)
        for relation in (left, right) if item.kind == "full" else (left,):
            if not relation.timed:
                name = relation.name
                what = f"{phrase} of the table {name!r}, whose rows have no event time, is not"
                instead = "end" if is_right(item.added) else "begin"
                message = f"{what} supported; {instead} with a stream"
                if item.kind == "full":
                    message = f"{what} supported; write a LEFT or a RIGHT JOIN"
                statement.refuse(message, relation.items[0].start)
        for one in (*left.items, *(right.items if item.kind == "full" else ())):
            self._check_leaves(one, phrase)
        for one in right.items:
            if one.window.counts is not None and one.is_table:
                message = (
                    f"{phrase}: the rows of the table {one.name!r} have no event time, so none is "
                    f"among the latest; leave out [{one.window.text}]"
                )
                statement.refuse(message, one.window_start(statement))
        if item.kind == "full" and item.using:
            statement.refuse(f"{phrase} with USING is not supported yet; write ON", offset)

    def _check_times(self) -> None:
        """Refuse joins of joined rows of which event time or the end is not known."""
        for from_item in self._items:
            phrase = "a join of joined rows"
            if from_item.time is None and not from_item.is_table:
                message = (
                    f"{from_item.name!r} has no known event time, which {phrase} needs; make it a "
                    f"stream with one: engine.stream({from_item.name!r}, …, time='…')"
                )
                self._statement.refuse(message, from_item.start)
        for stage in self._stages:
            relations = stage.relations if len(stage.relations) > 1 else ()
            joined = (one for one in relations if one.stage is not None)
            for item in (item for one in joined for item in one.timed):
                self._check_leaves(item, "a join of joined rows")
        if self._emits != "istream":
            message = f"{self._emits.upper()} of a join of joined rows is not"
            self._statement.refuse(f"{message} supported yet", self._statement.emits_at)

    def _check_leaves(self, item: FromItem, join: str) -> None:
        """Refuse an input of which event time does not tell how long its rows stay."""
        if item.window.counts is not None:
            message = (
                f"{join} needs to know when a row of {item.name!r} leaves its window, and event "
                f"time does not tell it for [{item.window.text}]; write [RANGE …]"
            )
            self._statement.refuse(message, item.window_start(self._statement))

    # -- WHERE ------------------------------------------------------------------------------------

    def _add_where(self, where: Sequence[Fragment]) -> None:
        """Let each conjunct be asked in the first stage that has its inputs."""
        first = 0
        for number, stage in enumerate(self._stages):
            if stage.turns:
                # The rows of a FULL JOIN are there once both its joins are done.
                first = number + (stage.twin is not None)
        stages = self._stages[first:]
        for part in where:
            read = {mention.named.input for mention in self.names.mentions(part, "WHERE")}
            has_all = (
                candidate for candidate in stages if read <= {item.name for item in candidate.items}
            )
            stage = next(has_all, stages[-1])
            self.names.held, conditions = stage.held, stage.conditions
            conditions.absent = stage.relations[1].name if stage.kind == "left" else ""
            conditions.add_conjunct("WHERE", part)
            conditions.absent = ""

    # -- the query --------------------------------------------------------------------------------

    def outputs(self, *, tells_instant: bool = False) -> tuple[str, ...]:
        """Return the output columns of the query, over the inputs of the last stage.

        Args:
            tells_instant: whether ``window.end`` may be one, which then stays as it is.
        """
        statement, names = self._statement, self.names
        row_wise(statement.output_columns, self._calls)
        plain = names.qualified if len(self.relations) > 1 else names.canonical

        def write(part: Fragment, what: str) -> str:
            return INSTANT if tells_instant and self._is_instant(part) else plain(part, what)

        def name(part: Fragment, what: str) -> str:
            if tells_instant and self._is_instant(part):
                return "end"
            return default_name(part, what, statement, names)

        return outputs_of(statement, names, write, lambda _, named: self.text_of(named), name)

    def _is_instant(self, part: Fragment) -> bool:
        """Return whether an output column is the instant of a result, and no column of a row."""
        tree, scope = part.tree, self.names.scope
        if not isinstance(tree, exp.Column) or scope.has(WINDOW) or scope.input_of(WINDOW):
            return False
        return [word.name.lower() for word in tree.parts] == INSTANT.split(".")

    def rows_for(self, called: Mapping[Named, str]) -> Query:
        """Return the query of rows that say how long they stay, with columns under other names."""
        columns = [f"{self.text_of(named)} AS {identifier(name)}" for named, name in called.items()]
        return replace(self.query((*columns, *self.stay.columns)), time=LATEST)

    def query(self, projections: Sequence[str]) -> Query:
        """Return the query of all stages, with the output columns of the last one."""
        return _Maker(self, self._statement, derives=self._derives).query(
            self._last, projections, self._emits
        )


def row_wise(columns: Sequence[Fragment], calls: Calls) -> list[Fragment]:
    """Return output columns that are no stars.

    Raises:
        NotSupportedError: one needs more than one row, or calls a function of the user.
    """
    plain = [column for column in columns if not is_star(column.tree)]
    for fragment in plain:
        calls.check_none(fragment.tree)
        check_is_row_wise(fragment.tree, fragment.query, f"output column {fragment.text!r}")
    return plain


class _Windows:
    """The windows of a stage: of its items as they are stated, or as bounds of times imply."""

    def __init__(self, stage: Stage, *, derives: bool) -> None:
        self._stage = stage
        items = [item for relation in stage.relations for item in relation.items]
        timed = [item for relation in stage.relations for item in relation.timed]
        stated = {item.name: item.window.length if item.states_window else None for item in timed}
        derived = self._derived(stated) if derives else {}
        self.of_items: dict[str, Window] = {
            item.name: RangeWindow(derived[item.name], is_derived=True)
            if item.name in derived
            else item.window
            for item in items
        }

    def _derived(self, stated: Mapping[str, int | None]) -> dict[str, int]:
        """Return the lengths of windows that follow from bounds of event times (µs), by item.

        A bound by way of a stream counts only if a row of that is there. So a window is the longest
        that any set of present streams needs. Without a row of a stream that a condition of the
        join needs, nothing is joined.
        """
        bounds, by_item = self._stage.bounds, dict[str, list[int | None]]()
        needed = self._stage.conditions.needed
        cases = [names for names in self._stage.present if needed & {*stated} <= names]
        for present in cases:
            stated_lengths = {name: length for name, length in stated.items() if name in present}
            lengths = bounds.lengths(stated_lengths)
            for name in stated_lengths:
                by_item.setdefault(name, []).append(lengths.get(name))
        return {
            name: max(length for length in lengths if length is not None)
            for name, lengths in by_item.items()
            if None not in lengths
        }

    def of(self, relation: Relation) -> Window:
        """Return the window of an input: of joined rows that in which all rows may be."""
        if relation.stage is None:
            return self.of_items[relation.name]
        length = self._length(relation)
        plain = [self.of_items[item.name] for item in relation.timed]
        same = [window for window in plain if window.length == length]
        return same[0] if length < LONGEST else UNBOUNDED

    def _length(self, relation: Relation) -> int:
        """Return for how long after its latest row a joined row may be in its window (µs)."""
        stage = relation.stage
        if stage is None:
            return self.of_items[relation.name].length if relation.timed else LONGEST
        if stage.twin is None and stage.kind != "inner":
            return self._length(stage.relations[0])
        lengths = [self._length(part) for part in stage.relations]
        return min(lengths) if stage.twin is None else max(lengths)

    def conditions(self) -> list[str]:
        """Conditions that a row comes before a row of a joined one has left its window."""
        texts = []
        for joined in self._stage.relations:
            timed = joined.timed
            if joined.stage is None or len(timed) < 2:
                continue
            for item in timed:
                window = self.of_items[item.name]
                if window.length >= LONGEST or (
                    isinstance(window, RangeWindow) and window.is_derived
                ):
                    continue  # a derived one follows from the conditions themselves
                assert joined.held is not None
                assert item.time is not None
                begin = Named(joined.name, joined.held.column(Named(item.name, item.time))).text
                is_local = item.columns[item.time] == "timestamp_ntz"
                for other in self._stage.relations:
                    if other is not joined and other.timed:
                        later = Named(other.name, other.time).text
                        texts.append(_in_window(begin, later, window.length, is_local=is_local))
        return texts


def _in_window(begin: str, instant: str, length: int, *, is_local: bool) -> str:
    """Return the condition that an instant is in a window (µs), or that no row begins one.

    Spark adds spans to TIMESTAMP by the wall clock, so microseconds are compared.
    """
    inside = f"unix_micros({instant}) - unix_micros({begin}) <= {length}"
    if is_local:  # it has no time zone, whose clock could change
        inside = f"timestampdiff(MICROSECOND, {begin}, {instant}) <= {length}"
    return f"({begin} IS NULL OR {inside})"


class _Maker:
    """Makes the query of a stage, and those of the stages before."""

    def __init__(self, reader: JoinReader, statement: Statement, *, derives: bool) -> None:
        self._names = reader.names
        self._statement = statement
        self._derives = derives

    def query(self, stage: Stage, projections: Sequence[str], emits: Emits = "istream") -> Query:
        """Return the query of a stage with output columns; FULL JOIN is not among them."""
        return next(self._queries(stage, [projections], emits))

    def _queries(
        self, stage: Stage, projections: Sequence[Sequence[str]], emits: Emits
    ) -> Iterator[Query]:
        """Yield the queries of the joins of a stage, each with its output columns."""
        windows = [_Windows(join, derives=self._derives) for join in stage.joins]
        conditions = [
            join_windows.conditions() for join_windows in windows
        ]  # they name columns of stages before
        before = {
            relation.name: self._before(relation)
            for relation in stage.relations
            if relation.stage is not None
        }
        parts = zip(stage.joins, windows, conditions, projections, strict=True)
        for one, its_windows, valid, columns in parts:
            asked = one.conditions
            inputs = [self._input(relation, one, its_windows, before) for relation in one.relations]
            self._check_end(one, its_windows)
            is_inner = one.kind == "inner"
            yield Query(
                tuple(inputs),
                asked.keys.classes(),
                tuple(asked.equalities),
                (*asked.residual, *(valid if is_inner else ())),
                tuple(columns),
                emits,
                self._statement.text,
                kind=one.kind,
                conditions=(*asked.conditions, *(() if is_inner else valid)),
            )

    def _input(
        self, relation: Relation, stage: Stage, windows: _Windows, before: Mapping[str, Query]
    ) -> Input:
        first = relation.items[0]
        name, stream, query = relation.name, first.stream, first.query
        if relation.stage is not None:
            stream, query = name, before[name]
        window = windows.of(relation) if len(stage.relations) > 1 else UNBOUNDED
        predicates = tuple(stage.conditions.predicates[name])
        return Input(name, stream, window, predicates, first.start, query)

    def _before(self, relation: Relation) -> Query:
        """Return the stage whose results a relation is, with the columns that are read of it."""
        stage, held = relation.stage, relation.held
        assert stage is not None
        assert held is not None
        time = relation.time
        projections = []
        for join in stage.joins:
            self._names.held = join.held
            texts = {name: self._names.place_of(named).text for named, name in held.called.items()}
            if join is stage.twin:
                absent = {item.name for item in stage.relations[0].items}
                lost = [name for named, name in held.called.items() if named.input in absent]
                texts |= dict.fromkeys(lost, "NULL")
            if time == LATEST:
                texts[LATEST] = _latest(join)
            projections.append([f"{text} AS {identifier(name)}" for name, text in texts.items()])
        queries = tuple(
            replace(query, time=time) for query in self._queries(stage, projections, "istream")
        )
        if stage.twin is None:
            return queries[0]
        inputs = tuple(side for part in queries for side in part.inputs)
        names = queries[0].projections
        return Query(inputs, (), (), (), names, None, self._statement.text, parts=queries)

    def _check_end(self, stage: Stage, windows: _Windows) -> None:
        """Refuse a join that is not inner if a row of its first input may always find a partner."""
        if stage.kind == "inner":
            return
        left, right = stage.relations
        if windows.of(left).length < LONGEST or not right.timed:
            return
        assert stage.added is not None
        endless = [item for item in left.timed if windows.of_items[item.name].length >= LONGEST]
        bound, first, other = "", endless[0], right.timed[0]
        if self._derives and first.time is not None and other.time is not None:
            times = (f"{item.name}.{item.time}" for item in (other, first))
            bound = f", or a condition such as {' <= '.join(times)} + INTERVAL 10 MINUTES"
        message = (
            f"{stage.added.said(self._statement)[0]} needs a window behind {first.name!r}, such as "
            f"{first.name} [RANGE 10 MINUTES]{bound}: without an end a partner may come at any time"
        )
        self._statement.refuse(message, first.start)


def _latest(stage: Stage) -> str:
    """Return the event time of a stage's results as SQL: that of the latest row."""
    shown = stage.relations if stage.kind in ("inner", "left") else stage.relations[:1]
    times = [Named(relation.name, relation.time).text for relation in shown if relation.timed]
    return times[0] if len(times) == 1 else f"greatest({', '.join(times)})"
