"""Joins: windowed joins of streams against chains of joins, databases and other engines."""
