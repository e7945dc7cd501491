"""Joins on Spark: one shuffle, a task for each bucket, and the driver's half of the loop."""
