"""Renders sections and progress for a terminal or a log.

Names no operator. Imports ``watch/`` beside it, and the records of batches.
"""
