"""Hypothesis strategies for windowed joins: queries, small streams that meet, cuts into batches.

All streams have the same columns: ``ts``, key columns ``k0``, ``k1``, … of types drawn for the
case, ``v``, and now and then an ``id`` that tells its rows apart; static tables lack ``ts``. Values
are few, so that they meet, and event times too, so that they tie. Importing this module needs
hypothesis.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import Input, KeyClass, Query, RangeWindow, RowsWindow, UnboundedWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.query.query import Window

EPOCH_US = 1_600_000_000_000_000
"""The instant about which event times are drawn (µs)."""

TIME = pa.timestamp("us", tz="UTC")
"""The type of ``ts``."""

UNITS = {"MICROSECONDS": 1, "SECONDS": 1_000_000}
"""What event times, windows and lateness are multiples of (µs), by its name in a query."""

N_INSTANTS = 6
"""Different event times of a case."""

MAX_ROWS = {2: 25, 3: 25, 4: 16, 5: 12}
"""Rows per stream by number of inputs: a join has at most some thousand results."""

KEYS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "string": (pa.string(), ("a", "A", "", None)),
    "int": (pa.int64(), (1, 0, 2, None)),
    "date": (pa.date32(), (dt.date(2020, 2, 29), dt.date(2020, 3, 1), dt.date(1969, 12, 31), None)),
}
"""Arrow type and values of each kind of key column; the more inputs, the more often the first."""

_SPARK = {TIME: "timestamp", pa.string(): "string", pa.int64(): "bigint", pa.date32(): "date"}
_EXPRESSIONS = {"string": "upper({})", "int": "{} + 1"}
_WINDOWS = (*3 * ("range", "rows"), *2 * ("groups", "unbounded"), "now")
_PREDICATES = ("{v} > 0", "{v} <> 2", "{k0} IS NOT NULL", "{v} IS NULL OR {v} < 2")
_RESIDUALS = (
    *("{a}.v < {b}.v", "{a}.v + {b}.v <> 3", "{a}.v <= {b}.v OR {a}.v IS NULL"),
    *("{a}.k0 <> {b}.k0", "NOT {a}.v = {b}.v", "{a}.v + {b}.v < {c}.v * 2"),
)


@dataclass(frozen=True, slots=True)
class JoinCase:
    """A join, the streams that it joins, and how their rows arrive."""

    query: Query
    tables: Mapping[str, pa.Table]
    """All rows of each stream and static table, by its name."""
    times: Mapping[str, str | None]
    """The event-time column of each stream; None for a static table."""
    lateness: int
    """By how much a row's event time may be behind that of an earlier one of its stream (µs)."""
    batches: tuple[Mapping[str, pa.Table], ...]
    """The rows of every stream in each batch, some of them empty; static tables are in none."""

    @property
    def columns(self) -> dict[str, dict[str, str]]:
        """Name and Spark type of each column, by stream or table."""
        return {
            name: {field.name: _SPARK[field.type] for field in rows.schema}
            for name, rows in self.tables.items()
        }


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that all streams of a case have."""

    keys: tuple[str, ...]
    """The kind of each key column."""
    has_id: bool

    def schema(self, *, static: bool) -> pa.Schema:
        fields = [] if static else [("ts", TIME)]
        fields += [(f"k{at}", KEYS[kind][0]) for at, kind in enumerate(self.keys)]
        fields += [("v", pa.int64()), *([("id", pa.int64())] if self.has_id else [])]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _World:
    """What a query may be drawn over."""

    columns: _Columns
    static: Mapping[str, bool]
    """Of each stream by name, whether it is a static table."""
    unit: str
    expressions: bool


@st.composite
def join_cases(
    draw: st.DrawFn,
    *,
    min_inputs: int = 2,
    max_inputs: int = 5,
    max_rows: Mapping[int, int] = MAX_ROWS,
    expressions: bool = True,
    statics: bool = True,
) -> JoinCase:
    """Return joins with the rows of their streams, and cuts of them into batches.

    Args:
        draw: given by hypothesis.
        min_inputs: fewest inputs.
        max_inputs: most inputs; at most 5.
        max_rows: most rows of a stream, by the number of inputs.
        expressions: whether some keys are more than a column.
        statics: whether some inputs are static tables.
    """
    n_inputs = draw(st.sampled_from(range(min_inputs, max_inputs + 1)))
    world = draw(_worlds(n_inputs, expressions=expressions, statics=statics))
    query = draw(join_queries(world, n_inputs))
    unit = UNITS[world.unit]
    used = sorted({each.stream for each in query.inputs})
    most = max_rows[n_inputs]
    seed = draw(st.integers(0, 2**16))
    tables = {
        name: draw(_rows(world, static=world.static[name], most=most, seed=f"{name}{seed}"))
        for name in used
    }
    times = {name: None if world.static[name] else "ts" for name in used}
    lateness = draw(st.integers(0, 4)) * unit
    streams = {name: tables[name] for name in used if not world.static[name]}
    batches = draw(cuts(streams, "ts", lateness, unit))
    return JoinCase(query, tables, times, lateness, batches)


@st.composite
def _worlds(draw: st.DrawFn, n_inputs: int, *, expressions: bool, statics: bool) -> _World:
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3))
    names = ("s", "t", "u", "w", "x")[:n_inputs]
    flags = draw(st.lists(st.integers(0, 3), min_size=n_inputs - 1, max_size=n_inputs - 1))
    static = {"s": False} | {
        name: statics and flag == 3 for name, flag in zip(names[1:], flags, strict=True)
    }
    columns = _Columns(tuple(kinds), draw(st.booleans()))
    return _World(columns, static, draw(st.sampled_from(sorted(UNITS))), expressions)


@st.composite
def join_queries(draw: st.DrawFn, world: _World, n_inputs: int) -> Query:
    """Return joins: stars, chains, random trees or one cycle, with one or more key classes.

    Args:
        draw: given by hypothesis.
        world: the streams and their columns; the first one is no static table.
        n_inputs: how many inputs; 2 or more.
    """
    streams = draw(_streams(tuple(world.static), n_inputs))
    names = _names(streams)
    inputs = tuple(
        Input(name, stream, draw(_windows(world, static=world.static[stream])))
        for name, stream in zip(names, streams, strict=True)
    )
    own = draw(_few(st.tuples(_one_of(names), _one_of(_PREDICATES))))
    inputs = tuple(
        replace(each, predicates=tuple(SqlPredicate(_own(f)) for at, f in own if at == each.name))
        for each in inputs
    )
    sides = [pair for edge in draw(_edges(names)) for pair in draw(_equal(world, edge))]
    equalities = tuple(f"{_qualified(*a)} = {_qualified(*b)}" for a, b in sides)
    residual = tuple(draw(_few(_residuals(names))))
    query = Query(
        inputs,
        key_classes(sides),
        equalities,
        residual,
        draw(_projections(names, world.columns)),
        draw(st.sampled_from(["istream", "istream", "dstream", "rstream"])),
        "",
    )
    return replace(
        query, text=text_of(query, [_own(form, f"{at}.") for at, form in own], world.unit)
    )


def _one_of(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(values))


def _few(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return lists of none, mostly, or of one or two."""
    sizes = st.sampled_from([0, 0, 0, 0, 1, 1, 2])
    return sizes.flatmap(lambda n: st.lists(values, min_size=n, max_size=n))


def _own(form: str, qualifier: str = "") -> str:
    return form.format(v=f"{qualifier}v", k0=f"{qualifier}k0")


@st.composite
def _streams(draw: st.DrawFn, known: tuple[str, ...], n_inputs: int) -> tuple[str, ...]:
    """Return the stream of each input: mostly all different, now and then some twice."""
    if draw(st.integers(0, 3)):
        return tuple(draw(st.permutations(known[:n_inputs])))
    others = draw(st.lists(_one_of(known), min_size=n_inputs - 1, max_size=n_inputs - 1))
    return tuple(draw(st.permutations([known[0], *others])))


def _names(streams: Sequence[str]) -> tuple[str, ...]:
    """Return a unique name for each input: the stream's, or an alias where it is there twice."""
    return tuple(
        stream if streams.count(stream) == 1 else f"{stream}_{at}"
        for at, stream in enumerate(streams)
    )


@st.composite
def _windows(draw: st.DrawFn, world: _World, *, static: bool) -> Window:
    kind = "unbounded" if static else draw(_one_of(_WINDOWS))
    match kind:
        case "range":
            return RangeWindow(draw(_one_of([1, 2, 3, 5, 8])) * UNITS[world.unit])
        case "now":
            return RangeWindow(0)
        case "rows":
            return RowsWindow(draw(st.integers(1, 8)))
        case "groups":
            groups = draw(_one_of([("k0",), ("v",), ("v", "k0")]))
            return RowsWindow(draw(st.integers(1, 4)), groups)
    return UnboundedWindow()


@st.composite
def _edges(draw: st.DrawFn, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is compared with what: a connected graph with at most one cycle."""
    shape = draw(_one_of(["star", "chain", "tree", "cycle"]))
    edges = []
    if shape == "star":
        edges = [(names[0], name) for name in names[1:]]
    elif shape == "chain":
        edges = list(pairwise(names))
    else:
        edges = [(draw(_one_of(names[:at])), names[at]) for at in range(1, len(names))]
    apart = [
        (a, b)
        for at, a in enumerate(names)
        for b in names[at + 1 :]
        if (a, b) not in edges and (b, a) not in edges
    ]
    return [*edges, *([draw(_one_of(apart))] if shape == "cycle" and apart else [])]


Side = tuple[str, str]
"""One side of an equality: the input, and an expression with ``{}`` before each column."""


@st.composite
def _equal(draw: st.DrawFn, world: _World, edge: tuple[str, str]) -> list[tuple[Side, Side]]:
    """Return the equalities of one edge: one or two, mostly of the first key column."""
    kinds = world.columns.keys
    pairs = []
    for _ in range(draw(_one_of([1, 1, 1, 2]))):
        left = draw(_one_of([0, 0, 0, *range(len(kinds))]))
        same = [at for at, kind in enumerate(kinds) if kind == kinds[left]]
        right = draw(_one_of([left, *same]))
        forms = ["{}"] * 5
        if world.expressions and kinds[left] in _EXPRESSIONS:
            forms.append(_EXPRESSIONS[kinds[left]])
        form = draw(_one_of(forms))
        pairs.append(
            ((edge[0], form.format(f"{{}}k{left}")), (edge[1], form.format(f"{{}}k{right}")))
        )
    return list(dict.fromkeys(pairs))


def _qualified(name: str, form: str) -> str:
    return form.format(f"{name}.")


def key_classes(sides: Sequence[tuple[Side, Side]]) -> tuple[KeyClass, ...]:
    """Return the classes of what is equal in every result, in the order of their first equality.

    >>> key_classes([(("s", "{}k"), ("t", "{}k")), (("t", "{}k"), ("u", "{}j"))])
    (KeyClass(members={'s': ('k',), 't': ('k',), 'u': ('j',)}),)
    """
    classes: list[list[Side]] = []
    for pair in sides:
        touched = [each for each in classes if not set(pair).isdisjoint(each)]
        merged = list(dict.fromkeys(side for group in (*touched, pair) for side in group))
        if touched:
            classes[classes.index(touched[0])] = merged
        else:
            classes.append(merged)
        classes = [each for each in classes if each is merged or each not in touched]
    found = []
    for each in classes:
        members: dict[str, tuple[str, ...]] = {}
        for name, form in each:
            members[name] = (*members.get(name, ()), form.format(""))
        found.append(KeyClass(members))
    return tuple(found)


@st.composite
def _residuals(draw: st.DrawFn, names: Sequence[str]) -> str:
    """Return a condition over two inputs, or three where there are as many."""
    form = draw(_one_of(_RESIDUALS if len(names) > 2 else _RESIDUALS[:-1]))
    a, b, c = (*draw(st.permutations(names)), "")[:3]
    return str(form.format(a=a, b=b, c=c))


@st.composite
def _projections(draw: st.DrawFn, names: Sequence[str], columns: _Columns) -> tuple[str, ...]:
    """Return output columns: all that tells rows apart, and some keys."""
    tell = "id" if columns.has_id else "v"
    made = [f"{name}.{tell} AS {name}_{tell}" for name in names]
    more = draw(st.lists(_one_of(names), max_size=2, unique=True))
    made += [f"{name}.k0 AS {name}_k0" for name in more]
    return (*made, *draw(_one_of([(), (f"{names[0]}.v + 1 AS more",)])))


def text_of(query: Query, own: Sequence[str], unit: str) -> str:
    """Return a query as it may be written.

    Args:
        query: what it says.
        own: the predicates of its inputs, with every column qualified.
        unit: what the lengths of its windows are written in.
    """
    sources = []
    for each in query.inputs:
        alias = "" if each.name == each.stream else f" AS {each.name}"
        sources.append(f"{each.stream}{_window_text(each.window, unit)}{alias}")
    where = " AND ".join(f"({each})" for each in (*query.equalities, *own, *query.residual))
    select = f"SELECT {', '.join(query.projections)} FROM {', '.join(sources)} WHERE {where}"
    return select if query.emits == "istream" else f"{query.emits.upper()}({select})"


def _window_text(window: Window, unit: str) -> str:
    match window:
        case RangeWindow(0):
            return " [NOW]"
        case RangeWindow(length):
            return f" [RANGE {length // UNITS[unit]} {unit}]"
        case RowsWindow(rows, ()):
            return f" [ROWS {rows}]"
        case RowsWindow(rows, groups):
            return f" [PARTITION BY {', '.join(groups)} ROWS {rows}]"
    return ""


@st.composite
def _rows(draw: st.DrawFn, world: _World, *, static: bool, most: int, seed: str) -> pa.Table:
    """Return the rows of a stream, in no order: how many is drawn, what is in them by the seed.

    So fewer rows are the first ones of more rows, and cases shrink by rows; and rows are as
    different as they should be, which what hypothesis draws is not: most joins would be empty.
    """
    columns, unit, rng = world.columns, UNITS[world.unit], Random(seed)
    often = (len(world.static), 1, 1, 0.5)
    rows = []
    for at in range(draw(st.one_of(st.integers(0, most), *3 * [st.integers(most // 2, most)]))):
        row: list[Any] = [] if static else [EPOCH_US + rng.randrange(N_INSTANTS) * unit]
        row += [rng.choices(KEYS[kind][1], often)[0] for kind in columns.keys]
        row += [rng.choice((0, 1, 2, 3, None)), *([at] if columns.has_id else [])]
        rows.append(row)
    return _table(rows, columns.schema(static=static))


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@st.composite
def cuts(
    draw: st.DrawFn, streams: Mapping[str, pa.Table], time: str, lateness: int, unit: int
) -> tuple[Mapping[str, pa.Table], ...]:
    """Return orders of arrival cut into batches, such that no row is late.

    Within each stream no row has an event time before that of a row that arrived earlier by more
    than the lateness: neither across batches nor within one. Different streams may be far apart.

    Args:
        draw: given by hypothesis.
        streams: all rows of each stream.
        time: their event-time column.
        lateness: how late a row may be (µs).
        unit: what delays are multiples of (µs).
    """
    n_batches, rng = draw(_one_of([1, 2, 2, 3, 3, 4, 5])), Random(draw(st.integers(0, 2**16)))
    pieces = {}
    for name, rows in streams.items():
        n_rows, instants = rows.num_rows, rows[time].cast(pa.int64()).to_pylist()
        delayed = [instant + rng.randint(0, lateness // unit) * unit for instant in instants]
        order = sorted(range(n_rows), key=delayed.__getitem__)
        inner = st.lists(st.integers(0, n_rows), min_size=n_batches - 1, max_size=n_batches - 1)
        bounds = [0, *sorted(draw(inner)), n_rows]
        arrived = rows.take(pa.array(order, pa.int64()))
        pieces[name] = [arrived.slice(lo, hi - lo) for lo, hi in pairwise(bounds)]
    return tuple({name: pieces[name][at] for name in streams} for at in range(n_batches))
