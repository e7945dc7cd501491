"""Orders, payments and customers; two batch DataFrames ``s_df`` and ``t_df``."""

import eddyline as el

spark = el.session()


def streamed(name, *columns):
    spark.range(300).selectExpr(*columns).write.parquet(name)
    return spark.readStream.schema(spark.read.parquet(name).schema).parquet(name)


AT = "timestamp_seconds(1.7e9 + 7 * id)"
orders = streamed("orders", "id", "id % 9 AS customer", "id % 50 AS total", f"{AT} AS ordered_at")
payments = streamed("payments", "id AS order_id", "id % 20 AS amount", f"{AT} AS paid_at")
spark.range(9).selectExpr("id", "concat('customer ', id) AS name").write.parquet("customers")
s_df = spark.range(50).selectExpr("id % 5 AS k", "id AS v", f"{AT} AS ts")
t_df = spark.range(50).selectExpr("id % 5 AS k", "id + 1 AS w", f"{AT} AS ts")
