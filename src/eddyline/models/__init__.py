"""Models: polynomials of time that stand for runs of rows, and queries that are solved on them.

``segments`` is what everything here takes and gives. ``fitting`` makes them of rows, within the
``bounds`` of attributes. ``conditions`` are solved on them (``solving``), pairs are made of them
(``joins``), least and greatest values (``extrema``), sums and averages over windows (``windows``),
rows at ticks (``sampling``); ``updates`` says what later ones leave of them. ``precision`` takes
bounds of outputs back to inputs (``plans``, ``splits``), ``slack`` those of conditions that do not
hold, ``validation`` drops rows within either (``watching``: of several queries), and ``exact`` says
which rows have to be read for the answer without models. ``polynomials``, ``timeline`` and
``tolerances`` have the arithmetic. Imports what stands above ``models/`` and no operator.
"""
