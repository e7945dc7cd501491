"""A run."""

import eddyline as el

spark = el.session()
spark.range(100).write.parquet("in")
engine = el.Engine(spark)
engine.stream("numbers", spark.readStream.schema("id BIGINT").parquet("in"))
run = engine.query("SELECT id FROM numbers WHERE id > 5", name="some").start("memory")
run.processAllAvailable()
