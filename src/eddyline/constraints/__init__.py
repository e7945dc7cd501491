"""Constraints that the rows of streams keep, learned: how far out of order, how soon found.

In: spans of rows of a batch, as counts by bins. Out: ``bounds.LearnedBound``, the bound that holds
a stated share of them, and ``LearnedLateness``, the bound of a stream's lateness. Invariant: what
is beyond a bound is measured, too, so a bound can always rise again.

A new constraint derives from ``LearnedBound``, or keeps one. Imports ``state/`` and ``runtime/``;
operators import it.
"""
