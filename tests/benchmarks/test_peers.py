"""Peers read the same files, give equal results, and say how they are installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness import flink
from benchmarks.harness.processor import seconds_below
from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios
from benchmarks.peers import eddyline_child, nexmark, query, race, windows

import eddyline as el

WINDOW_QUERIES = {
    "tumbling": windows.sliding(60),
    "sliding": windows.sliding(10),
    "over": windows.rows_before(),
    "join": windows.interval_join(),
}

QUERIES = WINDOW_QUERIES | {f"q{number}": nexmark.query_of(number) for number in nexmark.FLINK}


@pytest.fixture(autouse=True)
def files_that_go(monkeypatch, tmp_path):
    """What is written goes with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def tables_of(peer, n_rows=3_000):
    if "bid" in peer.times or "person" in peer.times:
        return nexmark.tables_v1(n_rows, seed=1)
    rng = np.random.default_rng(1)
    return {name: windows.rows_v1(rng, n_rows, 20) for name in peer.times}


def job_of(peer, n_rows=3_000):
    tables = tables_of(peer, n_rows)
    times = {
        name: "dateTime" if "dateTime" in tables[name].column_names else "ts" for name in tables
    }
    return peer.job(query.written(tables, times), query.columns_of(tables))


@pytest.mark.parametrize("interpreter", ["no/such/python", sys.executable])
def test_a_scenario_without_flink_is_skipped_and_names_the_command(monkeypatch, interpreter):
    monkeypatch.setenv(flink.VARIABLE, interpreter)
    monkeypatch.setattr("eddyline.spark.java.problem", lambda: None)
    for scenario in scenarios("peers"):
        measurement = scenario.measure(Settings(quick=True))
        assert scenario.status(measurement) == "skipped"
        wrong = "which is no file" if interpreter != sys.executable else "has no Flink"
        assert wrong in measurement.note
        assert flink.COMMAND in measurement.note


def test_the_environment_is_no_part_of_the_repository():
    ignored = (flink.FOLDER.parent / ".gitignore").read_text("utf-8").splitlines()
    assert f"{flink.FOLDER.name}/" in ignored


def test_every_file_of_a_stream_has_the_whole_span_in_order():
    tables = tables_of(windows.sliding(60), query.SMALL_ROWS)
    folder = Path(query.written(tables, windows.TIMES))
    options = csv.ReadOptions(column_names=["id", "ts", "k", "v"])
    first, second = (csv.read_csv(path, options) for path in sorted((folder / "s").iterdir()))
    far = first.slice(first.num_rows - 1)
    assert min(far["id"][0].as_py(), far["k"][0].as_py(), far["v"][0].as_py()) < 0
    first = first.slice(0, first.num_rows - 1)
    for file in (first, second):
        assert file.num_rows == query.SMALL_ROWS // 2
        instants = file["ts"].cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
        assert (np.diff(instants) >= 0).all()
    assert pa.concat_tables([first, second]).sort_by("id")["v"].equals(tables["s"]["v"])


def test_a_small_stream_has_one_file():
    folder = Path(query.written(tables_of(windows.sliding(60)), windows.TIMES))
    assert [path.name for path in (folder / "s").iterdir()] == ["part-0.csv"]


def results_in(folder, name, lines):
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / "part-0.csv").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return str(place)


def test_results_are_compared_as_bags_of_rows(tmp_path):
    job = {"results": {"wend": "TIMESTAMP", "k": "BIGINT", "mean": "DOUBLE"}, "kept": "k >= 0"}
    ours = results_in(tmp_path, "ours", ["2026-01-01T00:01:00.000Z,1,0.5"] * 2)
    theirs = ['"2026-01-01 00:01:00",1,0.5', '"2026-01-01 00:01:00",1,5.0E-1']
    of_last_row = '"2026-02-10 00:01:00",-9,-10.0'
    same = results_in(tmp_path, "same", [*theirs, of_last_row])
    assert race.compared(job, ours, same) == 2
    for name, lines in {
        "fewer": theirs[:1],
        "more": [*theirs, theirs[0]],
        "another": [theirs[0], theirs[1].replace(",1,", ",2,")],
    }.items():
        with pytest.raises(AssertionError, match="eddyline has 2 results"):
            race.compared(job, ours, results_in(tmp_path, name, lines))


def test_no_results_are_an_error_too(tmp_path):
    job = {"results": {"k": "BIGINT"}, "kept": "k >= 0"}
    empty = results_in(tmp_path, "empty", ["-1"])
    with pytest.raises(AssertionError, match="neither"):
        race.compared(job, empty, empty)


def test_a_figure_is_the_time_of_flink_over_ours(monkeypatch):
    order = []

    def engine(name, seconds):
        def run(job):
            order.append(name)
            return {"seconds": seconds, "ready_s": 1.0, "busy_s": 2.0, "version": "2.3.0"}

        return run

    monkeypatch.setattr(race, "in_eddyline", engine("untimed", 9.0))
    monkeypatch.setattr(
        race, "ENGINES", {"eddyline": engine("eddyline", 2.0), "flink": engine("flink", 6.0)}
    )
    monkeypatch.setattr(race, "compared", lambda *_: 5)
    measurement = race.measured({"folder": "no/such"}, 2, "some rows")
    assert order == ["untimed", "eddyline", "flink", "flink", "eddyline"]
    assert measurement.value == 3.0
    assert "5 results" in measurement.note


def test_processor_time_counts_a_child_that_has_ended():
    before = seconds_below()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert seconds_below() - before > 0.02


@pytest.mark.spark
@pytest.mark.parametrize("name", list(QUERIES))
def test_results_have_the_columns_that_are_compared(spark, name):
    peer = QUERIES[name]
    job = job_of(peer, 100)
    engine = el.Engine(spark)
    eddyline_child.add_streams(engine, job, spark)
    asked = engine.query(peer.eddyline, name=f"peer_{name}")
    assert list(asked.columns) == list(peer.results)
    kinds = {"TIMESTAMP": "timestamp", "BIGINT": "bigint", "STRING": "string", "DOUBLE": "double"}
    wanted = [kinds.get(kind, kind.lower().replace(" ", "")) for kind in peer.results.values()]
    found = asked.columns.values()
    assert [kind.replace("bigint", "int").replace("int", "bigint") for kind in found] == wanted
    if name in {"tumbling", "over", "join"}:
        run = asked.start(trigger="available_now")
        run.await_termination()
        assert dict(run.to_df().dtypes) == asked.columns


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.skipif(bool(flink.problem()), reason=flink.problem())
@pytest.mark.parametrize("name", list(QUERIES))
def test_flink_gives_the_same_results(tmp_path, name):
    job = job_of(QUERIES[name], 100_000)
    for engine, run in race.ENGINES.items():
        run({**job, "out": str(tmp_path / engine)})
    assert race.compared(job, str(tmp_path / "eddyline"), str(tmp_path / "flink")) > 0
