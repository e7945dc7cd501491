"""Joins on Spark: one shuffle, a task for each bucket, and the driver's half.

Read in this order: ``bound`` (what is known before a row comes), ``layout`` and ``source`` (all
inputs as one DataFrame, tagged, with codes of their keys, and the steps over one of them),
``inputs`` (what arrives, how far event time has come, and the filters of inputs), ``operator`` (the
join, batch by batch), ``task`` (a partition is a bucket), ``tables`` (batches in which tables go to
the rows), ``shared`` (one join for several queries), and ``window_join`` (the same over batch
DataFrames).

Each batch has one ``BatchMode``. The inputs are prepared first: they ask the join for the mode, and
keep it. The join decides it by three facts. The strategy is ``WayChoice`` by the size of the
tables, once the state has them. The first batch reads the tables by themselves if they may be sent
to the rows. The inputs look ahead if files tell the times of the rows, or if the rows meet at the
tables and the job may not observe all of them.

In the lane ``task.FileJoinRows`` reads the files of each stream, and the common DataFrame is not
laid. ``JoinOperator.check_may_read`` says when: inputs that nothing is computed of.
Imports ``joins/`` and ``spark/``.
"""
