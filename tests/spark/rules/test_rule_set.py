"""``el.RuleSet`` on Spark: transforms, runs whose rules change, restarts, what it refuses."""

from __future__ import annotations

import json
import time
import warnings
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, PredicateError, QueryError
from tests.spark.facts import facts_of
from tests.spark.parquet_files import schema_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RULES = {
    "small": "n < 100",
    "middle": "n BETWEEN 90 AND 200 AND s <> 'c'",
    "letter": "s IN ('a', 'b') AND NOT n > 5",
    "text": "concat(s, 'x') LIKE 'c%' AND n % 7 = 0",
    "either": "n IS NULL OR (s = 'a' AND n > 2990)",
}


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Six files of 500 rows each, whose names sort as their rows do; some numbers are NULL."""
    path = tmp_path_factory.mktemp("rules") / "in"
    path.mkdir()
    frame = (
        spark.range(3_000)
        .withColumn("n", F.when(F.col("id") % 97 != 0, F.col("id")))
        .withColumn("s", F.expr("array('a', 'b', 'c', 'd')[CAST(id % 4 AS INT)]"))
    )
    table = frame.toArrow()
    for number in range(6):
        part = table.slice(500 * number, 500)
        pq.write_table(part, path / f"part-{number}.parquet")
        time.sleep(0.01)  # files are read in the order of their times
    return str(path)


@pytest.fixture(scope="module")
def frame(spark, folder):
    return spark.read.parquet(folder)


@pytest.fixture
def stream(spark, folder):
    schema = schema_of(folder)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)


@pytest.fixture(scope="module")
def short_frame(frame):
    """The rows of the first two files."""
    return frame.where("id < 1000")


@pytest.fixture
def short(spark, folder):
    """A stream of two batches."""
    reader = spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", 1)
    return reader.parquet(f"{folder}/part-[01].parquet")


def expected(frame, rules):
    """Return the names of the rules that Spark finds true, by id."""
    return _expected(frame, tuple(rules.items()))


@cache
def _expected(frame, rules):
    columns = [F.when(F.expr(text), F.lit(name)) for name, text in rules]
    kept = F.array_compact(F.array(*columns)) if columns else F.array().cast("array<string>")
    return {row["id"]: row["m"] for row in frame.select("id", kept.alias("m")).collect()}


def matched(frame, rules):
    return {id_: names for id_, names in expected(frame, rules).items() if names}


def found(df, column="matches"):
    return {row["id"]: list(row[column]) for row in df.select("id", column).collect()}


def finish(run):
    assert run.await_termination(120)
    return run


# -- transforms ---------------------------------------------------------------------------------


@pytest.mark.large
def test_matches_on_a_batch(frame):
    rules = el.RuleSet(RULES)
    assert found(frame.transform(rules.matches())) == matched(frame, RULES)
    kept = frame.transform(rules.matches("m", keep_unmatched=True))
    assert kept.columns == [*frame.columns, "m"]
    assert found(kept, "m") == expected(frame, RULES)
    assert kept.schema["m"].dataType.simpleString() == "array<string>"


def test_any_and_count_by_rule_on_a_batch(frame):
    rules = el.RuleSet(RULES)
    want = matched(frame, RULES)
    some = frame.transform(rules.any())
    assert some.columns == frame.columns
    assert {row["id"] for row in some.collect()} == set(want)
    counts = {row["rule"]: row["count"] for row in frame.transform(rules.count_by_rule()).collect()}
    names = [name for each in want.values() for name in each]
    assert counts == {name: names.count(name) for name in set(names)}


def test_counts_say_what_was_observed_and_need_no_column(frame):
    rules = el.RuleSet({"all": "true", "none": "false"}, name="constants")
    counts = frame.transform(rules.count_by_rule())
    assert counts.dtypes == [("rule", "string"), ("count", "bigint")]
    assert [tuple(row) for row in counts.collect()] == [("all", frame.count())]
    assert rules.facts().n_rows == frame.count()
    assert frame.where("false").transform(rules.count_by_rule()).collect() == []


@pytest.mark.large
def test_any_and_count_by_rule_on_a_stream(spark, short_frame, short):
    rules = el.RuleSet(RULES)
    query = (
        short.transform(rules.any())
        .writeStream.format("memory")
        .queryName("some")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    want = matched(short_frame, RULES)
    assert {row["id"] for row in spark.table("some").collect()} == set(want)
    counting = (
        short.transform(rules.count_by_rule())
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    counting.awaitTermination()
    names = [name for each in want.values() for name in each]
    got = {row["rule"]: row["count"] for row in spark.table("counts").collect()}
    assert got == {name: names.count(name) for name in set(names)}


def test_columns_of_the_input_are_not_replaced(frame):
    rules = el.RuleSet({"one": "n = 1"})
    with pytest.raises(QueryError, match="has a column 'S' already"):
        frame.transform(rules.matches("S"))
    strange = frame.withColumnRenamed("s", "__eddyline_rules")
    with pytest.raises(QueryError, match="__eddyline"):
        strange.transform(rules.matches())


@pytest.mark.large
def test_a_rule_that_does_not_fit(frame):
    bad = {**RULES, "bad": "nowhere > 5"}
    with pytest.raises(QueryError, match=r"rule 'bad'[\s\S]*nowhere"):
        frame.transform(el.RuleSet(bad).matches())
    rules = el.RuleSet(bad, on_error="skip")
    assert found(frame.transform(rules.matches())) == matched(frame, RULES)
    assert [each.name for each in rules.skipped] == ["bad"]
    assert rules.names == tuple(RULES)
    assert "bad" in rules.explain()
    rules.replace("bad", "n = 7")
    assert found(frame.transform(rules.matches()))[7] == ["small", "bad"]
    assert rules.skipped == ()


@pytest.mark.large
def test_a_rule_that_could_not_be_read_is_mended(frame):
    rules = el.RuleSet({"bad": "n >"}, on_error="skip")
    assert [each.name for each in rules.skipped] == ["bad"]
    rules.add("bad", "n = 7")
    assert found(frame.transform(rules.matches())) == {7: ["bad"]}
    assert rules.skipped == ()


def test_options_and_inputs_are_checked(frame):
    rules = el.RuleSet({"one": "n = 1"})
    with pytest.raises(OptionError, match="method"):
        el.RuleSet({}, method="magic")
    with pytest.raises(QueryError, match="not applied"):
        rules.explain()
    with pytest.raises(QueryError, match="needs a streaming DataFrame"):
        rules.start(frame)


@pytest.mark.large
def test_a_pickled_set_has_the_rules_and_knows_nothing(frame):
    odd = el.predicate(lambda n: pc.equal(pc.bit_wise_and(n, 1), 1), reads=["n"], name="odd")
    rules = el.RuleSet(
        {**RULES, "bad": "n >", "odd": "odd(n) AND n < 4"},
        functions={"odd": odd},
        on_error="skip",
        name="travels",
        seed=3,
    )
    want = found(frame.transform(rules.matches()))
    again = cloudpickle.loads(cloudpickle.dumps(rules))
    assert (again.name, again.names, again.options) == ("travels", rules.names, rules.options)
    assert [each.name for each in again.skipped] == ["bad"]
    with pytest.raises(QueryError, match="not applied"):
        again.facts()
    assert found(frame.transform(again.matches())) == want


@pytest.mark.large
def test_a_predicate_that_raises_counts_where_its_rule_hangs_on_it(frame):
    def picky(n):
        if pc.any(pc.greater(n, 10)).as_py():
            msg = "too large"
            raise ValueError(msg)
        return pc.equal(n, 3)

    made = el.predicate(picky, reads=["n"], name="picky")
    rules = el.RuleSet({"fine": "picky(n) AND n <= 10"}, functions={"picky": made})
    assert found(frame.transform(rules.matches())) == {3: ["fine"]}
    rules.add("hangs", "picky(n) AND n <= 11")
    said = r"rule 'hangs'.*'picky' raised ValueError: too large"
    with pytest.raises(Exception, match=said) as raised:
        frame.transform(rules.matches()).collect()
    assert "residual.py" not in str(raised.value), "our frames are in the way"


# -- runs ---------------------------------------------------------------------------------------


def test_start_and_explain(short_frame, short, tmp_path):
    rules = el.RuleSet(RULES, name="five")
    run = finish(rules.start(short, trigger="available_now"))
    want = matched(short_frame, RULES)
    assert found(run.to_df()) == want
    assert run.to_arrow().column_names == ["id", "n", "s", "matches"]
    assert [record.n_rows for record in run.records] == [500] * 2
    assert sum(record.n_kept for record in run.records) == len(want)
    n_true = sum(map(len, want.values()))
    assert sum(record.operators[0].n_matches for record in run.records) == n_true
    counts = {each.name: each.n_matches for each in facts_of(run).rules}
    assert sum(counts.values()) == n_true
    # The run's has the steps behind its name, and the plans in force before the notes.
    for part in rules.explain().partition("\n")[2].split("\nnotes\n"):
        assert part in run.explain()
    assert "5 rules" in run.explain()
    assert run.report(tmp_path / "run.html").exists()
    assert rules.report(tmp_path / "rules.html").exists()


@pytest.mark.large
def test_rules_are_learned_from_a_small_stream(spark, tmp_path):
    """Batches of few rows add up: nothing is learned from one of them alone."""
    for number in range(14):
        start = 20 * number
        rows = pa.table({"k": range(start, start + 20), "s": [f"x{k % 7}" for k in range(20)]})
        pq.write_table(rows, tmp_path / f"{number:02d}.parquet")
    stream = spark.readStream.schema("k bigint, s string").option("maxFilesPerTrigger", 1)
    many = {f"r{n}": f"k > {n} AND s LIKE '%{n % 10}'" for n in range(300)}
    rules = el.RuleSet(many, name="many")
    run = finish(rules.start(stream.parquet(str(tmp_path)), trigger="available_now"))
    assert [record.n_rows for record in run.records] == [20] * 14
    (learned, *_) = [entry for entry in run.journal if entry["event"] == "sharing"]
    assert learned["evidence"]["why"] == "first sample"
    assert learned["evidence"]["rows"] <= 220
    assert facts_of(run).is_measured
    assert "guessed" not in run.explain()


@pytest.mark.large
def test_keep_unmatched(short_frame, short):
    run = finish(
        el.RuleSet(RULES).start(short, column="m", keep_unmatched=True, trigger="available_now")
    )
    assert found(run.to_df(), "m") == expected(short_frame, RULES)


class Steps:
    """A sink that changes the rules after each batch, and keeps the rows of each."""

    def __init__(self, rules, steps):
        self.rules, self.steps = rules, steps
        self.batches = {}
        self.sets = {}

    def __call__(self, df, batch_id):
        self.sets[batch_id] = {name: info["text"] for name, info in self.rules.info.items()}
        self.batches[batch_id] = {
            row["id"]: list(row["matches"]) for row in df.select("id", "matches").collect()
        }
        self.steps.get(batch_id, lambda: None)()


@pytest.mark.large
def test_each_batch_has_the_rules_of_its_moment(frame, stream):
    rules = el.RuleSet(RULES)
    steps = Steps(
        rules,
        {
            0: lambda: rules.add("new", "n % 10 = 3 AND s = 'd'"),
            1: lambda: rules.remove(*RULES),
            2: lambda: rules.remove("new"),
            3: lambda: rules.add({"back": "n % 2 = 0", "text": "s = 'c'"}),
            4: lambda: rules.replace("back", "n % 2 = 1"),
        },
    )
    run = finish(rules.start(stream, steps, trigger="available_now"))
    assert sorted(steps.batches) == list(range(6))
    for batch, got in steps.batches.items():
        part = frame.where(F.col("id").between(500 * batch, 500 * batch + 499))
        assert got == matched(part, steps.sets[batch]), batch
    assert steps.sets[3] == {}
    assert steps.batches[1] != {}
    changes = [each for each in run.journal if each["event"] == "rules"]
    assert [each["batch_id"] for each in changes] == [1, 2, 3, 4, 5]
    assert changes[0]["evidence"] == {"added": ["new"]}
    assert changes[4]["evidence"] == {"replaced": ["back"]}
    kept = [each for each in rules.journal if each["event"] == "rules"]
    # Two journals may note one change in two seconds.
    assert [each | {"at": ""} for each in kept] == [each | {"at": ""} for each in changes]
    # What each rule came to is counted from when it was added.
    assert {each.name: each.n_rows for each in facts_of(run).rules} == {"back": 500, "text": 1_000}


@pytest.mark.large
def test_a_run_goes_on_after_a_rule_that_does_not_fit_was_refused(short):
    rules = el.RuleSet(RULES)

    def add():
        with pytest.raises(QueryError, match="rule 'bad'"):
            rules.add("bad", "nowhere = 1")

    run = finish(rules.start(short, Steps(rules, {0: add}), trigger="available_now"))
    assert rules.names == tuple(RULES)
    assert len(run.records) == 2


@pytest.mark.large
def test_batches_after_a_skipped_rule_have_the_rules_that_fit(short_frame, short):
    rules = el.RuleSet(RULES, on_error="skip")
    steps = Steps(rules, {0: lambda: rules.add("bad", "nowhere = 1")})
    finish(rules.start(short, steps, trigger="available_now"))
    got = {id_: names for batch in steps.batches.values() for id_, names in batch.items()}
    assert got == matched(short_frame, RULES)
    assert [rule.name for rule in rules.skipped] == ["bad"]


@pytest.mark.large
def test_empty_batches_and_no_rules(short_frame, short):
    rules = el.RuleSet({})
    run = finish(rules.start(short.where("id < 0 OR id > 900"), trigger="available_now"))
    assert run.to_arrow().num_rows == 0
    assert "No rule runs" in run.explain()
    rules = el.RuleSet(RULES, name="seldom")
    run = finish(rules.start(short.where("id > 900"), trigger="available_now"))
    assert found(run.to_df()) == matched(short_frame.where("id > 900"), RULES)


@pytest.mark.large
def test_restart_from_a_checkpoint(spark, frame, stream, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    options = {"method": "witnesses", "sample_prob": 1.0}
    rules = el.RuleSet(RULES, **options)
    first = finish(rules.start(stream, "parquet", trigger="available_now", **paths))
    (operator,) = first.chain.operators
    plan, counts = operator.compiled.choice.sharing, facts_of(first).rules
    assert facts_of(first).is_measured

    # A crash after the rows were written and before Spark noted it: the batch runs again.
    commits = tmp_path / "ckpt" / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()
    again = finish(
        el.RuleSet(RULES, **options).start(stream, "parquet", trigger="available_now", **paths)
    )
    assert [record.batch_id for record in again.records] == [last]
    assert found(spark.read.parquet(paths["path"])) == matched(frame, RULES)
    assert [e["event"] for e in again.journal if e["component"] == "run"] == ["restore"]
    assert again.chain.operators[0].compiled.choice.sharing == plan
    assert facts_of(again).rules == counts  # counted before, counts once
    state = json.loads((tmp_path / "ckpt" / "eddyline" / "state.json").read_text())
    assert state["state"]["rules"]["plan"]["access_predicates"]

    other = el.RuleSet({**RULES, "new": "n = 1"}, **options)
    run = finish(other.start(stream, "parquet", trigger="available_now", **paths))
    dropped = [e for e in run.journal if e["event"] == "drop_state"]
    assert "rules" in dropped[-1]["evidence"]["why"]


def test_two_runs_of_one_name(stream):
    rules = el.RuleSet(RULES, name="twice")
    run = rules.start(stream, trigger="1 minute")
    try:
        with pytest.raises(QueryError, match=r"el.RuleSet\(…, name='…'\)"):
            rules.start(stream)
    finally:
        run.stop()


def test_a_failing_predicate_ends_the_run(stream):
    made = el.predicate(lambda n: 1 / 0, reads=["n"], name="broken")
    rules = el.RuleSet({"hangs": made}, name="failing")
    run = rules.start(stream, trigger="available_now")
    with pytest.raises(PredicateError, match="rule 'hangs'"):
        run.await_termination(60)


@pytest.mark.large
def test_a_plain_stream_keeps_its_rules_and_says_so(spark, short_frame, short):
    rules = el.RuleSet({"small": "n < 100"})
    query = (
        short.transform(rules.matches())
        .writeStream.format("memory")
        .queryName("plain")
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        with pytest.warns(UserWarning, match=r"rules.start\(…\)"):
            rules.add("new", "n < 50")
        assert found(spark.table("plain")) == matched(short_frame, {"small": "n < 100"})
    finally:
        query.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules.remove("new")
    assert "keeps the rules that it was started with" in rules.explain()


@pytest.mark.large
def test_inside_for_each_batch(short_frame, short, tmp_path):
    rules = el.RuleSet({"small": "n < 100"})
    got = {}

    def take(df, batch_id):
        got.update(found(df.transform(rules.matches())))
        if batch_id == 0:
            rules.add("large", "n > 700")

    query = (
        short.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "ckpt"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert got == matched(short_frame, {"small": "n < 100", "large": "n > 700"})


def test_rules_of_several_rows_are_refused():
    with pytest.raises(NotSupportedError, match="rule 'sum'"):
        el.RuleSet({"sum": "sum(n) > 5"})
