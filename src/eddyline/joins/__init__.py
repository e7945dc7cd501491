"""Windowed multiway joins: a pipeline of probes per input, in a learned order.

``graph`` says what is joined with what, ``plan`` how a batch is, ``operator/`` joins a bucket,
``orders/`` ranks probes, ``caches/`` keeps joined rows where that pays, ``loop`` decides. Window
state is in ``state/``. Imports what stands above ``joins/`` and no other operator.
"""
