"""Aggregates that several run are said alike to all of them; what is generated is as it says."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.aggregates import growth, nexmark, queries, windows
from benchmarks.aggregates import over as rows
from benchmarks.aggregates.asked import duckdb_answer, over, summed, written
from benchmarks.aggregates.data import N_COLUMNS, Shape, narrow_batches_v1, wide_batches_v1
from benchmarks.aggregates.race import Contestants, compared, take_turns
from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios
from benchmarks.joins.data import nexmark_batches_v2

SECOND_US = 1_000_000

BATCHES_WITHOUT_ROWS = "spark.sql.streaming.noDataMicroBatches.enabled"


@pytest.fixture(autouse=True)
def files_that_go(monkeypatch, tmp_path):
    """What is written goes with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def race(spark, tmp_path):
    """Let contestants take turns in the session of the tests; what each of them answered."""
    before = spark.conf.get(BATCHES_WITHOUT_ROWS)
    spark.conf.set(BATCHES_WITHOUT_ROWS, "false")

    def answers(entered):
        of = Contestants(spark, tmp_path / "race")
        made = {name: of.made(name, way, asked) for name, (way, asked) in entered.items()}
        batches = next(iter(entered.values()))[1][0].batches
        return {name: each["answer"] for name, each in take_turns(made, batches).items()}

    yield answers
    spark.conf.set(BATCHES_WITHOUT_ROWS, before)


def answer(asked, text=None):
    return duckdb_answer(asked, text or asked.duckdb)["answer"]


@pytest.mark.spark
@pytest.mark.parametrize("slide_s", [2, 6])
def test_windows_are_said_alike(race, slide_s):
    folder = written(wide_batches_v1(Shape(2, 400, 10 * SECOND_US, n_groups=5)))
    asked = over(windows.sliding(6, slide_s), folder)
    ways = ("eddyline", "eddyline late", "spark")
    found = race({way: (way, [asked]) for way in ways})
    assert answer(asked)[0] >= 20
    assert found == dict.fromkeys(ways, answer(asked))


@pytest.mark.spark
def test_rows_so_far_are_said_alike(race):
    folder = written(wide_batches_v1(Shape(2, 300, rows.SPAN_US, n_groups=5)), n_far=0)
    ours, alone, all_of_them = (
        rows.asked(folder, has_history=has_history) for has_history in (False, False, True)
    )
    found = race(
        {
            "eddyline": ("eddyline", [ours]),
            "spark batch": ("spark batch", [alone]),
            "spark history": ("spark history", [all_of_them]),
        }
    )
    assert found["eddyline"] == answer(ours)
    assert found["spark batch"] == answer(alone, alone.duckdb_of_spark)
    assert found["spark history"] == answer(all_of_them, all_of_them.duckdb_of_spark)
    assert found["spark batch"] != found["spark history"]


@pytest.mark.spark
@pytest.mark.soak
def test_many_queries_have_the_answers_of_all(race):
    folder = written(wide_batches_v1(Shape(2, 200, 20 * SECOND_US, n_groups=3)))
    asked = [over(queries.windowed(number), folder) for number in (0, 17, 55)]
    found = race({way: (way, asked) for way in ("eddyline", "spark")})
    wanted = np.sum([answer(each) for each in asked], axis=0).tolist()
    assert found == {"eddyline": wanted, "spark": wanted}


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("kind", list(growth.KINDS))
def test_growth_is_of_windows_that_answer_rightly(race, kind):
    folder = written(growth.batches_v1(1_000, 2, 500), n_far=0)
    asked = {str(n): over(growth.KINDS[kind](n), folder) for n in (2, 5)}
    found = race({name: ("eddyline", [each]) for name, each in asked.items()})
    assert found == {name: answer(each) for name, each in asked.items()}


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "joined"),
    [*((each, False) for each in nexmark.QUERIES), *((each, True) for each in nexmark.JOINED)],
)
def test_nexmark_is_said_alike(race, number, joined):
    asked = nexmark.asked_of(number, 2, 20_000 if number == 3 else 3_000, joined=joined)
    asked = replace(asked, lateness_us=100_000)  # or nothing would be final in so short a time
    found = race({way: (way, [asked]) for way in ("eddyline", *["spark"][: bool(asked.spark)])})
    assert found["eddyline"] == answer(asked)
    assert found["eddyline"][0] > 0
    if asked.spark:
        assert found["spark"] == answer(asked, asked.duckdb_of_spark)


def test_other_answers_are_an_error_not_a_figure(monkeypatch):
    def other(_function, entered, in_turns):
        assert in_turns
        return {name: {"answer": [3, 4], "seconds": [1.0] * 4} for name in entered}

    monkeypatch.setattr("benchmarks.aggregates.race.alone", other)
    folder = written(narrow_batches_v1(Shape(2, 10, 10 * SECOND_US, n_groups=2)))
    with pytest.raises(AssertionError, match="where DuckDB has"):
        compared(over(windows.sliding(6, 2), folder), "eddyline")
    assert not Path(folder).exists()


def test_the_operator_says_what_duckdb_says():
    (scenario,) = [each for each in scenarios("aggregates") if each.id.endswith("over_operator")]
    measurement = scenario.measure(Settings(quick=True))
    assert not measurement.has_failed, measurement.note
    assert measurement.value > 0


def test_a_sum_is_over_every_column():
    columns = [("a", "bigint"), ("b", "string"), ("c", "timestamp"), ("d", "double")]
    (_, spark), (_, duckdb) = summed(columns, "spark"), summed(columns, "duckdb")
    for name, _ in columns:
        assert name in spark
        assert name in duckdb
    assert "unix_micros(c)" in spark
    assert "epoch_us(c)" in duckdb


@pytest.mark.parametrize("per_cell", windows.PER_CELL)
def test_cells_have_as_many_rows_as_they_say(per_cell):
    n_groups = windows.groups_of(per_cell, 30_000)
    (batch,) = narrow_batches_v1(Shape(1, 30_000, SECOND_US, n_groups))
    n_cells = pc.count_distinct(batch["s"]["k"]).as_py()
    assert 30_000 / n_cells == pytest.approx(per_cell, rel=0.03)


def test_wide_rows_are_wide_and_one_group_is_hot():
    first, second = wide_batches_v1(Shape(2, 2_000, SECOND_US, hot=0.5))
    assert first["s"].num_columns == N_COLUMNS
    assert 0.45 < np.mean(first["s"]["k"].to_numpy() == -1) < 0.55
    micros = [each["s"]["ts"].cast(pa.int64()).to_numpy() for each in (first, second)]
    assert (np.diff(np.concatenate(micros)) >= 0).all()
    assert micros[1].min() - micros[0].min() == pytest.approx(SECOND_US, rel=0.01)


def test_nexmark_is_distributed_as_it_says():
    batches = list(nexmark_batches_v2(4, 50_000))
    person, auction, bid = (
        pa.concat_tables([each[name] for each in batches]) for name in ("person", "auction", "bid")
    )
    assert [each.num_rows for each in (person, auction, bid)] == [4_000, 12_000, 184_000]
    for table in (person, auction):
        assert table["id"].to_pylist() == list(range(1_000, 1_000 + table.num_rows))
    ids = bid["auction"].to_numpy() - 1_000
    assert 0.49 < np.mean(ids % 100 == 0) < 0.52
    bidders = bid["bidder"].to_numpy() - 1_000
    assert 0.74 < np.mean(bidders[90_000:] % 100 == 1) < 0.78
    prices = np.log10(bid["price"].to_numpy() / 100)
    assert prices.min() >= 0
    assert prices.max() <= 6
    assert prices.mean() == pytest.approx(3, abs=0.02)
    hot = pc.is_in(bid["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(hot.cast(pa.int8())).as_py() == pytest.approx(0.5, abs=0.01)
    assert pc.all(pc.greater(auction["expires"], auction["dateTime"])).as_py()
    assert pc.all(pc.starts_with(bid["url"], "https://www.nexmark.com/")).as_py()
    for table, mean in ((person, 136), (auction, 385), (bid, 68)):
        assert pc.mean(pc.binary_length(table["extra"])).as_py() == pytest.approx(mean, rel=0.01)
