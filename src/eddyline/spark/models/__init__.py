"""Models on Spark: rows of DataFrames become segments, and graphs of steps run in Arrow tasks.

``fitting`` and ``stored`` make a ``SegmentFrame`` (``frame``); ``laying`` lays its graph as a Spark
plan.
"""
