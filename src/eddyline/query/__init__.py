"""Predicates, queries and scripts as values, and the SQL that they are read from."""
