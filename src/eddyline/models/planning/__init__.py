"""Estimates of results of steps over segments, and plans of joins.

Profiles of tasks come in; estimates, and one plan per join, go out. Invariant: a plan changes the
work and never the answer, and sampling takes a fixed share of the time of tasks.

Read ``expected`` (profiles, costs and estimates), ``watching`` (takes profiles in tasks),
``choice`` (the plan). A new kind of estimate is a case in ``expected``. Imports ``estimates/``,
``runtime/``, and steps and graphs of ``models/``.
"""
