"""Joins in words and figures."""
