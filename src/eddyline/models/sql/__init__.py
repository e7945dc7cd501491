"""``MODEL`` in SQL: the text of a query becomes a recipe of calls on segments.

``reader`` reads a SELECT and those in its FROM: ``sources`` of rows, ``joining`` two of them,
``aggregates`` over one. ``scope`` knows what names mean, ``selection`` what is selected, ``near``
finds distances, and ``recipe`` is what comes out: calls of the face of ``el.models``, as values.
Imports ``sql/``, ``query/`` and ``models/``.
"""
