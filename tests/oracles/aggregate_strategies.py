"""Hypothesis strategies for windowed aggregates: queries, a stream, and cuts of it into batches.

The stream ``s`` has the columns of ``SCHEMA``. Values are few, so that rows share groups; event
times are few, too, and lie at the edges of windows or a microsecond beside them. The ``id`` of a
row is its own and in no order: it stands behind the event time, so contents have one order.
Importing this module needs hypothesis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from eddyline.query.query import (
    LONGEST,
    UNBOUNDED,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    Window,
)
from tests.oracles.aggregates import (
    END,
    START,
    Aggregation,
    Call,
    Expression,
    Over,
    arrived,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "id": pa.int64(),
        "k": pa.string(),
        "g": pa.int32(),
        "v": pa.int64(),
        "x": pa.float64(),
        "d": pa.decimal128(10, 2),
    }
)
"""The columns of the stream."""

_HAVING = re.compile(r"\bh\b")

ZONE = "Europe/Berlin"
"""The session's zone; where event times are in hours, its clocks go forward among them."""

NAN = float("nan")

VALUES: dict[str, tuple[Any, ...]] = {
    "k": ("a", "a", "a", "A", "b", "", None),
    "g": (0, 0, 1, 2, None),
    "v": (0, 1, 2, 3, 3, -2, None),
    "x": (0.25, 0.25, 1.5, -3.75, 0.0, -0.0, NAN, None),
    "d": (Decimal("0.10"), Decimal("0.10"), Decimal("-7.25"), Decimal("99999999.99"), None),
}
"""What the columns hold."""

N_INSTANTS, MAX_ROWS = 8, 16


@dataclass(frozen=True, slots=True)
class World:
    """What event times, windows and lateness are multiples of."""

    words: str
    unit: int
    """µs."""
    base: int
    """The instant from which on event times are drawn (µs)."""


WORLDS = (
    World("SECOND", 1_000_000, 1_600_000_000_000_000),
    World("MICROSECOND", 1, 1_600_000_000_000_000),
    World("MICROSECOND", 1, -4),
    # 2025-03-29 21:00 UTC: at 01:00 UTC of the next day the clocks of ZONE go from 02:00 to 03:00.
    World("HOUR", 3_600_000_000, 1_743_282_000_000_000),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A query over a stream, and how the rows of the stream arrive."""

    text: str
    of: Aggregation | Over
    window: Window
    """Of the stream; of OVER, all rows."""
    emits: str | None
    batches: tuple[tuple[dict[str, Any], ...], ...]
    lateness: int
    """µs."""
    world: World

    @property
    def on_time(self) -> pa.Table:
        """The rows that are in time, with event times in µs."""
        return plain_table(arrived(self.batches, self.lateness).rows)


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as a stream has them."""
    return plain_table(rows).cast(SCHEMA)


def plain_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows with event times in µs."""
    return pa.Table.from_pylist(list(rows), SCHEMA.set(0, pa.field("ts", pa.int64())))


# -- expressions ----------------------------------------------------------------------------------


def _of(name: str) -> Expression:
    return Expression(name, lambda row: row[name])


def _positive(row: Any) -> bool | None:
    return None if row["v"] is None else row["v"] > 0


def _odd(row: Any) -> int | None:
    return None if row["v"] is None else abs(row["v"]) % 2


GROUPS: dict[str, Expression] = {
    "k": _of("k"),
    "g": _of("g"),
    "x": _of("x"),
    "upper(k)": Expression("upper(k)", lambda row: row["k"] and row["k"].upper()),
    "abs(v) % 2": Expression("abs(v) % 2", _odd),
    "coalesce(g, 1) + 1": Expression(
        "coalesce(g, 1) + 1", lambda row: (1 if row["g"] is None else row["g"]) + 1
    ),
}
"""Members of GROUP BY and of PARTITION BY."""

CONDITIONS = (
    Expression("v > 0", _positive),
    Expression("k IS NOT NULL", lambda row: row["k"] is not None),
    Expression("v IS NULL OR v < 2", lambda row: row["v"] is None or row["v"] < 2),
    Expression("g <> 1", lambda row: None if row["g"] is None else row["g"] != 1),
    Expression("v > 100", lambda _: False),
)
"""Of WHERE and of FILTER; the last one, of FILTER alone, is never true."""

HAVING = (
    (("count", None, False), "{} > 1", lambda value: value > 1),
    (("sum", "v", False), "{} > 2", lambda value: None if value is None else value > 2),
    (("max", "v", False), "{} IS NULL OR {} < 3", lambda value: value is None or value < 3),
    (("count", "k", True), "{} <= 1", lambda value: value <= 1),
)

EXACT = (
    *(("count", None, False), ("count", "x", False), ("sum", "v", False), ("sum", "x", False)),
    *(("sum", "d", False), ("min", "v", False), ("max", "x", False), ("min", "x", False)),
    *(("max", "k", False), ("min", "d", False), ("first", "v", False), ("last", "v", False)),
    *(("first", "k", False), ("last", "x", False), ("count", "k", True), ("count", "x", True)),
    *(("avg", "v", False), ("avg", "x", False)),
)
"""Calls whose values do not hang on the order of additions: quarters are exact."""

ROUNDED = (("var_samp", "v", False), ("var_samp", "x", False), ("stddev_samp", "v", False))


@st.composite
def calls(
    draw: st.DrawFn, *, exact: bool, distinct: bool = True, most: int = 4
) -> tuple[Call, ...]:
    """Return one to some calls, a quarter of them with FILTER.

    Args:
        draw: given by hypothesis.
        exact: whether values must not hang on the order of additions.
        distinct: whether values may be counted once.
        most: how many at most.
    """
    known = [each for each in (EXACT if exact else EXACT + ROUNDED) if distinct or not each[2]]
    specs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=most, unique=True))
    filters = st.sampled_from([None, None, None, *CONDITIONS])
    return tuple(
        Call(function, f"c{at}", argument, is_distinct, draw(filters))
        for at, (function, argument, is_distinct) in enumerate(specs)
    )


def _few(draw: st.DrawFn, values: Sequence[Any]) -> Any:
    """Return None, mostly, or one of some values."""
    return draw(st.sampled_from([None, None, None, *values]))


@st.composite
def aggregations(
    draw: st.DrawFn, *, exact: bool, window_columns: bool, groups: Sequence[str] | None = None
) -> tuple[Any, bool]:
    """Return what is asked, by some groups or drawn ones, and whether it is written as DISTINCT."""
    if groups is None:
        groups = draw(st.lists(st.sampled_from(sorted(GROUPS)), max_size=2, unique=True))
    named = tuple((f"g{at}", GROUPS[name]) for at, name in enumerate(groups))
    where = _few(draw, CONDITIONS[:-1])
    if named and draw(st.integers(0, 5)) == 5:
        names = tuple(name for name, _ in named)
        return Aggregation(named, (), names, where), True
    asked = draw(calls(exact=exact))
    spec = _few(draw, HAVING)
    having, hidden = None, ()
    if spec is not None:
        (function, argument, is_distinct), form, says = spec
        having = Expression(form.replace("{}", "h"), lambda known: says(known["h"]))
        hidden = (Call(function, "h", argument, is_distinct),)
    output = [*(name for name, _ in named), *(each.column for each in asked)]
    output += [START, END] if window_columns else []
    return Aggregation(named, (*asked, *hidden), tuple(output), where, having), False


# -- windows --------------------------------------------------------------------------------------

KINDS = ("tumbling", "slides", "unbounded slides", "sessions", "changes", "rows")
"""Kinds of windows with GROUP BY; OVER is beside them."""


@st.composite
def windows(draw: st.DrawFn, kind: str, world: World) -> Window:
    """Return a window of a kind."""
    lengths = st.integers(1, 6).map(lambda n: n * world.unit)
    origin = draw(st.sampled_from([0, 0, 0, world.unit, 2 * world.unit]))
    match kind:
        case "tumbling":
            length = draw(lengths)
            return SlideWindow(length, length, origin)
        case "slides":
            return SlideWindow(draw(lengths), draw(lengths), origin)
        case "unbounded slides":
            return SlideWindow(LONGEST, draw(lengths), origin)
        case "sessions":
            return SessionWindow(draw(lengths))
        case "changes":
            return draw(
                st.one_of(lengths.map(RangeWindow), st.just(RangeWindow(0)), st.just(UNBOUNDED))
            )
    by = draw(st.sampled_from([(), ("k",), ("g", "k")]))
    return RowsWindow(draw(st.integers(1, 5)), by)


def _span(length: int, world: World) -> str:
    return f"{length // world.unit} {world.words}S"


def window_text(window: Window, world: World) -> str:
    """Return a window as a query has it, with its brackets."""
    match window:
        case RangeWindow(0):
            return "[NOW]"
        case RangeWindow(length):
            return f"[RANGE {_span(length, world)}]"
        case SlideWindow(length, slide, origin):
            of = "UNBOUNDED" if length == LONGEST else f"RANGE {_span(length, world)}"
            at = f" ORIGIN {_span(origin, world)}" if origin else ""
            return f"[{of} SLIDE {_span(slide, world)}{at}]"
        case SessionWindow(gap):
            return f"[SESSION {_span(gap, world)}]"
    return f"[{window.text}]"


def text_of(
    of: Aggregation, window: Window, emits: str | None, world: World, *, distinct: bool
) -> str:
    """Return a query with GROUP BY, or with DISTINCT, as it may be written."""
    texts = {name: each.text for name, each in of.groups}
    texts |= {each.column: each.text for each in of.calls}
    texts |= {START: "window.start", END: "window.end"}
    columns = ", ".join(f"{texts[name]} AS {name}" for name in of.output)
    text = f"SELECT {'DISTINCT ' if distinct else ''}{columns} FROM s {window_text(window, world)}"
    if of.where is not None:
        text += f" WHERE {of.where.text}"
    if of.groups and not distinct:
        text += f" GROUP BY {', '.join(each.text for _, each in of.groups)}"
    if of.having is not None:
        text += " HAVING " + _HAVING.sub(lambda _: texts["h"], of.having.text)
    return text if emits is None else f"{emits.upper()}({text})"


@st.composite
def aggregate_cases(
    draw: st.DrawFn, kinds: Sequence[str] = KINDS, *, late: bool = False, exact: bool = False
) -> Case:
    """Return queries with GROUP BY or DISTINCT over streams.

    Args:
        draw: given by hypothesis.
        kinds: of windows.
        late: whether rows may come later than the lateness says.
        exact: whether values must not hang on the order of additions, whatever is emitted.
    """
    world, kind = draw(st.sampled_from(WORLDS)), draw(st.sampled_from(list(kinds)))
    window = draw(windows(kind, world))
    emits = None
    if kind != "sessions":
        emits = draw(st.sampled_from([None, None, "istream", "dstream", "rstream"]))
    is_compared = emits in ("istream", "dstream") or (kind in ("changes", "rows") and not emits)
    asked = aggregations(exact=exact or is_compared, window_columns=draw(st.booleans()))
    of, distinct = draw(asked)
    by = tuple(each.text for _, each in of.groups)
    plain = tuple(each for each in by if each.isidentifier())
    if kind == "rows" and draw(st.booleans()):
        window = replace(window, partition_by=plain[: draw(st.integers(0, len(plain)))])
    lateness, batches = draw(streams(world, late=late))
    text = text_of(of, window, emits, world, distinct=distinct)
    return Case(text, of, window, emits, batches, lateness, world)


@st.composite
def over_cases(draw: st.DrawFn, *, late: bool = False, distinct: bool = True) -> Case:
    """Return queries with OVER, of one partitioning and one to three frames, over streams."""
    world = draw(st.sampled_from(WORLDS))
    names = draw(st.lists(st.sampled_from(sorted(GROUPS)), max_size=2, unique=True))
    lengths = st.integers(0, 6).map(lambda n: RangeWindow(n * world.unit))
    rows = st.sampled_from((1, 2, 3, 4, LONGEST)).map(RowsWindow)
    frames = st.one_of(lengths, rows, st.just(UNBOUNDED))
    drawn = draw(calls(exact=False, distinct=distinct, most=3))
    asked = tuple((call, draw(frames)) for call in drawn)
    output = ("id", "k", *(call.column for call, _ in asked))
    of = Over(tuple(GROUPS[name] for name in names), asked, output, _few(draw, CONDITIONS[:-1]))
    lateness, batches = draw(streams(world, late=late))
    return Case(over_text(of, world), of, UNBOUNDED, None, batches, lateness, world)


def over_text(of: Over, world: World) -> str:
    """Return a query with OVER as it may be written."""
    by = f"PARTITION BY {', '.join(each.text for each in of.partition_by)} " * bool(of.partition_by)
    columns = [
        f"{call.text} OVER ({by}ORDER BY ts {frame_text(window, world)}) AS {call.column}"
        for call, window in of.calls
    ]
    where = f" WHERE {of.where.text}" if of.where else ""
    return f"SELECT id, k, {', '.join(columns)} FROM s{where}"


def frame_text(window: Window, world: World) -> str:
    """Return a frame as SQL has it."""
    match window:
        case RangeWindow(length):
            of = f"RANGE BETWEEN INTERVAL '{length // world.unit}' {world.words} PRECEDING"
        case RowsWindow(rows):
            of = f"ROWS BETWEEN {'UNBOUNDED' if rows == LONGEST else rows - 1} PRECEDING"
        case _:
            of = "RANGE BETWEEN UNBOUNDED PRECEDING"
    return f"{of} AND CURRENT ROW"


# -- rows -----------------------------------------------------------------------------------------

MOST_BATCHES = 6
"""Most batches of a stream: what a batch has to go wrong over, it has with a few before it."""

CUTS = ("1", "2", "7", "all", "some")
"""How many rows a batch has; ``some``: as many as it happens, and now and then none."""


@st.composite
def streams(draw: st.DrawFn, world: World, *, late: bool) -> tuple[int, tuple[Any, ...]]:
    """Return the lateness of a stream (µs), and its rows in batches.

    How many rows there are is drawn, what is in them by a seed: so fewer rows are the first ones of
    more rows, and values are as different as they should be.
    """
    rng, most = Random(draw(st.integers(0, 2**16))), MAX_ROWS
    n_rows = draw(st.one_of(st.integers(0, most), *5 * [st.integers(most // 2, most)]))
    rows = rows_of(rng, n_rows, world)
    lateness = draw(st.integers(0, 3)) * world.unit
    disorder = lateness + (3 * world.unit if late else 0)
    rows = disordered(rows, disorder, rng)
    if draw(st.integers(0, 3)):
        beyond = world.base + draw(st.sampled_from([10, 16, 24])) * world.unit
        rows.append(row_at(rng, beyond, 99))
    return lateness, tuple(cut(rows, draw(st.sampled_from(CUTS)), rng))


def rows_of(rng: Random, n_rows: int, world: World) -> list[dict[str, Any]]:
    """Return rows of few instants; some are a microsecond beside them, some have none."""
    numbers = list(range(100, 100 + n_rows))
    rng.shuffle(numbers)
    rows = []
    for number in numbers:
        ts = world.base + rng.randrange(N_INSTANTS) * world.unit + rng.choice([0, 0, 0, 0, -1, 1])
        rows.append(row_at(rng, None if rng.randrange(12) == 0 else ts, number))
    return rows


def row_at(rng: Random, ts: int | None, number: int) -> dict[str, Any]:
    """Return a row of an instant."""
    return {"ts": ts, "id": number} | {name: rng.choice(of) for name, of in VALUES.items()}


def disordered(rows: Sequence[dict[str, Any]], disorder: int, rng: Random) -> list[dict[str, Any]]:
    """Return rows in an order of arrival: none comes later than one that is later by more."""
    times = [row["ts"] for row in rows if row["ts"] is not None] or [0]
    delayed = [
        (rng.choice(times) if row["ts"] is None else row["ts"]) + rng.randint(0, disorder)
        for row in rows
    ]
    return [rows[at] for at in sorted(range(len(rows)), key=delayed.__getitem__)]


def cut(rows: Sequence[dict[str, Any]], kind: str, rng: Random) -> list[tuple[dict[str, Any], ...]]:
    """Return rows in batches; at least one, which may be empty."""
    size = {"1": 1, "2": 2, "7": 7, "all": max(1, len(rows))}
    batches, first = [], 0
    while first < len(rows):
        n = size.get(kind) or rng.choice([0, 1, 3, 5])
        batches.append(tuple(rows[first : first + n]))
        first += n
    while len(batches) > MOST_BATCHES:  # as cut, but for some that follow each other
        at = rng.randrange(len(batches) - 1)
        batches[at : at + 2] = [batches[at] + batches[at + 1]]
    return batches or [()]


def as_found(table: pa.Table, output: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return results of an engine as the reference has them: instants in µs."""
    columns = []
    for name in output:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        columns.append(column.to_pylist())
    return [tuple(map(plain_zero, row)) for row in zip(*columns, strict=True)]


def plain_zero(value: Any) -> Any:
    """Return a value without the sign of zero."""
    return value if plain(value) == "NaN" else plain(value)
