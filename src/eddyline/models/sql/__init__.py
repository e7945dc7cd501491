"""``MODEL`` in SQL: from the text of a query to a recipe.

A recipe is a list of calls on segments. The text of a SELECT comes in; a ``ModelQuery`` goes out:
calls of the face of ``el.models``, as values. Invariant: a text says what the program with the same
calls says.

Read ``scope`` (the recipe, names and output columns), ``reader`` (a SELECT, its sources and joins),
``aggregates`` (windows and values over entities), ``exact`` (EXACT: answers of the rows). Imports
``sql/``, ``query/`` and ``models/``.
"""
