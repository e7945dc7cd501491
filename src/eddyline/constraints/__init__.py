"""Constraints that a stream's own rows keep, learned while it runs: how far out of order they come.

Profiles of a batch and the state that is learned of them, as values. Imports ``state/`` and
``runtime/``; operators import it.
"""
