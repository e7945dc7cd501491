"""A run that filters, and one that joins three streams."""

import eddyline as el

spark = el.session()
AT = "timestamp_seconds(1.7e9 + id) AS ts"
spark.range(500).selectExpr("id % 9 AS k", "id % 3 AS b", "'text' AS a", AT).write.parquet("in")
engine = el.Engine(spark)
for name in "rst":
    stream = spark.readStream.schema(spark.read.parquet("in").schema).parquet("in")
    engine.stream(name, stream, time="ts", lateness="1 second")
filtered = engine.query("SELECT k FROM s WHERE length(a) > 5 AND b = 1", name="filtered")
run = filtered.start("memory", checkpoint="filtered/")
pairs = engine.query(
    "SELECT s.k FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS], r [RANGE 3 SECONDS] "
    "WHERE s.k = t.k AND t.k = r.k",
    name="pairs",
)
joined = pairs.start("memory", checkpoint="pairs/")
run.processAllAvailable()
joined.processAllAvailable()
