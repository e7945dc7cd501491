"""The reader of rules: a condition as text becomes a tree of tests over columns.

``rule`` is what people write, ``sources`` rules before they know columns, ``reading`` takes them
apart. Imports ``sql/`` and ``query/``.
"""
