"""Windowed aggregates on Spark: natively to cells and from partials, in buckets in between.

Spark computes groups, event times and partial aggregates, which tasks in Python put together by
window, and the values of what these return. Imports ``aggregates/`` and what is common of
``spark/``.
"""
