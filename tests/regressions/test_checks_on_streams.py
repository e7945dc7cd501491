"""A conjunction with ``10 / a > 0`` could not be laid over a streaming DataFrame.

What can raise is checked behind a column that keeps Spark from moving filters. That column was a
row number, which Spark refuses on streaming DataFrames.
"""

import pyarrow.compute as pc
import pytest

import eddyline as el

pytestmark = pytest.mark.spark


def test_predicate_that_can_raise_on_a_streaming_dataframe(spark, tmp_path):
    frame = spark.range(70).selectExpr("id", "CAST(id % 7 AS INT) AS a")
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    positive = el.predicate(lambda a: pc.greater(a, 0), reads=["a"])
    kept = stream.transform(el.all_of("10 / a > 2", positive))
    query = kept.writeStream.format("memory").queryName("checks_on_streams")
    query.trigger(availableNow=True).start().awaitTermination()
    found = {row.id for row in spark.table("checks_on_streams").collect()}
    assert found == {row.id for row in frame.where("a > 0 AND a < 5").collect()}
