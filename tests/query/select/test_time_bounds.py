"""Windows that follow from bounds of event times in the condition of a join."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.query.query import UNBOUNDED, RangeWindow, RowsWindow
from eddyline.query.select.conditions import MAX_SHIFT, TimeBounds
from eddyline.query.select.reader import read_query
from eddyline.query.steps import steps

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

NAMES = ("s", "e", "a", "b", "c")
INSTANTS = {"k": "int", "ts": "timestamp", "other": "timestamp", "at": "struct<ts:timestamp>"}
WALL_CLOCKS = {**INSTANTS, "ts": "timestamp_ntz"}
STATIC = "names"


def read(text, columns=INSTANTS, times="ts"):
    known = dict.fromkeys((*NAMES, STATIC), columns)
    return read_query(text, known, tables=[STATIC], times=dict.fromkeys(NAMES, times))


def windows(text, columns=INSTANTS):
    """Return the derived length of each input of a query; None of those that have none."""
    found = {}
    for each in read(text, columns).inputs:
        is_derived = isinstance(each.window, RangeWindow) and each.window.is_derived
        assert is_derived or each.window == UNBOUNDED
        found[each.name] = each.window.length if is_derived else None
    return found


def lengths(condition, columns=INSTANTS):
    """Return the derived lengths of s and e, joined by a key and a condition."""
    found = windows(f"SELECT s.k FROM s JOIN e ON s.k = e.k AND {condition}", columns)
    swapped = windows(f"SELECT s.k FROM e, s WHERE ({condition}) AND s.k = e.k", columns)
    assert swapped == found, "neither the order of the inputs nor ON or WHERE matter"
    return found["s"], found["e"]


@pytest.mark.parametrize(
    ("condition", "of_s", "of_e"),
    [
        ("e.ts BETWEEN s.ts AND s.ts + INTERVAL '5' MINUTES", 5 * MINUTE, 0),
        ("E.TS between S.ts and s.`ts` + interval 5 minutes", 5 * MINUTE, 0),
        ("(e.ts BETWEEN s.ts - INTERVAL 2 HOURS AND s.ts)", 0, 2 * HOUR),
        ("e.ts >= s.ts - INTERVAL 5 MINUTES", None, 5 * MINUTE),
        ("e.ts < s.ts + INTERVAL 5 MINUTES", 5 * MINUTE, None),
        ("s.ts + INTERVAL 5 MINUTES >= e.ts", 5 * MINUTE, None),
        ("INTERVAL 5 MINUTES + s.ts > e.ts", 5 * MINUTE, None),
        ("e.ts - INTERVAL 1 HOUR <= s.ts", HOUR, None),
        ("e.ts - INTERVAL 1 HOUR <= s.ts + INTERVAL '10' SECOND", HOUR + 10 * SECOND, None),
        ("e.ts = s.ts", 0, 0),
        ("e.ts <=> s.ts", 0, 0),
        ("e.ts = s.ts + INTERVAL 5 MINUTES", 5 * MINUTE, 0),
        ("e.ts > s.ts AND e.ts <= s.ts + INTERVAL 3 SECONDS", 3 * SECOND, 0),
        ("e.ts < s.ts + INTERVAL 3 SECONDS AND e.ts < s.ts + INTERVAL 2 SECONDS", 2 * SECOND, None),
        ("e.ts <= s.ts - INTERVAL 5 MINUTES", 0, None),
        ("e.ts <= s.ts + INTERVAL '-5' MINUTES", 0, None),
        ("e.ts >= s.ts + INTERVAL -5 MINUTES", None, 5 * MINUTE),
        ("e.ts >= s.ts + (- INTERVAL 5 MINUTES)", None, 5 * MINUTE),
        ("e.ts <= s.ts + INTERVAL '1:30' MINUTE TO SECOND", 90 * SECOND, None),
        ("e.ts <= s.ts - INTERVAL -'1:30' MINUTE TO SECOND", 90 * SECOND, None),
        ("e.ts <= s.ts + INTERVAL '02:03:04.5' HOUR TO SECOND", 7_384_500_000, None),
        ("e.ts <= s.ts + INTERVAL 1 HOUR 30 MINUTES", 90 * MINUTE, None),
        ("e.ts <= s.ts + INTERVAL '1 hour 30 minutes'", 90 * MINUTE, None),
        ("e.ts <= s.ts + INTERVAL '1' HOUR + INTERVAL 30 MINUTES", 90 * MINUTE, None),
        ("e.ts <= s.ts + (INTERVAL '1' HOUR - INTERVAL 30 MINUTES)", 30 * MINUTE, None),
        ("e.ts <= s.ts + INTERVAL 1.5 SECONDS", 1_500_000, None),
        ("e.ts <= s.ts + INTERVAL 7 MICROSECONDS", 7, None),
        ("e.ts <= timestampadd(MINUTE, 5, s.ts)", 5 * MINUTE, None),
        ("e.ts >= dateadd(minute, -5, s.ts)", None, 5 * MINUTE),
        ("date_add(HOUR, 1, s.ts) >= e.ts", HOUR, None),
    ],
)
def test_a_bound_of_event_times_is_a_window(condition, of_s, of_e):
    for columns in (INSTANTS, WALL_CLOCKS):
        assert lengths(condition, columns) == (of_s, of_e)


@pytest.mark.parametrize(
    "condition",
    [
        "e.ts > s.other AND e.other <= s.ts + INTERVAL 5 MINUTES",  # no event times
        "e.at.ts <= s.at.ts + INTERVAL 5 MINUTES",
        "CAST(e.ts AS DATE) <= s.ts + INTERVAL 5 MINUTES",
        "date_trunc('HOUR', e.ts) <= s.ts + INTERVAL 5 MINUTES",
        "(e.ts <= s.ts + INTERVAL 5 MINUTES OR e.k > 3)",
        "NOT e.ts > s.ts + INTERVAL 5 MINUTES",
        "e.ts NOT BETWEEN s.ts AND s.ts + INTERVAL 5 MINUTES",
        "e.ts <> s.ts",
        "e.ts <= s.ts + INTERVAL 1 MONTH",
        "e.ts <= s.ts + INTERVAL '1-2' YEAR TO MONTH",
        "e.ts <= s.ts + INTERVAL '1 day -2 hours'",
        "e.ts <= s.ts + INTERVAL 90000000000 HOURS",  # longer than any window
        "e.ts <= s.ts + INTERVAL (s.k) MINUTES",
        "e.ts <= s.ts + s.k * INTERVAL '1' MINUTE",
        "e.ts <= timestampadd(MONTH, 1, s.ts)",
        "e.ts <= timestampadd(MINUTE, s.k, s.ts)",
        "e.ts <= timestampadd(MINUTE, 2.5, s.ts)",
        "e.ts <= TIMESTAMP '2026-01-01 00:00:00' AND e.k < s.k",
        "e.ts + (s.ts - TIMESTAMP '2026-01-01 00:00:00') <= s.ts",
    ],
)
def test_any_other_condition_is_no_window(condition):
    for columns in (INSTANTS, WALL_CLOCKS):
        assert lengths(condition, columns) == (None, None)


@pytest.mark.parametrize(
    ("condition", "length"),
    [
        ("e.ts <= s.ts + INTERVAL '1' DAY", DAY),
        ("e.ts <= s.ts + INTERVAL 24 HOURS", DAY),
        ("e.ts <= s.ts + INTERVAL 23 HOURS 120 MINUTES", 25 * HOUR),
        ("e.ts <= s.ts + INTERVAL '1 02:03' DAY TO MINUTE", 26 * HOUR + 3 * MINUTE),
        ("e.ts - INTERVAL 1 WEEK <= s.ts", 7 * DAY),
        ("e.ts <= timestampadd(DAY, 2, s.ts)", 2 * DAY),
        ("e.ts - s.ts <= INTERVAL 5 MINUTES", 5 * MINUTE),
        ("INTERVAL 5 MINUTES > (e.ts - s.ts)", 5 * MINUTE),
    ],
)
def test_a_bound_that_goes_by_the_wall_clock_is_a_longer_window(condition, length):
    assert lengths(condition, WALL_CLOCKS) == (length, None)
    assert lengths(condition) == (length + MAX_SHIFT, None)


def test_spans_of_less_than_a_day_are_exact_however_many_are_added():
    twice = "e.ts <= s.ts + INTERVAL 20 HOURS + INTERVAL 20 HOURS"
    assert lengths(twice) == (40 * HOUR, None)
    assert lengths(twice.replace("HOURS + INT", "HOURS + (INT") + ")") == (40 * HOUR, None)
    whole = "e.ts <= s.ts + (INTERVAL 20 HOURS + INTERVAL 20 HOURS)"
    assert lengths(whole) == (40 * HOUR + MAX_SHIFT, None)


def test_the_difference_of_event_times_may_lie_between_two_spans():
    condition = "e.ts - s.ts BETWEEN INTERVAL -2 MINUTES AND INTERVAL 5 MINUTES"
    assert lengths(condition, WALL_CLOCKS) == (5 * MINUTE, 2 * MINUTE)


def test_using_the_event_time_is_a_bound():
    assert windows("SELECT k FROM s JOIN e USING (k, ts)") == {"s": 0, "e": 0}
    assert windows("SELECT k FROM s JOIN e USING (k, other)") == {"s": None, "e": None}


# -- several streams -------------------------------------------------------------------------------


def test_a_window_is_long_enough_for_every_other_stream():
    text = """
        SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 2 MINUTES
        AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 3 MINUTES"""
    assert windows(text) == {"a": 5 * MINUTE, "b": 3 * MINUTE, "c": 0}


def test_a_stream_that_one_other_does_not_bound_stays_unbounded():
    text = """
        SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k
        AND b.ts <= a.ts + INTERVAL 2 MINUTES AND c.ts <= b.ts + INTERVAL 3 MINUTES"""
    assert windows(text) == {"a": 5 * MINUTE, "b": None, "c": None}


def test_tables_have_no_event_time():
    text = "SELECT s.k FROM s, e, names n WHERE s.k = e.k AND e.k = n.k AND "
    found = windows(f"{text} e.ts BETWEEN s.ts AND s.ts + INTERVAL 2 MINUTES")
    assert found == {"s": 2 * MINUTE, "e": 0, "n": None}
    assert windows(f"{text} n.ts BETWEEN s.ts AND e.ts") == {"s": None, "e": None, "n": None}
    assert windows("SELECT s.k FROM s JOIN names n USING (k, ts)") == {"s": None, "n": None}


def test_a_stream_that_is_read_twice_has_two_event_times():
    text = (
        "SELECT x.k FROM s x, s y WHERE x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 9 HOURS"
    )
    assert windows(text) == {"x": 9 * HOUR, "y": 0}


NODES = ("a", "b", "c")
PAIRS = [pair for pair in product(NODES, repeat=2) if pair[0] != pair[1]]


@given(
    bounds=st.dictionaries(st.sampled_from(PAIRS), st.integers(-3, 4)),
    stated=st.dictionaries(st.sampled_from(NODES), st.integers(0, 4), max_size=2),
)
def test_derived_windows_keep_every_combination_and_no_shorter_ones_do(bounds, stated):
    made = TimeBounds(is_local=False)
    for (later, earlier), most in bounds.items():
        made.limit(later, earlier, most)
    found = made.lengths({name: stated.get(name) for name in NODES})

    def is_held(at, lengths):
        return all(at[x] - at[name] <= lengths[name] for x in NODES for name in lengths)

    held = [
        at
        for values in product(range(17), repeat=2)
        for at in [dict(zip(NODES, (8, *values), strict=True))]
        if all(at[later] - at[earlier] <= most for (later, earlier), most in bounds.items())
        and is_held(at, stated)
    ]
    assert all(is_held(at, found) for at in held)
    if held:
        for name, length in found.items():
            shorter = {**found, name: length - 1}
            assert length == 0 or not all(is_held(at, shorter) for at in held)


# -- windows that the query states -----------------------------------------------------------------

BOUND = "s.k = e.k AND e.ts BETWEEN s.ts AND s.ts + INTERVAL 5 MINUTES"


@pytest.mark.parametrize(
    ("source", "of_s", "of_e"),
    [
        ("s [RANGE 1 HOUR], e", RangeWindow(HOUR), RangeWindow(0)),
        ("s [RANGE 1 SECOND], e", RangeWindow(SECOND), RangeWindow(0)),
        ("s [UNBOUNDED], e", UNBOUNDED, RangeWindow(0)),
        ("s, e [RANGE UNBOUNDED]", RangeWindow(5 * MINUTE), UNBOUNDED),
        ("s [ROWS 3], e", RowsWindow(3), RangeWindow(0)),
        ("s [NOW], e [ROWS 2]", RangeWindow(0), RowsWindow(2)),
    ],
)
def test_a_window_that_the_query_states_stays(source, of_s, of_e):
    made = read(f"SELECT s.k FROM {source} WHERE {BOUND}")
    assert [each.window for each in made.inputs] == [of_s, of_e]
    is_stated = ["[" in each for each in source.split(",")]
    derived = [getattr(each.window, "is_derived", False) for each in made.inputs]
    assert derived == [not each for each in is_stated]


def test_stated_windows_are_bounds_of_the_others():
    text = (
        "SELECT a.k FROM a [RANGE 10 MINUTES], b, c WHERE a.k = b.k AND b.k = c.k AND a.ts <= b.ts"
    )
    found = [each.window for each in read(text).inputs]
    assert found == [RangeWindow(10 * MINUTE), RangeWindow(10 * MINUTE), UNBOUNDED]


@pytest.mark.parametrize("emits", ["DSTREAM", "RSTREAM"])
def test_results_that_depend_on_windows_themselves_derive_none(emits):
    assert windows(f"{emits}(SELECT s.k FROM s, e WHERE {BOUND})") == {"s": None, "e": None}
    assert windows(f"ISTREAM(SELECT s.k FROM s, e WHERE {BOUND})") == {"s": 5 * MINUTE, "e": 0}


def test_without_event_times_there_are_no_bounds():
    known = dict.fromkeys(NAMES, INSTANTS)
    text = f"SELECT s.k FROM s, e WHERE {BOUND}"
    for times in (None, {"s": "ts"}, {"s": "ts", "e": None}, {"s": "ts", "e": "other"}):
        found = read_query(text, known, times=times)
        assert [each.window for each in found.inputs] == [UNBOUNDED, UNBOUNDED]


# -- rows without a partner ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT s.k FROM s LEFT JOIN e ON {BOUND} WHERE e.k IS NULL",
        f"SELECT s.k FROM s SEMI JOIN e ON {BOUND}",
        f"SELECT s.k FROM s ANTI JOIN e ON {BOUND} WHERE s.k > 3",
        f"SELECT s.k FROM s WHERE EXISTS (SELECT 1 FROM e WHERE {BOUND})",
        f"SELECT s.k FROM s WHERE s.k > 3 AND NOT EXISTS (SELECT 1 FROM e WHERE {BOUND})",
    ],
)
def test_the_condition_on_partners_is_a_window(text):
    assert windows(text) == {"s": 5 * MINUTE, "e": 0}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.k FROM s LEFT JOIN e ON s.k = e.k WHERE e.ts <= s.ts + INTERVAL 5 MINUTES",
        "SELECT s.k FROM s LEFT JOIN e ON s.k = e.k AND e.ts >= s.ts",
        f"SELECT s.k FROM s [UNBOUNDED] LEFT JOIN e ON {BOUND}",
    ],
)
def test_a_row_that_may_always_find_a_partner_is_refused_with_advice(text):
    message = r"LEFT JOIN needs a window behind 's'.* or a condition such as e\.ts <= s\.ts \+ INT"
    with pytest.raises(NotSupportedError, match=message):
        read(text)


def test_conditions_on_results_of_a_left_join_are_no_bounds():
    text = "SELECT s.k FROM s [RANGE 1 HOUR] LEFT JOIN e ON s.k = e.k WHERE e.ts >= s.ts"
    assert [each.window for each in read(text).inputs] == [RangeWindow(HOUR), UNBOUNDED]


# -- subqueries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subquery", "is_known"),
    [
        ("SELECT * FROM e WHERE k > 3", True),
        ("SELECT ts, k FROM e", True),
        ("SELECT k, ts FROM e UNION ALL SELECT k, ts FROM a", True),
        ("SELECT k, ts FROM (SELECT * FROM e) AS f", True),
        ("SELECT k, other AS ts FROM e", False),
        ("SELECT k, ts + INTERVAL 1 HOUR AS ts FROM e", False),
        ("SELECT k, ts FROM e UNION ALL SELECT k, other FROM a", False),
    ],
)
def test_a_subquery_has_the_event_time_of_its_stream_if_it_returns_that(subquery, is_known):
    text = f"SELECT s.k FROM s, ({subquery}) AS x WHERE {BOUND.replace('e.', 'x.')}"
    wanted = {"s": 5 * MINUTE, "x": 0} if is_known else {"s": None, "x": None}
    assert windows(text) == wanted


def test_joins_in_subqueries_and_parts_have_windows_of_their_own():
    pairs = f"SELECT s.k, s.ts FROM s, e WHERE {BOUND}"
    inner = read(f"SELECT a.k FROM a, ({pairs}) AS x WHERE a.k = x.k AND a.ts = x.ts")
    assert [each.window for each in inner.inputs] == [UNBOUNDED, UNBOUNDED]
    assert [each.window.length for each in inner.inputs[1].query.inputs] == [5 * MINUTE, 0]
    both = read(f"{pairs} UNION ALL {pairs.replace('5 MIN', '6 MIN')}")
    assert [each.window.length for each in both.inputs] == [5 * MINUTE, 0, 6 * MINUTE, 0]


# -- words -----------------------------------------------------------------------------------------


def test_the_step_says_that_the_condition_has_the_window():
    join = next(
        each
        for each in steps(read(f"SELECT s.k FROM s, e [NOW] WHERE {BOUND}"))
        if "join" in str(each)
    )
    assert str(join) == "join s [RANGE 5 MINUTES, from the condition], e [NOW] on s.k = e.k"


def test_a_derived_window_equals_a_stated_one():
    stated = read(f"SELECT s.k FROM s [RANGE 5 MINUTES], e [NOW] WHERE {BOUND}")
    derived = read(f"SELECT s.k FROM s, e WHERE {BOUND}")
    for one, other in zip(stated.inputs, derived.inputs, strict=True):
        assert (one.window, repr(one.window)) == (other.window, repr(other.window))
        assert one.window.shown + ", from the condition" == other.window.shown
