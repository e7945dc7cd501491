"""Models on Spark: rows of DataFrames become segments, and graphs of steps run in Arrow tasks.

``fitting`` makes the segments of rows or of files, ``frame`` is what people call, ``laying`` lays
graphs as Spark plans. Imports ``models/`` and what serves every operator.
"""
