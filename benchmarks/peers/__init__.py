"""Peers: other streaming engines beside eddyline, over the same files and with equal answers.

In: CSV files that the seed of the day draws, and one query said for each engine. Out: seconds of
each engine. Each engine runs in a cold process of its own, and a result that differs is an error.
Read ``query`` (a query and its files), ``flink_child`` and ``eddyline_child`` (one process each),
``race`` (runs, comparison, words), then the scenarios: ``windows`` and ``nexmark``.
"""
