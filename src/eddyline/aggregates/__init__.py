"""Windowed aggregates: partial results per slice and group, put together per window.

In come rows, or cells of rows, of a bucket; out come the results of its windows, and files of the
cells that later windows need. Invariant: results depend on event time alone, and neither on how
rows are cut into batches nor on where they become cells.

Read first ``functions`` (of which partials an aggregate is made, and how its value comes of them)
and ``monoids`` with ``monoids_kernels`` (how partials of ranges combine; ``columns`` are Arrow's
columns as arrays). Then ``plan`` (what goes to a task and comes back), ``cells`` (cells, and those
of before) and ``bucket`` (one batch of one bucket). Each kind of window is a bucket of its own:
``windows`` (sessions, and ends at slides), ``changes`` (also OVER) and ``correlations`` with
``correlation_kernels``; ``ranges_kernels`` finds the ranges of their results. ``loop`` decides
where rows become cells.

A new function is a line in ``functions``, a new monoid a class in ``monoids``, a new window a
subclass of ``BucketBatch``. Imports what stands above ``aggregates/`` and no other operator.
"""
