"""The rules for each type of node of a SQL tree: type and errors, text, form without errors.

A module for each family of nodes, which ends with its rows of the table; ``table`` has all of them.
A new kind of expression is a row and its functions in one module. Imports ``sql/`` below
``sql.analysis``.
"""
