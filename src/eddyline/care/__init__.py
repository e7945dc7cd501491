"""Diagnostics of installations and checkpoints, and bundles for finding faults.

In: this machine, or a folder with checkpoints. Out: findings, each with what to do about it
(``eddyline doctor``), or one archive for a bug report (``eddyline bundle``).

Invariant: no Spark is started and no checkpoint is changed. An archive holds no values of rows;
what is not known to be harmless is left out.

There are two files, which do not know each other: ``doctor`` looks and says, and ``bundle`` packs
and removes what may come from a row.

A new check is a function of ``doctor`` that gives a ``Finding``. A new part of a bundle is a file
that ``bundle.INSIDE`` explains; what it may hold of rows goes through ``Redaction``. Imports what
stands above ``care/``, of ``spark/`` only what needs no Spark.
"""
