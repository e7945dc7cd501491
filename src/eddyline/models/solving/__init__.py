"""Polynomials and conditions, solved in closed form on segments.

Segments and conditions come in; ranges of time, cut segments and pairs go out. Invariant: the
answer is a set of whole microseconds, and exactly one of ``<``, ``=`` and ``>`` holds at each.

Read ``polynomials`` (coefficients, roots), ``expressions`` (trees of arithmetic and conditions),
``where`` (the ranges on which a condition holds), ``joins`` (pairs of segments), ``exact`` (where
models settle a condition as on the rows), ``text`` (conditions as SQL), ``earth`` (positions). A
new function of attributes is a case in ``expressions``, and one in ``text``. Imports
``segments`` and ``timeline``; ``earth`` also bounds of ``fitting/``, and tasks of ``exact`` the
``graph``.
"""
