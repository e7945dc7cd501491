"""Queries as values: predicates, rules, windows, the steps of a query, scripts.

A query is inputs and steps; nothing here knows how a step is run. ``select/`` reads SELECT,
``rules/`` reads conditions. Imports ``data/`` and ``sql/``.
"""
