"""Life of a running query: prepare, lay, run, commit, learn.

It is the same for all operators.

In: a ``Job`` (a query and its operators) and an ``Outlet`` (where its rows go). Out: results, each
batch once, however often it runs; a journal, records and an explanation for people.

Read ``job`` (what a run is given), ``chain`` (operators, their durable state, pinned plans),
``run`` (the life of a batch), ``running_query`` (the face of any run), then ``observations`` (what
jobs told), ``checkpoint_files`` (the folder that a run locks) and ``live`` (runs as the page asks
for them).

Invariants: state is committed after the results and before anything is learned; a batch that runs
again has the results that it had; learning runs no job. The room imports the protocol
``spark.operator``, ``sinks/``, ``state/`` and ``report/``, and names no operator.
"""
