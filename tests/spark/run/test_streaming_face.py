"""Runs speak like PySpark's StreamingQuery, and triggers are taken as PySpark takes them."""

import pytest

import eddyline as el
from eddyline.errors import OptionError, PredicateError
from eddyline.spark.starting import spark_trigger, trigger_text

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark, tmp_path):
    frame = spark.range(60).selectExpr("id", "CAST(id % 6 AS INT) AS a")
    frame.repartition(2).write.parquet(str(tmp_path / "in"))
    made = el.Engine(spark)
    made.stream("s", spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")))
    made.function("broken", lambda _: 1 / 0, reads=["a"])
    yield made
    made.stop_all()


@pytest.fixture(params=["alone", "together"])
def started(request, engine):
    """Start a query by itself or with another."""

    def start(text, **trigger):
        query = engine.query(text, name="few")
        if request.param == "alone":
            return query.start("memory", **trigger)
        engine.query("SELECT id FROM s WHERE a = 5", name="other")
        return engine.start_all("memory", **trigger)[0]

    return start


def test_a_run_under_the_names_of_pyspark_and_of_python(started):
    run = started("SELECT id FROM s WHERE a = 1", availableNow=True)
    assert run.awaitTermination(60) is True
    assert run.await_termination() is True
    assert (run.isActive, run.is_active) == (False, False)
    assert run.lastProgress["numInputRows"] == run.last_progress["numInputRows"] == 60
    assert len(run.recentProgress) == len(run.recent_progress) == 1
    assert run.runId == run.run_id != run.id
    assert run.status["isTriggerActive"] is False
    assert run.exception() is None
    assert repr(run) == "<run 'few': ended, 60 rows in 1 batch, 10 out>"


def test_the_block_stops_a_run_that_goes_on(started):
    with started("SELECT id FROM s WHERE a = 1", processingTime="1 second") as run:
        run.processAllAvailable()
        assert run.is_active
        assert "running, 60 rows" in repr(run)
    assert not run.isActive


def test_the_error_of_a_run_is_in_the_words_of_eddyline(engine):
    run = engine.query("SELECT id FROM s WHERE broken(a)").start("memory", once=True)
    with pytest.raises(PredicateError):
        run.awaitTermination()
    assert isinstance(run.exception(), PredicateError)


def test_triggers_as_pyspark_takes_them():
    assert trigger_text(None, {}) is None
    assert trigger_text("5 seconds", {"availableNow": False}) == "5 seconds"
    assert spark_trigger(trigger_text(None, {"availableNow": True})) == {"availableNow": True}
    assert spark_trigger(trigger_text(None, {"once": True})) == {"availableNow": True}
    assert trigger_text(None, {"processingTime": "5 seconds"}) == "5 seconds"


def test_triggers_that_there_are_not(engine):
    for trigger in ("99999999999999999999 seconds", "4000000 days"):
        with pytest.raises(OptionError, match="is too long; the longest time is 3652500 DAYS"):
            spark_trigger(trigger)
    with pytest.raises(OptionError, match="give one trigger, got trigger, once"):
        trigger_text("5 seconds", {"once": True})
    query = engine.query("SELECT id FROM s WHERE a = 1")
    with pytest.raises(OptionError, match=r"'available_now'.*did you mean 'availableNow'"):
        query.start("memory", available_now=True)
    with pytest.raises(OptionError, match=r"known: path, .*did you mean 'checkpoint'"):
        query.start("memory", check_point="ckpt/")
    with pytest.raises(OptionError, match=r"start takes no name: .*RuleSet\(…, name='…'\)"):
        query.start("memory", name="mine")


def test_what_public_objects_say_of_themselves(engine):
    query = engine.query("SELECT id FROM s WHERE a = 1", name="few")
    assert repr(query) == "<query 'few': SELECT id FROM s WHERE a = 1>"
    assert repr(engine) == "<engine: streams s; functions broken; queries few>"
