"""Joins that several run are said alike to all of them; what is generated is as it says."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios
from benchmarks.joins import operator as joins_operator
from benchmarks.joins import pathway as joins_pathway
from benchmarks.joins.chained import SPAN_US, joined_by_k
from benchmarks.joins.data import nexmark_batches_v1, skewed_batches_v1, uniform_batches_v1
from benchmarks.joins.growth import growing_batches_v1, grown, joined_over
from benchmarks.joins.operator import FOREVER, Operator, Workload
from benchmarks.joins.streams import (
    FACTORS,
    PRIME,
    Contestants,
    Joined,
    answer_of,
    duckdb_once,
    race,
    rows_of,
    take_turns,
    written,
)

from eddyline.query.select.reader import read_query
from tests.oracles.joins import results

SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def files_that_go(monkeypatch, tmp_path):
    """What is written goes with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def whole(batches):
    return {name: pa.concat_tables([each[name] for each in batches]) for name in batches[0]}


def by_definition(join, batches, tables=None):
    """The number of results and the sum over their ids, as the slow reference finds them."""
    rows = whole(batches) | (tables or {})
    kinds = {
        name: {
            field.name: "timestamp" if pa.types.is_timestamp(field.type) else "bigint"
            for field in table.schema
        }
        for name, table in rows.items()
    }
    times = {name: None if length is None else "ts" for name, length in join.windows.items()}
    found = results(read_query(join.text(), kinds), rows, times)
    ids = [
        found[f"{name}_id"].to_numpy() * by for name, by in zip(join.windows, FACTORS, strict=False)
    ]
    return found.num_rows, int((np.sum(ids, axis=0) % PRIME).sum())


@pytest.mark.parametrize("n_streams", [2, 3, 4, 5])
def test_duckdb_says_what_the_definition_says(n_streams):
    batches = uniform_batches_v1(n_streams, 3, 100, 60, SPAN_US)
    join = written(joined_by_k(n_streams), batches, {})
    n_results, checksum = by_definition(join, batches)
    assert n_results > 300
    assert answer_of(duckdb_once(join)) == (n_results, checksum)
    assert rows_of(join) == [n_streams * 100] * 3


def few_keys():
    """A join of two streams and a table whose first window is NOW, and whose keys are few."""
    batches = [
        {"s": each["s"], "t": each["t"]} for each in uniform_batches_v1(2, 2, 200, 3, SECOND_US)
    ]
    table = pa.table({"id": np.arange(3), "k": np.arange(3)})
    join = Joined(
        {"s": 0, "t": 20_000, "names": None},
        (("s.k", "t.k"), ("t.k", "names.k")),
        ("s.v",),
        SECOND_US,
    )
    return join, batches, {"names": table}


def test_parts_of_time_change_no_answer():
    join, batches, tables = few_keys()
    wanted = by_definition(join, batches, tables)
    assert wanted[0] > 300
    for part_us in (0, 20_000, 50_000):
        cut = written(replace(join, part_us=part_us), batches, tables)
        assert answer_of(duckdb_once(cut)) == wanted


@pytest.mark.spark
def test_contestants_take_turns_and_answer_alike(spark):
    join, batches, tables = few_keys()
    join = written(replace(join, part_us=20_000), batches, tables)
    of = Contestants(spark, join, Path(join.folder, "race"))
    names = ("eddyline", "chain", "no join")
    found = take_turns({name: of.named(name) for name in names}, join.batches)
    wanted = by_definition(join, batches, tables)
    assert answer_of(found["eddyline"]) == wanted
    assert answer_of(found["chain"]) == wanted
    assert found["no join"]["n_results"] == 800
    for name in names:
        assert len(found[name]["seconds"]) == 2
        assert min(found[name]["seconds"]) > 0
    assert found["eddyline"]["state"]["bytes"] > 0
    assert found["chain"]["state"]["last_bytes"] > 0


@pytest.mark.spark
def test_joins_over_windows_of_several_sizes_take_turns(spark):
    batches = growing_batches_v1(5, 60, (1, 3))
    assert np.unique(whole(batches)["s"]["k_3"]).size > np.unique(whole(batches)["s"]["k_1"]).size
    first = written(joined_over(1), batches, {})
    joins = {str(n): replace(joined_over(n), folder=first.folder) for n in (1, 3)}
    ways = {
        label: Contestants(spark, join, Path(first.folder, "race", label)).named("eddyline")
        for label, join in joins.items()
    }
    found = take_turns(ways, first.batches)
    for label, join in joins.items():
        assert answer_of(found[label]) == answer_of(duckdb_once(join))
        assert found[label]["n_results"] > 60
    assert found["3"]["state"]["rows"] > found["1"]["state"]["rows"]


def test_other_answers_are_an_error_not_a_figure(monkeypatch):
    def other(_function, **_arguments):
        each = {"n_results": 3, "checksum": 4, "seconds": [1.0, 1.0]}
        return {"eddyline": each, "chain": each | {"checksum": 5}}

    monkeypatch.setattr("benchmarks.joins.streams.alone", other)
    batches = uniform_batches_v1(2, 1, 10, 10, SPAN_US)
    with pytest.raises(AssertionError, match="other answers"):
        race(written(joined_by_k(2), batches, {}), "eddyline", "chain")


def test_growth_is_of_joins_that_answer_rightly(monkeypatch):
    def right(_function, joins, name):
        assert name == "eddyline"
        return {label: duckdb_once(Joined(**join)) for label, join in joins.items()}

    def wrong(_function, joins, name):
        return {label: each | {"checksum": 0} for label, each in right("", joins, name).items()}

    monkeypatch.setattr("benchmarks.joins.growth.alone", right)
    assert grown("eddyline", 50, (1, 2), 1)["2"]["n_results"] > 50
    monkeypatch.setattr("benchmarks.joins.growth.alone", wrong)
    with pytest.raises(AssertionError, match="where DuckDB has"):
        grown("eddyline", 50, (1, 2), 1)


@pytest.mark.parametrize("length", [10 * SECOND_US, FOREVER])
def test_the_operator_says_what_duckdb_says(tmp_path, length):
    workload = Workload(5_000, 500, length)
    operator = Operator(workload.NAMES, length, str(tmp_path), sums=True)
    n_results = sum(operator.batch(tables)[0] for tables in workload.batches())
    with duckdb.connect() as connection:
        for name, rows in whole(workload.batches()).items():
            connection.register("rows", rows)
            made = "SELECT id, epoch_us(ts) AS us, k, v FROM rows"
            connection.execute(f"CREATE TABLE {name} AS {made}")
        assert joins_operator._duckdb_answer(connection, workload) == [n_results, operator.checksum]


def test_state_of_any_size_gives_the_same_results(tmp_path):
    for n_batches in (3, 23):
        n_keys = n_batches * 100
        operator = joins_operator._stocked(str(tmp_path / str(n_keys)), n_keys, 100)
        runs = operator.state.runs["s"]
        assert sum(file.n_rows for file in runs) == n_keys
        for seed in range(3):
            assert joins_operator._one_batch(operator, n_keys, 100, seed) > 0
        assert operator.state.runs["s"] == runs


@pytest.mark.parametrize("id", ["joins_no_eviction", "joins_skew_grid", "joins_skew_split"])
def test_what_is_counted_repeats(id):
    (scenario,) = [each for each in scenarios("joins") if each.id == id]
    first, again = (scenario.measure(Settings(quick=True)) for _ in range(2))
    assert not first.has_failed, first.note
    assert first.value == again.value
    assert scenario.status(first) in {"ok", "report"}


def test_one_key_has_its_share():
    keys = whole(skewed_batches_v1(2, 2, 5_000, 0.5, SECOND_US))["t"]["k"].to_numpy()
    assert 0.47 < (keys == -1).mean() < 0.53
    assert len(set(keys.tolist())) > 3_000


def test_nexmark_is_distributed_as_it_says():
    rows = whole(nexmark_batches_v1(4, 50_000))
    bids, auctions, persons = (rows[name] for name in ("bids", "auctions", "persons"))
    assert [each.num_rows for each in (persons, auctions, bids)] == [4_000, 12_000, 184_000]
    for table in (persons, auctions):
        assert table["id"].to_pylist() == list(range(table.num_rows))
    auction = bids["auction"].to_numpy()
    is_hot = auction % 100 == 0
    assert 0.49 < is_hot.mean() < 0.52
    sold = auctions["seller"].to_numpy()
    assert 0.74 < (sold[6_000:] % 100 == 0).mean() < 0.78
    # What is referred to is there already, and not older than the windows of the scenario.
    for refers, to, table, most_us in (
        (bids, auction, auctions, SECOND_US),
        (auctions, sold, persons, 9 * SECOND_US),
    ):
        since = (
            refers["ts"].cast(pa.int64()).to_numpy() - table["ts"].cast(pa.int64()).to_numpy()[to]
        )
        assert since.min() >= 0
        assert since.max() <= most_us


def test_what_runs_pathway_is_there():
    assert joins_pathway.CHILD.is_file()


def test_without_data_or_pathway_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("EDDYLINE_DATA", str(tmp_path))
    monkeypatch.setenv(joins_pathway.PYTHON, str(tmp_path / "python"))
    monkeypatch.setattr("benchmarks.joins.streams.alone", None)
    by_id = {each.id: each for each in scenarios("joins")}
    for name, named in (("joins_ticks", "EDDYLINE_DATA"), ("joins_pathway", joins_pathway.PYTHON)):
        scenario = by_id[name]
        measurement = scenario.measure(Settings(quick=True))
        assert scenario.status(measurement) == "skipped"
        assert named in measurement.note
