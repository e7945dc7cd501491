"""Window state of any operator: immutable files, manifests, event time.

A batch has one manifest.

In: what a bucket keeps of a batch: rows of windows, rows that wait, late rows. Out: descriptions of
files. The next batch starts from them, and a manifest commits them once the sink has the rows.

Invariant: a file never changes, and it counts once a manifest names it. So a batch that runs again
starts where its first attempt started, and what a failed attempt wrote is never seen.

Read first ``rows`` (rows and sorted runs), ``run_index`` (how keys are looked up in a run) and
``run_files`` (runs and rows as files). Then ``bucket_state`` (the files of a bucket, and when runs
are merged) and ``manifest`` (how files are committed). The other files stand by themselves:

* ``grid`` says which bucket a row is in;
* ``event_time`` says what a batch may answer, and keeps rows that wait;
* ``late_rows`` keeps rows that came too late, and ``row_windows`` counts the rows of ROWS windows;
* ``cold_runs`` is the cold tier and has filters of keys, and ``dropped_rows`` sums up dropped rows.

A new kind of file goes to ``run_files`` if it holds rows, else beside the code that writes it; its
description is a field of ``BucketState``. A change of a form that is on the disk raises ``FORMAT``
of ``manifest``. Imports ``data/`` and ``query/``; operators import this room, and it names none.
"""
