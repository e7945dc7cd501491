"""The proof that an operator is one line: one that only tests know runs like those of the package.

It runs through the engine, ``explain``, journal, progress, report, checkpoint, crashes and restarts
without an edit in ``src/``: see ``newest.py`` for all that there is to write.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import duckdb
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException

import eddyline as el
from eddyline.errors import PlanError, StateError
from eddyline.query.steps import RESULT
from eddyline.report.progress import LINES
from eddyline.report.terminal import batch_line
from eddyline.spark.operator import Operator
from eddyline.spark.operators import OPERATORS
from eddyline.spark.sinks.files import FileSink
from tests import examples
from tests.operators import newest_queries
from tests.operators.newest import NewestOperator, NewestRecord, NewestStep, newest_lines
from tests.operators.newest_queries import N_BATCHES, expected
from tests.spark.joins.join_streams import join_of
from tests.spark.run.crashes import OF_SINKS, OF_STATE, Crashes
from tests.state.manifests import change, content

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(OPERATORS, NewestStep, NewestOperator.from_step)
    monkeypatch.setitem(LINES, NewestRecord, newest_lines)


def finish(run):
    assert run.await_termination(240)
    return run


def found(run):
    table = run.to_arrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def places(run):
    return [entry["after"] for entry in run.journal if entry["event"] == "place"]


@pytest.mark.large
def test_it_runs_as_a_step_of_a_query(query, tmp_path):
    made = query()
    assert [type(each) for each in made.steps].index(NewestStep) == 2
    tree = made.explain()
    assert "newest s: the greatest v so far of each k" in tree
    assert tree.index("project") < tree.index("newest s") < tree.index("filter s")

    run = finish(made.start(trigger="available_now"))
    assert found(run) == sorted(expected("newest", N_BATCHES), key=repr)
    assert places(run) == ["early"]
    (change,) = [entry for entry in run.journal if entry["event"] == "place"]
    assert change["evidence"]["stale_frac"] > 0.5

    said = run.explain()
    assert "newest s: the greatest v so far of each k" in said
    assert "Newest rows" in said
    assert "last change: newest place" in said
    assert "stale rows dropped early" in run.records[-1].lines
    assert "stale rows dropped early" in batch_line(run.records[-1])
    assert {each.component for each in run.records[-1].operators} >= {"newest", "native"}
    page = run.report(tmp_path / "page.html").read_text("utf-8")
    assert "Newest rows" in page
    assert "Rows &lt;older&gt; than the newest of their k" in page
    assert "stale rows" in page


@pytest.mark.large
def test_any_plan_gives_the_same_rows(query):
    run = finish(query(adaptive=False).start(trigger="available_now"))
    assert found(run) == sorted(expected("newest", N_BATCHES), key=repr)
    assert run.journal == []
    assert run.records[-1].lines[-1] == "stale rows dropped late"


@pytest.mark.large
def test_a_restart_goes_on_with_state_and_plan_unless_they_are_damaged(query, tmp_path):
    """The last batch looks as if the process had died after its rows were written."""
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}

    def start():
        return query().start("parquet", trigger="available_now", **paths)

    def forget_last_commit():
        for name in (f"{N_BATCHES - 1}", f".{N_BATCHES - 1}.crc"):
            (tmp_path / "ckpt" / "spark" / "commits" / name).unlink()

    assert len(finish(start()).records) == N_BATCHES
    forget_last_commit()
    manifests = sorted((tmp_path / "ckpt" / "eddyline").rglob("manifest-*.json"))
    assert [content(each)["parts"].keys() for each in manifests] == [{"newest"}] * 2

    run = finish(start())
    assert [record.batch_id for record in run.records] == [N_BATCHES - 1]
    (restored,) = [entry for entry in run.journal if entry["event"] == "restore"]
    assert restored["after"]["newest"] == "early"
    assert places(run) == ["early"], "it is counted once, and decided once"
    assert written(tmp_path / "out") == expected("newest", N_BATCHES)

    learned = tmp_path / "ckpt" / "eddyline" / "state.json"
    saved = json.loads(learned.read_text())
    saved["state"]["newest"]["newest"] = {"plan": "sometimes", "n_rows": 1, "n_stale": 1}
    learned.write_text(json.dumps(saved))
    again = finish(start())
    (dropped,) = [entry for entry in again.journal if entry["event"] == "drop_state"]
    assert "no plan 'sometimes'" in dropped["evidence"]["why"]

    forget_last_commit()
    before = next((tmp_path / "ckpt").rglob(f"manifest-{N_BATCHES - 2:08}.json"))
    parts = content(before)["parts"]
    parts["newest"]["content"] = {"files": 5}
    change(before, parts=parts)
    with pytest.raises(StateError, match="cannot be read as NewestState"):
        start().await_termination(120)


def written(folder):
    return duckdb.sql(f"SELECT * FROM '{folder}/*.parquet' ORDER BY ALL").fetchall()


@pytest.mark.large
def test_a_person_pins_its_plan(query):
    run = query().start("memory")
    with pytest.raises(PlanError, match="possible is one of 'late', 'early'"):
        run.pin("sometimes", component="newest")
    run.pin({"newest": "early"})
    run.process_all_available()
    assert run.plan()["newest"] == "early"
    assert "newest  early: pinned by a person" in run.explain()
    run.stop()
    assert found(run) == sorted(expected("newest", N_BATCHES), key=repr)


@pytest.mark.large
def test_a_sink_that_takes_a_part_loses_nothing(query, tmp_path):
    sink = FileSink(str(tmp_path / "out"))
    first, every = expected("newest", 2), expected("newest", N_BATCHES)

    def from_the_third_batch_on(df, batch_id):
        if batch_id > 1:
            sink.write(df, batch_id)

    finish(query().start(from_the_third_batch_on, trigger="available_now"))
    assert written(tmp_path / "out") == [row for row in every if row not in first]


def test_it_knows_the_event_time_of_its_stream(query, spark, folder, monkeypatch):
    sites = []
    monkeypatch.setitem(OPERATORS, NewestStep, lambda _, site: sites.append(site) or Operator())
    query()
    read, filtered, newest, project = query().steps
    query().with_steps(read, filtered, project, replace(newest, input=RESULT))
    newest_queries.join_over(spark, folder)
    assert [(each.time, each.lateness) for each in sites] == [
        *[("ts", "2 seconds")] * 3,
        (None, "2 seconds"),
        (None, None),
    ]


def test_what_does_not_fit_is_said_when_the_query_is_made(query, monkeypatch):
    with pytest.raises(AnalysisException, match="nope"):
        query(step=NewestStep("s", "nope", "v", ("id",)))
    monkeypatch.delitem(OPERATORS, NewestStep)
    with pytest.raises(PlanError, match=r"no operator runs NewestStep .*FilterStep"):
        query()


# -- behind a join: two operators with state in one query -----------------------------------------


@pytest.mark.large
def test_it_runs_behind_a_join(spark, folder, tmp_path):
    made = newest_queries.join_over(spark, folder)
    tree = made.explain()
    assert tree.index("newest (result)") < tree.index("join s") < tree.index("filter t:")
    run = finish(made.start(checkpoint=str(tmp_path), trigger="available_now"))
    assert found(run) == sorted(expected("joined", N_BATCHES), key=repr)
    assert places(run) == ["early"]
    manifest = max((tmp_path / "eddyline").rglob("manifest-*.json"))
    assert content(manifest)["parts"].keys() >= {"join", "newest"}, (
        "one manifest has the state of both"
    )
    said = run.explain()
    assert "Newest rows" in said
    assert "newest (result): the greatest v so far of each k" in said


@pytest.mark.large
def test_it_runs_once_over_batch_dataframes(spark, folder):
    """Behind a join, which has state, too: neither of them keeps any."""
    frames = {
        name: spark.read.schema(newest_queries.SCHEMA).parquet(str(folder / name)) for name in "st"
    }
    fair = el.predicate(lambda v: pc.greater(v, 5), reads=["v"], name="fair")
    times = {"s": "ts", "t": "ts"}
    join = join_of(newest_queries.JOIN, frames, times, functions={"fair": fair}, buckets=2)
    found = join.with_steps(*join.steps, newest_queries.NEWEST_RESULT).to_df()
    for _ in range(2):
        assert sorted(map(tuple, found.collect()), key=repr) == sorted(
            expected("joined", N_BATCHES), key=repr
        )


@pytest.mark.large
@pytest.mark.parametrize("name", ["newest", "joined"])
def test_a_crash_at_any_point(spark, tmp_path, monkeypatch, name):
    """By itself and behind a join: each row that DuckDB finds is there once."""
    n_batches = 8 if examples.are_few() else 12
    newest_queries.write(tmp_path, n_batches)
    part = (6, 3 * ["newest", "joined"].index(name)) if examples.are_few() else (1, 0)
    crashes = Crashes(monkeypatch, tmp_path, random.Random(5), part)
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    over = {"newest": newest_queries.query_over, "joined": newest_queries.join_over}[name]

    def start():
        return [over(spark, tmp_path).start("parquet", trigger="available_now", **where)]

    while crashes.live(start):
        pass
    assert set(crashes.points) >= {each for each in OF_SINKS | OF_STATE if crashes.ends_at(each)}
    rows = expected(name, n_batches)
    assert len(rows) > 50
    assert written(tmp_path / "out") == rows
    crashes.check_nothing_is_left()
