"""The meaning of Spark's SQL: types, errors, literals, regexes; read by sqlglot, without Spark.

One expression at a time: the columns that it reads, its type, whether it can raise, and its form
that cannot. Queries and rules are made of it in ``query/``. Imports ``data/``.
"""
