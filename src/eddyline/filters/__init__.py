"""Conjunctions of predicates: where each goes, its order, classes of rows with their own order.

``binding`` says which predicates run where, ``executor`` moves the rows of an Arrow batch,
``routing_loop`` and ``runtime.order_loop`` decide. Imports what stands above ``filters/`` and no
other operator.
"""
