"""Joins the rows of one bucket in one batch. Code that moves rows and never decides.

``bucket`` is the work of a task from its first row to its report. ``pipeline`` has the delta rule
and the probes of one input, over ``composites``, the combinations of rows on their way.
``event_time`` joins where answers hang on the order of event time, ``partner_bucket`` is of LEFT,
SEMI and ANTI joins. ``leaving_rows`` takes rows out of the hot tier, ``done_rows`` and
``lost_results`` count them, ``partner_ages`` measures what constraints are learned from.
``key_check`` refuses a second row with a declared key.
Imports ``joins/`` and ``state/``.
"""
