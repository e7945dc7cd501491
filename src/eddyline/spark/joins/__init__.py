"""Joins on Spark: one shuffle, a task for each bucket, and the driver's half.

Read in this order: ``bound`` (what is known before a row comes), ``layout`` and ``source`` (all
inputs as one DataFrame, tagged, with codes of their keys; ``input_steps`` are laid over one of
them), ``inputs`` (what arrives, and how far event time has come), ``operator`` (the join, batch by
batch), ``task`` (a partition is a bucket), ``tables`` (batches in which tables go to the rows), and
``window_join`` (the same over batch DataFrames).
Imports ``joins/`` and ``spark/``.
"""
