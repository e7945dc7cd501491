"""Queries as values: predicates, rules, windows, the steps of a query, scripts.

Text comes in, queries and their steps go out; nothing here knows how a step is run. ``predicates``
and ``predicate_results`` are Python's conditions, ``conditions`` the trees of rules, ``query`` what
a SELECT says, and ``steps`` what is evaluated. ``select/`` reads SELECT, ``rules/`` reads
conditions, ``script`` reads scripts, ``cql`` windows. ``identity`` says when two queries are one,
``reading`` which columns are read, ``attributes`` which of them may be cut into classes. Imports
``data/`` and ``sql/``.
"""
