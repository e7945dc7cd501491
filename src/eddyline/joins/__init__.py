"""Multiway windowed joins: sorted runs of window rows, and pipelines of probes into them."""
