"""Windowed multiway joins, one pipeline of probes per input.

The new rows of a batch come in by input, with the windows of the batch before. The results that
they complete go out, and the windows after the batch. Invariant: whatever the plan, a result is
found once, by its new row from the last input.

Read in this order:

1. ``graph``: what is joined with what. ``plan``: the values between driver and tasks.
2. ``operator/``: what a task does with one bucket. It moves rows and decides nothing.
3. The choices, each a ``runtime.choice.Choice`` that sees counts and never rows:

   * ``orders/`` ranks the probes of a pipeline;
   * ``grid`` cuts rows into buckets;
   * ``tiers`` says which rows leave the hot tier;
   * ``leaving`` holds these rows, and drops rows if it may;
   * ``arrival_order`` is what ``tiers`` and ``leaving`` learn from;
   * ``tables`` decides about static tables, and about results as products;
   * ``caches/`` keeps joined rows.
4. ``view``: the join as it stands, for its manifest and for people.

A new choice is one file here and one line in ``choices`` of ``spark/joins/operator.py``. A new way
to keep or drop rows is a stage of ``operator/bucket.py``. Window state is in ``state/``. Imports
what stands above ``joins/`` and no other operator.
"""
