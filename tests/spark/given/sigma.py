"""Events with a time as a DataFrame, a stream and files; rules, a correlation and a pipeline."""

from pathlib import Path

import eddyline as el

RULE = """
title: Failed log-in
id: 0a0a0a0a-254b-425c-a8c5-d9af6bea35a6
name: failed
level: medium
logsource: {product: windows}
detection:
  selection: {Status: failed}
  condition: selection
---
title: Many failed log-ins
id: 0b0b0b0b-254b-425c-a8c5-d9af6bea35a6
level: high
correlation:
  type: event_count
  rules: [failed]
  group-by: [User]
  timespan: 1m
  condition: {gte: 5}
"""
Path("rules/windows").mkdir(parents=True)
Path("rules/windows/failed.yml").write_text(RULE, "utf-8")
Path("to_my_schema.yml").write_text(
    """
name: to my schema
priority: 10
transformations:
  - {id: names, type: field_name_mapping, mapping: {Status: status}}
""",
    "utf-8",
)
spark = el.session()
events = spark.range(600).selectExpr(
    "concat('user ', id % 7) AS User",
    "IF(id % 60 < 20, 'failed', 'good') AS Status",
    "timestamp_seconds(1.7e9 + id) AS ts",
)
told = events.withColumn("UtcTime", events.ts.cast("string")).drop("ts")
told.write.parquet("logs")
told.coalesce(1).write.parquet("day.parquet")
events.write.parquet("events")
stream = spark.readStream.schema(events.schema).parquet("events")
