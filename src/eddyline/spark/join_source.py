"""The inputs of a join as one DataFrame: tagged, with codes, in columns that they share.

Columns of the same type take turns in the same place, so a row carries the columns of the widest
input and not those of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError, QueryError
from eddyline.joins.rows import ALWAYS, FOREVER
from eddyline.query.predicates import SqlPredicate
from eddyline.query.sql_text import quoted
from eddyline.query.windows import RangeWindow, RowsWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.joins import JoinInput, JoinQuery, KeyClass

INPUT, BUCKET, START, KEY, SLOT = "__input", "__bucket", "__start", "__key", "__slot"
"""The columns that say which input a row is of, its bucket, its event time (µs), its codes
(numbered by key class), and what it carries (numbered)."""

_WIDTHS = ("tinyint", "smallint", "int", "bigint")

_EXACT = (*_WIDTHS, "boolean", "date", "timestamp", "timestamp_ntz")
"""Types whose values are numbers of 64 bits, so that equal codes are equal values."""

_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Where the rows of one input are in the common DataFrame."""

    name: str
    number: int
    """What the column INPUT says."""
    keys: tuple[int, ...]
    """Its key classes, ascending."""
    columns: tuple[tuple[str, str], ...]
    """Each column that results need, and the common column that holds it."""
    length: int
    """Of its window (µs); FOREVER if rows never leave it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a join as one DataFrame."""

    df: DataFrame
    layouts: tuple[InputLayout, ...]
    rough: tuple[int, ...]
    """Key classes whose codes are hashes: where they are equal, the keys are compared again."""


def source_of(
    query: JoinQuery,
    frames: Mapping[str, DataFrame],
    times: Mapping[str, str | None],
    needed: Mapping[str, Sequence[str]],
    n_buckets: int,
) -> Source:
    """Return the inputs of a join as one DataFrame.

    Rows without an event time, or with a NULL in a key, never join and are left out.

    Args:
        query: the join.
        frames: the DataFrame of each stream and table.
        times: its event-time column; None for a table.
        needed: by input, the columns that results need.
        n_buckets: in how many parts the rows are cut by key; one, if no key is common to all.

    Raises:
        QueryError: keys that cannot be compared, or an event time that is no time.
        NotSupportedError: a window or a predicate that is not supported yet.
    """
    kinds = [_key_type(key, query.inputs, frames) for key in query.keys]
    common = [k for k, key in enumerate(query.keys) if len(key.members) == len(query.inputs)]
    slots: list[str] = []
    layouts = tuple(
        _layout(number, query, frames[each.stream], times[each.stream], needed[each.name], slots)
        for number, each in enumerate(query.inputs)
    )
    types = dict.fromkeys([f"{KEY}{k}" for k in range(len(kinds))], "bigint")
    types |= {f"{SLOT}{number}": kind for number, kind in enumerate(slots)}
    parts = []
    for each, layout in zip(query.inputs, layouts, strict=True):
        df = _own(frames[each.stream], each, [query.keys[k] for k in layout.keys])
        own = {
            f"{KEY}{k}": _code(query.keys[k].members[each.name][0], kinds[k]) for k in layout.keys
        }
        bucket = F.lit(0)
        if common and n_buckets > 1:
            code = own[f"{KEY}{common[0]}"]
            bucket = F.pmod(F.xxhash64(code), F.lit(n_buckets)).cast("int")
        own |= {slot: F.col(quoted(name)) for name, slot in layout.columns}
        tags = {INPUT: F.lit(layout.number), BUCKET: bucket}
        tags[START] = _start(df, each, times[each.stream])
        filled = {name: own.get(name, F.lit(None)).cast(kind) for name, kind in types.items()}
        df = df.select(*[column.alias(name) for name, column in (tags | filled).items()])
        for name in (START, *[f"{KEY}{k}" for k in layout.keys]):
            df = df.where(F.col(name).isNotNull())
        parts.append(df)
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    return Source(union, layouts, tuple(k for k, kind in enumerate(kinds) if kind not in _EXACT))


def _layout(
    number: int,
    query: JoinQuery,
    df: DataFrame,
    time: str | None,
    needed: Sequence[str],
    slots: list[str],
) -> InputLayout:
    """Return where the rows of an input are; common columns that are missing are added."""
    each, kinds = query.inputs[number], dict(df.dtypes)
    taken: set[int] = set()
    columns = []
    for name in needed:
        free = [k for k, kind in enumerate(slots) if kind == kinds[name] and k not in taken]
        if not free:
            slots.append(kinds[name])
            free = [len(slots) - 1]
        taken.add(free[0])
        columns.append((name, f"{SLOT}{free[0]}"))
    keys = tuple(k for k, key in enumerate(query.keys) if each.name in key.members)
    return InputLayout(each.name, number, keys, tuple(columns), _length(each, time))


def _length(each: JoinInput, time: str | None) -> int:
    if isinstance(each.window, RowsWindow) and time is not None:
        msg = f"the window [ROWS …] of {each.name!r} is not supported yet; use [RANGE …]"
        raise NotSupportedError(msg, input=each.name)
    if isinstance(each.window, RangeWindow) and time is not None:
        return each.window.length
    return FOREVER


def _own(df: DataFrame, each: JoinInput, keys: Sequence[KeyClass]) -> DataFrame:
    """Return the rows that an input's own conjuncts let through, equalities of its columns too."""
    for predicate in each.predicates:
        if not isinstance(predicate, SqlPredicate):
            msg = f"the Python predicate {predicate.name!r} in a join is not supported yet"
            raise NotSupportedError(msg, input=each.name)
        df = df.where(F.expr(predicate.text))
    for key in keys:
        first, *others = key.members[each.name]
        for other in others:
            df = df.where(F.expr(f"({first}\n) = ({other}\n)"))
    return df


def _key_type(key: KeyClass, inputs: Sequence[JoinInput], frames: Mapping[str, DataFrame]) -> str:
    """Return the type in which the members of a key class are compared.

    Raises:
        QueryError: a member cannot be resolved, or they are of types that SQL would convert.
    """
    found: dict[str, str] = {}
    for each in inputs:
        for text in key.members.get(each.name, ()):
            try:
                found[f"{each.name}: {text}"] = (
                    frames[each.stream].select(F.expr(text)).dtypes[0][1]
                )
            except AnalysisException as error:
                msg = f"the key {text!r} of {each.name!r} cannot be resolved: {error}"
                raise QueryError(msg, input=each.name, key=text) from error
    kinds = set(found.values())
    if kinds <= set(_WIDTHS):
        return max(kinds, key=_WIDTHS.index)
    if kinds <= {"float", "double"}:
        return "double"
    if len(kinds) == 1:
        return kinds.pop()
    if all(kind in _WIDTHS or kind.startswith("decimal") for kind in kinds):
        return "decimal"
    listed = ", ".join(f"{what} ({kind})" for what, kind in found.items())
    msg = f"keys of different types are compared: {listed}; cast them to one type"
    raise QueryError(msg, types=found)


def _code(text: str, kind: str) -> Column:
    """Return the code of a key: equal wherever SQL says that the keys are equal."""
    value = F.expr(f"({text}\n)")
    if kind in _WIDTHS:
        return value.cast("bigint")
    if kind == "boolean":
        return value.cast("int").cast("bigint")
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "timestamp_ntz":
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, ({text}\n))")
    there = value.isNotNull()
    if kind == "double":
        # 0.0 and -0.0 are equal, and so are all NaN.
        wide = value.cast("double")
        value = F.when(wide == 0, 0.0).when(F.isnan(wide), F.lit(float("nan"))).otherwise(wide)
    elif kind == "decimal":
        # Equal ones are equal as doubles, too; unequal ones are compared again.
        value = value.cast("double")
    return F.when(there, F.xxhash64(value))


def _start(df: DataFrame, each: JoinInput, time: str | None) -> Column:
    """Return the event time of rows (µs)."""
    if time is None:
        return F.lit(ALWAYS)
    kind = dict(df.dtypes)[time]
    if kind == "timestamp":
        return F.unix_micros(F.col(quoted(time)))
    if kind == "timestamp_ntz":
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, {quoted(time)})")
    msg = f"the event time {time!r} of {each.stream!r} is of type {kind}; give a timestamp"
    raise QueryError(msg, stream=each.stream, time=time)
