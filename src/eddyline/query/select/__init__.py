"""The reader of SELECT: clauses, FROM with its windows, names, keys.

Text in, ``query.Query`` out; every error says where in the text. Imports ``sql/`` and ``query/``.
"""
