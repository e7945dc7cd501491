"""Everything that merges: what was observed of filters, and what they cost.

In: outcomes, times and counts of calls, tasks and partitions. Out: values that merge associatively,
so the order in which reports come does not matter.

Read ``costs`` (the clock of work, the cost of a call), ``profile`` (outcomes, attributes of sampled
rows, the sliding window), ``block_counts`` (estimates for change detectors). A new statistic of
filters is a field of ``FilterProfile`` that ``merge`` adds up. Imports ``data/`` alone.
"""
