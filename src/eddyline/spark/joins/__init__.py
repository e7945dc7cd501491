"""Joins on Spark: one shuffle, and a task per bucket.

Each batch has one ``BatchMode``. The driver prepares the inputs first; they ask the join for the
mode and keep it. Three facts decide the mode:

* The strategy (``WayChoice``): rows go to buckets, or small tables go to the rows. It follows the
  size of the tables, once the state has them. If the tables may be small, the first batch reads
  them by themselves.
* Whether the inputs look ahead for event times. They do if files tell the times of the rows. They
  also do if tables go to the rows and the job may not observe all rows.
* Whether tasks read files. In the lane ``task.FileJoinRows`` reads the files of each stream, and
  Spark builds no common DataFrame. ``JoinOperator.check_may_read`` allows it for inputs without
  computed columns.

Read in this order: ``bound`` (what is known before rows arrive), ``layout`` and ``source`` (all
inputs as one DataFrame with tags and codes of keys), ``inputs`` (arrivals, event time and filters
of inputs), ``operator`` (the join, batch by batch), ``task`` (a partition is a bucket), ``tables``
(batches in which tables go to the rows), ``shared`` (one join for several queries), and
``window_join`` (the same over batch DataFrames). Imports ``joins/`` and ``spark/``.
"""
