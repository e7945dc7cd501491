"""The reader of rules: a condition as text becomes a tree of tests over columns.

Imports ``sql/`` and ``query/``.
"""
