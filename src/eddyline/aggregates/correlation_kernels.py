"""Compiled: what correlations say at each instant of a group's matches.

Matches are sorted by group and start; those of one instant come together. What a condition needs
is kept up to date as matches enter and leave the timespan, so that a match costs the same however
many others are in it. Numbers are exact: a whole part in two halves of 32 bits, and 10^-9ths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

EVENT_COUNT, VALUE_COUNT, TEMPORAL, ORDERED, SUM, AVERAGE, PERCENTILE = range(7)
"""The kinds of correlations, in the order of ``query.correlations.KINDS``."""

GTE, GT, LTE, LT, EQ, NEQ = range(6)
"""Comparisons, in the order of ``query.correlations.TESTS``."""

KIND, LENGTH, RULES, RANK, TESTS, PROGRAM = range(6)
"""Columns of the facts of correlations: kind, timespan (µs), number of rules, percentile, number of
tests, length of the program."""

WHOLE, FRACTION, HAS_NUMBER, VALUE, MASK = range(5)
"""Columns of matches: whole part and 10^-9ths of the number, whether it has one, the code of its
value (less than 0: it has none), and the bits of its rules."""

DISTINCT, NUMBERS, HIGH, LOW, PART = range(5)
"""What is kept up to date of the matches in the timespan: distinct values, numbers, and the sum of
these by its halves and 10^-9ths."""

LAST, START, EVENTS = range(3)
"""Columns of alerts: a match of the instant, the first instant (µs), matches in the timespan."""

LOWEST = np.iinfo(np.int64).min
GIGA = 1_000_000_000
HALF = 32
LOW_HALF = (1 << 32) - 1


@compiled
def order_of(number: int, times: int, high: int, low: int, part: int) -> int:
    """Return -1, 0 or 1: how a sum, given by its halves, stands to a whole number so many times."""
    low += part // GIGA
    part %= GIGA
    high += low >> HALF
    low &= LOW_HALF
    other_low = (number & LOW_HALF) * times
    other_high = (number >> HALF) * times + (other_low >> HALF)
    other_low &= LOW_HALF
    if high != other_high:
        return -1 if high < other_high else 1
    if low != other_low:
        return -1 if low < other_low else 1
    return 1 if part > 0 else 0


@compiled
def is_passed(op: int, order: int) -> bool:
    """Return whether a comparison holds for -1 (less), 0 (equal) or 1 (greater)."""
    if op == GTE:
        return order >= 0
    if op == GT:
        return order > 0
    if op == LTE:
        return order <= 0
    if op == LT:
        return order < 0
    return (order == 0) == (op == EQ)


@compiled
def is_met(program: Ints, seen: Ints, stack: Ints) -> bool:
    """Return what a boolean condition in postfix order says of the rules that were seen."""
    top = 0
    for place in range(program.size):
        code = program[place]
        if code >= 0:
            stack[top] = 1 if seen[code] > 0 else 0
            top += 1
        elif code == -3:
            stack[top - 1] = 1 - stack[top - 1]
        else:
            top -= 1
            one, other = stack[top - 1], stack[top]
            stack[top - 1] = one & other if code == -1 else one | other
    return bool(stack[0] != 0)


@compiled
def prolonged(latest: Ints, n_rules: int, mask: int, instant: int) -> None:
    """Take the rules of an instant into the chains so far.

    ``latest[rule, n]`` is the latest start of a chain of n + 1 rules in their order, of which the
    last is that rule. Matches of one instant are in any order, so a rule may follow those before
    it at the same instant.
    """
    for rule in range(n_rules):
        if not mask >> rule & 1:
            continue
        latest[rule, 0] = instant
        for n in range(1, rule + 1):
            for before in range(rule):
                latest[rule, n] = max(latest[rule, n], latest[before, n - 1])


@compiled
def longest(latest: Ints, n_rules: int, since: int) -> tuple[int, int]:
    """Return the length of the longest chain that starts at an instant or later, and its start."""
    for n in range(n_rules - 1, -1, -1):
        start = latest[0, n]
        for rule in range(1, n_rules):
            start = max(start, latest[rule, n])
        if start >= since and start != LOWEST:
            return n + 1, start
    return 0, LOWEST


@compiled
def number_of(match: Ints) -> float:
    """Return the number of a match."""
    return float(match[WHOLE]) + float(match[FRACTION]) / float(GIGA)


@compiled
def ranked(matches: Ints, rank: int) -> float:
    """Return the number of a rank, from 1, among those of matches."""
    numbers = np.empty(matches.shape[0], np.float64)
    n = 0
    for row in range(matches.shape[0]):
        if matches[row, HAS_NUMBER]:
            numbers[n] = number_of(matches[row])
            n += 1
    return float(np.sort(numbers[:n])[rank - 1])


@compiled
def moved(
    kind: int,
    match: Ints,
    step: int,
    tests: Ints,
    counts: Ints,
    seen: Ints,
    sums: Ints,
    below: Ints,
) -> None:
    """Take a match into what is kept up to date (``step`` 1), or out of it (-1)."""
    if kind == VALUE_COUNT and match[VALUE] >= 0:
        before = counts[match[VALUE]]
        counts[match[VALUE]] = before + step
        sums[DISTINCT] += (before + step > 0) - (before > 0)
    elif kind == TEMPORAL:
        for rule in range(seen.size):
            seen[rule] += step * (match[MASK] >> rule & 1)
    elif kind >= SUM and match[HAS_NUMBER]:
        high, low, part = match[WHOLE] >> HALF, match[WHOLE] & LOW_HALF, match[FRACTION]
        sums[NUMBERS] += step
        sums[HIGH] += step * high
        sums[LOW] += step * low
        sums[PART] += step * part
        if kind == PERCENTILE:
            for test in range(tests.shape[0]):
                order = order_of(tests[test, 1], 1, high, low, part)
                below[test, 0] += step * (order < 0)
                below[test, 1] += step * (order <= 0)


@compiled
def passes(kind: int, test: Ints, count: int, rank: int, sums: Ints, below: Ints) -> bool:
    """Return whether a comparison holds for a count, or for what is kept of numbers.

    The number of a rank is less than a limit exactly if as many numbers as the rank are.
    """
    op, number = test[0], test[1]
    if kind < SUM:
        return is_passed(op, (count > number) - (count < number))
    if kind == PERCENTILE:
        if below[0] >= rank:
            return is_passed(op, -1)
        return is_passed(op, 0 if below[1] >= rank else 1)
    times = sums[NUMBERS] if kind == AVERAGE else 1
    return is_passed(op, order_of(number, times, sums[HIGH], sums[LOW], sums[PART]))


@compiled
def value_of(kind: int, count: int, rank: int, sums: Ints, matches: Ints) -> float:
    """Return what an alert says of its value; ``matches`` are those in the timespan."""
    if kind < SUM:
        return float(count)
    if kind == PERCENTILE:
        return ranked(matches, rank)
    total = float(sums[HIGH]) * float(1 << HALF) + float(sums[LOW]) + float(sums[PART]) / GIGA
    return total / sums[NUMBERS] if kind == AVERAGE else total


@compiled
def counted(
    kind: int, n: int, start: int, since: int, n_rules: int, seen: Ints, sums: Ints, latest: Ints
) -> tuple[int, int]:
    """Return what a correlation counts of n matches in the timespan, and its first instant."""
    if kind == VALUE_COUNT:
        return int(sums[DISTINCT]), start
    if kind == TEMPORAL:
        return int((seen > 0).sum()), start
    if kind == ORDERED:
        return longest(latest, n_rules, since)
    return n, start


@compiled
def holds_now(
    kind: int,
    tests: Ints,
    program: Ints,
    count: int,
    rank: int,
    seen: Ints,
    stack: Ints,
    sums: Ints,
    below: Ints,
) -> bool:
    """Return whether the condition is met."""
    if program.size:
        return is_met(program, seen, stack)
    if kind >= SUM and sums[NUMBERS] == 0:
        return False
    for test in range(tests.shape[0]):
        if not passes(kind, tests[test], count, rank, sums, below[test]):
            return False
    return True


@compiled
def cleared(kind: int, matches: Ints, counts: Ints) -> None:
    """Forget the values of matches, as those of another group come."""
    if kind == VALUE_COUNT:
        for row in range(matches.shape[0]):
            if matches[row, VALUE] >= 0:
                counts[matches[row, VALUE]] = 0


@compiled
def correlated(
    starts: Ints,
    bounds: Ints,
    places: Ints,
    matches: Ints,
    is_new: Mask,
    facts: Ints,
    tests: Ints,
    programs: Ints,
    n_values: int,
    held: Mask,
    alerts: Ints,
    values: Floats,
) -> int:
    """Say of each new match whether its correlation holds at its instant, and find alerts.

    Args:
        starts: event times (µs).
        bounds: the first match of each group, and the number of all.
        places: the row of ``facts`` of each match; the same in a group.
        matches: see ``MASK`` ((matches, 5)).
        is_new: the matches that are asked about; of others ``held`` is known.
        facts: see ``TESTS`` ((correlations, 6)).
        tests: comparison and number of each test ((correlations, most, 2)).
        programs: boolean conditions; see ``is_met`` ((correlations, longest)).
        n_values: codes of values.
        held: filled for new matches.
        alerts: filled; see ``EVENTS`` ((alerts, 3)).
        values: filled: the value of each alert.

    Returns:
        The number of alerts.
    """
    counts = np.zeros(n_values, np.int64)
    most = facts[:, RULES].max()
    latest, seen = np.empty((most, most), np.int64), np.empty(most, np.int64)
    stack = np.empty(programs.shape[1] + 1, np.int64)
    sums, below = np.empty(5, np.int64), np.empty((tests.shape[1], 2), np.int64)
    n_alerts = 0
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        correlation = places[begin]
        kind, length, n_rules = (
            facts[correlation, KIND],
            facts[correlation, LENGTH],
            facts[correlation, RULES],
        )
        asked, program = (
            tests[correlation, : facts[correlation, TESTS]],
            programs[correlation, : facts[correlation, PROGRAM]],
        )
        latest[:, :] = LOWEST
        seen[:], sums[:], below[:, :] = 0, 0, 0
        lo, first = begin, begin
        was_held, before = False, LOWEST
        while first < end:
            instant, since, hi, mask = starts[first], starts[first] - length, first, 0
            while starts[lo] < since:
                moved(kind, matches[lo], -1, asked, counts, seen, sums, below)
                lo += 1
            while hi < end and starts[hi] == instant:
                moved(kind, matches[hi], 1, asked, counts, seen, sums, below)
                mask |= matches[hi, MASK]
                hi += 1
            if kind == ORDERED:
                prolonged(latest, n_rules, mask, instant)
            if is_new[first]:
                rank = max(1, (facts[correlation, RANK] * sums[NUMBERS] + 99) // 100)
                n, start = hi - lo, starts[lo]
                count, start = counted(kind, n, start, since, n_rules, seen, sums, latest)
                holds = holds_now(kind, asked, program, count, rank, seen, stack, sums, below)
                held[first:hi] = holds
                if holds and not (was_held and before >= since):
                    alerts[n_alerts, LAST], alerts[n_alerts, START] = first, start
                    alerts[n_alerts, EVENTS] = n
                    values[n_alerts] = value_of(kind, count, rank, sums, matches[lo:hi])
                    n_alerts += 1
            was_held, before, first = held[first], instant, hi
        cleared(kind, matches[lo:end], counts)
    return n_alerts
