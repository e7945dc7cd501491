"""Joins whose windows keep hot what the data is likely to ask for: see ``scenarios.md``."""
