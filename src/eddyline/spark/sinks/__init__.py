"""Sinks: they take the rows of a run. A sink is one class and one line of ``SINKS``.

Imports nothing else of ``spark/``.
"""
