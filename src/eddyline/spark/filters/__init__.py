"""Conjunctions on Spark: native and Arrow blocks, and the driver's half of their loops.

Imports ``filters/``, its words in ``report/``, ``run/`` and no other operator.
"""
