"""Conjunctions on Spark: native and Arrow blocks.

The driver's half of their loops is here, too. What comes in: a DataFrame, predicates and options.
What goes out: a DataFrame of the rows on which every predicate is true, and what was learned of
their order.

Invariant: laid in whatever order, the parts keep the rows that stock Spark keeps. An error counts
only on a row that survives every other predicate.

Read ``conjunction`` (``el.all_of``) or ``operator`` (the step of a query) first, then ``binding``
(what Spark knows of predicates and input), ``parts`` (how each part is laid), ``native_block`` and
``guard`` (its SQL), ``udf`` and ``task`` (what Python workers do, and how they read files in the
lane). A new part of a conjunction goes to ``parts``; a new decision to ``filters/``.
The room imports ``filters/``, its words in ``report/``, ``run/`` and no other operator.
"""
