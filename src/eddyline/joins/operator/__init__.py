"""Joins the rows of one bucket in one batch. Code that moves rows and never decides.

In come the new rows of the bucket and the files of its windows. Out go results, new files, and a
report. The invariant: results are the same whatever the plan is, unless it drops rows; then some
may be missing, the report bounds how many, and none is wrong.

Read in this order: ``composites`` (combinations of rows on their way, which copy nothing),
``pipeline`` (the delta rule, the probes of one input, and who observes them), ``leaving_rows``
(rows that leave the hot tier), ``bucket`` (a task from its first row to its report), ``members``
(the same for several queries that share windows), and ``event_time`` (joins whose results wait for
event time).
Imports ``joins/plan``, ``joins/caches`` and ``state/``.
"""
