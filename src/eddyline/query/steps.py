"""The steps of a query as data: printable, testable and replaceable.

A step reads relations by name and makes one relation. The first steps read streams and tables; the
last one makes ``RESULT``. The room ``spark/`` runs steps; this module does not. Two functions at
the end say which steps make the input of another step, and list the steps of a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from sqlglot import exp

from eddyline.query.predicates import MixedPredicate, SqlPredicate
from eddyline.query.query import PLACEHOLDER, WINDOW, both
from eddyline.query.select.statement import identifier
from eddyline.sql.parsing import comparable, parse_column, parse_output, quoted, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.query import (
        AggregateCall,
        Emits,
        Input,
        JoinKind,
        KeyClass,
        OverCall,
        Products,
        Query,
        Window,
    )

RESULT = "(result)"
"""The relation that the last step of a query makes; no stream or input can have that name."""


class Step(Protocol):
    """One step of a query: frozen, and ``str`` says it in a line of plain words."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that it reads."""

    @property
    def output(self) -> str:
        """The relation that it makes, from here on under that name."""

    def renamed(self, names: Callable[[str], str]) -> Step:
        """Return the step over relations of other names."""


@runtime_checkable
class CallsFunctions(Protocol):
    """A step that calls Python functions beside those of its conditions and columns."""

    @property
    def functions(self) -> Mapping[str, FunctionPredicate]:
        """The functions by the names by which the step calls them."""


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Reads a stream or a table, by the name it was given."""

    stream: str
    output: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """None: it reads what is outside of the query."""
        return ()

    def renamed(self, names: Callable[[str], str]) -> ReadStep:
        """Return the step over relations of other names."""
        return replace(self, output=names(self.output))

    def __str__(self) -> str:
        return f"read {self.stream}" + (f" as {self.output}" if self.output != self.stream else "")


@dataclass(frozen=True, slots=True)
class OverOne:
    """A step over one relation; it keeps the name unless it has a field ``output``."""

    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relation."""
        return (self.input,)

    @property
    def output(self) -> str:
        """The relation."""
        return self.input

    def renamed(self, names: Callable[[str], str]) -> Self:
        """Return the step over relations of other names."""
        relations = {"input", "output"}.intersection(member.name for member in fields(self))
        return replace(self, **{name: names(getattr(self, name)) for name in relations})


@dataclass(frozen=True, slots=True)
class FilterStep(OverOne):
    """Keeps the rows of a relation for which every predicate is true, under the same name."""

    predicates: tuple[Predicate, ...]
    """Over the columns of the relation, in the order in which they were written; of the results of
    a join, the columns are qualified by the join's input (``s.v``)."""

    def __str__(self) -> str:
        texts = [" ".join(predicate.text.split()) for predicate in self.predicates]
        conditions = " AND ".join(texts if len(texts) == 1 else [f"({text})" for text in texts])
        return f"filter {self.input}: {conditions or 'every row passes'}"


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """A relation that is joined, under the name by which expressions qualify its columns."""

    name: str
    input: str
    """The relation."""
    window: Window
    columns: tuple[str, ...]
    """Those that later steps read."""


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Joins relations over windows; a result is a struct of columns for each of them."""

    joined: tuple[JoinedInput, ...]
    keys: tuple[KeyClass, ...]
    equalities: tuple[str, ...]
    """As written, with qualified columns: compared again where codes of keys are hashes."""
    emits: Emits
    output: str
    kind: JoinKind = "inner"
    conditions: tuple[str, ...] = ()
    """See ``Query.conditions``."""
    products: Products | None = field(default=None, repr=False)
    """What results say that stand for several combinations; None if each is one combination."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that are joined."""
        return tuple(side.input for side in self.joined)

    def renamed(self, names: Callable[[str], str]) -> JoinStep:
        """Return the step over relations of other names."""
        joined = tuple(replace(side, input=names(side.input)) for side in self.joined)
        return replace(self, joined=joined, output=names(self.output))

    def __str__(self) -> str:
        sides = ", ".join(f"{side.name} [{side.window.shown}]" for side in self.joined)
        keys = " AND ".join(
            (*map(str, self.keys), *(f"({condition})" for condition in self.conditions))
        )
        emits = "" if self.emits == "istream" else f", as {self.emits.upper()}"
        kind = "" if self.kind == "inner" else f"{self.kind} "
        return f"{kind}join {sides} on {keys or 'no key'}{emits}"


@dataclass(frozen=True, slots=True)
class JoinMember:
    """What one of several queries that share a join asks of it."""

    name: str
    """Of the query."""
    inputs: tuple[str, ...]
    """The joined inputs by name, in the order in which it was written."""
    windows: Mapping[str, Window]
    """By input, its own window."""
    columns: Mapping[str, tuple[str, ...]]
    """By input, the columns that its later steps read."""
    wheres: Mapping[str, str] = field(default_factory=dict)
    """By input, the condition on the rows that it needs, as SQL; missing: it needs what others
    need."""


@dataclass(frozen=True, slots=True)
class SharedJoinStep(JoinStep):
    """A join that several queries share: inputs have the longest windows, and all columns.

    Results have the number of their query in ``joins.plan.MEMBER``; columns that it does not ask
    for are NULL.
    """

    members: tuple[JoinMember, ...] = ()

    def wheres(self, name: str) -> tuple[str, ...]:
        """Return the condition of each query on the rows of an input; none if all need the same.

        The condition of one that needs all rows is empty.
        """
        wheres = tuple(member.wheres.get(name, "") for member in self.members)
        return wheres if any(wheres) else ()

    def __str__(self) -> str:
        return f"{JoinStep.__str__(self)}, for {len(self.members)} queries"


@dataclass(frozen=True, slots=True)
class MemberFilterStep(OverOne):
    """Keeps of the results of one of several queries those for which every predicate is true."""

    predicates: tuple[Predicate, ...]
    query: str
    number: int

    def __str__(self) -> str:
        return f"{FilterStep(self.input, self.predicates)}, of {self.query}"


@dataclass(frozen=True, slots=True)
class AggregateStep(OverOne):
    """Aggregates the rows of a relation by group and window, and computes the output columns.

    HAVING and the output columns read the groups and calls by their columns, and ``WINDOW``.
    """

    groups: tuple[tuple[str, str], ...]
    """Name and SQL text, over the columns of the input, of each expression of GROUP BY."""
    calls: tuple[AggregateCall, ...]
    window: Window
    projections: tuple[str, ...]
    """The output columns as SQL texts, each with its name (``sum_v AS total``)."""
    having: str = ""
    """Condition on results; empty if there is none."""
    emits: Emits | None = None
    """What the query asks for; None: values at every slide and for every session, and ISTREAM for
    other windows."""
    output: str = RESULT
    time: str = ""
    """The column of the input that the query takes for the event time; empty if it does not say."""
    where: str = ""
    """Condition on rows of a window that counts rows; rows that do not meet it count, too."""
    copies: str = ""
    """How many equal results a group has, as SQL over groups and calls; empty: one."""

    def __repr__(self) -> str:
        """Say what identifies it, and its state; WHERE and copies only where there are some."""
        rare = "where", "copies"
        names = [
            member.name
            for member in fields(self)
            if member.name not in rare or getattr(self, member.name)
        ]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"AggregateStep({values})"

    @property
    def grouping(self) -> frozenset[tuple[str, ...]]:
        """What it groups by: texts of which neither order, white space nor case counts."""
        return frozenset(comparable(text) for _, text in self.groups)

    def in_words(self, text: str) -> str:
        """Return a text over groups and calls with what these stand for, on one line."""
        texts = {**dict(self.groups), **{call.column: call.text for call in self.calls}}
        return PLACEHOLDER.sub(lambda match: texts.get(match[0], match[0]), " ".join(text.split()))

    @property
    def end(self) -> str | None:
        """The output column that is the end of the window of a result; None if none is."""
        for projection in self.projections:
            *words, name = (token.text for token in tokens_of(projection))
            if [word.lower() for word in words] == [WINDOW, ".", "end", "as"]:
                return name
        return None

    def __str__(self) -> str:
        columns, having = map(self.in_words, (", ".join(self.projections), self.having))
        by = ", ".join(" ".join(text.split()) for _, text in self.groups)
        emits = "" if self.emits is None else f", as {self.emits.upper()}"
        where = f" where {' '.join(self.where.split())}" if self.where else ""
        copies = f", {self.in_words(self.copies)} times" if self.copies else ""
        return (
            f"aggregate {self.input} [{self.window.text}]{where}: {columns}"
            f"{f' by {by}' if by else ''}{f', having {having}' if having else ''}{copies}{emits}"
        )


@dataclass(frozen=True, slots=True)
class SharedAggregateStep(OverOne):
    """Aggregates a relation as several queries ask, over windows that slide.

    Of any two queries, one groups by all expressions of the other, perhaps by more. A result has
    the number of its query in ``aggregates.plan.PLACE``, the groups of the finest query (NULL where
    its own query does not group by them), the calls of all queries, and ``WINDOW``.
    """

    members: tuple[tuple[AggregateStep, str], ...]
    """The step of each query, and the condition under which it takes a row; empty: it takes all."""
    output: str = RESULT

    @property
    def finest(self) -> AggregateStep:
        """The first step that groups by most expressions."""
        return max((step for step, _ in self.members), key=lambda step: len(step.grouping))

    def __str__(self) -> str:
        windows = ", ".join(dict.fromkeys(step.window.text for step, _ in self.members))
        by = ", ".join(" ".join(text.split()) for _, text in self.finest.groups)
        return (
            f"aggregate {self.input} for {len(self.members)} queries"
            f"{f' by {by}' if by else ''}, over {windows}"
        )


@dataclass(frozen=True, slots=True)
class OverStep(OverOne):
    """Adds to each row of a relation aggregates over rows of its partition up to it."""

    partition_by: tuple[str, ...]
    """SQL texts over the columns of the input; none: all rows are one partition."""
    calls: tuple[OverCall, ...]
    time: str = ""
    """The column of the input that the query takes for the event time; empty if it does not say."""

    def __str__(self) -> str:
        calls = ", ".join(
            f"{call.call.text} over {call.window.text} as {call.call.column}" for call in self.calls
        )
        by = ", ".join(" ".join(text.split()) for text in self.partition_by)
        return f"windows of each row of {self.input}{f' by {by}' if by else ''}: {calls}"


@dataclass(frozen=True, slots=True)
class UnionStep:
    """Has the rows of several relations; columns go by position, with the names of the first."""

    inputs: tuple[str, ...]
    output: str = RESULT

    def renamed(self, names: Callable[[str], str]) -> UnionStep:
        """Return the step over relations of other names."""
        return replace(self, inputs=tuple(map(names, self.inputs)), output=names(self.output))

    def __str__(self) -> str:
        return f"union all of {', '.join(self.inputs)}"


@dataclass(frozen=True, slots=True)
class ProjectStep(OverOne):
    """Computes the output columns of a query."""

    projections: tuple[str, ...]
    """SQL texts; see ``Query.projections``."""
    output: str = RESULT
    calls: Mapping[str, FunctionPredicate] = field(default_factory=dict, hash=False)
    """Functions that they call, by the columns that stand for them; see ``Query.calls``."""
    time: str | None = None
    """The output column that is the event time of a stream that is made of them, where that is not
    a column of the input."""
    words: str = ""
    """Words instead of the columns, where the steps before it make these."""

    def __repr__(self) -> str:
        """Say what identifies it: columns that somebody wrote."""
        content = self.words or f"{self.projections!r}, {self.calls!r}, {self.time!r}"
        return f"ProjectStep({self.input!r}, {content}, {self.output!r})"

    def __str__(self) -> str:
        if self.words:
            return f"{self.input}: {self.words}"
        columns = ", ".join(" ".join(projection.split()) for projection in self.projections)
        for name, call in reversed(list(self.calls.items())):
            columns = columns.replace(name, call.text)
        return f"project {self.input}: {columns}"


def with_own(steps: Sequence[Step], aggregates: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return steps whose calls of a user's aggregates have these, by name in lower case."""

    def known(call: AggregateCall) -> AggregateCall:
        aggregate = aggregates.get(call.function)
        return call if aggregate is None or call.own is not None else replace(call, own=aggregate)

    result: list[Step] = []
    for step in steps:
        if isinstance(step, AggregateStep):
            result.append(replace(step, calls=tuple(map(known, step.calls))))
        elif isinstance(step, OverStep):
            calls = (replace(over, call=known(over.call)) for over in step.calls)
            result.append(replace(step, calls=tuple(calls)))
        else:
            result.append(step)
    return tuple(result)


def inlined(steps: Sequence[Step], name: str) -> list[Step]:
    """Return the steps of a query that make an input of another one, over their own relations."""
    return [
        step.renamed(lambda inner: name if inner == RESULT else f"{name}.{inner}") for step in steps
    ]


def name_of(projection: str) -> str:
    """Return the name of an output column; empty if Spark gives it one.

    >>> name_of("s.v + 1 AS more"), name_of("v")
    ('more', 'v')
    """
    return str(parse_column(projection).alias_or_name)


def columns_read(inputs: Sequence[str], texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return, by input, the columns that expressions with qualified columns read."""
    by_input: dict[str, dict[str, None]] = {name: {} for name in inputs}
    for text in texts:
        for node in parse_output(text).find_all(exp.Column):
            parts = [part.name for part in node.parts]
            if len(parts) > 1:  # else it is no column, but a unit of time: dateadd(day, 1, s.ts)
                by_input[parts[0]][parts[1]] = None
    return {name: tuple(columns) for name, columns in by_input.items()}


def carries(steps: Sequence[Step], column: str) -> bool:
    """Return whether the rows that steps make have a column of the rows they read, unchanged."""
    for position, step in enumerate(steps):
        if isinstance(step, JoinStep | AggregateStep):
            return False
        if isinstance(step, ProjectStep) and _position(step, column) is None:
            return False
        if isinstance(step, UnionStep):
            makers = [steps[maker(steps, position, name)] for name in step.inputs]
            if len({_position(origin, column) for origin in makers}) > 1:
                return False
    return True


def _position(step: Step, column: str) -> tuple[str, ...] | int | None:
    """Return where a step has a column unchanged: of columns with ``*``, what they are at all."""
    if not isinstance(step, ProjectStep):
        return None
    kept = [
        place
        for place, projection in enumerate(step.projections)
        if projection in (column, quoted(column))
    ]
    return step.projections if "*" in step.projections else next(iter(kept), None)


def tree(steps: Sequence[Step], say: Callable[[Step], str] = str) -> tuple[str, ...]:
    """Return steps as lines of a tree: the last one at the top, what is read as leaves.

    Example:
        >>> from eddyline.query.predicates import SqlPredicate
        >>> from eddyline.query.steps import ReadStep
        >>> chain = (ReadStep("s", "s"), FilterStep("s", (SqlPredicate("v > 3"),)))
        >>> for line in tree((*chain, ProjectStep("s", ("v",)))):
        ...     print(line)
        project s: v
        └─ filter s: v > 3
           └─ read s
    """
    return tuple(_branch(steps, len(steps) - 1, say, ""))


def _branch(
    steps: Sequence[Step], position: int, say: Callable[[Step], str], indent: str
) -> list[str]:
    """Return the lines of a step and of all that it reads."""
    lines = [say(steps[position])]
    children = [maker(steps, position, name) for name in steps[position].inputs]
    for number, child in enumerate(children):
        is_last = number == len(children) - 1
        branch = _branch(steps, child, say, indent)
        lines.append(("└─ " if is_last else "├─ ") + branch[0])
        lines += [("   " if is_last else "│  ") + line for line in branch[1:]]
    return lines


def kind_of(step: Step) -> str:
    """Return what a step does, in a word.

    >>> kind_of(ReadStep("s", "s")), kind_of(UnionStep(("a", "b")))
    ('read', 'union')
    """
    return type(step).__name__.removesuffix("Step").lower()


def maker(steps: Sequence[Step], position: int, name: str) -> int:
    """Return the position of the step that makes a relation which the step at a position reads."""
    return next(place for place in reversed(range(position)) if steps[place].output == name)


def made_by(steps: Sequence[Step], position: int, name: str) -> list[Step]:
    """Return the steps that make a relation which the step at a position reads, in their order."""
    places = {maker(steps, position, name)}
    pending = [*places]
    while pending:
        reader = pending.pop()
        makers = {maker(steps, reader, relation) for relation in steps[reader].inputs}
        pending += makers - places
        places |= makers
    return [steps[place] for place in sorted(places)]


def asks_python(step: Step) -> bool:
    """Return whether a step calls Python functions elsewhere than as a predicate."""
    if isinstance(step, FilterStep):
        return any(isinstance(predicate, MixedPredicate) for predicate in step.predicates)
    return isinstance(step, ProjectStep) and bool(step.calls)


def steps(
    query: Query, steps_by_stream: Mapping[str, Sequence[Step]] | None = None
) -> tuple[Step, ...]:
    """Return the steps of a query in the order in which they are evaluated.

    A query over one input is filtered even where it has no predicate; of a join, the inputs that
    have some, and the results if there are conditions beside the equalities.

    Args:
        query: the query.
        steps_by_stream: of the streams that are results of other queries, the steps of those by
            the stream's name. They take the place of reading it, over relations of their own: ``s``
            of the query behind the input ``a`` is called ``a.s`` (an input of that very name is in
            backticks).

    Example:
        >>> from eddyline.query.select.reader import read_query
        >>> columns = {"s": {"k": "int", "v": "int"}, "t": {"k": "int", "w": "int"}}
        >>> query = read_query("SELECT v FROM s [NOW], t WHERE s.k = t.k AND v > 3", columns)
        >>> for step in steps(query):
        ...     print(step)
        read s
        filter s: v > 3
        read t
        join s [NOW], t [UNBOUNDED] on s.k = t.k
        project s ⋈ t: s.v AS v
    """
    if query.parts:
        return _union(query, steps_by_stream)
    result: list[Step] = []
    for item in query.inputs:
        result += _input_steps(query, item, steps_by_stream or {})
    names = [identifier(source.name) for source in query.inputs]
    if query.grouping is not None:
        return (*result, _aggregate_step(query, names[0]))
    overs = query.overs
    result += [OverStep(names[0], over.partition_by, over.calls, over.time) for over in overs]
    if not query.is_join:
        project = ProjectStep(names[0], query.projections, calls=query.calls, time=query.time)
        return (*result, project)
    output = " ⋈ ".join(names)
    qualifiers = [source.name for source in query.inputs]
    needed = columns_read(qualifiers, (*query.projections, *query.residual, *query.conditions))
    joined = tuple(
        JoinedInput(source.name, name, source.window, needed[source.name])
        for name, source in zip(names, query.inputs, strict=True)
    )
    asked = query.emits or "istream", output, query.kind, query.conditions
    result.append(JoinStep(joined, query.keys, query.equalities, *asked))
    if query.residual:
        result.append(FilterStep(output, tuple(map(SqlPredicate, query.residual))))
    return (*result, ProjectStep(output, query.projections, time=query.time))


def _union(query: Query, steps_by_stream: Mapping[str, Sequence[Step]] | None) -> tuple[Step, ...]:
    """Return the steps of UNION ALL; the relations of its parts are told apart by number."""
    names = [f"part {number}" for number in range(1, len(query.parts) + 1)]
    parts = zip(names, query.parts, strict=True)
    inner = [step for name, part in parts for step in inlined(steps(part, steps_by_stream), name)]
    return (*inner, UnionStep(tuple(names)))


def _aggregate_step(query: Query, input: str) -> AggregateStep:
    """Return the step that aggregates an input."""
    assert query.grouping is not None
    grouping, window = query.grouping, query.inputs[0].window
    where = (
        both(*(predicate.text for predicate in query.inputs[0].predicates)) if window.counts else ""
    )
    return AggregateStep(
        input,
        grouping.groups,
        grouping.calls,
        window,
        query.projections,
        grouping.having,
        query.emits,
        time=query.times[0].name if query.times else "",
        where=where,
        copies=grouping.copies,
    )


def _input_steps(
    query: Query, item: Input, steps_by_stream: Mapping[str, Sequence[Step]]
) -> list[Step]:
    """Return the steps that make an input: its stream, and what passes its predicates."""
    name, inner = identifier(item.name), steps_by_stream.get(item.stream)
    if item.query is not None:
        inner = steps(item.query, steps_by_stream)
    result: list[Step] = [ReadStep(item.stream, name)]
    if inner is not None:
        result = inlined(inner, name)
    if item.predicates or not query.is_join:
        # Where rows are counted and aggregated, WHERE is asked of those that the window has.
        is_counted = query.grouping is not None and item.window.counts is not None
        result.append(FilterStep(name, () if is_counted else item.predicates))
    return result
