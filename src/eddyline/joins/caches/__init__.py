"""Caches of joined rows in the pipelines of a join [Babu05 5].

``prefix_invariant`` says which stretches of pipelines a cache may spare, and which hits are sound.
``choice`` decides which are used; ``selection`` solves its problem. ``bucket_caches`` are the
caches of one bucket, over ``hash_store``. Their plan and counts are in ``joins.plan``. Off unless
asked for. A pipeline knows caches by the two verbs of ``operator.pipeline.Shortcut``.
Imports ``joins/`` and ``state/``.
"""
