"""``MODEL`` in SQL: the text of a query becomes a recipe of calls on segments.

``reader`` reads a SELECT and those in its FROM, ``scope`` knows what its names mean, ``outputs``
what is selected of them, ``near`` finds distances in it, and ``recipe`` is what comes out: calls of
the face of ``el.models``, as values. Imports ``sql/``, ``query/`` and ``models/``.
"""
