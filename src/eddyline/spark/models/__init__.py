"""Models on Spark: from rows to segments, and graphs over them.

Graphs run in Arrow tasks. DataFrames, streams or the text of a query come in; ``Segments``,
DataFrames and queries go out. Invariant: a batch DataFrame and a stream of the same rows give the
same results.

Read ``fitting`` (``fit``, ``declare`` and ``read``), ``frame`` (what people call), ``graphs`` (what
calls build), ``laying`` (graphs as Spark plans), ``queries`` (graphs over streams, exact answers),
``operator`` and ``task`` (a stream, on the driver and in Python workers), ``files`` (fits of rows
that tasks read from Parquet files), ``sql`` (``MODEL``). A new call is a method of
``frame.Segments`` over a step of ``models.steps``. Imports ``models/`` and what serves every
operator.
"""
