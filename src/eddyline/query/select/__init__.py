"""The reader of SELECT: clauses, FROM with its windows, names, keys.

Text in, ``query.Query`` out; every error says where in the text. Read ``reader`` first, then
``statement`` (the tree), ``grammar`` (what CQL adds to SQL), ``from_clause``, ``conditions``,
``groups``, ``over`` and ``model_clause``. Imports ``sql/`` and ``query/``.
"""
