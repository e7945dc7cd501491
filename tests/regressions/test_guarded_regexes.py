"""``length(s) < 100 AND s RLIKE '(a|b)+c'`` ended the JVM on rows with 3,000 characters.

Java's regex engine needs stack for each repetition of ``(a|b)``. The regex counted as free of
errors, so it was moved before its guard, and profiled on rows that the guard drops.
"""

import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GUARD, REGEX = "length(s) < 100", "s RLIKE '(a|b)+c'"
LONG, SHORT = "ab" * 1_500, "abc"
EVERY_TENTH, N_ROWS = 10, 1_000


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Rows of which every tenth has a long text; in two files."""
    path = str(tmp_path_factory.mktemp("guarded") / "in")
    texts = [LONG if at % EVERY_TENTH == 0 else SHORT for at in range(N_ROWS)]
    table = pa.table({"id": list(range(N_ROWS)), "s": texts})
    spark.createDataFrame(table).repartition(2).write.parquet(path)
    return path


@pytest.fixture
def frame(spark, folder):
    return spark.read.parquet(folder)


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("predicates", [(GUARD, REGEX), (REGEX, "id >= 0", GUARD)])
def test_a_regex_only_meets_rows_that_the_others_keep(frame, predicates, adaptive):
    keep = el.all_of(*predicates, adaptive=adaptive)
    assert frame.transform(keep).count() == 900
    assert "may exhaust the stack on a long text" in keep.explain(width=200)


def test_a_python_predicate_guards_a_regex(frame):
    @el.predicate("s", arrays="arrow")
    def is_short(s):
        return pc.less(pc.utf8_length(s), 100)

    assert frame.transform(el.all_of(REGEX, is_short)).count() == 900


@pytest.mark.large
def test_a_regex_in_a_stream_only_meets_rows_that_the_others_keep(spark, folder, tmp_path):
    engine = el.Engine(spark)
    schema = spark.read.parquet(folder).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    engine.stream("texts", source)
    texts = {
        "written": f"SELECT id FROM texts WHERE {GUARD} AND {REGEX}",
        "turned": f"SELECT id FROM texts WHERE {REGEX} AND {GUARD}",
    }
    for name, text in texts.items():
        engine.query(text, name=name)
    for run in engine.start_all(trigger="available_now"):
        assert run.await_termination(300)
        assert run.to_df().count() == 900


def test_a_regex_in_a_rule_only_meets_rows_on_which_the_rule_hangs(frame):
    def is_short(s):
        return pc.less(pc.utf8_length(s), 100)

    texts = {
        "and": f"{GUARD} AND {REGEX}",
        "or": f"{GUARD} AND (s RLIKE '(a|b)+[0-9]' OR {REGEX})",
        "another": f"{GUARD} AND s RLIKE '([a-c]|[0-9])+$'",
        "behind Python": f"is_short(s) AND {REGEX}",
        "case": f"{GUARD} AND CASE WHEN {REGEX} THEN TRUE ELSE FALSE END",
    }
    rules = el.RuleSet(texts, functions={"is_short": is_short})
    counts = frame.transform(rules.count_by_rule())
    assert dict(map(tuple, counts.collect())) == dict.fromkeys(texts, 900)


@pytest.mark.large
def test_a_slow_regex_of_a_rule_is_asked_after_its_guards(frame):
    """``([ab]+)+c`` takes exponential time; a text of 3,000 characters would take for ever."""
    calls = []

    def is_short(s):
        calls.append(len(s))
        return pc.less(pc.utf8_length(s), 100)

    texts = {"slow": "is_short(s) AND s RLIKE '^([ab]+)+c'", "other": "id = 5"}
    rules = el.RuleSet(texts, functions={"is_short": is_short})
    started = time.monotonic()
    found = frame.transform(rules.matches("m")).where("array_contains(m, 'slow')").count()
    assert found == 900
    assert time.monotonic() - started < 300


def test_a_guarded_function_only_gets_rows_that_predicates_before_it_keep(frame):
    @el.predicate("s", guarded=True)
    def never_returns_on_long_texts(s):
        assert pc.max(pc.utf8_length(s)).as_py() in (None, len(SHORT)), "it got a long text"
        return pc.match_substring(s, "c")

    keep = el.all_of(GUARD, never_returns_on_long_texts, "id < 500")
    assert frame.transform(keep).count() == 450
    assert "it was declared guarded" in keep.explain(width=200)


@pytest.mark.large
def test_memory_is_not_taken_for_rows_that_a_guard_drops(frame):
    """Of a long text the result would have two thousand million characters."""
    n_copies = "CASE WHEN length(s) < 100 THEN 2 ELSE 700000 END"
    keep = el.all_of(f"length(repeat(s, {n_copies})) = 6", GUARD)
    assert frame.transform(keep).count() == 900
