"""Everything that merges: what was observed of filters, and what they cost.

In: outcomes of sampled rows, times and counts of calls, from tasks and partitions. Out: a
``FilterProfile``, which policies, monitors and the router read.

Invariant: values merge associatively, and they are keyed by filter and never by position. So the
order in which reports come does not matter, and profiles of different orders add up.

Read ``costs`` (the clock of work, the cost of a call and of a row) and ``profile`` (outcomes,
attributes of sampled rows, the sliding window, and the estimates that change detectors watch).

A new statistic of filters is a field of ``FilterProfile`` that ``merge`` adds up. Counts of another
operator stay in its room, as ``rules.plan`` and ``joins.plan`` do. Imports ``data/`` alone.
"""
