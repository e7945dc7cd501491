"""Joins the rows of one bucket in one batch: pipelines, emission, event time.

Code that moves rows and never decides. Imports ``joins/`` and ``state/``.
"""
