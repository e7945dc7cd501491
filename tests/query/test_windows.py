"""How windows are written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import QueryError
from eddyline.query.cql import read_window
from eddyline.query.query import (
    LONGEST,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    UnboundedWindow,
)

SECOND = 1_000_000
READ = [
    ("RANGE 10 SECONDS", RangeWindow(10 * SECOND)),
    ("range 1 minute", RangeWindow(60 * SECOND)),
    ("Range 7 Microseconds", RangeWindow(7)),
    ("RANGE 1 MICROSECOND", RangeWindow(1)),
    ("RANGE 1 MILLISECOND", RangeWindow(1_000)),
    ("RANGE 1 SECOND", RangeWindow(SECOND)),
    ("RANGE 1 HOUR", RangeWindow(3600 * SECOND)),
    ("RANGE 1 DAY", RangeWindow(86_400 * SECOND)),
    ("RANGE 1 WEEK", RangeWindow(604_800 * SECOND)),
    ("RANGE 0 SECONDS", RangeWindow(0)),
    ("RANGE 1.5 SECONDS", RangeWindow(1_500_000)),
    ("RANGE .5 SECONDS", RangeWindow(500_000)),
    ("RANGE 5. SECONDS", RangeWindow(5 * SECOND)),
    ("RANGE 0.000001 SECONDS", RangeWindow(1)),
    ("RANGE 1e3 MILLISECONDS", RangeWindow(SECOND)),
    ("RANGE + 5 SECONDS", RangeWindow(5 * SECOND)),
    ("RANGE 3652500 DAYS", RangeWindow(3_652_500 * 86_400 * SECOND)),
    ("RANGE INTERVAL '10' SECONDS", RangeWindow(10 * SECOND)),
    ("RANGE INTERVAL ' 1.5 ' MINUTE", RangeWindow(90 * SECOND)),
    ("range interval 10 seconds", RangeWindow(10 * SECOND)),
    ("NOW", RangeWindow(0)),
    ("now", RangeWindow(0)),
    ("UNBOUNDED", UnboundedWindow()),
    ("RANGE UNBOUNDED", UnboundedWindow()),
    ("rows Unbounded", UnboundedWindow()),
    ("ROWS 1000", RowsWindow(1000)),
    ("rows\n 1 -- the last", RowsWindow(1)),
    ("PARTITION BY k ROWS 10", RowsWindow(10, ("k",))),
    ("partition  by a, `b c`, date rows 5", RowsWindow(5, ("a", "b c", "date"))),
    ("PARTITION BY `rows` ROWS 5", RowsWindow(5, ("rows",))),
    ("[RANGE 10 SECONDS]", RangeWindow(10 * SECOND)),
    (" [ NOW ] ", RangeWindow(0)),
    ("[PARTITION BY k ROWS 10]", RowsWindow(10, ("k",))),
    ("RANGE 10 MINUTES SLIDE 1 MINUTE", SlideWindow(600 * SECOND, 60 * SECOND)),
    ("range 1 second slide 1 minute", SlideWindow(SECOND, 60 * SECOND)),
    ("RANGE INTERVAL '1' HOUR SLIDE INTERVAL 1 HOUR", SlideWindow(3600 * SECOND, 3600 * SECOND)),
    ("RANGE 1 MINUTE SLIDE .5 SECONDS", SlideWindow(60 * SECOND, SECOND // 2)),
    (
        "RANGE 1 HOUR SLIDE 1 MINUTE ORIGIN 15 SECONDS",
        SlideWindow(3600 * SECOND, 60 * SECOND, 15 * SECOND),
    ),
    (
        "RANGE 1 HOUR SLIDE 1 MINUTE ORIGIN 75 SECONDS",
        SlideWindow(3600 * SECOND, 60 * SECOND, 15 * SECOND),
    ),
    (
        "RANGE 1 DAY SLIDE 1 DAY ORIGIN TIMESTAMP '2026-03-29T02:00:00+01:00'",
        SlideWindow(86_400 * SECOND, 86_400 * SECOND, 3600 * SECOND),
    ),
    (
        "RANGE 1 DAY SLIDE 1 DAY ORIGIN TIMESTAMP '1969-12-31 23:00:00Z'",
        SlideWindow(86_400 * SECOND, 86_400 * SECOND, 82_800 * SECOND),
    ),
    ("[UNBOUNDED SLIDE 1 HOUR]", SlideWindow(LONGEST, 3600 * SECOND)),
    ("RANGE UNBOUNDED SLIDE 1 HOUR", SlideWindow(LONGEST, 3600 * SECOND)),
    ("SESSION 5 MINUTES", SessionWindow(300 * SECOND)),
    ("[session gap 1 SECOND]", SessionWindow(SECOND)),
    ("SESSION INTERVAL '5' MINUTES", SessionWindow(300 * SECOND)),
]


@pytest.mark.parametrize(("text", "window"), READ, ids=[text for text, _ in READ])
def test_a_window_is_read(text, window):
    assert read_window(text, "the window of 's'") == window


FORMS = (
    "is RANGE 10 SECONDS, RANGE 10 MINUTES SLIDE 1 MINUTE, ROWS 1000, PARTITION BY k ROWS 10, "
    "SESSION 5 MINUTES, NOW or UNBOUNDED, got "
)
LENGTH = ": RANGE needs a number and a unit, such as RANGE 10 SECONDS, got "
SLIDE = ": SLIDE needs a number and a unit, such as SLIDE 1 MINUTE, got "
ORIGIN = ": ORIGIN needs a number and a unit, such as ORIGIN 15 SECONDS, got "
INSTANT = ": ORIGIN TIMESTAMP needs an instant and its zone: '2026-01-01T00:00:15Z', got "
SESSION = ": SESSION needs a number and a unit, such as SESSION 5 MINUTES, got "
NOTHING_BEHIND = ": nothing may follow RANGE 10 SECONDS SLIDE 5 SECONDS, got '3'"
TOO_MANY = "is too many; the most are 1000000000000000"
TOO_LONG = "is too long; the longest time is 3652500 DAYS (10,000 years)"
ROWS = ": ROWS needs how many, such as ROWS 1000, got "
UNITS = "known: microseconds, milliseconds, seconds, minutes, hours, days, weeks"
REFUSED = [
    ("", f" {FORMS}nothing", 1),
    ("[]", f" {FORMS}nothing", 2),
    ("10 SECONDS", f" {FORMS}'10'", 1),
    ("`NOW`", f" {FORMS}'`NOW`'", 1),
    ("'NOW'", f" {FORMS}\"'NOW'\"", 1),
    ("LAST 10 ROWS", f" {FORMS}'LAST'", 1),
    ("RANGE", f"{LENGTH}nothing", 6),
    ("[RANGE]", f"{LENGTH}nothing", 7),
    ("RANGE SECONDS", f"{LENGTH}'SECONDS'", 7),
    ("RANGE 10SECONDS", f"{LENGTH}'10SECONDS'", 7),
    ("RANGE NOW", f"{LENGTH}'NOW'", 7),
    ("RANGE '10' SECONDS", f"{LENGTH}\"'10'\"", 7),
    ("RANGE INTERVAL", f"{LENGTH}nothing", 15),
    ("RANGE INTERVAL '' SECONDS", f"{LENGTH}\"''\"", 16),
    ("RANGE INTERVAL '10 seconds'", f"{LENGTH}\"'10 seconds'\"", 16),
    ("RANGE 10", ": RANGE 10 needs a unit, such as SECONDS", 9),
    ("[RANGE 10]", ": RANGE 10 needs a unit, such as SECONDS", 10),
    ("RANGE 10 parsecs", f": unknown unit of time 'parsecs'; {UNITS}", 10),
    ("RANGE 10 MONTH", f": unknown unit of time 'month'; {UNITS}", 10),
    ("RANGE 10 secs", f": unknown unit of time 'secs'; {UNITS}; did you mean 'seconds'?", 10),
    ("RANGE 10 's'", f": unknown unit of time 's'; {UNITS}", 10),
    ("RANGE -10 SECONDS", ": a window cannot be negative, got -10", 7),
    ("RANGE INTERVAL '-10' SECONDS", ": a window cannot be negative, got '-10'", 16),
    ("RANGE 0.1 MICROSECONDS", ": RANGE 0.1 MICROSECONDS is not a whole number of microseconds", 7),
    ("RANGE 1e-9 DAYS", ": RANGE 1e-9 DAYS is not a whole number of microseconds", 7),
    (
        "RANGE 9223372036854775808 MICROSECONDS",
        f": RANGE 9223372036854775808 MICROSECONDS {TOO_LONG}; write UNBOUNDED",
        7,
    ),
    ("ROWS", f"{ROWS}nothing", 5),
    ("ROWS k", f"{ROWS}'k'", 6),
    ("ROWS '5'", f"{ROWS}\"'5'\"", 6),
    ("ROWS 10L", f"{ROWS}'10L'", 6),
    ("ROWS 0", ": ROWS 0 would hold nothing; write 1 or more", 6),
    ("ROWS -5", ": a window cannot be negative, got -5", 6),
    ("ROWS 1.5", ": ROWS needs a whole number, got 1.5", 6),
    ("ROWS 1000000000000001", f": ROWS 1000000000000001 {TOO_MANY}", 6),
    (f"ROWS {'9' * 5000}", f": ROWS {'9' * 20} {TOO_MANY}", 6),
    ("RANGE 3652501 DAYS", f": RANGE 3652501 DAYS {TOO_LONG}; write UNBOUNDED", 7),
    ("RANGE 1e300 DAYS", f": RANGE 1e300 DAYS {TOO_LONG}; write UNBOUNDED", 7),
    (f"RANGE {'9' * 5000} DAYS", f": RANGE {'9' * 20}… {TOO_LONG}", 7),
    ("SESSION 521786 WEEKS", f": SESSION 521786 WEEKS {TOO_LONG}", 9),
    (
        "RANGE 1 DAY SLIDE 1 DAY ORIGIN 3652501 DAYS",
        f": ORIGIN 3652501 DAYS {TOO_LONG}",
        32,
    ),
    ("ROWS 5 PRECEDING", ": nothing may follow ROWS 5, got 'PRECEDING'", 8),
    ("RANGE 10 SECONDS SLIDE 5", ": SLIDE 5 needs a unit, such as SECONDS", 25),
    ("RANGE 10 SECONDS SLIDE", f"{SLIDE}nothing", 23),
    ("RANGE 10 SECONDS SLIDE SECONDS", f"{SLIDE}'SECONDS'", 24),
    (
        "RANGE 10 SECONDS SLIDE 0 SECONDS",
        ": SLIDE 0 SECONDS is no time; write 1 microsecond or more",
        24,
    ),
    ("RANGE 10 SECONDS SLIDE -5 SECONDS", ": a window cannot be negative, got -5", 24),
    ("RANGE 10 SECONDS SLIDE 5 SECONDS 3", NOTHING_BEHIND, 34),
    (
        "RANGE 0 DAYS SLIDE 1 DAY",
        ": RANGE 0 DAYS SLIDE 1 DAY would hold nothing; write a longer one",
        7,
    ),
    (
        "RANGE 1 DAY SLIDE 9223372036854775808 MICROSECONDS",
        f": SLIDE 9223372036854775808 MICROSECONDS {TOO_LONG}",
        19,
    ),
    ("RANGE 1 DAY SLIDE 1 DAY ORIGIN", f"{ORIGIN}nothing", 31),
    ("RANGE 1 DAY SLIDE 1 DAY ORIGIN -1 DAY", ": a window cannot be negative, got -1", 32),
    ("RANGE 1 DAY SLIDE 1 DAY ORIGIN TIMESTAMP", f"{INSTANT}nothing", 41),
    ("RANGE 1 DAY SLIDE 1 DAY ORIGIN TIMESTAMP 5", f"{INSTANT}'5'", 42),
    (
        "RANGE 1 DAY SLIDE 1 DAY ORIGIN TIMESTAMP '2026-01-01'",
        f"{INSTANT}\"'2026-01-01'\"",
        42,
    ),
    ("RANGE 1 DAY ORIGIN 1 HOUR", ": nothing may follow RANGE 1 DAY, got 'ORIGIN'", 13),
    ("ROWS 5 SLIDE 1 DAY", ": nothing may follow ROWS 5, got 'SLIDE'", 8),
    ("ROWS UNBOUNDED SLIDE 1 DAY", ": nothing may follow ROWS UNBOUNDED, got 'SLIDE'", 16),
    ("SLIDE 5 SECONDS", f" {FORMS}'SLIDE'", 1),
    ("SESSION", f"{SESSION}nothing", 8),
    ("SESSION GAP", f"{SESSION}nothing", 12),
    ("SESSION UNBOUNDED", f"{SESSION}'UNBOUNDED'", 9),
    ("SESSION 5", ": SESSION 5 needs a unit, such as SECONDS", 10),
    ("SESSION 0 DAYS", ": SESSION 0 DAYS is no time; write 1 microsecond or more", 9),
    ("SESSION 5 DAYS SLIDE 1 DAY", ": nothing may follow SESSION 5 DAYS, got 'SLIDE'", 16),
    ("NOW UNBOUNDED", ": nothing may follow NOW, got 'UNBOUNDED'", 5),
    ("ROWS 5]", ": nothing may follow ROWS 5, got ']'", 7),
    ("[ROWS 5", " has a bracket that is left open", 1),
    ("RANGE 'x", " has a quote or a comment that is left open", 7),
    ("PARTITION BY", " needs a column behind PARTITION BY, got nothing", 13),
    ("[PARTITION BY a,]", " needs a column behind PARTITION BY, got nothing", 17),
    ("PARTITION BY ROWS 5", " needs a column behind PARTITION BY, got 'ROWS'", 14),
    ("PARTITION BY a, ROWS 5", " needs a column behind PARTITION BY, got 'ROWS'", 17),
    ("PARTITION BY 5 ROWS 5", " needs a column behind PARTITION BY, got '5'", 14),
    ("PARTITION BY a, A ROWS 5", ": column 'A' stands twice in PARTITION BY", 17),
    (
        "PARTITION BY s.a ROWS 5",
        ": PARTITION BY takes columns of the stream by their bare names",
        14,
    ),
    (
        "PARTITION BY a RANGE 5 DAYS",
        " needs ROWS and a number behind the columns of PARTITION BY, got 'RANGE'",
        16,
    ),
    ("PARTITION BY a ROWS UNBOUNDED", f"{ROWS}'UNBOUNDED'", 21),
]


@pytest.mark.parametrize(("text", "says", "column"), REFUSED, ids=[text for text, *_ in REFUSED])
def test_what_is_no_window_is_said_at_its_place(text, says, column):
    with pytest.raises(QueryError) as caught:
        read_window(text, "the window of 's'")
    said = caught.value.message.splitlines()[0]
    assert said == f"the window of 's'{says} (line 1, column {column})"
    assert caught.value.facts["column"] == column


UNIT_LENGTHS = {
    "MICROSECONDS": 1,
    "milliseconds": 1_000,
    "Seconds": SECOND,
    "minutes": 60 * SECOND,
    "hours": 3600 * SECOND,
    "days": 86_400 * SECOND,
    "weeks": 604_800 * SECOND,
}


@given(number=st.integers(0, 10**6), unit=st.sampled_from(list(UNIT_LENGTHS)))
def test_every_whole_length_is_exact(number, unit):
    assert read_window(f"RANGE {number} {unit}") == RangeWindow(number * UNIT_LENGTHS[unit])


@given(length=st.integers(0, 10**12))
def test_decimals_are_exact(length):
    text = f"RANGE {length // SECOND}.{length % SECOND:06} SECONDS"
    assert read_window(text) == RangeWindow(length)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RANGE 90 SECONDS", "RANGE 90 SECONDS"),
        ("RANGE 60 SECONDS", "RANGE 1 MINUTE"),
        ("RANGE 2 WEEKS", "RANGE 14 DAYS"),
        ("RANGE 1500 MILLISECONDS", "RANGE 1500 MILLISECONDS"),
        ("RANGE 1 MICROSECOND", "RANGE 1 MICROSECOND"),
        ("RANGE 0 SECONDS", "NOW"),
        ("NOW", "NOW"),
        ("ROWS 1000", "ROWS 1000"),
        ("PARTITION BY k, l ROWS 10", "PARTITION BY k, l ROWS 10"),
        ("UNBOUNDED", "UNBOUNDED"),
        ("RANGE 60 SECONDS SLIDE 1 SECOND", "RANGE 1 MINUTE SLIDE 1 SECOND"),
        (
            "RANGE 1 DAY SLIDE 1 HOUR ORIGIN 60 SECONDS",
            "RANGE 1 DAY SLIDE 1 HOUR ORIGIN 1 MINUTE",
        ),
        ("UNBOUNDED SLIDE 1 HOUR", "UNBOUNDED SLIDE 1 HOUR"),
        ("SESSION GAP 300 SECONDS", "SESSION 5 MINUTES"),
    ],
)
def test_windows_in_words_are_the_same_windows(text, said):
    window = read_window(text)
    assert window.text == said
    assert read_window(said) == window


def test_time_takes_rows_out_of_ranges_only():
    starts = np.array([-5, 0, 7, LONGEST - 1])
    assert RangeWindow(3).ends(starts).tolist() == [-2, 3, 10, LONGEST]
    assert RangeWindow(0).ends(starts).tolist() == starts.tolist()
    for window in (RangeWindow(LONGEST), RowsWindow(2), UnboundedWindow()):
        assert window.ends(starts).tolist() == [LONGEST] * 4
        assert window.length == LONGEST


def test_windows_of_rows_count():
    assert RowsWindow(3, ("k",)).counts == RowsWindow(3, ("k",))
    assert [each.counts for each in (RangeWindow(0), UnboundedWindow())] == [None, None]
