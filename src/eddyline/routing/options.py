"""Options of routing: when classes of rows get orders of their own."""

from __future__ import annotations

from dataclasses import dataclass

from eddyline.options import in_range
from eddyline.routing.table import MAX_GROUPS


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """Options of routing: the conditions of orders of their own for classes of rows.

    Raises:
        OptionError: a value is out of its range.
    """

    n_buckets: int = 24
    """Most bins of an attribute with many values ([2, 128]) [Bizarro05 Table 2]."""
    max_attributes: int = 3
    """Most attributes that a class is made of ([1, 3])."""
    max_classes: int = 1024
    """Most classes ([2, 65536])."""
    max_groups: int = MAX_GROUPS
    """Most different orders at one time ([2, 16]); each is a call of every filter per batch, or a
    branch of generated code, and has to earn that."""
    min_ratio: float = 0.001
    """Gain ratio below which an attribute counts as useless for a filter ([0, 1]): the paper's
    gamma, which it gives no value. Samples are large here and ``level`` keeps chance out, so it
    can be far below the 0.03 that 150 rows would need."""
    level: float = 0.01
    """Chance of taking a useless attribute for one that tells something, per filter ((0, 0.5])."""
    extreme_frac: float = 0.02
    """A filter that passes less than this, or drops less than this, has its place in any order
    and is not asked about ([0, 0.5]) [Bizarro05 4.4 gives no number]."""
    prior_rows: float = 50.0
    """Rows by which a class's own rows are drawn towards what its bins say ([0, 1e6])."""
    min_rows: int = 400
    """Sampled rows before anything is learned ([8, 2^31])."""
    min_gain: float = 0.01
    """Share of the cost that a table must save, or another table save on it ([0, 1))."""
    min_refinement: float = 0.005
    """Share of the cost that a table must save on the one in force ([0, 1)): less than a first
    table has to, because it rests on more rows, and a first table of few would stay for long."""
    z_score: float = 2.0
    """Standard errors by which the saving must exceed what routing costs ([0, 100]); half of that
    is enough to replace a table."""

    def __post_init__(self) -> None:
        in_range(self, "n_buckets", 2, 128)
        in_range(self, "max_attributes", 1, 3)
        in_range(self, "max_classes", 2, 2**16)
        in_range(self, "max_groups", 2, MAX_GROUPS)
        in_range(self, "min_ratio", 0.0, 1.0)
        in_range(self, "level", 1e-12, 0.5)
        in_range(self, "extreme_frac", 0.0, 0.5)
        in_range(self, "prior_rows", 0.0, 1e6)
        in_range(self, "min_rows", 8, 2**31)
        in_range(self, "min_gain", 0.0, 1.0)
        in_range(self, "min_refinement", 0.0, 1.0)
        in_range(self, "z_score", 0.0, 100.0)
