"""Chooses access predicates, bitmap blocks and sequences for a program.

Code that decides and never sees rows. Imports ``rules/compile``.
"""
