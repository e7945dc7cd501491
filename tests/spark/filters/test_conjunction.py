"""``el.all_of`` on Spark: the rows are those of stock Spark, whatever the plan."""

from __future__ import annotations

import math
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.spark.filters.binding import printed_plan
from eddyline.spark.filters.guard import CUT, MAX_CONJUNCTS, in_turn, steps_of

pytestmark = pytest.mark.spark

FLOATS = [None, math.nan, math.inf, -math.inf, 0.0, -1.5, 2.5, 99.0]
TEXTS = [None, "", "a", "ab", "abc", "xyz", "é"]


@pytest.fixture(scope="module")
def mixed(spark):
    """Rows with nulls, NaN, infinities and ties, in three partitions, one of them small."""
    rng = np.random.default_rng(11)
    n_rows = 6_000
    table = pa.table(
        {
            "id": range(n_rows),
            "i": pa.array([None if v == 7 else int(v) for v in rng.integers(-5, 8, n_rows)]),
            "x": pa.array([FLOATS[k] for k in rng.integers(0, len(FLOATS), n_rows)], pa.float64()),
            "s": pa.array([TEXTS[k] for k in rng.integers(0, len(TEXTS), n_rows)]),
            "void": pa.nulls(n_rows, pa.int64()),
        }
    )
    return spark.createDataFrame(table).repartition(3, "id").cache()


def ids(df):
    return sorted(row["id"] for row in df.select("id").collect())


@el.predicate("x")
def finite(x):
    return pc.is_finite(x)


@el.predicate("s", arrays="pandas")
def has_b(s):
    return s.str.contains("b")


@el.predicate("i", "x", arrays="numpy")
def small(i, x):
    return np.abs(np.nan_to_num(i)) < 4


LARGE = pytest.mark.large
OTHER_POLICIES = ["sweep", "independent", "local_swaps", "fixed"]
NATIVE = ["i > -3", "length(s) > 1", "x IS NOT NULL", "s NOT LIKE 'x%'"]


@pytest.mark.parametrize(
    "policy",
    ["a_greedy", *(pytest.param(p, marks=LARGE) for p in OTHER_POLICIES)],
)
def test_equals_stock_spark(mixed, policy):
    keep = el.all_of(
        *NATIVE[:2],
        finite,
        has_b,
        *NATIVE[2:],
        small,
        policy=policy,
        sample_prob=0.5,
    )
    stock = mixed.where(" AND ".join(f"({text})" for text in NATIVE)).where(
        "x = x AND abs(x) < double('inf') AND NOT isnan(x) AND s LIKE '%b%' "
        "AND (i IS NULL OR abs(i) < 4)"
    )
    expected = ids(stock)
    assert expected
    for _ in range(2):  # what is learned on one run is used on the next
        assert ids(mixed.transform(keep)) == expected


def test_the_schema_is_the_input_s(mixed):
    result = mixed.transform(el.all_of("i > 0", finite, "10 / i > 2", "rand(1) < 2"))
    assert result.schema == mixed.schema


def test_columns_of_one_name_survive(spark):
    left = spark.createDataFrame([(1, 2)], "k int, v int").alias("l")
    right = spark.createDataFrame([(1, 3)], "k int, v int").alias("r")
    joined = left.join(right, F.col("l.k") == F.col("r.k"))
    kept = joined.transform(el.all_of("l.v < r.v", "r.v = 3"))
    assert [tuple(row) for row in kept.collect()] == [(1, 2, 1, 3)]


@pytest.mark.large
def test_empty_input(mixed):
    for empty in (mixed.limit(0), mixed.where("false"), mixed.where("id < 0")):
        keep = el.all_of("i > 0", "x > 1", finite, has_b)
        assert empty.transform(keep).count() == 0
        assert "all_of" in keep.explain()


def test_comments_in_a_predicate(mixed):
    keep = el.all_of("i > 0 -- positive", "i < 5 /* small */", "10 / i > 2 -- not zero")
    assert ids(mixed.transform(keep)) == ids(mixed.where("i IN (1, 2, 3, 4)"))


def test_null_drops(mixed):
    assert mixed.transform(el.all_of("void > 1", finite)).count() == 0
    silent = el.predicate(lambda void: pa.nulls(len(void)), reads=["void"], name="silent")
    assert mixed.transform(el.all_of(silent, "i > 0")).count() == 0


@pytest.mark.large
def test_two_hundred_predicates(mixed):
    natives = [f"i <> {k} OR id % {k + 2} <> 0" for k in range(100)]
    functions = [
        el.predicate(lambda i, k=k: pc.not_equal(i, k - 200), reads=["id"], name=f"f{k}")
        for k in range(100)
    ]
    keep = el.all_of(*natives, *functions)
    expected = ids(mixed.where(" AND ".join(f"({text})" for text in natives)))
    assert ids(mixed.transform(keep)) == expected
    assert "more" in keep.explain()


def test_off_switch_keeps_the_order(mixed, monkeypatch):
    monkeypatch.setenv("EDDYLINE_ADAPTIVE", "0")
    keep = el.all_of("i > -100", "s = 'abc'", finite, has_b)
    assert mixed.transform(keep).count() > 0
    assert [block.order for block in keep.facts().blocks] == [(0, 1), (0, 1)]
    assert keep.journal == []


def test_the_off_switch_reaches_the_workers(spark, monkeypatch):
    """The workers were started before, with another environment."""
    monkeypatch.setenv("EDDYLINE_ADAPTIVE", "off")
    keep = el.all_of(finite, el.predicate(lambda x: pc.less(x, 0.0), reads=["x"], name="never"))
    frame = spark.range(0, 100_000, 1, 2).selectExpr("CAST(id AS DOUBLE) AS x")
    assert frame.transform(keep).count() == 0
    (block,) = keep.facts().blocks
    assert block.totals.n_rows == 100_000
    assert block.totals.n_extra == 0
    assert keep.journal == []
    assert "switched off" in keep.explain()


@pytest.mark.large
def test_equal_native_predicates_cost_the_same(mixed):
    keep = el.all_of(*(f"(id + {k}) % 7 <> 1" for k in range(5)))
    costs = []
    for _ in range(3):
        mixed.transform(keep).count()
        keep._operator._sampled_at = -math.inf
        costs.append(keep.facts().blocks[0].profile.costs.per_row_ns)
    # The one written first would be charged for the first reading of the clock: 3 to 5 times.
    median = np.median(costs, axis=0)
    assert median[0] < 2.5 * np.median(median[1:])


def test_what_others_print_stays_theirs(mixed, capsys):
    """The plan is read by catching what one thread prints; other threads go on printing."""
    stop = threading.Event()

    def talk():
        while not stop.is_set():
            print("hello")  # noqa: T201 - another thread, whose prints must get through
            time.sleep(0.001)

    talker = threading.Thread(target=talk)
    talker.start()
    before = sys.stdout
    try:
        texts = [printed_plan(mixed) for _ in range(5)]
    finally:
        stop.set()
        talker.join()
    assert sys.stdout is before
    assert all("Physical Plan" in text and "hello" not in text for text in texts)
    said = capsys.readouterr().out
    assert "hello" in said
    assert "Physical Plan" not in said


def test_the_native_order_follows_a_sample(mixed):
    keep = el.all_of("i > -100", "id >= 0", "s = 'abc'")
    mixed.transform(keep).count()
    assert keep.facts().blocks[0].order[0] == 2, keep.explain()
    assert "sample" in keep.explain()
    frozen = el.all_of("i > -100", "id >= 0", "s = 'abc'", read_sample=False)
    mixed.transform(frozen).count()
    assert frozen.facts().blocks[0].order == (0, 1, 2)


def test_no_sample_where_the_input_needs_a_shuffle(spark):
    grouped = spark.range(100).groupBy(F.expr("id % 7").alias("k")).count()
    keep = el.all_of("k > -1", "count > 14")
    assert grouped.transform(keep).count() == 2
    assert "shuffle" in keep.explain()


@pytest.mark.large
def test_the_arrow_order_is_learned_inside_the_job(spark):
    frame = spark.range(0, 200_000, 1, 2).withColumn("u", F.rand(3))
    often = el.predicate(lambda u: pc.less(u, 0.99), reads=["u"], name="often")
    seldom = el.predicate(lambda u: pc.less(u, 0.01), reads=["u"], name="seldom")
    keep = el.all_of(often, seldom)
    n_kept = frame.transform(keep).count()
    assert n_kept == frame.where("u < 0.01").count()
    totals = keep.facts().blocks[0].totals
    assert totals.n_rows == 200_000
    assert totals.n_kept == n_kept
    # As written, the first filter lets 99 % through: about 1.99 evaluations per row.
    assert totals.n_evaluations < 1.5 * 200_000
    assert keep.facts().blocks[0].order == (1, 0)
    assert any(entry["event"] == "order" for entry in keep.journal)


# -- errors -----------------------------------------------------------------------------------


@el.predicate("i")
def reciprocal(i):
    return [1 / value > 0.2 for value in i.to_pylist()]


def test_an_error_on_a_dropped_row_is_no_error(mixed):
    want = ids(mixed.where("i > 0 AND i < 5"))
    positive = el.predicate(lambda i: pc.greater(i, 0), reads=["i"], name="positive")
    for other in ("i <> 0", positive):
        assert ids(mixed.transform(el.all_of(reciprocal, other))) == want


@pytest.mark.large
@pytest.mark.parametrize("extra", [[], ["10 / i > 1 OR s = 'a'"], ["rand(3) < 2"]])
def test_an_error_on_a_surviving_row_names_the_predicate(mixed, extra):
    keep = el.all_of(reciprocal, "s = 'abc'", *extra)
    # With the pinned predicate that divides, rows with i = 0 may fail there first: as well.
    with pytest.raises(PySparkException, match=r"reciprocal|DIVIDE_BY_ZERO"):
        mixed.where("i = 0 OR i = 1").transform(keep).collect()


@pytest.mark.large
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["10 / i > 1", "i <> 0"], "i > 0"),
        (["CAST(s AS INT) > 1", "i > 100"], "false"),
        (["10 / i > 1", "element_at(array(1, 2), CAST(i AS INT)) = 1", "i = 1"], "i = 1"),
    ],
)
def test_native_errors_count_only_on_survivors(mixed, texts, expected):
    want = ids(mixed.where(expected))
    for order in (texts, texts[::-1]):
        assert ids(mixed.transform(el.all_of(*order))) == want
        mixed_block = el.all_of(*order, el.predicate(pc.is_valid, reads=["i"], name="valid"))
        assert ids(mixed.transform(mixed_block)) == want


def test_a_native_error_on_a_survivor_is_raised(mixed):
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        mixed.transform(el.all_of("10 / i > 1", "s = 'abc'")).collect()


@pytest.mark.large
def test_a_python_error_on_a_row_that_a_checked_predicate_drops_is_no_error(mixed):
    keep = el.all_of(
        reciprocal, "element_at(array(1, 2), CAST(i AS INT)) = 1", "i BETWEEN -2 AND 2", "i <> 0"
    )
    assert ids(mixed.transform(keep)) == ids(mixed.where("i = 1"))


def test_explain_says_what_is_pinned(mixed):
    keep = el.all_of("10 / i > 1", "rand(5) < 2", "i <> 0")
    assert mixed.transform(keep).count() == mixed.where("i > 0").count()
    text = keep.explain()
    assert "pinned" in text
    assert "rand(5) < 2" in text


def test_a_predicate_that_is_not_deterministic_sees_the_rows_it_was_written_for(mixed):
    keep = el.all_of("i > 0", "length(s) > 1", "rand(9) < 0.5", "x > 0", "s <> 'ab'")
    stock = (
        mixed.where("i > 0 AND length(s) > 1").where("rand(9) < 0.5").where("x > 0 AND s <> 'ab'")
    )
    assert ids(mixed.transform(keep)) == ids(stock)


@pytest.mark.large
def test_a_function_that_is_not_deterministic_stays_in_its_place(mixed):
    seen = el.predicate(
        lambda i: [value is not None and value > 2 for value in i.to_pylist()],
        reads=["i"],
        name="asks",
        deterministic=False,
    )
    keep = el.all_of("i > 0", seen, "x > 0", finite)
    assert ids(mixed.transform(keep)) == ids(mixed.where("i > 2 AND x > 0 AND x < 1e9"))
    assert "asks" in keep.explain()


@pytest.mark.large
@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda i: pc.add(i, 1), "boolean"),
        (lambda i: pa.array([True]), "values for"),
        (lambda i: True, "bool"),
    ],
)
def test_an_unusable_result_names_the_predicate(mixed, result, says):
    keep = el.all_of(el.predicate(result, reads=["i"], name="odd_one"))
    with pytest.raises(PySparkException, match=f"(?s)odd_one.*{says}"):
        mixed.transform(keep).collect()


def test_definition_errors(mixed):
    with pytest.raises(QueryError, match=r"did you mean|known"):
        mixed.transform(el.all_of("idd > 3"))
    with pytest.raises(QueryError, match="nope"):
        mixed.transform(el.all_of(el.predicate(lambda c: c, reads=["nope"], name="f")))
    with pytest.raises(OptionError, match="a_greedy"):
        el.all_of("i > 1", policy="a-greedy")
    with pytest.raises(OptionError, match="sample_prob"):
        el.all_of("i > 1", sample_prob=3)
    with pytest.raises(OptionError, match="sample_prob"):
        el.all_of("i > 1", sampel_prob=0.1)
    with pytest.raises(QueryError):
        el.all_of()
    with pytest.raises(QueryError, match="not a condition"):
        mixed.transform(el.all_of("i + 1"))
    unknown = el.sql_predicate("no_such_function(i) > 1", name="second_one")
    with pytest.raises(QueryError, match=r"second_one.*unknown function"):
        mixed.transform(el.all_of("i > 1", unknown))
    number = el.sql_predicate("hypot(i, x)", name="number")
    with pytest.raises(QueryError, match=r"number.*not a condition"):
        mixed.transform(el.all_of("i > 1", number))


@pytest.mark.large
def test_columns_of_spark_are_predicates(mixed):
    given = [
        F.col("i") > -3,
        mixed["x"].isNotNull(),
        (F.length("s") > 1) | F.col("s").isin("a", "it's"),
        F.col("id").cast("string").like("%7"),
    ]
    keep = el.all_of(*given, lambda i: pc.less(i, 5), name="columns")
    want = mixed.where(given[0] & given[1] & given[2] & given[3]).where("i < 5")
    assert ids(mixed.transform(keep)) == ids(want) != []
    assert "(i > CAST(-3" in keep.explain()
    other = mixed.withColumn("i", F.col("i").cast("string")).alias("other")
    assert ids(other.transform(el.all_of(F.col("other.i") == "4"))) == ids(mixed.where("i = 4"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: F.udf(lambda i: True, "boolean")("i"), "without SQL text"),
        (lambda: F.col("nosuch") > 3, r"'>\(nosuch, 3\)' does not fit the columns"),
        (lambda: F.col("i") + 1, "is not a condition: it is of type bigint"),
        (lambda: pc.is_valid, "'is_valid'.*'values'"),
    ],
)
def test_what_cannot_be_a_predicate(mixed, make, says):
    with pytest.raises(QueryError, match=says):
        mixed.transform(el.all_of(make(), "i > 3"))


@pytest.mark.large
def test_a_result_that_is_none_is_said_without_our_own_frames(mixed):
    keep = el.all_of(lambda i: pc.add(i, 1), "i > 3")
    with pytest.raises(PySparkException, match="returned an Arrow array of int64") as caught:
        mixed.transform(keep).collect()
    assert "executor.py" not in str(caught.value)


def test_a_column_called_code_is_in_the_sample(spark):
    df = spark.range(4_000).selectExpr("id % 2 AS code", "id AS v")
    keep = el.all_of("code = 1", "v >= 1900")
    df.transform(keep)
    assert "ordered by a sample of 2000 rows" in " ".join(keep.facts().notes)
    assert keep.facts().blocks[0].order == (1, 0)


DEEP = {
    "parentheses": "(" * 100 + "i > 2" + ")" * 100,
    "NOT": "NOT " * 200 + "i > 2",
    "CASE": "CASE WHEN i > 2 THEN " * 100 + "true" + " END" * 100,
}


@pytest.mark.large
def test_deep_conditions_are_those_of_stock_spark(mixed):
    expected = ids(mixed.where("i > 2 AND abs(i) < 4"))
    assert expected
    for shape, text in DEEP.items():
        assert ids(mixed.transform(el.all_of(text, small, read_sample=False))) == expected, shape
    rules = el.RuleSet({"shallow": "i > 2", **DEEP})
    names = mixed.transform(rules.matches("names")).select("names").distinct().collect()
    assert [sorted(row.names) for row in names] == [sorted(["shallow", *DEEP])]


@pytest.mark.large
def test_what_is_too_deep_for_spark_is_refused_alone(mixed):
    deep = "(" * 990 + "i > 2" + ")" * 990
    with pytest.raises(QueryError, match=r"predicate .* nested too deeply.*-Xss16m"):
        mixed.transform(el.all_of(deep))
    native = f"abs({deep.replace('i > 2', 'i')}) IN (x, 3)"  # which no rule takes apart
    rules = el.RuleSet({"deep": native, "rest": "i > 2"}, on_error="skip")
    assert ids(mixed.transform(rules.any())) == ids(mixed.where("i > 2"))
    (skipped,) = rules.skipped
    assert skipped.name == "deep"
    assert "nested too deeply" in skipped.reason


THOUSANDS = [f"i <> {n}" for n in range(4, 1_600)]
TENS = [" AND ".join(THOUSANDS[at : at + 10]) for at in range(0, len(THOUSANDS), 10)]
WHOLE = [" AND ".join(THOUSANDS)]


def test_a_long_conjunction_is_cut_into_steps():
    assert steps_of(THOUSANDS[:MAX_CONJUNCTS]) == THOUSANDS[:MAX_CONJUNCTS]
    for texts, n_first in ((THOUSANDS, CUT), (TENS, CUT // 10), (WHOLE, 0)):
        *first, last = steps_of(texts)
        assert first == texts[:n_first]
        drops = " ".join(f"WHEN ({each}) IS NOT TRUE THEN false" for each in texts[n_first:])
        assert last == f"CASE {drops} ELSE true END"


@pytest.mark.large("Spark optimizes and compiles thousands of conditions")
@pytest.mark.parametrize(
    "texts",
    [THOUSANDS, *(pytest.param(texts, marks=pytest.mark.soak) for texts in (TENS, WHOLE))],
    ids=["one by one", "tens", "whole"],
)
def test_thousands_of_predicates_are_cut_into_steps(mixed, texts):
    assert ids(mixed.transform(el.all_of(*texts, read_sample=False))) == ids(mixed.where("i < 4"))


@pytest.mark.large
def test_hundreds_of_predicates_that_can_raise_are_one_step(mixed):
    texts = [f"i * 3 + {n} > 5 * abs(i) - 1000" for n in range(310)]
    keep = el.all_of("i < 4", *texts)
    assert ids(mixed.transform(keep)) == ids(mixed.where("i < 4"))
    words = " ".join(keep.explain().split())
    assert "more than 300 native predicates stay in their written order" in words


def test_a_row_meets_a_condition_only_if_those_before_it_hold(spark):
    df = spark.sql("SELECT * FROM VALUES (NULL, 0), (1, 1), (-1, 0) AS t(x, y)")
    raises = "CAST(raise_error('y is 0') AS BOOLEAN)"
    texts = ("x > 0", f"CASE WHEN y > 0 THEN true ELSE {raises} END")
    assert [tuple(row) for row in df.where(in_turn(texts)).collect()] == [(1, 1)]
    with pytest.raises(PySparkException, match="y is 0"):
        df.where(in_turn(texts[::-1])).collect()


@pytest.mark.large
def test_functions_of_one_value_are_predicates_and_rules(mixed):
    @el.predicate("s", "i", arrays="rows")
    def long_or_odd(s, i):
        if s is None or i is None:
            return None
        return len(s) > 2 or i % 2 == 1

    stock = "(length(s) > 2 OR pmod(i, 2) = 1) AND s IS NOT NULL AND i IS NOT NULL"
    assert ids(mixed.transform(el.all_of("id > 10", long_or_odd))) == ids(
        mixed.where(f"id > 10 AND {stock}")
    )
    rules = el.RuleSet({"r": "NOT long_or_odd(s, i)"}, functions={"long_or_odd": long_or_odd})
    assert ids(mixed.transform(rules.any())) == ids(mixed.where(stock.replace("(l", "NOT (l", 1)))


def test_a_udf_is_refused_when_the_conjunction_is_made(spark):
    text = r"'long' is a udf of Spark's.*el.predicate\(long.func, .*arrays='rows'"

    def long(s):
        return len(s) > 2

    with pytest.raises(QueryError, match=text):
        el.all_of("i > 2", F.udf(long, "boolean"))
