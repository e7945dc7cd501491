"""Estimates of what no plan has computed yet: from histograms over coefficients, never from rows.

A segment is a point whose coordinates are its coefficients. ``histograms`` counts points by cells
and merges, ``volumes`` says what part of a cell a condition holds on, ``values`` are distributions
of single values, enough for thresholds. ``filters``, ``joins`` and ``aggregates`` estimate results
per segment with a lower and an upper bound, ``plans`` whole plans and what sharing costs;
``accuracy`` keeps count of how far estimates were off, and corrects by it. Imports ``data/`` and
``errors``.
"""
