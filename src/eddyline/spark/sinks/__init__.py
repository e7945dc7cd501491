"""Sinks, which take the rows of a run.

A sink is one class and one line of ``SINKS``.

In: the DataFrame of a micro-batch and its id. Out: rows where a user asked for them, each batch
once, however often it runs. Read ``sinks`` (the protocol and most sinks), then ``files``. The room
imports ``spark.starting``, which knows the names of sinks without pyspark, and ``spark.analysis``.
"""
