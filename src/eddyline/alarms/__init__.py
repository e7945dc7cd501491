"""Alarms: many conditions over the same models, solved together.

In come named conditions over modelled attributes and keys, and segments. Out come the ranges of
time in which each alarm holds. Invariant: alarms solved together hold where each would hold alone,
to the microsecond, whatever the plan.

Read first ``alarm_set`` (the set that users change) and ``program`` (its alarms sorted by
templates). Then ``plan`` (how a template may be solved, and at what cost), ``meeting`` with
``meeting_kernels`` (which alarms a segment may meet) and ``sweep`` (where they hold). ``ranges`` is
the step of a graph that does this in a task, and takes the profile from which ``loop`` plans.

A new way to solve a template goes to ``sweep``, with its work in ``plan``. Alarms are made of two
operators: the room imports ``models/`` and, for conditions on keys, ``rules/``; beside these what
stands above them.
"""
