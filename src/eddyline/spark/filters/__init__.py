"""Conjunctions on Spark: native and Arrow blocks, and the driver's half of their loops."""
