"""The life of a running query, for any operators: prepare, lay, run, commit, learn.

Imports the protocol ``spark.operator``, ``sinks/``, ``state/`` and ``report/``; names no operator.
"""
