"""Conjunctions in words and figures."""
