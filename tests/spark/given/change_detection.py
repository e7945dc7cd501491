"""Numbers to watch, and a stream."""

import numpy as np

import eddyline as el

rng = np.random.default_rng(1)
drop_fractions = np.concatenate([rng.beta(2, 8, 300), rng.beta(8, 2, 300)])
items = rng.random(2080)
first_items = drop_fractions[:40]
block_estimates = rng.random((200, 10))
spark = el.session()
spark.range(100).write.parquet("in")
engine = el.Engine(spark)
engine.stream("numbers", spark.readStream.schema("id BIGINT").parquet("in"))
