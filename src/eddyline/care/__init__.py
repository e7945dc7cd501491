"""Care of installations and checkpoints: what is wrong with them, what helps to find a fault.

In: this machine, or a folder with checkpoints. Out: findings (``doctor``), or one archive without
values of rows (``bundle``). Starts no Spark, and changes no checkpoint.

A new check is a function of ``doctor`` that gives a ``Finding``. A new part of a bundle is a file
in ``bundle.INSIDE``; what it may hold of rows goes through ``Redaction``. Imports what stands above
``care/``, of ``spark/`` only what needs no Spark.
"""
