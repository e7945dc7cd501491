"""Queries over the same streams that run together.

They have one shared scan, and a sink for each query.

In: queries that are to be started at once, and a checkpoint. Out: a run for each of them, in one
pass over the rows where each query means the same as by itself.

Read ``scans`` (what is evaluated together, and for which queries), ``joins`` (the same of joins,
and aggregates over them), ``router`` (each row to the sinks of its queries), then
``group`` (who runs together, and the runs). Invariant: the rows of a query are those that it has
when it runs alone, and the batches that it saw are known to the checkpoint. The room imports
``run/``, ``sinks/`` and the operators of rules, filters, joins and aggregates; the engine imports
it.
"""
