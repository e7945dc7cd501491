"""Alarms on Spark: a set over segments of batches and streams.

In come a set of alarms and segments; out comes a DataFrame of ranges, or a query. ``asking`` is the
call of segments. ``operator`` reads alarms over their keys and attributes, and follows a set while
a query runs. Imports ``alarms/``, and of Spark's rooms ``spark/models`` and the binder of
``spark/rules``, which reads conditions on keys.
"""
