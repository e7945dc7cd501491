"""Learned constraints of streams: lateness of rows, delays of partners.

In: spans of event time of a batch's rows, as counts by bins. Out: ``LearnedBound``, the smallest
bound that holds a stated share of the spans, and ``LearnedLateness``, such a bound of the lateness
of one stream.

Invariant: spans beyond a bound are measured, too, so a bound can always rise again. A bound rises
at once and comes down slowly.

There is one file, ``bounds``: the bins, then the bound, then lateness. The constraints of joins are
made of these bounds in ``joins/`` (``tiers``, ``arrival_order``), where keys are known.

A new constraint derives from ``LearnedBound``, or keeps one. It goes here if it is about a stream
by itself, and to the room of its operator if it is about keys or windows. Imports ``state/`` and
``runtime/``; operators import it.
"""
