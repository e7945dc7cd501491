"""Constraints that the rows of streams keep, learned: how far out of order, how soon found.

Profiles of a batch and the state that is learned of them, as values. Imports ``state/`` and
``runtime/``; operators import it.
"""
