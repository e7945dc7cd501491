"""Checkpoints of queries that ran."""

import eddyline as el

spark = el.session()
spark.range(100).write.parquet("in")
engine = el.Engine(spark)
engine.stream("numbers", spark.readStream.schema("id BIGINT").parquet("in"))
for least in (5, 50):
    engine.query(f"SELECT id FROM numbers WHERE id > {least}", name=f"above_{least}")
runs = engine.start_all("parquet", path="all/", checkpoint="all-ckpt/", trigger="available_now")
for each in runs:
    each.await_termination()
