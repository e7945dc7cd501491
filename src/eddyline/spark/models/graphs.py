"""Graphs over segments of DataFrames.

Calls build them. They are checked, and as precise as results need. A ``Graph`` is a tree of steps
(``models.graph``) whose leaves are sources. Each call of ``frame.Segments`` reads its arguments
here and returns a graph with one more step. ``laying`` runs it as Spark plans, ``queries`` makes a
query of it where a source is a stream.

``precise`` takes the bounds of results back to models (``models.graph.required``). If these bounds
depend on how large values are, it reads the ranges of values from the rows of a batch DataFrame
once; of a stream the user has to say them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import graph, steps
from eddyline.models.fitting.bounds import NEEDS, common_range, read_length, read_ranges
from eddyline.models.fitting.declared import Declared
from eddyline.models.fitting.fit import Fit
from eddyline.models.graph import required
from eddyline.models.segments import COEF, ERR, RESERVED
from eddyline.models.solving import earth
from eddyline.models.solving.expressions import Range
from eddyline.models.solving.text import read_attributes, read_condition
from eddyline.models.steps import (
    DifferentEntities,
    Envelope,
    Extremum,
    Integral,
    OverEntities,
    Project,
    Shape,
    Total,
    Within,
)
from eddyline.registry import checked_text, unknown
from eddyline.spark.models import laying
from eddyline.spark.models.laying import RawRows, Source, rows_to_fit
from eddyline.spark.relation import micros_of
from eddyline.sql.functions import column_nodes
from eddyline.sql.parsing import parse_condition, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from eddyline.models.graph import Precision, Values
    from eddyline.models.solving.expressions import Condition, Expression
    from eddyline.models.steps import Step

WIDER = 0.25
"""By what share of their ends ranges of values are taken to be wider than those of the rows:
models leave these a little."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(graph.Input):
    """An input of a graph that has its source with it; its place counts for nothing."""

    source: Source

    @classmethod
    def from_source(cls, source: Source) -> Leaf:
        """Return the segments of a source."""
        return cls(-1, source.shape, source)


@dataclass(frozen=True, eq=False)
class Graph:
    """Graph of steps over sources, whose keys have the same names and types."""

    node: graph.Node
    """Its inputs are leaves."""

    @classmethod
    def from_source(cls, source: Source) -> Graph:
        """Return the segments of a source as they are."""
        return cls(Leaf.from_source(source))

    @property
    def sources(self) -> list[Source]:
        """The sources in the order in which they are read."""
        return [part.source for part in graph.parts(self.node) if isinstance(part, Leaf)]

    @property
    def placed(self) -> tuple[list[Source], graph.Node]:
        """The sources in the order in which they are read, and the graph over their places."""
        places = count()

        def change(part: graph.Node, read: tuple[graph.Node, ...]) -> graph.Node:
            is_leaf = isinstance(part, Leaf)
            return graph.Input(next(places), part.shape) if is_leaf else graph.over(part, read)

        return self.sources, graph.rebuilt(self.node, change)

    @property
    def shape(self) -> Shape:
        """Shape of the result: its keys and attributes."""
        return self.node.shape

    @property
    def key_fields(self) -> list[StructField]:
        """Name and type of each key."""
        return fields_of(self.node, _key_fields)

    @property
    def types(self) -> list[tuple[str, str]]:
        """Name and type of keys, and of what says the time."""
        time = self.sources[0].time_type
        keys = [(field.name, field.dataType.simpleString()) for field in self.key_fields]
        return [*keys, ("lo", time.simpleString())]

    @property
    def is_streaming(self) -> bool:
        """Whether a source is a stream."""
        return any(source.is_streaming for source in self.sources)

    @property
    def df(self) -> DataFrame:
        """Result as a DataFrame.

        Raises:
            NotSupportedError: of a stream; it has state, which only a query keeps.
        """
        if self.is_streaming:
            msg = "segments of a stream are a query: segments.query().start(…)"
            raise NotSupportedError(msg)
        return laying.laid(*precise(self).placed)

    @property
    def laid(self) -> Source:
        """The segments that come out, as a source."""
        raw = None
        if isinstance(self.node, Leaf):
            source = self.node.source
            raw = source.raw
            if isinstance(source.maker, Fit):
                raw = RawRows(source.df, source.maker.time, source.maker.places)
            elif raw is not None:  # of entities that were left out there are no segments
                raw = raw.where(source.conditions)
        return Source(self.df, self.shape, raw=raw)

    def then(self, step: Step) -> Graph:
        """Return the graph with one more step."""
        return Graph(graph.Unary(step, self.node))

    def onto(self, *attributes: str) -> Graph:
        """Return the graph with some of its attributes."""
        is_same = attributes == self.shape.attributes
        return self if is_same else self.then(Project.onto(*attributes))

    def of_entities(self, condition: str) -> Graph:
        """Return the graph over the entities on whose keys a condition is true.

        A group has or has not all of its entities: it is asked of these. Pairs have keys of their
        own.
        """
        rebuilt: dict[int, graph.Node] = {}

        def asked(part: graph.Node) -> graph.Node:
            if id(part) not in rebuilt:
                if isinstance(part, Leaf):
                    rebuilt[id(part)] = Leaf.from_source(part.source.where(condition))
                elif isinstance(part, graph.OtherEntities):
                    rebuilt[id(part)] = replace(part, conditions=(*part.conditions, condition))
                else:
                    rebuilt[id(part)] = graph.over(part, [*map(asked, graph.below(part))])
            return rebuilt[id(part)]

        return Graph(asked(self.node))

    def with_same(
        self, other: Graph, names: tuple[str, str], condition: Condition | None, text: str | None
    ) -> Graph:
        """Return a join of the same entities; see ``graph.SameEntity``."""
        left, right = _apart(self.node), _apart(other.node)
        return Graph(graph.SameEntity(left, right, names, condition, text))

    def with_others(self, other: Graph | None, step: DifferentEntities) -> Graph:
        """Return pairs of different entities; see ``laying.paired``."""
        right = self if other is None else other
        return Graph(graph.OtherEntities(self.node, right.node, step))

    def __str__(self) -> str:
        roots, node = self.placed
        texts = [str(root.maker or "read") for root in roots]
        texts += [str(part) for part in graph.parts(node) if not isinstance(part, graph.Input)]
        return "; ".join(texts)


def _key_fields(leaf: graph.Input) -> list[StructField]:
    assert isinstance(leaf, Leaf)
    return leaf.source.key_fields


def _apart(node: graph.Node) -> graph.Node:
    """Return a side of a join with steps of its own, up to pairs and values over entities.

    What both sides read from there is computed once.
    """

    def change(part: graph.Node, read: tuple[graph.Node, ...]) -> graph.Node:
        return part if graph.is_crossing(part) else graph.over(part, read)

    return graph.rebuilt(node, change)


def fields_of(
    node: graph.Node, fields_of_input: Callable[[graph.Input], list[StructField]]
) -> list[StructField]:
    """Return name and type of the keys of a part, by those of each input."""
    match node:
        case graph.Input():
            return fields_of_input(node)
        case graph.OtherEntities(left, right, step):
            return laying.fields_of_pairs(
                step.names, [fields_of(a, fields_of_input) for a in (left, right)]
            )
        case graph.SameEntity(left):
            return fields_of(left, fields_of_input)
        case graph.Unary(OverEntities(by), of):
            return [field for field in fields_of(of, fields_of_input) if field.name in by]
        case graph.Unary(_, of):
            return fields_of(of, fields_of_input)


def settled(query_graph: Graph) -> Graph:
    """Return a graph whose pairs and values over entities that are of no stream are sources."""

    def change(part: graph.Node, read: tuple[graph.Node, ...]) -> graph.Node:
        rebuilt = Graph(graph.over(part, read))
        if not graph.is_crossing(rebuilt.node) or rebuilt.is_streaming:
            return rebuilt.node
        return Leaf.from_source(Source(rebuilt.df, rebuilt.shape))

    return Graph(graph.rebuilt(query_graph.node, change))


def precise(query_graph: Graph, *, measures: bool = True) -> Graph:
    """Return a graph whose models are as near to rows as all that is asked of it needs.

    Args:
        query_graph: the graph.
        measures: whether ranges of values may be read from the rows, where bounds depend on them.

    Raises:
        OptionError: no bounds of models are enough, or nothing says how near they have to be; the
            fact ``ranges`` says that ranges of values would help.
    """
    roots, node = query_graph.placed
    is_asked = any(
        isinstance(part, graph.Unary)
        and isinstance(part.step, Within)
        and part.step.any_values is None
        for part in graph.parts(node)
    )
    if not is_asked and not any(isinstance(root.maker, Fit) and root.maker.unbounded
                                for root in roots):  # fmt: skip
        return query_graph
    ranges = said_ranges(roots, node)
    values = _widened(ranges)
    try:
        return _with_bounds(roots, node, required(node, values), values, ranges)
    except OptionError as error:
        if NEEDS not in error.facts or not measures:
            raise
    measured = _widened(
        {number: ranges_of(root) for number, root in enumerate(roots) if root.maker is not None}
    )
    values = {number: {**by_name, **values.get(number, {})} for number, by_name in measured.items()}
    return _with_bounds(roots, node, required(node, values), values, ranges)


def said_ranges(roots: Sequence[Source], node: graph.Node) -> dict[int, dict[str, Range]]:
    """Return for each source the ranges that its values are said to be in.

    Raises:
        OptionError: two that exclude each other are said of an attribute.
    """
    ranges: dict[int, dict[str, Range]] = {}
    for part in graph.parts(node):
        if not isinstance(part, graph.Unary) or not isinstance(part.step, Within):
            continue
        for number, root in enumerate(roots):
            root_ranges = ranges.setdefault(number, {})
            for name, said_range in part.step.ranges_said.items():
                if root.maker is not None and name in root.shape.attributes:
                    root_ranges[name] = common_range(
                        root_ranges.get(name, said_range), said_range, name
                    )
    return ranges


def _widened(values: Values) -> dict[int, dict[str, Range]]:
    return {
        number: {name: value_range.widened(WIDER) for name, value_range in by_name.items()}
        for number, by_name in values.items()
    }


def checked(query_graph: Graph) -> Graph:
    """Return a graph of which bounds are asked, if there are bounds of models that are enough.

    Raises:
        OptionError: there are none, whatever values are; or it is a stream, and they depend on how
            large values are.
    """
    try:
        precise(query_graph, measures=False)
    except OptionError as error:
        if NEEDS not in error.facts:
            raise
        if query_graph.is_streaming:
            msg = (
                f"{error.message}; or give the ranges of values, because a stream cannot be read "
                "for them: within(…, ranges={'x': (0, 100), 'd(x)': (-3, 3)})"
            )
            raise OptionError(msg, **error.facts) from error
    return query_graph


def told(query_graph: Graph) -> str:
    """Return what a graph does, with the bounds of its models as far as no row has to be read."""
    try:
        return str(precise(query_graph, measures=False))
    except OptionError:
        return str(query_graph)


def _with_bounds(
    roots: Sequence[Source], node: graph.Node, precision: Precision, values: Values, ranges: Values
) -> Graph:
    """Return a graph over sources with bounds, in which every ``Within`` is put in force."""
    sources = [*roots]
    for number, root in enumerate(roots):
        bounds, value_ranges = precision.bounds.get(number, {}), {**values.get(number, {})}
        if root.maker is None:
            if bounds:
                name, bound = next(iter(bounds.items()))
                msg = (
                    f"{name!r} would have to be within {bound}, but segments that are read or "
                    "persisted keep the bounds of their fit. Call within on el.models.fit(df, …), "
                    "or fit with smaller bounds; the errors of results say how near they are"
                )
                raise OptionError(msg, attribute=name, bound=str(bound))
            continue
        maker = root.maker.near_enough(bounds, precision.reads.get(number, set()), value_ranges)
        kept = {
            name: value_range
            for name, value_range in ranges.get(number, {}).items()
            if name in maker.columns
        }
        maker = replace(maker, assumed=kept)
        shape = Shape(root.shape.keys, tuple(maker.columns))
        sources[number] = replace(root, maker=maker, shape=shape)
    return Graph(graph.with_inputs(node, [*map(Leaf.from_source, sources)], precision.put_in))


# -- what callers give ----------------------------------------------------------------------------


_PREFIXES = (COEF, ERR)


def check_attribute(name: str, keys: Sequence[str]) -> None:
    """Check the name of an attribute.

    Raises:
        OptionError: it is that of a key, or of a column that segments or results have, whatever
            the case; such are ``err_x`` and ``coef_x`` for any x.
    """
    taken = [*keys, steps.TIME, steps.SINCE, steps.UNTIL, *RESERVED]
    if name.lower() in map(str.lower, taken):
        msg = f"attribute {name!r} has the name of a column of results; give it another name"
        raise OptionError(msg, name=name)
    if name.lower().startswith(_PREFIXES):
        msg = (
            f"attribute {name!r} begins with {COEF} or {ERR}, as columns of coefficients and "
            f"errors do; give it another name"
        )
        raise OptionError(msg, name=name)


def read_columns(graph: Graph, names: Sequence[str], columns: Mapping[str, str]) -> steps.Project:
    """Return the step that makes attributes of those that a graph has.

    Args:
        graph: has the attributes.
        names: of those that are kept.
        columns: expressions by the names of new attributes.

    Raises:
        QueryError: an expression cannot be read, or no attribute would be left.
        NotSupportedError: an expression is no polynomial.
        OptionError: a name that results have themselves, or two that differ only in case.
    """
    attributes = graph.shape.attributes
    texts: dict[str, str] = {}
    for attribute in names:
        place = earth.position_of(checked_text("attribute", attribute), attributes)
        texts |= (
            dict(zip(place, place, strict=True))
            if place
            else {attribute_of(graph, attribute): attribute}
        )
    texts |= columns
    if not texts:
        msg = f"select needs an attribute; there are {', '.join(attributes)}"
        raise QueryError(msg)
    seen: set[str] = set()
    for name in texts:
        check_attribute(name, graph.shape.keys)
        if name.lower() in seen:
            msg = f"two attributes are called {name!r}, whatever the case; give one another name"
            raise OptionError(msg, name=name)
        seen.add(name.lower())
    read: dict[str, Expression] = {}
    shown: dict[str, str] = {}
    keys: list[str] = []
    for name, text in texts.items():
        checked_text(f"expression of {name!r}", text)
        key_names = key_numbers(graph, text) if name in columns else ()
        keys += key_names
        parts = read_attributes(name, text, [*attributes, *key_names])
        read |= parts
        shown |= {output: f"{output} of {text}" if len(parts) > 1 else text for output in parts}
    earth.outputs(tuple(read))
    return steps.Project(read, shown, tuple(dict.fromkeys(keys)))


def key_numbers(graph: Graph, text: str, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the keys that stand in an expression or a condition.

    Args:
        graph: has keys and attributes; a name of both is that of the attribute.
        text: the expression, or the condition.
        names: those in it, if they are known.

    Raises:
        QueryError: one is no number.
    """
    if names is None:
        names = [node.name for node in column_nodes(parse_condition(text, "the expression"))]
    lower_names = {name.lower() for name in names} - {
        attribute.lower() for attribute in graph.shape.attributes
    }
    if lower_names.isdisjoint(map(str.lower, graph.shape.keys)):
        return ()
    fields = [field for field in graph.key_fields if field.name.lower() in lower_names]
    for field in fields:
        if not isinstance(field.dataType, NumericType):
            msg = (
                f"{' '.join(text.split())}: key {field.name!r} is of type "
                f"{field.dataType.simpleString()}; only numbers stand beside modelled attributes"
            )
            raise QueryError(msg, key=field.name)
    return tuple(field.name for field in fields)


def read_pair(names: Sequence[str]) -> tuple[str, str]:
    """Return the names of two sides.

    Raises:
        OptionError: they are not two words that differ, or the names of attributes behind them
            would be those of other columns.
    """
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        msg = f"names must be two different names, such as ('left', 'right'), got {names!r:.60}"
        raise OptionError(msg, names=names)
    for side in names:
        if not checked_text("name of a side", side).isidentifier():
            msg = f"the name of a side is a word, such as 'left', got {side!r}"
            raise OptionError(msg, names=names)
        if f"{side}_".lower().startswith(_PREFIXES):
            msg = (
                f"a side is called {side!r}, and {side}_x would be a column of segments; rename it"
            )
            raise OptionError(msg, names=names)
    return names[0], names[1]


def read_said(graph: Graph, ranges: Mapping[str, Any], *, by_pace: bool) -> dict[str, Range]:
    """Return the ranges that modelled attributes are said to be in; case does not matter.

    Raises:
        OptionError: one is no range, or lacks that of its change.
        QueryError: nothing is modelled by that name.
    """
    roots, _ = graph.placed
    names = [name for root in roots if root.maker for name in root.shape.attributes]
    by_lower = {name.lower(): name for name in names}
    by_attribute = {}
    for name, value_range in read_ranges(ranges, by_pace=by_pace).items():
        if name.lower() not in by_lower:
            raise QueryError(unknown("modelled attribute", name, names), name=name)
        by_attribute[by_lower[name.lower()]] = value_range
    return by_attribute


def attribute_of(graph: Graph, name: str) -> str:
    """Return the attribute that a name says; case does not matter.

    Raises:
        QueryError: there is none.
    """
    attributes = graph.shape.attributes
    by_lower = {attribute.lower(): attribute for attribute in attributes}
    if checked_text("attribute", name).lower() not in by_lower:
        raise QueryError(unknown("modelled attribute", name, attributes), name=name)
    return by_lower[name.lower()]


def attributes_of(graph: Graph, names: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes behind names; a position has three. Errors as above."""
    attributes = graph.shape.attributes
    groups = [
        earth.position_of(checked_text("attribute", name), attributes)
        or (attribute_of(graph, name),)
        for name in names
    ]
    return tuple(dict.fromkeys(attribute for group in groups for attribute in group))


def read_on(
    text: str | None, sides: tuple[Graph, Graph], names: tuple[str, str]
) -> Condition | None:
    """Return the condition on the attributes of two sides, which are called ``left.x``.

    Raises:
        QueryError: it cannot be read, or names what there is not.
        NotSupportedError: no comparison of polynomials says the same.
    """
    qualified = [
        f"{name}.{attribute}"
        for name, side in zip(names, sides, strict=True)
        for attribute in side.shape.attributes
    ]
    return None if text is None else read_condition(checked_text("condition", text), qualified)


def check_same(one: Graph, other: Graph, what: str) -> None:
    """Check that two are segments of the same kind of entities.

    Raises:
        QueryError: keys and times differ.
    """
    mine, its = one.types, other.types
    if mine != its:
        msg = (
            f"{what} takes segments whose keys and times have the same names and types; got "
            f"{_said(mine)} and {_said(its)}"
        )
        raise QueryError(msg)


def _said(types: Sequence[tuple[str, str]]) -> str:
    """Return columns and their types in words."""
    return ", ".join(f"{name} {kind}" for name, kind in types)


# -- windows, and values over entities ------------------------------------------------------------


def extremum(
    graph: Graph,
    attribute: str,
    window: str | None,
    slide: str | None,
    by: str | Sequence[str],
    *,
    is_largest: bool,
) -> Graph:
    """Return the least or greatest value of an attribute; arguments as of ``Segments.min``."""
    name = attribute_of(graph, attribute)
    kept, every = graph.onto(name), _every(slide)
    groups = _groups(graph, by, window, f"{'max' if is_largest else 'min'}({name!r}, ")
    if window is None:
        return _over_entities(kept, Envelope(groups, is_largest), every)
    return kept.then(Extremum(read_length("window", window), every, is_largest))


def integral(
    graph: Graph,
    attributes: Sequence[str],
    window: str | None,
    slide: str | None,
    covered: bool,
    by: str | Sequence[str],
    *,
    is_average: bool,
) -> Graph:
    """Return sums or averages of attributes; arguments as of ``Segments.sum``."""
    names = attributes_of(graph, attributes) or graph.shape.attributes
    kept, every = graph.onto(*names), _every(slide)
    called = ", ".join(map(repr, attributes))
    groups = _groups(
        graph, by, window, f"{'avg' if is_average else 'sum'}({called}{', ' * bool(called)}"
    )
    if window is None:
        if covered:
            msg = "covered needs a window: leave it out, or give window=…"
            raise OptionError(msg, covered=covered)
        return _over_entities(kept, Total(groups, is_average), every)
    return kept.then(Integral(read_length("window", window), every, is_average, bool(covered)))


def _every(slide: str | None) -> int | None:
    return None if slide is None else read_length("slide", slide)


def _over_entities(graph: Graph, step: OverEntities, every: int | None) -> Graph:
    stepped = graph.then(step)
    return stepped if every is None else stepped.then(steps.Sample(every))


def _groups(
    graph: Graph, by: str | Sequence[str], window: str | None, call: str
) -> tuple[str, ...]:
    """Return the keys of groups; ``call`` is how what is asked begins.

    Raises:
        QueryError: there is no such key.
        NotSupportedError: there are groups and a window.
    """
    groups = (by,) if isinstance(by, str) else tuple(by)
    for key in groups:
        if key not in graph.shape.keys:
            raise QueryError(unknown("key", key, graph.shape.keys), by=list(groups))
    if groups and window is not None:
        msg = (
            "by= combines entities at an instant, window= the instants of one entity: first "
            f".{call}by=…), then .{call}window=…)"
        )
        raise NotSupportedError(msg, by=by)
    return groups


# -- ranges of values, read from rows -------------------------------------------------------------


def ranges_of(source: Source) -> dict[str, Range]:
    """Return the ranges of a batch source's values: reads its rows once.

    An attribute without a value is left out. Changes are those between rows of an entity
    that have a value and follow each other, whatever stands between them; they have the noise of
    rows in them.
    """
    maker = source.maker
    assert maker is not None
    rows = rows_to_fit(source.df, maker)
    names = list(source.shape.attributes)
    is_declared = isinstance(maker, Declared)
    order = Window.partitionBy(*(F.col(quoted(key)) for key in maker.keys)).orderBy(
        F.col(quoted(maker.time))
    )
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    time = micros_of(rows, maker.time, source.name)
    before = rows.select(
        *(
            _finite(name, is_declared=is_declared).alias(f"v{number}")
            for number, name in enumerate(names)
        ),
        *(
            F.last(_finite(name, is_declared=is_declared), ignorenulls=True)
            .over(earlier)
            .alias(f"b{number}")
            for number, name in enumerate(names)
        ),
        (time - F.lag(time).over(order)).alias("us"),
    )
    asked = [F.sum("us").alias("us")]
    for number in range(len(names)):
        asked += [
            F.min(f"v{number}").alias(f"low{number}"),
            F.max(f"v{number}").alias(f"high{number}"),
            F.sum(F.abs(F.col(f"v{number}") - F.col(f"b{number}"))).alias(f"moved{number}"),
        ]
    row = before.agg(*asked).first()
    assert row is not None
    seconds = (row["us"] or 0) / 1e6
    return {
        name: Range(
            row[f"low{number}"],
            row[f"high{number}"],
            (row[f"moved{number}"] or 0.0) / seconds if seconds else 0.0,
        )
        for number, name in enumerate(names)
        if row[f"low{number}"] is not None
    }


def _finite(name: str, *, is_declared: bool) -> Column:
    """Return a value, of a declared model that at its row; NULL if it is not finite."""
    column = F.col(quoted(name))
    column = column[0] if is_declared else column
    return F.when(F.abs(column) < F.lit(float("inf")), column)
