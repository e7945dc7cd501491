"""Which access predicates, bitmap blocks and sequences a program is evaluated with.

Code that decides and never sees rows. Imports ``rules/compile``.
"""
