"""Filters: what adaptive orders of a conjunction save, and what they cost."""
