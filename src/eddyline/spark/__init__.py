"""The only room that imports pyspark: sessions, the engine, runs, sinks, operators on Spark.

``run/`` is the life of a batch and names no operator; ``filters/``, ``rules/`` and ``joins/`` are
the Spark halves of operators, listed in one table. Imports everything above.
"""
