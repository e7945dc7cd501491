"""Care of installations and checkpoints: what is wrong with them, what helps to find a fault.

Starts no Spark, and changes no checkpoint. Imports what stands above ``care/``, of ``spark/`` only
what needs no Spark.
"""
