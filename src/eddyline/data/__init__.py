"""Arrays, kernels and files without meaning of their own.

In and out: plain NumPy and Arrow arrays, bytes and JSON.

Invariant: nothing here knows of queries. The same values give the same results in every process, so
a task that runs again samples and hashes alike. A file that is replaced is there whole or not at
all.

Read ``arrays`` (short names of types, distinct values, starts of parts, arrays as texts) and
``outcomes`` (which rows are sampled, and which filters drop them). Then ``jit`` (kernels, compiled
on their first call), ``files`` (durable files, lines, JSON) and ``learned`` (the attributes that a
component saves). ``memory`` keeps what was used last, and stops Python's collector while many
objects are made. ``parquet_spans`` says what footers tell of instants.

What two rooms need of plain arrays goes here, in the file of its subject. A kernel that only one
operator needs stays in the room of the operator. Imports nothing of eddyline but ``errors``,
``options`` and ``registry``.
"""
