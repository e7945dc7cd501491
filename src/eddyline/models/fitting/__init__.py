"""Rows become segments, within the bounds of attributes.

Rows of entities come in, by instant; segments with certified errors, and counts of rows that they
leave out, go out. Invariant: what is stored, evaluated as a reader does, is never farther from a
row than the bound.

Read ``bounds`` (what a user asks for, and bounds of results taken back to models), ``fit`` (models
from rows), ``kernels`` and ``growing_kernels`` (its compiled work), ``declared`` (models that are
equations). A new fitter is a state in ``growing_kernels``, grown and chosen in ``kernels``.
Imports ``segments``, ``timeline`` and ``solving/``.
"""
