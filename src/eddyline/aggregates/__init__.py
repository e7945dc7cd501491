"""Windowed aggregates: partial results per slice and group, put together per window.

``functions`` says of which partials an aggregate is made and how its value comes of them,
``monoids`` how partials of ranges of entries combine, with the kernels beside it; ``user`` is what
an aggregate of a user looks like. Imports what stands above ``aggregates/`` and no other operator.
"""
