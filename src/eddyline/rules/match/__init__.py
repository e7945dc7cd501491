"""Rows meet a program: candidates by kernels, then what is left of each rule.

Code that moves rows and never decides. Imports ``rules/compile``.
"""
