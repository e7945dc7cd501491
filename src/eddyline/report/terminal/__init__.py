"""Renders sections and progress for a terminal or a log.

Names no operator. Imports ``report/`` beside it, and the records of batches.
"""
