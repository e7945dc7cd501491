"""Alarms on Spark: a set of them asked of segments, of batch DataFrames and of streams.

``asking`` is the call of segments, ``binding`` reads alarms over their keys and attributes,
``operator`` follows a set while a query runs. Imports ``alarms/``, and of Spark's rooms
``spark/models`` and the binder of ``spark/rules``, by which conditions on keys are read.
"""
