"""Correlations of rules: conditions on the matches of a group within a timespan, event by event.

``kernels`` walks the matches of each group once; ``batch`` is the work of one bucket.
Imports ``aggregates/`` above it.
"""
