"""The reader of SELECT: clauses, FROM with its windows, names, keys.

In: the text of a query and the columns of its streams. Out: a ``query.Query``, or for ``MODEL`` the
words of its clauses.

Invariant: the tree says what a part of the text is, and the part that runs stays as its author
wrote it. What is not supported is refused with its place, and never left out.

Read ``reader`` first, which calls the others. Then ``statement`` (one SELECT as a tree, with the
text of its parts) and ``grammar`` (what CQL and ``MODEL`` add to Spark's SELECT). Then a file for
each clause: ``with_clause``, ``from_clause``, ``conditions`` (WHERE and ON, by the inputs that they
read, and windows that follow from them), ``groups`` (GROUP BY, HAVING, OVER)
and ``model_clause``. Then what is made of them: ``joined`` (joins, one stage after the
other), ``alternatives`` (EXISTS and IN under OR; UNION, EXCEPT, INTERSECT).

A new clause is a method of ``grammar.CqlText``, a file that reads its tree, and a field of
``query.Query``. Imports ``sql/`` and ``query/``.
"""
