"""Windowed multiway joins: a pipeline of probes per input, in a learned order.

In come the new rows of a batch, by input, and the windows of the batch before. Out go the results
that they complete, and the windows after the batch. The invariant: each result is found once, by
the new row in it whose input is last, whatever the plan.

Read in this order:

1. ``graph``: what is joined with what. ``plan``: the values between driver and tasks.
2. ``operator/``: what a task does with one bucket. It moves rows and decides nothing.
3. The choices, each a ``runtime.choice.Choice`` that sees counts and never rows: ``orders/`` ranks
   the probes of a pipeline, ``grid`` cuts rows into buckets, ``tiers`` says which rows leave the
   hot tier, ``leaving`` holds these and drops rows if it may, ``arrival_order`` is what they learn
   from, ``tables`` is of static tables and of results as products, and ``caches/`` keeps joined
   rows.
4. ``view``: the join as it stands, for its manifest and for people.

A new choice is one file here and one line in ``choices`` of ``spark/joins/operator.py``. A new way
to keep or drop rows is a stage of ``operator/bucket.py``. Window state is in ``state/``.
Imports what stands above ``joins/`` and no other operator.
"""
