"""Windowed aggregates on Spark: natively to cells and from partials, in buckets in between.

In comes a step and the rows of a batch; out come its results. Spark computes groups, event times
and partial aggregates. Tasks in Python put partials together by window, and Spark computes the
values of what they return. Invariant: results are those of Spark's own aggregates.

Read first ``columns`` (calls, groups and what travels), ``bucketed`` (one batch, whatever is
aggregated) and ``task`` (the work of a worker). Then the operators: ``operator`` (by group and
window), ``shared`` (of several queries), ``over`` and ``correlate``. ``window_aggregate`` is the
call without SQL. Imports ``aggregates/`` and what is common of ``spark/``.
"""
