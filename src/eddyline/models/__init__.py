"""Models: polynomials of time that stand for runs of rows, and queries that are solved on them.

``segments`` is what everything here takes and gives. Imports what stands above ``models/`` and no
operator.
"""
