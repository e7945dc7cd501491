"""Conjunctions of predicates, in a learned order.

What comes in: predicates and the columns of their input, then the profiles of batches. What goes
out: which predicate runs where, the order in force, perhaps one for each class of rows, and the
rows of an Arrow batch that pass.

Invariant: a row passes if and only if every predicate is true on it, whatever the order. An error
counts only on a row that every other predicate lets through.

Read ``binding`` first (which predicates may move, and where they run), then ``executor`` (how the
rows of an Arrow batch move, and what is observed) and ``loop`` (what is learned, how the batches of
a task run, how often batches are profiled, what people see).

A new reason to pin a predicate goes to ``binding``; another observation of rows to ``executor``;
another decision about an order or classes to ``loop``. What runs on Spark is in ``spark/filters``.
The room imports what stands above ``filters/`` and no other operator.
"""
