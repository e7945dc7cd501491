"""Errors that a person reads: one sentence first, and no frames of parsers or of the JVM."""

import traceback

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException

import eddyline as el
from eddyline.errors import EddylineError, OptionError

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark, tmp_path):
    rows = spark.range(9).selectExpr("id", "CAST(id AS STRING) AS text")
    rows.write.parquet(str(tmp_path / "in"))
    engine = el.Engine(spark)
    engine.stream("s", spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in")))
    return engine


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM s WHERE id >",
        "SELECT id FROM s WHERE (id > 3",
        "SELECT nothing FROM s",
        "SELECT lenght(text) AS n FROM s",
        "SELECT id FROM s WHERE text + true > 3",
        "SELECT id FROM s, s",
    ],
)
def test_the_error_of_a_query_has_a_short_traceback(engine, text):
    with pytest.raises(EddylineError) as caught:
        engine.query(text)
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) <= 12, lines
    assert "JVM" not in "".join(lines)


def test_a_failed_run_begins_with_one_sentence(engine):
    query = engine.query("SELECT id FROM s WHERE id > 3", name="large")

    def broken(_df, _batch_id):
        message = "the mail server is away"
        raise ValueError(message)

    run = query.start(broken, trigger="available_now")
    with pytest.raises(StreamingQueryException) as caught:
        run.await_termination(120)
    first = str(caught.value).splitlines()[0]
    assert first == "query 'large' failed in batch 0: the mail server is away"


def test_a_data_source_of_spark_is_no_sink_and_the_error_says_how_to_write_to_it(engine):
    query = engine.query("SELECT id FROM s WHERE id > 3")
    with pytest.raises(OptionError, match=r"start\('format', format='jdbc', path='out/'\)"):
        query.start("jdbc", path="out/")
