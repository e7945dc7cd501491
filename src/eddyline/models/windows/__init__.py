"""Values over windows of time, and over entities at an instant.

Segments come in; segments or rows at ticks go out, with errors. Invariant: neither the order of
rows nor the length of a stream changes a digit.

``integrals`` has sums, averages, rows at ticks and distances; ``extrema`` has least and greatest
values. A new aggregate is a function here, and a step in ``steps``. Imports ``segments``,
``timeline`` and ``solving/``.
"""
