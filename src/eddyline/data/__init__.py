"""Arrays, kernels and files without meaning of their own.

In and out: plain NumPy and Arrow arrays, bytes and JSON. Invariant: nothing here knows of queries,
and the same values give the same results in every process.

Read ``arrays`` (types, distinct values, arrays as texts), ``outcomes`` (sampled rows and the
filters that drop them), ``jit`` (kernels, compiled on their first call), ``files`` (durable files,
lines, JSON), ``learned`` (attributes that a component saves), ``parquet_spans`` (what footers say
of instants) and ``gc_pause``. What two operators need of plain arrays goes here. Imports nothing of
eddyline but ``errors``, ``options`` and ``registry``.
"""
