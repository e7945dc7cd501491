"""The lateness that is learned, in words."""

from __future__ import annotations

from eddyline.constraints.bounds import LearnedLateness
from eddyline.report.clock import learned_tables


def test_rows_beyond_the_bound_are_not_called_late():
    """A condition may drop them, and another part of a union may still wait for them."""
    learned = LearnedLateness(0.99, bound=2_000_000, n_rows=1_000, n_beyond=3)
    (table,) = learned_tables({"s": learned})
    titles = [each.title for each in table.columns]
    assert titles == ["stream", "lateness", "to hold", "held", "measured", "beyond"]
    assert table.rows == (("s", "2 s", "99.000 %", "99.700 %", 1_000, 3),)
    assert not list(learned_tables({}))
