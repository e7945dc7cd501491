"""Queries over one stream that run together: their conditions as rules, one pass over the rows.

Imports ``run/``, ``sinks/`` and the operator of rules; the engine imports it.
"""
