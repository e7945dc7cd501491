"""The only room that imports pyspark.

It has sessions, the engine, runs, sinks, and operators on Spark.

In: SQL texts, rule sets and streaming DataFrames. Out: runs, which write results to sinks, and
DataFrames. A plan may change the work, never the answer: operators decide from profiles of batches
that are over, and every batch can run again from its checkpoint.

Read ``operator`` first: the protocol of every operator, with the life of a batch. Then:

* ``session`` (Spark, Ctrl-C), ``java``, ``local_files`` (files without a process for each),
  ``python_workers`` with ``worker_daemon``: what runs.
* ``relation`` (streams and tables, event time in SQL), ``event_time`` (order of rows, lateness,
  clocks of results), ``clock`` (the clock of a stream), ``union``, ``projection``.
* ``bucketed`` (the life of a bucket, for operators whose rows meet by key), ``parts`` (inputs of a
  join or a union that operators make).
* ``reading``, ``query``, ``operators`` and ``engine``: from a text to steps, from steps to
  operators, and to a query that can be started. ``script`` does it for a file. ``script_check`` and
  ``starting`` check files and arguments without pyspark, which loads slowly.
* ``system``: the stream about the system, as files that a thread writes for each query over it.
* ``analysis`` (what Spark says of columns and expressions), ``arrow_types`` (Arrow types of
  Spark's), ``arrow_tasks`` and ``prepared`` (calls to Spark), ``stream_files`` (files of a batch,
  and those that wait), ``lane`` (tasks that read files themselves) with ``row_tests`` (filters over
  these files), and the rooms below.

``run/`` is the life of a batch and names no operator. ``shared/`` runs several queries over one
stream, ``sinks/`` takes the rows. ``filters/``, ``rules/``, ``joins/``, ``aggregates/``,
``models/`` and ``alarms/`` are the Spark halves of operators, listed in ``operators``.
"""
