"""Rules become a program: formulas, keys, regions of values, automata, bitmap blocks.

Values only; no row is looked at here. Imports ``rules/`` and what stands above it.
"""
