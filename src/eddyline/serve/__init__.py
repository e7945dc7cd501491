"""The page: running and past queries in a browser.

In: runs, as ``runs.WatchedRun`` (of this process, or of checkpoints). Out: HTML pages, events and
metrics on one port. The page never changes an answer, and it takes a small, stated share of a
processor. Only a person who has the token is let in. Values of rows are hidden unless asked for.

Read ``runs`` (what a run must tell, what a person may do; the runs of checkpoints), ``following``
(what is counted of each batch), ``measures`` (numbers, health, effects of decisions), ``graph``
(the plan as boxes with their properties and curves), ``pages`` (views and templates), then
``guard``, ``app`` and ``server``.

A new number of a run goes into ``measures.cells`` and its template. A new button is a line of
``runs.HANDS``. A new page is a template, a method of ``Pages`` and a route of ``app.Page``. The
room names no operator: sections come from ``report/``. It imports ``report/`` and what stands above
it, and never Spark; Starlette and uvicorn are imported when a server starts.
"""
