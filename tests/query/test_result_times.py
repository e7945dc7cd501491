"""How far event times of results may be behind: joins and unions, drawn and joined by hand."""

from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.result_times import ABSENT, ResultTimes, TimedInput

KINDS = "inner", "left", "semi", "anti"
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), max_size=5)


def met(left, left_length, right, right_length):
    """Return whether rows are in their windows at one instant."""
    return -left_length <= left - right <= right_length


def joined(kind, left, right, lengths):
    """Join rows by key; of a result: the instant at which it is given, and its event times.

    A row is its event time, key, and the event times that it has by name.
    """
    a, b = lengths
    found = []
    for since, key, times in left:
        partners = [
            row for row in right if row[1] == key and -a <= since - row[0] and since - row[0] <= b
        ]
        after = since + a + 1
        if kind in ("inner", "left"):
            found += [
                (max(since, at), (max(since, at), key, {**times, **more}))
                for at, _, more in partners
            ]
        if (kind == "left" and not partners) or (
            kind in ("semi", "anti") and bool(partners) == (kind == "semi")
        ):
            found.append((after, (since, key, times)))
    return found


def stream(name, rows):
    return [(at, key, {name: at}) for at, key in rows]


@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    rows=st.tuples(ROWS, ROWS, ROWS),
    lengths=st.tuples(*[st.integers(0, 5)] * 4),
)
def test_no_result_is_further_behind_than_its_bound(kinds, rows, lengths):
    first, second = kinds
    a, b, c, length = lengths
    s, t, u = (stream(name, of) for name, of in zip("stu", rows, strict=True))
    one = ResultTimes.of_join(first, [TimedInput("s", "ts", a), TimedInput("t", "ts", b)])
    shown = "st" if first in ("inner", "left") else "s"
    latest = "greatest(s.ts, t.ts)" if len(shown) > 1 else "s.ts"
    texts = [*(f"{name}.ts AS {name}" for name in shown), f"{latest} AS e"]
    made = one.projected(texts, "e")
    before = [row for _, row in joined(first, s, t, (a, b))]
    for at, (since, _, times) in joined(first, s, t, (a, b)):
        assert at - since <= one.lag_of(f"{latest} AS e")
        _check(at, times, {name: one.lags[f"{name}.ts"] for name in shown})
        for name in shown:
            assert made.spans[name] == ABSENT or since - times[name] <= made.spans[name]
    two = ResultTimes.of_join(
        second, [TimedInput("x", "e", length, made), TimedInput("u", "ts", c)]
    )
    every = [*(f"x.{name}" for name in shown), *(["u.ts"] if second in ("inner", "left") else [])]
    lag = two.lag_of(f"greatest({', '.join(every)})")
    assert lag == two.lag == two.lag_of(f"greatest({', '.join(['x.e', *every])})")
    for at, (since, _, times) in joined(second, before, u, (length, c)):
        assert at - since <= lag
        _check(at, times, {name: two.lags[f"x.{name}"] for name in shown})


def _check(at, times, lags):
    for name, lag in lags.items():
        assert lag == ABSENT or at - times[name] <= lag


def test_the_rows_of_a_full_join_are_as_late_as_those_of_both_its_parts():
    sides = [TimedInput("s", "ts", 4), TimedInput("t", "ts", 9)]
    texts = ["s.ts AS ts_1", "t.ts AS ts_2", "greatest(s.ts, t.ts) AS e"]
    left = ResultTimes.of_join("left", sides).projected(texts, "e")
    anti = ResultTimes.of_join("anti", sides[::-1]).projected(
        ["NULL AS ts_1", "t.ts AS ts_2", "t.ts AS e"], "e"
    )
    both = ResultTimes.of_union([(["ts_1", "ts_2", "e"], each) for each in (left, anti)])
    assert both.lag_of("greatest(ts_1, ts_2) AS x") == both.lag_of("e") == 0
    assert both.lag_of("ts_2 AS x") is both.lag_of("ts_1 AS x") is None
    assert both.bounded == ["e"]


def test_a_column_that_is_computed_is_none():
    times = ResultTimes.of_join("inner", [TimedInput("s", "ts", 4), TimedInput("t", "ts", 9)])
    assert times.lag_of("s.v AS ts") is times.lag_of("greatest(s.ts, s.v) AS ts") is None
    assert times.lag_of("t.ts") == 9
    assert times.projected(["s.v AS v", "s.ts AS ts"], "ts").lags == {"ts": 0}
