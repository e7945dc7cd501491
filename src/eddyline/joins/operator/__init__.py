"""Join of the rows of one bucket in one batch.

The new rows of the bucket and the files of its windows come in. Results, new files and a report go
out. This code moves rows and never decides. Invariant: results are the same whatever the plan is.
The one exception is a plan that drops rows: some results may be missing, the report bounds how
many, and none is wrong.

Read in this order: ``composites`` (combinations of rows on their way, which copy nothing),
``pipeline`` (the delta rule, the probes of one input, and who observes them), ``leaving_rows``
(rows that leave the hot tier), ``bucket`` (a task from its first row to its report), ``members``
(the same for several queries that share windows), and ``event_time`` (joins whose results wait for
event time). Imports ``joins/plan``, ``joins/caches`` and ``state/``.
"""
