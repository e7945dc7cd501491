"""End to end on Spark, beside stock Spark, DuckDB and Polars on the same rows."""

from __future__ import annotations

SCENARIOS = ()
