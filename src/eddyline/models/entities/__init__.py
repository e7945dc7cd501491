"""State of a bucket's entities, and watermarks of final results.

Final segments of a batch come in; results up to the fronts of their entities, and files of what is
kept, go out. Invariant: each result is given once, when no later segment can change it, and files
are never written again.

Read ``kept`` (records and rows in files), ``fronts`` (how far each entity is final, open runs),
``stages`` (what each stage of a graph gives and keeps). Imports ``steps``, ``graph``,
``windows/``, ``streams.plan`` and files of ``state/``.
"""
