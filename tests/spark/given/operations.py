"""The checkpoint of a query that has run."""

import eddyline as el

spark = el.session()
spark.range(300).write.parquet("numbers")
engine = el.Engine(spark)
engine.stream("s", spark.readStream.schema("id LONG").parquet("numbers"))
query = engine.query("SELECT id FROM s WHERE id % 7 = 3 AND id > 9", name="some")
with query.start("parquet", path="out", checkpoint="all-ckpt/some", trigger="available_now") as run:
    run.await_termination()
