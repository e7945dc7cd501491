"""Queries as values: predicates, rules, windows, the steps of a query, scripts.

In: texts and functions of a user. Out: a ``Query``, and the ``Step`` values that an operator runs.

Invariant: a query is data. It is frozen, it can be pickled, printed and compared, and nothing here
knows how a step is run. An error says where in the text it is.

Read them in this order:

1. ``predicates`` and ``predicate_results``: conditions in SQL or Python, and what functions return.
   ``conditions``: rules as trees of tests. ``correlations``: conditions on several events.
2. ``query``: what a SELECT says. ``cql``: its windows. ``select/`` reads SELECT.
3. ``steps``: what is evaluated, one step after the other. ``result_times``: how far event times of
   results may be behind. ``rules/`` reads rules.
4. ``identity`` (when two queries are one) and ``reading`` (the columns that a query reads) look at
   steps.
5. ``script``: a file with streams, queries and sinks.

A new step is a class in ``steps``, or beside it if only one operator knows it. A new form of
predicate is a class in ``predicates``; ``filters.binding`` says where it runs. A new kind of test
in rules is a class in ``conditions``. A new window is a class in ``query``, and its grammar is in
``cql``. A new statement is a class in ``script``, which ``spark.script`` runs. Imports ``data/``
and ``sql/``.
"""
