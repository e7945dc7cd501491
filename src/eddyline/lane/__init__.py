"""Lane: tasks that read the columns of files themselves.

Rows never become rows of the JVM.

What comes in: the files of a batch, and the columns that a query needs. What goes out: tasks of row
groups, Arrow columns as Spark would hand them over, and whether to read files this way at all.

Invariant: the lane is one more plan. Its rows are those that Spark's own scan would give, or it
refuses and says why.

Read ``scan`` first (what a file can say, how a task reads it, columns as the numbers that tell
classes of rows apart), then ``task`` (a task that returns the rows that it keeps), ``exchange`` (a
task that sends rows to buckets), ``results`` (what a task does with results instead of handing them
to Spark), ``expressions`` (columns and conditions that Arrow computes) and ``choice`` (files or
rows, by measured times). What Spark knows of a scan is in ``spark/lane``; the work of each operator
in such a task is in its own room. The room imports what stands above ``lane/`` and no operator.
"""
