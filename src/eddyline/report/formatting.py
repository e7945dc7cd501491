"""Numbers, orders and evidence as texts for people.

Every surface has the same wording. A value that is not known (None, NaN, infinite) is written as a
dash, never as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal

Unit = Literal["text", "count", "number", "position", "share", "ns", "bytes", "time"]
"""Of a value: a share in [0, 1], nanoseconds, a position from 1, an event time (µs since 1970)."""

UNKNOWN = "-"
"""Stands for a value that is not known."""

TIMES = "\N{MULTIPLICATION SIGN}"
"""Says how many times."""

NAME_WIDTH = 28
"""Most characters of a filter's name within an order."""

SHOWN_NAMES = 8
"""Most filters of an order that are named in a sentence."""

VALUE_WIDTH = 120
"""Most characters of one value of a journal entry."""

_UNITS = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
_SIZES = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))
_SPANS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000))


def finite(value: float | None) -> float | None:
    """Return the value as a float, or None if it is not known."""
    return float(value) if value is not None and math.isfinite(value) else None


def duration(ns: float | None) -> str:
    """Write a duration in the unit that suits it.

    >>> duration(41.23), duration(1_250), duration(None)
    ('41.2 ns', '1.25 µs', '-')
    """
    return _in_unit(ns, _UNITS)


def size(n_bytes: float | None) -> str:
    """Write a size in the unit that suits it, in powers of a thousand.

    >>> size(512), size(1_234_567), size(None)
    ('512 B', '1.23 MB', '-')
    """
    return _in_unit(n_bytes, _SIZES)


def _in_unit(value: float | None, units: Sequence[tuple[str, float]]) -> str:
    """Write a value in the first unit of some in which it has at most three digits."""
    number = finite(value)
    if number is None:
        return UNKNOWN
    unit, one = next((scale for scale in units if number < 999.5 * scale[1]), units[-1])
    return f"{significant(number / one)} {unit}"


def span(us: int) -> str:
    """Write a span of event time (µs, 0 or more) by its two greatest units.

    >>> span(7_385_000_000), span(1_500_000), span(90_000_000)
    ('2 h 3 min', '1.5 s', '1 min 30 s')
    """
    for place, (unit, one) in enumerate(_SPANS):
        if us >= one:
            lower, least = (*_SPANS, ("s", 1_000_000))[place + 1]
            rest = us % one // least
            return f"{us // one:,} {unit}" + (f" {rest} {lower}" if rest else "")
    return duration(1e3 * us)


def instant(us: int | None) -> str:
    """Write an event time (µs since 1970) in UTC; a dash if there is none.

    >>> instant(1_700_000_000_250_000), instant(None)
    ('2023-11-14 22:13:20.25', '-')
    """
    if us is None:
        return UNKNOWN
    try:
        whole = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return f"{us:,} µs"
    text = f"{whole:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{whole.microsecond:06d}".rstrip("0") if whole.microsecond else text


_EPOCH = datetime(1970, 1, 1)


def significant(value: float) -> str:
    """Write a number with three significant digits, without an exponent where it is large.

    >>> significant(0.01234), significant(9.999), significant(123456.7)
    ('0.0123', '10', '123,457')
    """
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def percent(frac: float | None) -> str:
    """Write a fraction as a percentage that is 0 or 100 only if the fraction is 0 or 1.

    >>> percent(0.1234), percent(0.00001), percent(0.99999), percent(1.0)
    ('12.3 %', '< 0.1 %', '> 99.9 %', '100.0 %')
    """
    share = finite(frac)
    if share is None:
        return UNKNOWN
    if 0.0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1.0:
        return "> 99.9 %"
    return f"{100.0 * share:.1f} %"


def count(number: float | None) -> str:
    """Write a count with thousands set apart."""
    value = finite(number)
    return UNKNOWN if value is None else f"{value:,.0f}"


def out_of(n_out: float, n_in: float) -> str:
    """Write rows out beside rows in: a share, or how many for each where they are more.

    >>> out_of(1, 8), out_of(3, 2), out_of(0, 0)
    ('12.5 %', '1.5 per row', '-')
    """
    share = ratio(n_out, n_in)
    return percent(share) if share is None or share <= 1.0 else f"{significant(share)} per row"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun.

    >>> counted(1, "rule"), counted(1200, "rule"), counted(2, "batch", "batches")
    ('1 rule', '1,200 rules', '2 batches')
    """
    return f"{count(number)} {noun if number == 1 else plural or f'{noun}s'}"


def value_in(unit: Unit, value: Any) -> str:
    """Write a value by its unit; a text on one line.

    >>> value_in("share", 0.5), value_in("count", 1200), value_in("ns", None)
    ('50.0 %', '1,200', '-')
    """
    if unit == "text":
        return one_line(value)
    if unit == "number":
        return UNKNOWN if finite(value) is None else significant(value)
    ways = {"share": percent, "ns": duration, "bytes": size, "time": instant}
    return ways.get(unit, count)(value)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return a ratio; None if a side is not known or the denominator is not above 0."""
    above, below = finite(numerator), finite(denominator)
    return above / below if above is not None and below is not None and below > 0.0 else None


def times(factor: float | None) -> str:
    """Write how many times less or more work something is.

    >>> times(2.5), times(0.5), times(1.001)
    ('2.5 × less', '2 × more', 'as much')
    """
    value = finite(factor)
    if value is None or value <= 0.0:
        return UNKNOWN
    text = significant(max(value, 1.0 / value))
    if text == "1":
        return _EQUAL
    return f"{text} {TIMES} {'less' if value > 1.0 else 'more'}"


_EQUAL = "as much"

AS_WRITTEN = "as written"
"""Said of an order that costs what the written one does."""


def saving_text(cost_ns: float | None, as_written_ns: float | None) -> str:
    """Write what an order saves against the written one; nothing if that is not known.

    >>> saving_text(840, 2100), saving_text(840, 840), saving_text(840, None)
    ('2.5 × less than as written (2.1 µs)', 'as written', '')
    """
    factor = ratio(as_written_ns, cost_ns)
    if factor is None:
        return ""
    if times(factor) == _EQUAL:
        return AS_WRITTEN
    return f"{times(factor)} than as written ({duration(as_written_ns)})"


def against_text(
    cost_ns: float | None,
    as_written_ns: float | None,
    saved_s: float | None = None,
    of_s: float | None = None,
) -> str:
    """Write how the cost of an order stands to that of the written one; nothing if not known.

    A ratio stands only beside what it comes to: the work saved (s), and the time that the batches
    took (s).

    >>> against_text(840, 2100, 1.9, 12.0)
    '2.5 × less than as written (2.1 µs): 1.9 s of work less (batches took 12 s)'
    >>> against_text(840, 2100), against_text(840, 840), against_text(840, None)
    ('2.1 µs as written', 'as written', '')
    """
    saving = saving_text(cost_ns, as_written_ns)
    if saving in ("", AS_WRITTEN):
        return saving
    if worth := worth_text(saved_s, of_s):
        return f"{saving}: {worth}"
    return f"{duration(as_written_ns)} as written"


def cost_text(
    cost_ns: float | None,
    as_written_ns: float | None,
    saved_s: float | None = None,
    of_s: float | None = None,
) -> str:
    """Write the expected cost of an order beside that of the written one; see ``against_text``.

    >>> cost_text(840, 2100), cost_text(840, None)
    ('840 ns per row, 2.1 µs as written', '840 ns per row')
    """
    against = against_text(cost_ns, as_written_ns, saved_s, of_s)
    return ", ".join(filter(None, (f"{duration(cost_ns)} per row", against)))


LITTLE = 0.01
"""Share of the time of batches below which what is saved does not matter."""


def worth_text(saved_s: float | None, of_s: float | None) -> str:
    """Write what an order saved of the work (s) beside the time that the batches took (s).

    >>> worth_text(1.9, 12.0), worth_text(0.23, 48.0), worth_text(0.4, None), worth_text(None, 48.0)
    ('1.9 s of work less (batches took 12 s)', 'next to nothing of 48 s of batches', \
'400 ms of work less', '')
    """
    saved, took = finite(saved_s), finite(of_s)
    if saved is None:
        return ""
    if took is not None and abs(saved) < LITTLE * took:
        return f"next to nothing of {duration(took * 1e9)} of batches"
    phrase = f"{duration(abs(saved) * 1e9)} of work {'less' if saved >= 0.0 else 'more'}"
    return phrase if not took else f"{phrase} (batches took {duration(took * 1e9)})"


def one_line(text: str) -> str:
    """Return the text on one line, without control characters that a terminal would obey."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a line as it is, without control characters that a terminal would obey."""
    return "".join(char if char.isprintable() else "�" for char in text)


def clipped(text: str, width: int = NAME_WIDTH) -> str:
    """Return the text on one line of at most ``width`` characters."""
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def order_text(names: Sequence[str], shown: int = SHOWN_NAMES) -> str:
    """Write an order of filters, the rest of a long one as a number.

    >>> order_text(["a", "b", "c"], shown=2)
    'a → b → … 1 more'
    """
    parts = [clipped(name) for name in names[:shown]]
    if len(names) > shown:
        parts.append(f"… {len(names) - shown:,} more")
    return " → ".join(parts)


def plan_text(plan: Any, shown: int = SHOWN_NAMES) -> str:
    """Write a plan of the journal: a list of texts is an order of names.

    Any other plan is written as it is; an operator has words of its own for it (``Wording``).

    >>> plan_text(["a", "b"]), plan_text([60, 5])
    ('a → b', '[60, 5]')
    """
    if plan is None:
        return UNKNOWN
    return order_text(plan, shown) if _is_order(plan) else value_text(plan)


def change_texts(before: Any, after: Any, shown: int = SHOWN_NAMES) -> tuple[str, str]:
    """Write two plans so that their difference is in sight.

    A common start that would hide the difference of two long orders is written as a number.

    >>> change_texts(["a", "b", "c", "d"], ["a", "b", "d", "c"], shown=2)
    ('… 2 → c → d', '… 2 → d → c')
    """
    same = 0
    if _is_order(before) and _is_order(after) and max(len(before), len(after)) > shown:
        pairs = zip(before, after, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same < shown:
        return plan_text(before, shown), plan_text(after, shown)
    start = f"… {same:,} → "
    return start + plan_text(before[same:], shown), start + plan_text(after[same:], shown)


def evidence_text(
    evidence: Mapping[str, Any], writers: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
) -> str:
    """Write the evidence of a decision as ``name: value`` pairs; positions count from 1.

    >>> evidence_text({"n_tuples": 812, "cost_ns": 4144.3})
    'n tuples: 812, cost: 4.14 µs'

    Args:
        evidence: values by name; those whose names end in ``_ns`` are durations.
        writers: for the values that are not written as they are, by name.
    """
    shown = {
        key: value + (key == "position") for key, value in evidence.items() if key == "position"
    }
    return ", ".join(
        f"{key.removesuffix('_ns').replace('_', ' ')}: {writers.get(key, _writer(key))(value)}"
        for key, value in {**evidence, **shown}.items()
        if value not in ({}, [])
    )


def _writer(key: str) -> Callable[[Any], str]:
    """Return what writes a value of the evidence that an operator has no words for."""
    return partial(value_text, number=_signed_duration) if key.endswith("_ns") else value_text


def _signed_duration(ns: float) -> str:
    """Write a duration that may be negative, such as of what was lost instead of saved."""
    return f"-{duration(-ns)}" if ns < 0.0 else duration(ns)


@dataclass(frozen=True, slots=True)
class Wording:
    """An operator's words for its decisions of one event."""

    plan: Callable[[Any], str] | None = None
    """Writes a plan other than None; without it a plan is an order, or written as it is."""
    evidence: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Writers of values of the evidence, by name."""

    def change(self, before: Any, after: Any) -> tuple[str, str]:
        """Write the plans before and after a decision."""
        if (write := self.plan) is None:
            return change_texts(before, after)
        old, new = (UNKNOWN if plan is None else write(plan) for plan in (before, after))
        return old, new


Wordings = Mapping[tuple[str, str], Wording]
"""Words for decisions, by component and event; other decisions need none of their own."""

IN_FORCE = "in force"
"""Stands among the words for the event where the plan in force is meant, and no decision."""


def value_text(value: Any, number: Callable[[float], str] = significant) -> str:
    """Write any plain value on one short line; ``number`` writes those that are measured."""
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else UNKNOWN
    if _is_list(value):
        inner = ", ".join(value_text(item, number) for item in value[:SHOWN_NAMES])
        more = f", … {len(value) - SHOWN_NAMES:,} more" if len(value) > SHOWN_NAMES else ""
        return f"[{inner}{more}]"
    if isinstance(value, Mapping):
        return "{" + evidence_text(value) + "}"
    return clipped(str(value), VALUE_WIDTH)


def _is_order(plan: Any) -> bool:
    return _is_list(plan) and all(isinstance(name, str) for name in plan)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
