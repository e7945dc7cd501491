"""Every published rule against the oracle, on real events; and the tests that come with them."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from sigma.rule import SigmaRule as PySigmaRule

import eddyline as el
from eddyline.sigma import read
from tests.examples import are_few
from tests.oracles import sigma as reference_sigma
from tests.oracles.rules import truth

N_EVENTS = 10 if are_few() else 30
SPARK_TYPES = {"large_string": "string", "int64": "bigint", "int32": "int"}


@pytest.fixture(scope="module")
def published(sigma_data):
    """The rules as pySigma has them, by id."""
    files = sorted((sigma_data / "rules_process_creation").glob("*.yml"))
    found = (PySigmaRule.from_yaml(file.read_text("utf-8")) for file in files)
    return {str(rule.id): rule for rule in found}


@pytest.fixture(scope="module")
def events(sigma_data):
    """Some events of both kinds, and their columns."""
    table = pq.read_table(sigma_data / "process_creation.parquet").drop_columns("TimeCreated")
    rng = np.random.default_rng(20)
    some = rng.choice(table.num_rows, N_EVENTS, replace=False)
    columns = {field.name: SPARK_TYPES[str(field.type)] for field in table.schema}
    return columns, table.take(np.sort(some)).to_pylist()


@pytest.mark.large
@pytest.mark.parametrize("missing", ["null", "false"])
def test_every_published_rule_agrees_with_the_oracle(
    sigma_data, published, events, oracle_row, missing
):
    columns, rows = events
    found = read(sigma_data / "rules_process_creation", missing=missing, restrict=False)
    assert found.skipped == ()
    assert [rule.name for rule in found.sources] == list(published)
    n_true = 0
    for rule in found.sources:
        tree = rule.bind(columns, ansi=True).tree
        for row in rows:
            expected = reference_sigma.truth(published[rule.name], row, missing)
            assert truth(tree, oracle_row(tree, row)) is expected, (rule.name, row)
            n_true += expected is True
    assert n_true > 0


def test_every_published_test_fires_its_rule_as_often_as_it_says(sigma_data, published, oracle_row):
    tests = pq.read_table(sigma_data / "regression_tests.parquet").to_pylist()
    by_rule = defaultdict(list)
    for line in (sigma_data / "regression_events.jsonl").read_text("utf-8").splitlines():
        event = json.loads(line)
        by_rule[event.pop("rule_id")].append(event)
    sources = {rule.name: rule for rule in read(sigma_data / "rules_process_creation").sources}
    tests = [test for test in tests if test["rule_id"] in sources]
    assert len(tests) == 75
    for test in tests:
        rows = by_rule[test["rule_id"]]
        columns = {
            name: "string" if isinstance(value, str) else "bigint"
            for row in rows
            for name, value in row.items()
            if value is not None
        }
        tree = sources[test["rule_id"]].bind(columns, ansi=True).tree
        whole = [{name: row.get(name) for name in columns} for row in rows]
        n_fired = sum(truth(tree, oracle_row(tree, row)) is True for row in whole)
        wanted = test["expected_match_count"]
        assert n_fired >= 1 if wanted is None else n_fired == wanted, test


@pytest.fixture(scope="module")
def all_rules(spark, sigma_data):
    return el.sigma.load(sigma_data / "rules_process_creation")


@pytest.mark.spark
@pytest.mark.large
def test_the_rule_set_fires_what_the_oracle_fires(spark, sigma_data, published, all_rules):
    table = pq.read_table(sigma_data / "process_creation.parquet").drop_columns("TimeCreated")
    frame = spark.read.parquet(str(sigma_data / "process_creation.parquet")).drop("TimeCreated")
    found = frame.transform(all_rules.matches("found")).select("event_id", "found").collect()
    fired = {row["event_id"]: set(row["found"]) for row in found}
    assert len(all_rules) == len(published)
    # As many events that some rule fires for as events that none does.
    ids = table["event_id"].to_numpy()
    rng = np.random.default_rng(4)
    some = [*rng.choice(sorted(fired), N_EVENTS, replace=False)]
    some += [*rng.choice(np.setdiff1d(ids, sorted(fired)), N_EVENTS, replace=False)]
    rows = table.filter(np.isin(ids, some)).to_pylist()
    assert len(rows) == 2 * N_EVENTS
    for row in rows:
        expected = {
            name for name, rule in published.items() if reference_sigma.truth(rule, row) is True
        }
        assert fired.get(row["event_id"], set()) == expected, row


@pytest.mark.large
@pytest.mark.spark
def test_every_published_test_passes_on_spark(spark, sigma_data, published, all_rules):
    events = spark.read.json(str(sigma_data / "regression_events.jsonl"))
    own = events.transform(all_rules.matches("found")).where("array_contains(found, rule_id)")
    n_fired = {row["rule_id"]: row["count"] for row in own.groupBy("rule_id").count().collect()}
    n_tests = 0
    for test in pq.read_table(sigma_data / "regression_tests.parquet").to_pylist():
        if test["rule_id"] in published:
            wanted, n_found = test["expected_match_count"], n_fired.get(test["rule_id"], 0)
            assert n_found >= 1 if wanted is None else n_found == wanted, test
            n_tests += 1
    assert n_tests == 75
