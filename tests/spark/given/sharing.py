"""Events as a DataFrame and a stream, a predicate ``is_known``, an engine, rules of Sigma."""

from pathlib import Path

import pyarrow.compute as pc

import eddyline as el

spark = el.session()
events = spark.range(1_000).selectExpr("id AS n", "concat('_name', id % 9) AS name")
events.repartition(2).write.parquet("events")
stream = spark.readStream.schema(events.schema).parquet("events")
engine = el.Engine(spark)
engine.stream("packets", stream)


@el.predicate("name")
def is_known(name):
    return pc.equal(name, "_name1")


Path("rules").mkdir()
Path("rules/first.yml").write_text(
    """
title: First
id: 0a0a0a0a-254b-425c-a8c5-d9af6bea35a6
level: low
logsource: {product: windows}
detection:
  selection: {name: _name3}
  condition: selection
""",
    "utf-8",
)
