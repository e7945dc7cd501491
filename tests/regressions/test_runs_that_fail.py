"""What a run that cannot start or fails left behind, and what it said.

Temporary checkpoints stayed when the run failed; a query that was running already and a trigger of
no known unit ended in an error of the JVM; a saved state that did not fit stopped the query and
told its user to give up the checkpoint; a relative path was looked for in two folders.
"""

import json
import re
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import OptionError, PredicateError, QueryError, StateError
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import LOCK

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark, tmp_path):
    frame = spark.range(70).selectExpr("id", "CAST(id % 7 AS INT) AS a")
    frame.write.parquet(str(tmp_path / "in"))
    engine = el.Engine(spark)
    engine.stream("s", spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")))
    engine.function("positive", lambda a: pc.greater(a, 0), reads=["a"])
    engine.function("below", lambda a: pc.less(a, 5), reads=["a"])
    engine.function("broken", lambda _: 1 / 0, reads=["a"])

    def make(text="SELECT id FROM s WHERE positive(a) AND below(a)", **options):
        return engine.query(text, **options)

    return make


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_failed_run_leaves_no_temporary_checkpoint(query, temporary):
    run = query("SELECT id FROM s WHERE broken(a)").start("memory", trigger="available_now")
    with pytest.raises(PredicateError, match="'broken' raised ZeroDivisionError") as raised:
        run.await_termination()
    assert re.search(rf"\({re.escape(__file__)}, line \d+, <lambda>\)", raised.value.message)
    assert raised.value.__cause__ is None  # one trace, not that of each process on the way
    assert raised.value.__suppress_context__
    assert list(temporary.iterdir()) == []


def test_query_that_runs_already(query, temporary):
    once = query()
    run = once.start("memory")
    try:
        with pytest.raises(QueryError, match=r"'s_\w+' is running already; stop that run first"):
            once.start("memory")
    finally:
        run.stop()
    assert list(temporary.iterdir()) == []


def test_trigger_of_no_known_unit(query, temporary):
    with pytest.raises(OptionError, match="an interval such as '5 seconds'"):
        query().start("memory", trigger="5 bananas")
    assert list(temporary.iterdir()) == []


@pytest.mark.large
def test_state_that_does_not_fit_is_dropped(query, tmp_path):
    places = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    query(name="first").start("parquet", trigger="available_now", **places).await_termination()
    file = tmp_path / "ckpt" / "eddyline" / "state.json"
    saved = json.loads(file.read_text())
    filters = saved["state"]["filter"]
    filters["arrow"]["filter_ids"] = ["others", "of another time"]
    file.write_text(json.dumps(saved))
    run = query(name="second").start("parquet", trigger="available_now", **places)
    run.await_termination()
    dropped = [entry for entry in run.journal if entry["event"] == "drop_state"]
    assert "is of filters ['others', 'of another time']" in dropped[0]["evidence"]["why"]


@pytest.mark.large
def test_a_checkpoint_says_why_its_run_failed(query, tmp_path):
    broken = query("SELECT id FROM s WHERE broken(a)")
    run = broken.start("memory", checkpoint=tmp_path / "ckpt", trigger="available_now")
    with pytest.raises(PredicateError):
        run.await_termination()
    stored = read_run(tmp_path / "ckpt")
    assert stored.status == "failed"
    assert stored.error.startswith("PredicateError: predicate 'broken' raised ZeroDivisionError")


def test_a_checkpoint_of_a_later_version_is_left_alone(query, tmp_path):
    own = tmp_path / "ckpt" / "eddyline"
    own.mkdir(parents=True)
    (own / "format.json").write_text('{"format": 99, "eddyline": "9.0.0"}')
    with pytest.raises(StateError, match=r"install eddyline 9\.0\.0"):
        query().start("memory", checkpoint=tmp_path / "ckpt")
    assert {each.name for each in own.iterdir()} == {"format.json", LOCK}


@pytest.mark.large
def test_state_that_cannot_be_saved_is_said_in_words(query, tmp_path):
    (tmp_path / "ckpt" / "eddyline" / "state.json").mkdir(parents=True)
    run = query().start("memory", checkpoint=str(tmp_path / "ckpt"), trigger="available_now")
    with pytest.raises(StateError, match="cannot save the learned state"):
        run.await_termination()


def test_relative_path_after_a_change_of_folder(query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = query().start("parquet", path="out", trigger="available_now")
    run.await_termination()
    assert len(list(Path("out").glob("*.parquet"))) > 0
