"""Window state of any operator: sorted runs in files, one manifest a batch, event time.

Runs are immutable; a manifest names those that count, and is committed once per batch. Grids say
which bucket a row is in, ``event_time`` what a batch may answer. Imports ``data/`` and ``query/``;
operators import it, and it imports none of them.
"""
