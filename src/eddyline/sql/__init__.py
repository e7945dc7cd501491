"""The meaning of Spark's SQL: types, errors, literals, regexes; read by sqlglot, without Spark.

Text comes in. Out go the columns that it reads, its type, whether it can raise, and its form that
cannot. One expression at a time; queries and rules are made of it in ``query/``. Imports ``data/``.

Read them in this order: ``parsing`` (text to trees), ``types`` and ``literals``, ``names`` and
``functions`` (what trees refer to), the three passes over trees ``inference``, ``rendering`` and
``error_free`` with a row per type of node in ``nodes``, and ``analysis``, which runs them.
``normal_form`` and ``null_rejection`` look at whole conditions, ``regexes`` at patterns of texts.
A new kind of expression is a row in ``nodes``.
"""
