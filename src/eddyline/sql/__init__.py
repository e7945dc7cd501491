"""Meaning of Spark's SQL: types, errors, literals, regexes.

sqlglot reads it, without Spark.

In: the text of one expression, and the types of the columns around it. Out: the columns that it
reads, its type, whether it can raise, and a form of it that cannot. ``query/`` makes whole queries
and rules of such expressions.

Invariant: what runs on Spark stays the user's text, and everything said of it is conservative. An
expression that is not known to be free of errors may raise. A rewritten form is equal to the
original on every row on which that does not raise.

Read them in this order: ``parsing`` (text to trees, and errors that point into the text), ``types``
and ``literals``, then ``functions`` (what trees refer to: functions and columns). Three passes over
trees follow: ``inference`` (type and errors), ``rendering`` (text, and its normal form) and
``error_free`` (the form that cannot raise, and the columns that a condition needs). ``nodes`` has
their rules for each type of node. ``analysis`` runs the passes and has the public verb,
``analyse``. ``regexes`` looks at patterns of texts.

A new function of Spark is a row in ``functions``. A kind of expression with rules of its own is a
row in ``nodes``. A new fact about whole conditions goes to ``error_free``.
Imports nothing of eddyline but ``errors`` and ``registry``.
"""
