"""Alarms: many conditions over the same models, solved together.

``alarm_set`` keeps them by name while they change, ``definitions`` reads them, ``program`` sorts
them: conditions that differ in constants alone are one ``templates.Template``, whose alarms meet a
segment by their sorted constants (``bounds``, ``meeting``) and are solved in one sweep
(``sweep``). Conditions on keys are rules over entities (``entities``). ``ranges`` is the step of a
graph that does it, ``step`` that of a query. Made of two operators: imports ``models/`` and, for
conditions on keys, ``rules/``; beside these what stands above them.
"""
