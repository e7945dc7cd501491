"""What Spark's SQL means: types, errors, literals, LIKE, regexes; read by sqlglot, without Spark.

One expression at a time: which columns it reads, of which type it is, whether it can raise, and how
it is written so that it cannot. Queries and rules are made of it in ``query/``. Imports ``data/``.
"""
