"""Windowed aggregates on Spark.

Spark computes cells and final values natively. Buckets in between combine cells. In comes a step
and the rows of a batch; out come its results. Spark computes groups, event times and partial
aggregates. Tasks in Python put partials together by window, and Spark computes the values of what
they return. In the lane tasks read the files, and make the cells, too. Invariant: results are those
of Spark's own aggregates.

Read first ``columns`` (calls, groups and what travels), ``operator`` (what all aggregates are, and
those by group and window) and ``task`` (the work of a worker). Then the other operators: ``shared``
(of several queries) and ``over`` (``OVER``, correlations of rules). ``window_aggregate`` is the
call without SQL. Imports ``aggregates/``, ``spark/bucketed`` and what is common of ``spark/``.
"""
