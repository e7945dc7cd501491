"""Level, tags and title in sets on Spark: selections, structs, splits; they change no answer."""

from __future__ import annotations

import json
import math
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import OptionError, QueryError, SourceError
from eddyline.spark.rules import task
from eddyline.spark.rules.output import about_rules
from tests.examples import examples
from tests.spark.facts import facts_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RULES = {
    "plain": "n > 7",
    "low": el.Rule("n < 2", level="low", tags=["web"], title="Small"),
    "high": el.Rule("x > 1 OR s = 'b'", level="high", tags=["pii"], title="Large"),
    "never": el.Rule("n < -100", level="critical", tags=["pii"]),
}
SIGMA = """
title: Odd process
id: 6f3e2987-db24-4c78-a860-b4f4095a7095
logsource: {category: process_creation}
detection: {s: {s: b}, condition: s}
tags: [attack.execution]
level: LEVEL
"""
ID = "6f3e2987-db24-4c78-a860-b4f4095a7095"


@pytest.fixture(scope="module")
def frame(spark):
    """Rows with NULL and NaN, some of them twice."""
    rows = [(n % 10, float("nan") if n % 4 == 0 else n / 5, "abc"[n % 3]) for n in range(20)]
    rows += [(None, None, None), (1, None, "b"), (1, None, "b")]
    return spark.createDataFrame(rows, "n int, x double, s string").repartition(3).cache()


def bag(df, columns=("n", "x", "s")):
    """Return rows with their numbers; NaN equals NaN here."""
    rows = [tuple(row) for row in df.select(*columns).collect()]
    return Counter(
        tuple("NaN" if isinstance(each, float) and math.isnan(each) else each for each in row)
        for row in rows
    )


def names(rules):
    return [*rules.info]


def test_a_selection_is_a_set_of_its_own(frame):
    rules = el.RuleSet(RULES, name="all", sample_prob=0.5)
    assert names(rules.select(min_level="high")) == ["high", "never"]
    assert names(rules.select(level="low")) == ["low"]
    assert names(rules.select("plain", "low", "high", tag="pii")) == ["high"]
    some = rules.select("low", "plain", name="some")
    assert (names(some), some.name, some.options) == (["plain", "low"], "some", rules.options)
    assert some.info["low"]["title"] == "Small"
    some.add("new", "n = 5")
    rules.remove("low")
    assert names(some) == ["plain", "low", "new"]
    assert bag(frame.transform(some.any())) == bag(frame.where("n < 2 OR n > 7 OR n = 5"))
    with pytest.raises(QueryError, match="select takes names of rules"):
        rules.select()
    for wrong in ({"tag": "web"}, {"tag": "pi"}):
        with pytest.raises(QueryError, match="unknown tag"):
            rules.select(**wrong)
    with pytest.raises(QueryError, match="unknown rule 'low'"):
        rules.select("low")


def test_a_selection_has_the_functions_and_what_could_not_be_read():
    def odd(n):
        return pc.equal(pc.bit_wise_and(n, 1), 1)

    texts = {"odd": el.Rule("odd()", level="low"), "bad": "n > ((("}
    rules = el.RuleSet(texts, functions={"odd": odd}, on_error="skip")
    assert [each.name for each in rules.select("bad", "odd").skipped] == ["bad"]
    chosen = rules.select(level="low")
    assert chosen.skipped == ()
    chosen.add({"also": "odd() AND n > 3", "worse": "n > ((("})
    assert chosen.names == ("odd", "also")


def test_rules_are_removed_by_level_and_tag():
    rules = el.RuleSet(RULES)
    rules.remove(level="medium")
    assert names(rules) == [*RULES]
    rules.remove(tag="pii", level="high")
    assert names(rules) == ["plain", "low", "never"]
    rules.remove(min_level="low")
    assert names(rules) == ["plain"]
    rules.remove()
    assert names(rules) == ["plain"]
    with pytest.raises(QueryError, match="unknown tag 'pii'"):
        rules.remove(tag="pii")
    with pytest.raises(OptionError, match="unknown level 'bad'"):
        rules.remove(level="bad")


def test_sigma_rules_have_the_same_facts(frame):
    rules = el.sigma.load([SIGMA.replace("LEVEL", "high")], cache=False)
    rules.add("mine", el.Rule("n = 1", level="high", tags=["mine"]))
    assert names(rules.select(min_level="medium")) == [ID, "mine"]
    assert names(rules.select(tag="attack.execution")) == [ID]
    row = frame.where("s = 'b' AND n = 1").transform(rules.matches(as_struct=True)).first()
    assert [tuple(each) for each in row.matches] == [
        (ID, "Odd process", "high"),
        ("mine", None, "high"),
    ]
    odd = el.sigma.load([SIGMA.replace("LEVEL", "awful")], cache=False)
    assert odd.info[ID]["level"] == "awful"
    first = frame.transform(odd.matches(as_struct=True)).first()
    assert first.matches[0].level is None


@pytest.mark.large
def test_matches_as_structs_are_those_of_the_names(frame):
    rules = el.RuleSet(RULES)
    for keep in (True, False):
        plain = frame.transform(rules.matches("m", keep_unmatched=keep))
        structs = frame.transform(rules.matches("m", keep_unmatched=keep, as_struct=True))
        assert structs.schema["m"].dataType.simpleString() == (
            "array<struct<id:string,title:string,level:string>>"
        )
        columns = ("n", "x", "s", "CAST(m AS STRING)")
        ids = structs.selectExpr("n", "x", "s", "CAST(m.id AS STRING) AS m")
        assert bag(ids, ("n", "x", "s", "m")) == bag(
            plain.selectExpr(*columns[:3], f"{columns[3]} AS m"), ("n", "x", "s", "m")
        )
        known = {(each.id, each.title, each.level) for row in structs.collect() for each in row.m}
        assert known == {
            ("plain", None, None),
            ("low", "Small", "low"),
            ("high", "Large", "high"),
        }
    empty = frame.where("false").transform(rules.matches(as_struct=True))
    assert empty.collect() == []
    assert frame.transform(el.RuleSet({}).matches(as_struct=True)).collect() == []


CONDITIONS = st.sampled_from(
    [
        "n > 3",
        "n < 2 AND s = 'b'",
        "x > 2",
        "NOT x > 2",
        "s LIKE 'a%'",
        "n IS NULL",
        "true",
        "n > NULL",
    ]
)


@pytest.mark.large
@examples(33, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(CONDITIONS, max_size=5),
    level=st.sampled_from([None, "low", "critical"]),
    title=st.sampled_from([None, "T", "Ä" * 50]),
)
def test_drawn_rules_answer_the_same_with_and_without_facts(frame, texts, level, title):
    plain = el.RuleSet({f"r{at}": text for at, text in enumerate(texts)})
    told = el.RuleSet(
        {f"r{at}": el.Rule(text, level=level, title=title) for at, text in enumerate(texts)}
    )
    columns, as_text = ("n", "x", "s", "m"), "CAST({} AS STRING) AS m"
    want = frame.transform(plain.matches("m", keep_unmatched=True))
    got = frame.transform(told.matches("m", keep_unmatched=True, as_struct=True))
    wanted = bag(want.selectExpr("n", "x", "s", as_text.format("m")), columns)
    assert bag(got.selectExpr("n", "x", "s", as_text.format("m.id")), columns) == wanted
    without, with_some = Counter(), Counter()
    for (*row, matches), count in wanted.items():
        (without if matches == "[]" else with_some)[tuple(row)] += count
    valid, quarantine = told.split(frame, column="m")
    assert (bag(valid), bag(quarantine)) == (without, with_some)
    assert without + with_some == bag(frame)


@pytest.mark.large
def test_a_split_has_each_row_once(frame):
    rules = el.RuleSet(RULES)
    valid, quarantine = rules.split(frame, column="why", as_struct=True)
    assert valid.columns == frame.columns
    assert quarantine.columns == [*frame.columns, "why"]
    assert bag(valid) + bag(quarantine) == bag(frame)
    found = "coalesce(n > 7, false) OR coalesce(n < 2, false) OR coalesce(x > 1 OR s = 'b', false)"
    assert bag(quarantine) == bag(frame.where(found))
    assert (None, None, None) in bag(valid)  # no rule is true of what is not known
    assert all(row.why for row in quarantine.collect())
    strict = el.RuleSet({"no number": "(n >= 0) IS NOT TRUE"})
    assert bag(strict.split(frame)[1]) == bag(frame.where("n IS NULL"))


@pytest.mark.large
def test_a_split_of_nothing_and_by_nothing(frame):
    for each in el.RuleSet(RULES).split(frame.where("false")):
        assert each.collect() == []
    valid, quarantine = el.RuleSet({}).split(frame)
    assert bag(valid) == bag(frame)
    assert quarantine.collect() == []
    with pytest.raises(QueryError, match="has a column 'N' already"):
        el.RuleSet(RULES).split(frame, column="N")
    with pytest.raises(QueryError, match="must be a DataFrame"):
        el.RuleSet(RULES).split([1])


@pytest.fixture(scope="module")
def folder(spark, frame, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("facts") / "in")
    frame.write.parquet(path)
    return path


@pytest.fixture
def stream(spark, frame, folder):
    return spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(folder)


@pytest.fixture(scope="module")
def halves(frame):
    """The rows of a batch that no rule finds, and those that one does."""
    return [bag(part) for part in el.RuleSet(RULES).split(frame)]


@pytest.mark.large
def test_a_stream_is_split(spark, frame, stream, halves):
    parts = el.RuleSet(RULES).split(stream)
    for name, part in zip(("valid", "quarantine"), parts, strict=True):
        writer = part.writeStream.format("memory").queryName(f"split_{name}")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert [bag(spark.table(f"split_{each}")) for each in ("valid", "quarantine")] == halves
    assert halves[0] + halves[1] == bag(frame)


@pytest.mark.large
def test_a_stream_is_split_in_one_pass(spark, stream, halves, tmp_path):
    valid, quarantine = str(tmp_path / "valid"), str(tmp_path / "quarantine")

    def write(batch, _batch_id):
        batch.persist()
        batch.where("size(matches) = 0").drop("matches").write.mode("append").parquet(valid)
        batch.where("size(matches) > 0").write.mode("append").parquet(quarantine)
        batch.unpersist()

    rules = el.RuleSet(RULES, name="split")
    finish(rules.start(stream, write, keep_unmatched=True, trigger="available_now"))
    assert [bag(spark.read.parquet(path)) for path in (valid, quarantine)] == halves


def finish(run):
    assert run.await_termination(120)
    return run


def events(run):
    return [each["event"] for each in run.journal if each["component"] == "run"]


@pytest.mark.large
@pytest.mark.parametrize("is_sigma", [False, True])
def test_a_changed_title_keeps_what_was_learned(stream, frame, tmp_path, is_sigma):
    def rules(title, level):
        if not is_sigma:
            return el.RuleSet({"r": el.Rule("s = 'b'", title=title, level=level, tags=[title])})
        text = SIGMA.replace("Odd process", title).replace("LEVEL", level)
        return el.sigma.load(text, cache=False)

    paths = {"checkpoint": str(tmp_path / "ckpt"), "path": str(tmp_path / "out")}
    finish(rules("One", "low").start(stream, "parquet", trigger="available_now", **paths))
    state = tmp_path / "ckpt" / "eddyline" / "state.json"
    before = json.loads(state.read_text())["state"]["rules"]
    again = finish(rules("Two", "high").start(stream, "parquet", trigger="available_now", **paths))
    assert events(again) == ["restore"]
    assert facts_of(again).n_rows_before == 23
    assert before["rows"] == 23
    # What a rule means does change it.
    other = SIGMA.replace("s: b", "s: c") if is_sigma else {"r": "s = 'c'"}
    made = (
        el.sigma.load(other.replace("LEVEL", "low"), cache=False) if is_sigma else el.RuleSet(other)
    )
    assert "drop_state" in events(
        finish(made.start(stream, "parquet", trigger="available_now", **paths))
    )


@pytest.mark.large
def test_a_title_changed_while_rules_run_keeps_plan_and_counts(stream):
    sets = []

    def sink(df, batch_id):
        sets.append([tuple(each) for row in df.collect() for each in row.matches])
        if batch_id == 0:
            rules.replace("r", el.Rule("n >= 0", title="New", level="high"))

    rules = el.RuleSet({"r": el.Rule("n >= 0", title="Old")}, name="titles")
    run = finish(rules.start(stream, sink, as_struct=True, trigger="available_now"))
    assert set(sets[0]) == {("r", "Old", None)}
    assert {each for later in sets[1:] for each in later} == {("r", "New", "high")}
    view = facts_of(run)
    assert (view.n_rows_before, view.n_rows) == (0, 23)
    assert [each["event"] for each in run.journal if each["event"] == "rules"] == []
    assert view.titles == {"r": "New"}


@pytest.mark.large
def test_structs_in_the_engine(spark, stream, frame):
    engine = el.Engine(spark)
    engine.stream("rows", stream)
    query = engine.rules("told", el.RuleSet(RULES), stream="rows", as_struct=True)
    assert query.columns["matches"] == "array<struct<id:string,title:string,level:string>>"
    run = finish(query.start("memory", trigger="available_now"))
    titles = {each["title"] for row in run.to_arrow()["matches"].to_pylist() for each in row}
    assert titles == {None, "Small", "Large"}
    plain = engine.rules("plain", el.RuleSet(RULES), stream="rows")
    assert plain.identity != query.identity


def test_a_batch_of_too_long_titles_is_an_error_of_ours(monkeypatch):
    rules = el.RuleSet({"r": el.Rule("true", title="t" * 100), "s": "true"})
    about = about_rules(rules.store.now()[1].values())
    lists = pa.array([[0, 1], [], [1, 0]], pa.list_(pa.int32()))
    told = task.with_descriptions(lists, about).to_pylist()
    assert [[each["id"] for each in row] for row in told] == [["r", "s"], [], ["s", "r"]]
    monkeypatch.setattr(task, "MAX_NAMES_BYTES", 150)
    with pytest.raises(SourceError, match="4 matches of a batch of 3 rows take 200 bytes"):
        task.with_descriptions(lists, about)
