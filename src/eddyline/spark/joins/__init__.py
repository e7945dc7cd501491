"""Joins on Spark: one shuffle, a task for each bucket, and the driver's half of the loop.

Imports ``joins/``, ``state/``, its words in ``report/``, ``run/``, and ``spark/filters`` for the
predicates over one input.
"""
