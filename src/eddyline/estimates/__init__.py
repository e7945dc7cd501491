"""Estimates of rates and costs from histograms over coefficients, without reading rows.

In come histograms of the segments seen so far; out come shares, numbers and costs, each with a
lower and an upper bound. Invariant: histograms merge by addition, whatever tasks and batches they
come from.

Read first ``histograms`` (segments as points whose coordinates are coefficients; values for
thresholds) and ``filters`` (on what share of segments a condition holds, and when). Then ``plans``
(results of joins and aggregates, what a plan costs, and how far estimates were off). Imports
``data/`` and ``errors``.
"""
