"""Correlations by their definition: each instant of each group anew, with nothing but loops.

A correlation holds at an instant if the matches of the group in ``[instant - length, instant]``
meet its condition. There is an alert at an instant at which it holds and did not hold at the
group's instant before, or there was none before within the timespan.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

OPERATORS = {
    "gte": operator.ge,
    "gt": operator.gt,
    "lte": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
    "neq": operator.ne,
}


@dataclass(frozen=True)
class Match:
    """An event that a rule of a correlation is true for."""

    time: int
    key: tuple[str | None, ...]
    places: frozenset[int]
    """Of the references of the correlation."""
    text: str | None = None
    number: Fraction | None = None
    carried: str | None = None


@dataclass(frozen=True)
class Alert:
    """What an alert says."""

    time: int
    key: tuple[str, ...]
    first: int
    events: int
    value: float
    carried: str | None = None


def alerts(correlation, matches):
    """Return the alerts of a correlation over all matches, by time and group."""
    groups = {}
    for each in matches:
        if None not in each.key:
            groups.setdefault(each.key, []).append(each)
    found = []
    for key, own in groups.items():
        before = None
        for instant in sorted({each.time for each in own}):
            since = instant - correlation.length
            window = [each for each in own if since <= each.time <= instant]
            holds, value, first = judged(correlation, window)
            was_held = before is not None and before[0] >= since and before[1]
            if holds and not was_held:
                peers = [each.carried for each in own if each.time == instant]
                carried = min((each for each in peers if each is not None), default=None)
                found.append(Alert(instant, key, first, len(window), value, carried))
            before = instant, holds
    return sorted(found, key=lambda each: (each.time, each.key))


def judged(correlation, window):
    """Return whether the condition is met, the value, and the first instant."""
    first = min(each.time for each in window)
    value = value_of(correlation, window)
    if correlation.kind == "temporal_ordered":
        value, first = longest_chain(window, len(correlation.references))
    if correlation.program:
        seen = {place for each in window for place in each.places}
        return met(correlation.program, seen), float(value), first
    if value is None:
        return False, math.nan, first
    holds = all(OPERATORS[op](value, number) for op, number in correlation.tests)
    return holds, float(value), first


def value_of(correlation, window):
    """Return what a correlation says of matches; None if it says nothing."""
    numbers = sorted(each.number for each in window if each.number is not None)
    match correlation.kind:
        case "event_count":
            return len(window)
        case "value_count":
            return len({each.text for each in window if each.text is not None})
        case "temporal":
            return len({place for each in window for place in each.places})
    return of_numbers(correlation, numbers) if numbers else None


def of_numbers(correlation, numbers):
    """Return what a correlation says of numbers in their order."""
    match correlation.kind:
        case "value_sum":
            return sum(numbers)
        case "value_avg":
            return sum(numbers) / len(numbers)
        case "value_percentile":
            return numbers[max(1, math.ceil(correlation.percentile * len(numbers) / 100)) - 1]
    return None


def longest_chain(window, n_rules):
    """Return the length of the longest chain of rules in their order, and its latest start."""
    times = {
        rule: sorted(each.time for each in window if rule in each.places) for rule in range(n_rules)
    }
    for length in range(n_rules, 0, -1):
        starts = [
            start
            for chain in combinations(range(n_rules), length)
            for start in times[chain[0]]
            if follows(times, chain[1:], start)
        ]
        if starts:
            return length, max(starts)
    raise AssertionError(window)


def follows(times, chain, since):
    """Return whether rules come one after the other from an instant on."""
    for rule in chain:
        later = [time for time in times[rule] if time >= since]
        if not later:
            return False
        since = later[0]
    return True


def met(program, seen):
    """Return what a boolean condition in postfix order says."""
    stack = []
    for code in program:
        if code >= 0:
            stack.append(code in seen)
        elif code == -3:
            stack.append(not stack.pop())
        else:
            other, one = stack.pop(), stack.pop()
            stack.append(one and other if code == -1 else one or other)
    return stack.pop()
