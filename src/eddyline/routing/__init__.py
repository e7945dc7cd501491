"""Content-based routing: filter orders by class of rows [Bizarro05].

What comes in: sampled rows with the outcomes of all filters and the values of attributes, and what
filters and routing cost. What goes out: a ``RouteTable``, or none. A table has one attribute; the
bin that its value falls in is the class of a row, and each class has one of a few orders.

Invariant: every order of a table has every filter once, so a table changes the work and never the
answer. Nothing here reads a clock or sees a row that was not sampled.

Read ``table`` first (attributes, bins, tables, SQL and words), then ``learning`` (what an attribute
tells, the order of each class), then ``router`` (which attribute, does it pay, when does a table
go). The loop that keeps sample and table is ``filters.loop``. A new kind of bins goes to ``table``;
another reason to accept or drop a table goes to ``router``. The room imports ``data/``, ``sql/``
and ``stats/``, and no other technique.
"""
