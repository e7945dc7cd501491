"""Keys of a join as codes: 64 bits that are equal wherever SQL says that keys are equal."""

from __future__ import annotations

import re
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError, QueryError
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.event_time import local_micros
from eddyline.spark.joins.layout import KEY, WIDTHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column

    from eddyline.query.query import KeyClass
    from eddyline.spark.joins.layout import JoinInput


DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Digits that Spark takes whole numbers to have, where they meet decimals."""

_NO_KEYS = re.compile(r"(^|[<:,])(map|variant|void|geometry|geography)\b(?!:)|collate|^interval$")
"""Types whose equal values may have different hashes, as whole values or as parts."""

_FLOATS = re.compile(r"[<:,](float|double)\b(?!:)")
"""Types whose equal values may differ in bits; inside other types nothing normalizes them."""

MAX_DIGITS = 38
"""Most digits of a decimal."""


def codes_of(name: str, keys: Mapping[int, KeyClass], kinds: Sequence[str]) -> dict[str, Column]:
    """Return the codes of an input by common column; NULL on rows that cannot join.

    Where several expressions of an input are members of one class, only rows on which they are
    equal can join, and no key is computed on others.

    Args:
        name: the input.
        keys: its key classes by number.
        kinds: the type in which the members of every key class are compared.
    """
    tests = [
        F.expr(f"({first}\n) = ({other}\n)")
        for key in keys.values()
        for first, *others in [key.members[name]]
        for other in others
    ]
    codes = {f"{KEY}{k}": _code(key.members[name][0], kinds[k]) for k, key in keys.items()}
    if not tests:
        return codes
    return {place: F.when(reduce(and_, tests), code) for place, code in codes.items()}


def key_type(key: KeyClass, inputs: Iterable[JoinInput]) -> str:
    """Return the type in which the members of a key class are compared.

    Raises:
        QueryError: a member cannot be resolved, or they are of types that SQL would convert.
        NotSupportedError: equal values of the type may have different hashes.
    """
    found: dict[str, str] = {}
    for each in inputs:
        for text in key.members.get(each.name, ()):
            try:
                with unlogged():
                    found[f"{each.name}: {text}"] = each.shape.select(F.expr(text)).dtypes[0][1]
            except AnalysisException as error:
                what = f"the key {text!r} of {each.name!r} cannot be resolved"
                raise refused(what, error, input=each.name, key=text) from error
    kinds = set(found.values())
    _check_kinds(found)
    if kinds <= set(WIDTHS):
        return max(kinds, key=WIDTHS.index)
    if kinds <= {"float", "double"}:
        return "double"
    if len(kinds) == 1:
        return kinds.pop()
    listed = ", ".join(f"{what} ({kind})" for what, kind in found.items())
    if all(kind in DIGITS or kind.startswith("decimal") for kind in kinds):
        sizes = [_digits(kind) for kind in kinds]
        if sum(map(max, zip(*sizes, strict=True))) <= MAX_DIGITS:
            return "decimal"
        msg = (
            f"keys of decimals are compared that have no common type of {MAX_DIGITS} digits, and "
            f"SQL would round them: {listed}; cast them to one type"
        )
        raise QueryError(msg, types=found)
    msg = f"keys of different types are compared: {listed}; cast them to one type"
    raise QueryError(msg, types=found)


def _check_kinds(members: Mapping[str, str]) -> None:
    """Refuse members whose equal values may have different hashes; types by member."""
    for what, kind in members.items():
        if _NO_KEYS.search(kind) or _FLOATS.search(kind):
            msg = (
                f"the key of a join {what} is of the type {kind}, which is not supported; compare "
                f"parts of it that are plain values"
            )
            raise NotSupportedError(msg, type=kind)


def _digits(kind: str) -> tuple[int, int]:
    """Return the digits before and behind the point of a type of numbers."""
    if kind in DIGITS:
        return DIGITS[kind], 0
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale, scale


def _code(text: str, kind: str) -> Column:
    """Return the code of a key: equal wherever SQL says that the keys are equal."""
    value = F.expr(f"({text}\n)")
    if kind in WIDTHS:
        return value.cast("bigint")
    if kind == "boolean":
        return value.cast("int").cast("bigint")
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "timestamp_ntz":
        return local_micros(text)
    there = value.isNotNull()
    if kind == "double":
        # 0.0 and -0.0 are equal, and so are all NaN.
        wide = value.cast("double")
        value = F.when(wide == 0, 0.0).when(F.isnan(wide), F.lit(float("nan"))).otherwise(wide)
    elif kind == "decimal":
        # Equal ones are equal as doubles, too; unequal ones are compared again.
        value = value.cast("double")
    return F.when(there, F.xxhash64(value))
