"""Few rules as one statement of Spark's give what the matcher gives, and no row goes to Python."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from tests.spark.facts import facts_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEW = {
    "small": "n < 100 -- to its end",
    "it's": "n BETWEEN 90 AND 200 AND s <> 'c'",
    "let\\ter": el.Rule("s IN ('a', 'b') AND NOT n > 5", level="high"),
    "unknown": "n IS NULL OR (s = 'a' AND n > 390)",
    "nan": el.Rule("d > 1e300", title="NaN is above all numbers"),
    "all": "true",
    "none": "n < 0 AND s LIKE 'x%'",
}
LONG = {f"r{k}": f"n % 64 = {k} AND s IN ('a', 'b', 'c') AND d <= n" for k in range(64)}
"""As many rules as there are bits, and more tests than are written as one condition."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four files of 100 rows; some numbers are NULL or NaN."""
    path = tmp_path_factory.mktemp("stated")
    for number in range(4):
        ids = range(100 * number, 100 * number + 100)
        columns = {
            "id": pa.array(ids),
            "n": pa.array([None if n % 7 == 0 else n for n in ids], pa.int64()),
            "s": pa.array(["abcd"[n % 4] if n % 11 else None for n in ids]),
            "d": pa.array([float("nan") if n % 13 == 0 else n / 2 for n in ids]),
        }
        pq.write_table(pa.table(columns), path / f"{number}.parquet")
        time.sleep(0.01)  # files are read in the order of their times
    return str(path)


def rows_of(df):
    return sorted(map(repr, df.collect()))


def outputs(df, rules, names=None):
    """Return the columns and the rows of outputs of a set of rules: every one by default."""
    valid, quarantine = rules.split(df)
    made = {
        "names": df.transform(rules.matches()),
        "all rows": df.transform(rules.matches("m", keep_unmatched=True)),
        "structs": df.transform(rules.matches(as_struct=True)),
        "any": df.transform(rules.any()),
        "valid": valid,
        "quarantine": quarantine,
        "counts": df.transform(rules.count_by_rule()),
    }
    made = {name: made[name] for name in names or made}
    plans = [each._jdf.queryExecution().toString() for each in made.values()]
    goes = {"Python" in plan or "InArrow" in plan for plan in plans}
    return {name: (each.schema, rows_of(each)) for name, each in made.items()}, goes


@pytest.mark.parametrize(
    ("rules", "names"),
    [(FEW, None), pytest.param(LONG, ("all rows", "any", "counts"), marks=pytest.mark.large)],
    ids=["few", "long"],
)
def test_every_output_is_that_of_the_matcher(spark, folder, rules, names):
    df = spark.read.parquet(folder)
    stated, matched = (el.RuleSet(rules, method=method) for method in ("statement", "every_row"))
    found, goes = outputs(df, stated, names)
    expected, went = outputs(df, matched, names)
    assert (goes, went) == ({False}, {True})
    for output, want in expected.items():
        assert found[output] == want, output
    assert found["counts"][1] != []
    assert str(stated.facts().plan) == f"{len(rules)} in one statement of Spark's"


@pytest.mark.large
def test_matches_are_counted_and_rows_where_that_costs_nothing(spark, folder):
    df = spark.read.parquet(folder)
    rules, matcher = el.RuleSet(FEW, method="statement"), el.RuleSet(FEW, method="blocks")
    for each in (rules, matcher):
        df.transform(each.matches(keep_unmatched=True)).collect()
    want = {each.name: each.n_matches for each in matcher.facts().rules}
    assert {each.name: each.n_matches for each in rules.facts().rules} == want
    assert (rules.facts().n_rows, rules.facts().n_dropped) == (400, 0)
    assert "400 rows evaluated" in rules.explain()
    df.transform(rules.any()).collect()
    view = rules.facts()
    assert {each.name: each.n_matches for each in view.rules} == {
        name: 2 * n for name, n in want.items()
    }
    assert view.n_rows is None
    assert {each.n_rows for each in view.rules} == {None}
    assert "were not counted" in rules.explain()


@pytest.mark.large
def test_rules_that_may_raise_or_call_python_go_to_tasks(spark, folder):
    df = spark.read.parquet(folder)
    odd = el.predicate(lambda n: pc.equal(pc.bit_wise_and(n, 1), 1), reads=["n"], name="odd")
    for text in ("10 / n > 2 AND n <> 0", "odd(n) AND s = 'a'"):
        rules = el.RuleSet({"few": "n < 9", "x": text}, functions={"odd": odd}, method="statement")
        plain = el.RuleSet({"few": "n < 9", "x": text}, functions={"odd": odd}, method="blocks")
        found = df.transform(rules.matches())
        assert rows_of(found) == rows_of(df.transform(plain.matches())), text
        assert "Python" in found._jdf.queryExecution().toString()
        assert not rules.facts().is_statement


@pytest.mark.large
def test_a_run_whose_rules_change_between_batches(spark, folder):
    stream = spark.readStream.schema("id long, n long, s string, d double")
    stream = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    slow = {f"x{k}": f"s RLIKE 'a.*{k}'" for k in range(70)}
    changes = {
        0: lambda rules: rules.add("new", "n % 2 = 0"),
        1: lambda rules: rules.add(slow),  # more than there are bits
        2: lambda rules: rules.remove(*slow, "new"),
    }

    def run_of(method):
        rules, seen = el.RuleSet({"low": "n < 390"}, method=method, name=f"run {method}"), {}

        def write(df, batch_id):
            seen[batch_id] = {row["id"]: tuple(row["matches"]) for row in df.collect()}
            changes.get(batch_id, lambda _: None)(rules)

        run = rules.start(stream, write, trigger="available_now")
        assert run.await_termination(300)
        return run, seen

    (auto, found), (matcher, want) = run_of("auto"), run_of("every_row")
    assert found == want
    assert sorted(found) == [0, 1, 2, 3]
    ours, theirs = facts_of(auto).rules, facts_of(matcher).rules
    assert [(e.name, e.n_rows, e.n_matches) for e in ours] == [
        (e.name, e.n_rows, e.n_matches) for e in theirs
    ]
    begun = [e for e in auto.journal if e["event"] == "sharing" and "statement" in str(e["after"])]
    assert [each["batch_id"] for each in begun] == [-1, 1, 3]
    assert begun[0]["evidence"]["statement_ns"] < begun[0]["evidence"]["matcher_ns"]
    assert [record.operators[0].n_matches for record in auto.records] == [
        record.operators[0].n_matches for record in matcher.records
    ]
