"""Ranges of time on which comparisons of polynomials are true.

Segments and a condition come in; ``where`` returns ranges, and ``solutions`` the segments cut to
these. The answer is a set of whole microseconds. A range ``[lo, hi)`` contains ``lo`` and not
``hi``, so ``x > 3`` begins a microsecond after ``x = 3``. A solution of one instant is a point. A
root between two microseconds belongs to the earlier one.

A polynomial is 0 at an instant whose microsecond has a root. At any other instant it has the sign
between its roots. So exactly one of ``<``, ``=`` and ``>`` holds at each instant.

The kernel takes one segment after the other. Bounds by the terms say of most comparisons that they
hold all along, or nowhere. Where they leave the condition open, each polynomial is solved on its
own. The roots of all cut the segment into instants and gaps, and on each of these every sign is
known: AND and OR are the lesser and the greater of two (Pulse 3.2, 3.3). Polynomials keep the
origin of their segment, so an earlier cut of the segment does not move a root.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled, inlined
from eddyline.models.segments import MICROS, Columns
from eddyline.models.solving.expressions import (
    ROUNDING,
    And,
    Comparison,
    Condition,
    Terms,
    attributes,
    cleaned_of,
    comparisons,
)
from eddyline.models.solving.polynomials import roots_of, scaled, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Segments
    from eddyline.models.solving.expressions import Expression

BLOCK = 1 << 13
"""Segments that are solved at once: what is computed between stays in the cache."""


@dataclass(frozen=True)
class Ranges(Columns):
    """Ranges of time, each within a segment, in the order of segments and time.

    Attributes:
        rows: the segment of each by its place, ``[m]``.
        lo: where ranges begin, in microseconds, ``[m]``.
        hi: where they end, exclusive, ``[m]``; ``lo`` for a point.
        is_point: whether a range is one instant, ``[m]``.
    """

    rows: Indices
    lo: Ints
    hi: Ints
    is_point: Mask

    @property
    def ends(self) -> Ints:
        """Where ranges end, of a point the microsecond behind its instant, ``[m]``."""
        return self.hi + self.is_point

    def of(self, segments: Segments) -> Segments:
        """Return the segments on their ranges; polynomials and origins stay as they are."""
        return replace(segments.take(self.rows).cut(self.lo, self.hi), is_point=self.is_point)


def where(segments: Segments, condition: Condition) -> Segments:
    """Return segments on the ranges on which a condition holds (Pulse 3.3).

    Tombstones stay. A point stays if the condition holds at its instant. No comparison is true of
    an attribute that has no value on a segment, whose coefficients are NaN.
    """
    return solutions(segments, condition).of(segments)


def solutions(segments: Segments, condition: Condition) -> Ranges:
    """Return the ranges on which a condition holds, and all of each tombstone."""
    expressions = tuple(
        dict.fromkeys(comparison.expression for comparison in comparisons(condition))
    )
    program, names = program_of(condition, expressions), sorted(attributes(condition))
    coefs = {name: segments.coefs[name] for name in names}
    gone = segments.is_tombstone
    read = replace(segments, coefs=coefs, errors={}).under(~gone)
    parts = []
    for start in range(0, max(len(read), 1), BLOCK):
        part = read.part(start, start + BLOCK)
        terms = {name: Terms.from_coefs(part.coefs[name]) for name in names}
        compared = stacked([cleaned_of(expression, terms, len(part)) for expression in expressions])
        ranges = Ranges(*solve(program, compared, part.origin, part.lo, part.hi, part.is_point))
        parts.append(replace(ranges, rows=ranges.rows + start))
    solved = parts[0] if len(parts) == 1 else Ranges.joined(parts)
    if not gone.any():
        return solved
    whole = Ranges(np.arange(len(gone)), segments.lo, segments.hi, segments.is_point).take(gone)
    alive = replace(solved, rows=np.flatnonzero(~gone)[solved.rows])
    both = Ranges.joined([whole, alive])
    return both.take(np.argsort(both.rows, kind="stable"))  # no segment is in both


def begun(segments: Segments, names: Iterable[str]) -> dict[str, Terms]:
    """Return the polynomials of attributes with ``lo`` as the origin."""
    since = segments.seconds(segments.lo)
    return {name: Terms.since(segments.coefs[name], since) for name in names}


def program_of(condition: Condition, expressions: Sequence[Expression]) -> Ints:
    """Return a condition as the kernel reads it, over expressions by their places."""
    places = {expression: place for place, expression in enumerate(expressions)}

    def tokens(part: Condition) -> list[int]:
        if isinstance(part, Comparison):
            return [8 * places[part.expression] + OPS.index(part.op)]
        join = AND if isinstance(part, And) else OR
        first, *rest = map(tokens, part.parts)
        return first + [token for operand in rest for token in (*operand, join)]

    return np.array(tokens(condition), np.int64)


def stacked(coefs: Sequence[Floats]) -> Floats:
    """Return polynomials of several expressions as one array, higher powers of some being 0."""
    if len(coefs) == 1:
        return np.ascontiguousarray(coefs[0])[None]
    block = np.zeros((len(coefs), len(coefs[0]), max(coef.shape[1] for coef in coefs)))
    for into, matrix in zip(block, coefs, strict=True):
        into[:, : matrix.shape[1]] = matrix
    return block


# -- compiled: one segment after the other --------------------------------------------------------
#
# Kernels share names of arguments. ``coefs`` are coefficients by polynomial and segment, whose
# places are ``polynomial`` and ``row``. ``origin`` is where the variable of a segment is 0, and
# ``lo`` and ``hi`` where it begins and ends (µs). ``instants`` has the roots of each polynomial in
# the segment, ``counts`` how many, and ``signs`` the signs before the first, between each two, and
# behind the last. ``root_seconds``, ``work`` and ``stack`` are room. Arrays come whole, because
# making views takes longer.


UNKNOWN = 2
"""Instead of a sign: bounds do not settle it."""
NOWHERE = -(2**63)
"""No instant."""
AROUND = 2.0**-14
"""Margin around a range in which roots are searched, relative to its distance from the origin."""
NONE = 3
"""Instead of a sign: an attribute has no value (NaN coefficients), and no comparison is true."""

AND, OR = -1, -2
OPS = ("<", "<=", "=", "<>", ">=", ">")
_TRUE_FOR = (0b001, 0b011, 0b010, 0b101, 0b110, 0b100)
"""For each comparison the signs for which it is true: bits for -1, 0 and 1."""
_NO, _MAYBE, _SURE = 0, 1, 2


@inlined
def verdict_on(program: Ints, signs: Ints, stack: Ints) -> int:
    """Return whether signs make a condition false (0), or true (2), or leave it open (1).

    ``program`` has the parts of the condition before what joins them: 8 times the place of a
    polynomial and that of its comparison among ``OPS``, or ``AND`` or ``OR``.
    """
    top = 0
    for token in program:
        if token >= 0:
            sign, verdict = signs[token >> 3], _NO
            if sign == UNKNOWN:
                verdict = _MAYBE
            elif sign != NONE and (_TRUE_FOR[token & 7] >> (sign + 1)) & 1:
                verdict = _SURE
            stack[top] = verdict
            top += 1
        else:
            top -= 1
            one, other = stack[top - 1], stack[top]
            stack[top - 1] = min(one, other) if token == AND else max(one, other)
    return int(stack[0])


@inlined
def begin_at(
    coefs: Floats, polynomial: int, row: int, since: float, farthest: float, begun: Floats
) -> float:
    """Move a polynomial to a later origin; return the size of its terms at the farthest instant."""
    width, size = coefs.shape[2], 0.0
    for power in range(width - 1, -1, -1):
        begun[power] = coefs[polynomial, row, power]
        size = size * farthest + abs(begun[power])
    for low in range(width - 1):
        for power in range(width - 2, low - 1, -1):
            begun[power] += since * begun[power + 1]
    return size


@inlined
def settled_sign(
    coefs: Floats, polynomial: int, row: int, since: float, until: float, begun: Floats
) -> int:
    """Return the sign on all of a range if bounds or zeros settle it.

    The range is in seconds after the origin. ``begun`` is room for the polynomial from there on.
    """
    first, length, reach = coefs[polynomial, row, 0], until - since, 1.0
    least, most, size, is_zero = first, first, 0.0, first == 0
    if since == 0:
        for power in range(1, coefs.shape[2]):
            coef = coefs[polynomial, row, power]
            reach *= length
            if coef != 0:
                is_zero = False
                least += min(coef * reach, 0.0)
                most += max(coef * reach, 0.0)
                size += abs(coef * reach)
        size += abs(first)
    else:
        width = coefs.shape[2]
        size = begin_at(coefs, polynomial, row, since, max(abs(since), abs(until)), begun)
        is_zero = size == 0
        least = most = begun[0]
        for power in range(1, width):
            reach *= length
            least += min(begun[power] * reach, 0.0)
            most += max(begun[power] * reach, 0.0)
    if is_zero:
        return 0
    if np.isnan(size):
        return NONE
    if np.isinf(first):
        return 1 if first > 0 else -1
    margin = 2 * ROUNDING * size
    # Overflow settles nothing: no comparison with NaN is true.
    if least > margin and least < np.inf:
        return 1
    return -1 if most < -margin and most > -np.inf else UNKNOWN


@inlined
def instant_of(coefs: Floats, root: float, origin: int) -> int:
    """Return the microsecond of a root.

    A root that rounding cannot distinguish from an instant is at the instant.
    """
    micros = root / MICROS
    near = np.rint(micros)
    if value_at(coefs, coefs.size - 1, near * MICROS) != 0:
        near = np.floor(micros)
    return origin + int(near)


@compiled
def cut(
    coefs: Floats,
    origin: int,
    lo: int,
    hi: int,
    root_seconds: Floats,
    work: Floats,
    instants: Ints,
    signs: Ints,
) -> int:
    """Put the instants of the roots of one polynomial, and its signs in the gaps, into rows.

    Returns:
        How many instants there are in the range.
    """
    coefs = scaled(coefs, work[coefs.size])
    degree = coefs.size - 1
    since, until = (lo - origin) * MICROS, (hi - origin) * MICROS
    # Rounding hides a sign near a root, so search a little farther on both sides.
    around = max(4 * MICROS, AROUND * max(abs(since), abs(until)))
    left, end = since - around, until + around
    count = roots_of(coefs, left, end, root_seconds, work)
    kept = 0
    for gap in range(count + 1):
        right = root_seconds[gap] if gap < count else end
        value = value_at(coefs, degree, (left + right) / 2)
        signs[kept] = (value > 0) - (value < 0)
        left = right
        if gap < count:
            instant = instant_of(coefs, right, origin)
            if instant >= hi:
                break
            if instant >= lo:
                instants[kept] = instant
                kept += 1
    return kept


@inlined
def cut_line(
    coefs: Floats,
    polynomial: int,
    row: int,
    origin: int,
    lo: int,
    hi: int,
    instants: Ints,
    signs: Ints,
) -> int:
    """Do the same for an unsettled line, given by its indices."""
    value, slope = coefs[polynomial, row, 0], coefs[polynomial, row, 1]
    sign, root = (1 if slope > 0 else -1), -value / slope
    signs[polynomial, 0], signs[polynomial, 1] = -sign, sign
    micros = root / MICROS
    if micros >= hi - origin + 1:
        return 0
    if micros > lo - origin - 1:
        near = np.rint(micros)
        if abs(slope * (near * MICROS) + value) > 2 * ROUNDING * abs(value):
            near = np.floor(micros)
        instant = origin + int(near)
        if instant >= hi:
            return 0
        if instant >= lo:
            instants[polynomial, 0] = instant
            return 1
    signs[polynomial, 0] = sign
    return 0


@inlined
def is_line(coefs: Floats, polynomial: int, row: int) -> bool:
    """Return whether a polynomial has a slope and no higher powers."""
    for power in range(2, coefs.shape[2]):
        if coefs[polynomial, row, power] != 0:
            return False
    return bool(coefs.shape[2] > 1 and coefs[polynomial, row, 1] != 0)


@inlined
def sort_few(numbers: Ints, n: int) -> int:
    """Sort the first of some numbers, each once, by insertion; return how many are left."""
    kept = 1
    for index in range(1, n):
        number, place = numbers[index], kept
        while place > 0 and numbers[place - 1] > number:
            place -= 1
        if place > 0 and numbers[place - 1] == number:
            continue
        for other in range(kept, place, -1):
            numbers[other] = numbers[other - 1]
        numbers[place] = number
        kept += 1
    return kept


@compiled
def larger(array: Ints, n: int) -> Ints:
    """Return a longer array that begins with the first of another's places."""
    longer = np.empty(2 * array.size, array.dtype)
    longer[:n] = array[:n]
    return longer


@inlined
def cut_all(
    coefs: Floats,
    row: int,
    origin: int,
    lo: int,
    hi: int,
    known_signs: Ints,
    counts: Ints,
    instants: Ints,
    signs: Ints,
    gap_begins: Ints,
    root_seconds: Floats,
    work: Floats,
) -> int:
    """Cut a segment by the roots of all polynomials; return how many gaps there are.

    ``known_signs`` is the sign of each polynomial, or ``UNKNOWN``; ``gap_begins`` gets where gaps
    begin.
    """
    gap_begins[0], n_left = lo, 1
    for polynomial in range(known_signs.size):
        if known_signs[polynomial] != UNKNOWN:
            counts[polynomial], signs[polynomial, 0] = 0, known_signs[polynomial]
        elif is_line(coefs, polynomial, row):
            counts[polynomial] = cut_line(coefs, polynomial, row, origin, lo, hi, instants, signs)
        else:
            counts[polynomial] = cut(
                coefs[polynomial, row],
                origin,
                lo,
                hi,
                root_seconds,
                work,
                instants[polynomial],
                signs[polynomial],
            )
        for root in range(counts[polynomial]):
            gap_begins[n_left] = instants[polynomial, root]
            n_left += 1
    return sort_few(gap_begins, n_left)


@inlined
def begin_of(part: int, gap_begins: Ints, n_left: int, stop: int) -> int:
    """Return the begin of a part of a segment (µs), ``NOWHERE`` if the part is empty.

    Even parts are instants with roots, odd parts the gaps behind them, and the last part the end.
    """
    gap = part // 2
    if gap == n_left:
        return stop
    begin = gap_begins[gap] + part % 2
    following = gap_begins[gap + 1] if gap + 1 < n_left else stop
    return begin if begin < following else NOWHERE


@inlined
def holds_from(
    part: int,
    gap_begins: Ints,
    program: Ints,
    counts: Ints,
    instants: Ints,
    signs: Ints,
    part_signs: Ints,
    stack: Ints,
) -> bool:
    """Return whether a condition holds on a part of a segment, all along.

    ``part`` is as in ``begin_of``, and not the last one; ``part_signs`` is room for its signs.
    """
    begin, is_instant = gap_begins[part // 2], part % 2 == 0
    for polynomial in range(counts.size):
        passed, is_root = 0, False
        while passed < counts[polynomial] and instants[polynomial, passed] <= begin:
            is_root = is_root or instants[polynomial, passed] == begin
            passed += 1
        part_signs[polynomial] = 0 if is_instant and is_root else signs[polynomial, passed]
    return verdict_on(program, part_signs, stack) == _SURE


@compiled
def solve(
    program: Ints, coefs: Floats, origin: Ints, lo: Ints, hi: Ints, is_point: Mask
) -> tuple[Ints, Ints, Ints, Mask]:
    """Return where a condition holds: rows, begins, ends, and whether each is one instant.

    Args:
        program: see ``verdict_on``.
        coefs: of each polynomial by segment, without terms that are rounding,
            ``[polynomials, n, degree + 1]``.
        origin: where the variable of polynomials is 0 (µs), ``[n]``.
        lo: where segments begin (µs), ``[n]``.
        hi: where they end, after that but for points (µs), ``[n]``.
        is_point: whether a segment is the instant ``lo``, ``[n]``.
    """
    n_polynomials, n, size = coefs.shape
    most = n_polynomials * (size - 1) + 1
    rows, begins, ends = np.empty((3, n + most), np.int64)
    points = np.empty(n + most, np.bool_)
    stack = np.empty(program.size, np.int64)
    known_signs, counts = np.empty((2, n_polynomials), np.int64)
    instants, signs = np.empty((2, n_polynomials, size), np.int64)
    root_seconds, work, gap_begins = (
        np.empty(size),
        np.empty((size + 2, size + 1)),
        np.empty(most, np.int64),
    )
    m = 0
    for row in range(n):
        if m + most > rows.size:
            rows, begins = larger(rows, m), larger(begins, m)
            ends, points = larger(ends, m), larger(points, m)
        zero, first, stop = origin[row], lo[row], hi[row] + is_point[row]
        since, until = (first - zero) * MICROS, (stop - zero) * MICROS
        for polynomial in range(n_polynomials):
            known_signs[polynomial] = settled_sign(
                coefs, polynomial, row, since, until, root_seconds
            )
        verdict = verdict_on(program, known_signs, stack)
        if verdict == _SURE:
            rows[m], begins[m], ends[m], points[m] = row, first, hi[row], is_point[row]
            m += 1
        if verdict != _MAYBE:
            continue
        n_left = cut_all(
            coefs,
            row,
            zero,
            first,
            stop,
            known_signs,
            counts,
            instants,
            signs,
            gap_begins,
            root_seconds,
            work,
        )
        start, is_open = first, False
        for part in range(2 * n_left + 1):
            begin = begin_of(part, gap_begins, n_left, stop)
            if begin == NOWHERE:
                continue
            holds = part < 2 * n_left and holds_from(
                part, gap_begins, program, counts, instants, signs, known_signs, stack
            )
            if holds and not is_open:
                start = begin
            elif is_open and not holds:
                is_whole = start == first and begin == stop
                is_alone = is_point[row] if is_whole else begin == start + 1
                rows[m], begins[m], points[m] = row, start, is_alone
                ends[m] = start if is_alone else begin
                m += 1
            is_open = holds
    return rows[:m], begins[:m], ends[:m], points[:m]
