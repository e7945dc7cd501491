"""Conditions decided by models where possible, else by rows.

The answer is exactly that of the rows. The error of a segment is certified: each row is within it.
So where a polynomial is farther from 0 than its error, the comparison has the result that it has on
the rows (``decide``). Only in the ranges in between is it open, and only rows in these are read.
The answer is then the one without models, row for row.

The certificate holds for rows with finite values that lost against no other row at their instant.
``uncovered`` finds the other rows once, where rows are fitted, and these are always read. As
everywhere in this room, no comparison is true of a value that is missing or not finite.

Results of arithmetic err by more than their inputs: coefficients and values are rounded, roots are
found to some digits and stored as whole microseconds. ``doubt`` has all of this. So a sign that is
farther from 0 is the sign of the rows.

Tasks return ranges of entities: a row outside of all of them does not satisfy the condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import NotSupportedError
from eddyline.models import timeline
from eddyline.models.graph import SIDE
from eddyline.models.segments import (
    MICROS,
    Columns,
    entity_ids,
    in_seconds,
    instants_of,
    keyed,
    micros_of,
    values_of,
)
from eddyline.models.solving.expressions import (
    And,
    Attribute,
    Comparison,
    Expression,
    Number,
    Or,
    Product,
    Slope,
    Sum,
    attributes,
    comparisons,
    computed,
    error_of,
    holds,
    names_in,
    terms_of,
    walk,
)
from eddyline.models.solving.polynomials import derivative, evaluate
from eddyline.models.solving.where import Ranges, begun, solutions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Layout, Segments
    from eddyline.models.solving.expressions import Condition, Terms

    Decisions = NDArray[np.int8]

FALSE, TRUE, OPEN = 0, 1, 2
"""What models say of a row: the condition does not hold, it holds, or the row has to be read."""

_NOTHING = -1
"""Where no segment is."""

_COMPARE: dict[str, Callable[[Floats], Mask]] = {
    "<": lambda p: p < 0, "<=": lambda p: p <= 0, "=": lambda p: p == 0,
    "<>": lambda p: p != 0, ">=": lambda p: p >= 0, ">": lambda p: p > 0,
}  # fmt: skip


@dataclass(frozen=True)
class Decided(Columns):
    """What models say of a condition on each range of time, in the order of entities and time.

    Attributes:
        keys: entities, ``[m]``.
        lo: where ranges begin, in microseconds, ``[m]``.
        hi: where they end, exclusive, more than ``lo``, ``[m]``.
        codes: ``FALSE``, ``TRUE`` or ``OPEN``, ``[m]``.
    """

    keys: Ints
    lo: Ints
    hi: Ints
    codes: Decisions

    def of(self, keys: Ints, times: Ints, uncovered: Mask | None = None) -> Decisions:
        """Return the decision for each row; where there is no model it is ``OPEN``.

        Args:
            keys: entities, ``[n]``.
            times: microseconds, ``[n]``.
            uncovered: the rows that the segments' errors do not hold for, ``[n]``; None is none.
        """
        place = _piece_of(self.keys, self.lo, self.hi, keys, times)
        decisions = np.full(len(times), OPEN, np.int8)
        there = place >= 0 if uncovered is None else (place >= 0) & ~uncovered
        decisions[there] = self.codes[place[there]]
        return decisions


def decide(segments: Segments, condition: Condition, *, are_doubles: bool = True) -> Decided:
    """Return on which ranges a condition certainly holds for rows, certainly not, or is open.

    Who judges rows may round otherwise (SQL does): what is more than a comparison of two numbers is
    open where it may be one or the other.

    Args:
        segments: models of rows with their certified errors; those of an entity do not overlap.
            Tombstones decide nothing. The condition is false on a segment without values of an
            attribute that it needs: the rows that it stands for have none.
        condition: without slopes.
        are_doubles: whether rows have the very numbers that models were made of, and not some with
            more digits.

    Raises:
        NotSupportedError: it reads a slope.

    Example:
        >>> times = np.arange(5) * 1_000_000
        >>> rows = np.zeros(5, np.int64), times, {"v": times / 1e6}
        >>> found, _ = fit(*rows, {"v": Bound(0.0)}, FitOptions(method="linear"))
        >>> decided = decide(found, Comparison(Sum(Attribute("v"), Number(-2.5)), ">"))
        >>> decided.of(rows[0], rows[1]).tolist()
        [0, 0, 0, 1, 1]
    """
    check_rows_have(condition)
    alive = segments.take(~segments.is_tombstone)
    limits, surely, maybe = _limits(alive, condition)
    certain, possible = solutions(limits, surely), solutions(limits, maybe)
    code = np.full(len(alive), -1, np.int8)
    exact = _are_constant(alive, attributes(condition))
    if not are_doubles or not _is_plain(condition):
        exact[:] = False
    constants = alive.take(exact)
    values = {name: constants.coefs[name][:, 0] for name in attributes(condition)}
    code[exact] = rows_hold(condition, values, len(constants))
    whole = Ranges(np.arange(len(alive)), alive.lo, alive.hi, alive.is_point)
    rows, lo, hi, codes = _layered([whole, possible, certain], code)
    decided = Decided(alive.keys[rows], lo, hi, codes)
    return decided.take(np.lexsort((decided.lo, decided.keys)))


def rows_hold(condition: Condition, values: Mapping[str, Floats], n: int) -> Mask:
    """Return for which rows a condition holds.

    Args:
        condition: without slopes.
        values: of each attribute that it reads, ``[n]``; one that is not finite is none, and no
            comparison that needs it is true.
        n: the number of rows.
    """

    def leaf(comparison: Comparison) -> Mask:
        expression = comparison.expression
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            results = np.broadcast_to(computed(expression, values, _constant, _no_slope), (n,))
        is_finite = ~np.isnan(results)
        for name in names_in(expression):
            is_finite &= np.isfinite(values[name])
        return is_finite & _COMPARE[comparison.op](results)

    return holds(condition, leaf)


def uncovered(segments: Segments, keys: Ints, times: Ints, values: Mapping[str, Floats]) -> Mask:
    """Return the rows that segments' errors do not hold for: what is decided of these is not known.

    They have no segment, no finite value of an attribute, or lost against another row of their
    instant. Found once, where rows are fitted.

    Args:
        segments: models of rows; those of an entity do not overlap.
        keys: entities, ``[n]``.
        times: microseconds, ``[n]``.
        values: of the attributes that conditions read, ``[n]`` each.
    """
    alive = np.flatnonzero(~segments.is_tombstone)
    alive = alive[np.lexsort((segments.lo[alive], segments.keys[alive]))]
    place = _piece_of(segments.keys[alive], segments.lo[alive], segments.ends[alive], keys, times)
    there = np.flatnonzero(place >= 0)
    rows = alive[place[there]]
    since = in_seconds(times[there] - segments.origin[rows])
    near = np.ones(len(there), np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        for name, column in values.items():
            apart = np.abs(column[there] - evaluate(segments.coefs[name][rows], since))
            near &= np.isfinite(column[there]) & (apart <= segments.errors[name][rows])
    is_uncovered = np.ones(len(times), np.bool_)
    is_uncovered[there] = ~near
    return is_uncovered


def _piece_of(keys: Ints, lo: Ints, hi: Ints, at_keys: Ints, times: Ints) -> Indices:
    """Return the sorted range that each instant is in, -1 where there is none."""
    return timeline.within(*timeline.codes((keys, lo), (keys, hi), (at_keys, times)))


def _limits(segments: Segments, condition: Condition) -> tuple[Segments, Condition, Condition]:
    """Return the least and greatest polynomials that rows may have, and what these are to be.

    Of a comparison with an error these are two without: ``p < 0`` surely holds where ``p + e < 0``,
    and only where ``p - e < 0``.

    Returns:
        Segments with two attributes for each expression, the condition that surely holds, and the
        one that may.
    """
    distinct = dict.fromkeys(comparison.expression for comparison in comparisons(condition))
    numbers = {tree: place for place, tree in enumerate(distinct)}
    coefs: dict[str, Floats] = {}
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        terms = begun(segments, attributes(condition))
        for expression, number in numbers.items():
            matrix, far = _polynomials(expression, terms, segments)
            for sign, name in ((-1, f"{number}-"), (1, f"{number}+")):
                coefs[name] = matrix.copy()
                coefs[name][:, 0] += sign * far
    limits = replace(segments, origin=segments.lo, coefs=coefs, errors={})

    def sure(comparison: Comparison) -> Condition:
        return _between(comparison.op, numbers[comparison.expression], *"+-")

    def possible(comparison: Comparison) -> Condition:
        return _between(comparison.op, numbers[comparison.expression], *"-+")

    return limits, _with_instead(condition, sure), _with_instead(condition, possible)


def _polynomials(
    expression: Expression, inputs: Mapping[str, Terms], segments: Segments
) -> tuple[Floats, Floats]:
    """Return polynomials of an expression, and how far rows may be from them."""
    far = doubt(expression, inputs, segments.errors, in_seconds(segments.ends - segments.lo))
    none = np.zeros(len(segments), np.bool_)
    for name in names_in(expression):
        none |= np.isnan(inputs[name].coefs).any(axis=1)
    terms = terms_of(expression, inputs).coefs
    coefs = np.array(np.broadcast_to(terms, (len(segments), terms.shape[1])))
    # What cannot be solved is not known: one limit is below 0 and the other above.
    solvable = np.isfinite(coefs).all(axis=1) & (((far > _LEAST) & (far < _LARGEST)) | (far == 0))
    unknown = ~(solvable & ((far > 0) | ~coefs.any(axis=1))) & ~none
    coefs[unknown] = 0.0
    return coefs, np.where(unknown, 1.0, np.where(none, np.nan, far))


def _between(op: str, number: int, upper: str, lower: str) -> Condition:
    """Return a comparison of the limits: ``upper`` is to be below 0, or ``lower`` above."""
    high, low = Attribute(f"{number}{upper}"), Attribute(f"{number}{lower}")
    if op == "=":
        return And((Comparison(high, "<="), Comparison(low, ">=")))
    if op == "<>":
        return Or((Comparison(high, "<"), Comparison(low, ">")))
    return Comparison(high if op in {"<", "<="} else low, op)


def _with_instead(condition: Condition, change: Callable[[Comparison], Condition]) -> Condition:
    if isinstance(condition, Comparison):
        return change(condition)
    return replace(condition, parts=tuple(_with_instead(part, change) for part in condition.parts))


def _are_constant(segments: Segments, names: set[str]) -> Mask:
    """Return on which segments each row has the very value that is stored."""
    is_constant = np.ones(len(segments), np.bool_)
    for name in names:
        is_constant &= (segments.errors[name] == 0) & ~segments.coefs[name][:, 1:].any(axis=1)
    return is_constant


def _is_plain(condition: Condition) -> bool:
    """Return whether a condition only compares numbers, whose difference has the right sign."""

    def is_number(part: Expression) -> bool:
        if isinstance(part, Product) and part.left == Number(-1.0):
            part = part.right
        return isinstance(part, Number | Attribute)

    return all(
        is_number(tree)
        or (isinstance(tree, Sum) and is_number(tree.left) and is_number(tree.right))
        for tree in (comparison.expression for comparison in comparisons(condition))
    )


def _layered(
    layers: Sequence[Ranges], fixed_codes: Decisions
) -> tuple[Indices, Ints, Ints, Decisions]:
    """Return ranges of segments by how many layers cover them, and their codes.

    The layers are whole segments, where the condition may hold, and where it surely does.
    ``fixed_codes`` is a code that a segment has in any case, or -1.
    """
    rows = np.concatenate([layer.rows for layer in layers for _ in (0, 1)])
    times = np.concatenate([part for layer in layers for part in (layer.lo, layer.ends)])
    steps = np.concatenate([np.repeat([1, -1], len(layer.rows)) for layer in layers])
    order = np.lexsort((times, rows))
    rows, times, depth = rows[order], times[order], np.cumsum(steps[order])
    # Behind the last boundary of an instant it is known what covers the time up to the next one.
    last = timeline.is_last(rows) | timeline.is_last(times)
    rows, times, depth = rows[last], times[last], depth[last]
    codes = np.array([_NOTHING, FALSE, OPEN, TRUE], np.int8)[depth]
    codes = np.where((fixed_codes[rows] >= 0) & (depth > 0), fixed_codes[rows], codes)
    starts = timeline.is_first(rows) | timeline.is_first(codes)
    rows, times, codes = rows[starts], times[starts], codes[starts]
    kept = np.flatnonzero(codes != _NOTHING)
    return rows[kept], times[kept], times[kept + 1], codes[kept]


# -- what tasks do --------------------------------------------------------------------------------


SINCE, UNTIL = "since", "until"
"""The columns of ranges."""
ATTRIBUTE = "__attribute"
"""Beside these the place of the attribute that they are of."""
ROW_TIME, ROW_VALUE = "__time", "__value_"
"""The columns of rows beside those of segments: their instants, and what stands before values."""


def open_ranges(
    tables: Iterable[pa.Table], layout: Layout, condition: Condition, *, are_doubles: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the ranges of segments on which rows may satisfy a condition."""
    for table in tables:
        block = keyed(table, layout)
        decided = decide(block.segments, condition, are_doubles=are_doubles)
        kept = decided.take(decided.codes != FALSE)
        yield from _ranges(block.entities, kept.keys, kept.lo, kept.hi, table.column("lo").type)


def uncovered_instants(
    tables: Iterable[pa.Table], layout: Layout, attributes: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the instants of rows for whose value of an attribute segments' errors do not hold.

    ``ATTRIBUTE`` says of which attribute, by its place. Rows without a value (NULL) are left out:
    they satisfy no comparison of it.

    Args:
        tables: segments and rows, all of an entity in one; ``SIDE`` is 1 for rows.
        layout: the columns of segments.
        attributes: those that conditions read.
    """
    for table in tables:
        ids, first = entity_ids(table, layout.keys)
        is_row = table.column(SIDE).to_numpy() == 1
        rows = table.filter(pa.array(is_row))
        if not len(rows):
            continue
        segments = keyed(table.filter(pa.array(~is_row)), layout).segments
        segments = replace(segments, keys=ids[~is_row])
        times, keys = micros_of(rows.column(ROW_TIME)), ids[is_row]
        values = values_of(rows, [ROW_VALUE + attribute for attribute in attributes])
        entities = table.select(list(layout.keys)).take(pa.array(first))
        kind = rows.column(ROW_TIME).type
        for number, name in enumerate(attributes):
            column = rows.column(ROW_VALUE + name)
            is_there = pc.is_valid(column).to_numpy(zero_copy_only=False).astype(np.bool_)
            places = np.flatnonzero(is_there)
            places = places[
                uncovered(
                    segments, keys[places], times[places], {name: values[ROW_VALUE + name][places]}
                )
            ]
            for batch in _ranges(entities, keys[places], times[places], times[places] + 1, kind):
                numbers = pa.array(np.full(batch.num_rows, number, np.int32))
                yield batch.append_column(ATTRIBUTE, numbers)


def _ranges(
    entities: pa.Table, keys: Indices, lo: Ints, hi: Ints, kind: pa.DataType
) -> list[pa.RecordBatch]:
    zone = None if kind.tz is None else "UTC"
    names = entities.take(pa.array(keys))
    columns = dict(zip(names.column_names, names.columns, strict=True))
    columns[SINCE], columns[UNTIL] = instants_of(lo, zone), instants_of(hi, zone)
    batches: list[pa.RecordBatch] = pa.table(columns).combine_chunks().to_batches()
    return batches


def closed(lo: Ints, hi: Ints, most: int) -> tuple[Ints, Ints]:
    """Return at most so many ranges that have all of some ranges in them, in ascending order.

    Args:
        lo: where ranges begin, ``[n]``.
        hi: where they end, exclusive, ``[n]``.
        most: how many come out at most, 1 or more: the shortest gaps are closed.
    """
    if not len(lo):
        return lo, hi
    order = np.argsort(lo, kind="stable")
    lo, reach = lo[order], np.maximum.accumulate(hi[order])
    gaps = lo[1:] - reach[:-1]
    ends = np.flatnonzero(gaps > 0)
    if len(ends) >= most:
        longest = np.argsort(gaps[ends], kind="stable")[len(ends) - most + 1 :]
        ends = np.sort(ends[longest])
    return lo[np.append(0, ends + 1)], reach[np.append(ends, len(lo) - 1)]


# -- tolerances -----------------------------------------------------------------------------------


ROUNDED = 2.0**-30
"""What rounding takes at most, in parts of the size of the terms.

Evaluating a tree of degree 32, or finding a root of it, takes less than 2**-40 of them.
"""

_LEAST, _LARGEST = 1e-100, 1e100
"""Rounding outside is of numbers whose squares, in which roots are sought, may be 0 or infinite."""


def doubt(
    expression: Expression,
    inputs: Mapping[str, Terms],
    errors: Mapping[str, Floats],
    length: Floats,
) -> Floats:
    """Return how far an expression of rows may be from its polynomial, ``[n]``.

    Args:
        expression: without ``Absolute`` and ``Root``.
        inputs: for each attribute its polynomials from where segments begin.
        errors: for each attribute how far a row may be from it, ``[n]``.
        length: how long segments are, in seconds, ``[n]``.

    Returns:
        In the expression's unit, 0 or more; infinite where a number is too large to be computed,
        or nothing bounds it.
    """
    longer = length + MICROS
    error = error_of(expression, inputs, errors, longer)
    # The sizes of the terms of rows, which are as far from those of models as errors allow.
    sizes = {
        name: evaluate(inputs[name].size, longer) + errors[name] for name in names_in(expression)
    }
    size = computed(expression, sizes, lambda value: _constant(abs(value)), _no_slope)
    # An instant is rounded to a microsecond.
    steepness = evaluate(derivative(terms_of(expression, inputs).size), longer)
    distance = error + (ROUNDED * size + MICROS * steepness)
    return np.where(np.isnan(distance), np.inf, np.broadcast_to(distance, length.shape))


def _constant(value: float) -> Floats:
    return np.full(1, value)


def _no_slope(_: Floats) -> Floats:
    """Return that nothing bounds a slope, and that rows have none."""
    return np.full(1, np.inf)


def check_rows_have(condition: Condition) -> None:
    """Refuse what a row alone has no value of.

    Raises:
        NotSupportedError: a comparison reads a slope.
    """
    for comparison in comparisons(condition):
        if any(isinstance(part, Slope) for part in walk(comparison.expression)):
            msg = (
                "d() is the slope of a model, and a row alone has none: nothing bounds how far it "
                "is from that of the rows; leave it out of what is to be exact or validated"
            )
            raise NotSupportedError(msg)
