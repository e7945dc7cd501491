"""Window state of any operator: files that never change, one manifest a batch, event time.

In comes what a bucket keeps of a batch: rows of windows, rows that wait, late rows. Out goes a
description of files that the next batch starts from, and that a manifest commits with the rows of
the sink. Invariant: a file never changes, and counts once a manifest names it; so a batch that runs
again starts where its first attempt started.

Read first ``rows`` (rows and sorted runs), ``run_index`` (how keys are looked up in a run) and
``run_files`` (runs and rows as files). Then ``bucket_state`` (the files of a bucket, and when they
are merged) and ``manifest`` (how they are committed). The rest stands by itself: ``grid`` says
which bucket a row is in; ``event_time`` says what a batch may answer, and keeps rows that wait;
``late_rows`` keeps rows that came too late; ``row_windows`` counts rows; ``cold_runs`` with
``key_filters`` is the cold tier; ``dropped_rows`` sums up what was dropped.

A new kind of file goes to ``run_files`` if it holds rows, else beside the thing that writes it; its
description goes to ``BucketState``. Imports ``data/`` and ``query/``; operators import it, and it
imports none of them.
"""
