"""Aggregates over windows: against Spark end to end, against DuckDB, as state grows, Nexmark."""
