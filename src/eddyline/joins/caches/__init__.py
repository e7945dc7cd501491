"""Caches of joined rows in pipelines: what may be cached, what it saves, what is kept.

Off unless asked for. Others know it by the two verbs of ``joins.operator.pipeline.Shortcut`` and
by its loop. Imports ``joins/`` and ``state/``. [Babu05 5]
"""
