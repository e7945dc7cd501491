"""Rows and rules of the experiments on shared selection [ASC 6.1], with drift and correlation.

The paper's rules are not described beyond their number, and its laws are not either: rules here are
ranges around a hot spot per attribute, the second data set is Zipf's law with the values permuted,
and its census is replaced by columns of few values that depend on a class that no column tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.compile.formula import Literal, all_of
from eddyline.rules.compile.regions import KeySet

if TYPE_CHECKING:
    from eddyline.data.arrays import Ints, Mask
    from eddyline.rules.compile.formula import Formula

    Bits = Mask

DOMAIN = 100
"""Values of an attribute are 0 to 99 [ASC 6]."""

CARDINALITY = 8
"""Values of an attribute of the columns in place of the census."""

N_CLASSES = 6
"""Classes that those columns depend on."""


def uniform_rows(n_rows: int, n_attributes: int, seed: int) -> Ints:
    """Return values in the manner of D1: uniform and independent ((attributes, R))."""
    return np.random.default_rng([seed, 1]).integers(0, DOMAIN, (n_attributes, n_rows))


def zipf_rows(n_rows: int, n_attributes: int, seed: int) -> Ints:
    """Return values in the manner of D2: Zipf's law with exponent 0.5 to 1.2, values permuted."""
    rng = np.random.default_rng([seed, 2])
    found = np.empty((n_attributes, n_rows), dtype=np.int64)
    for attribute in range(n_attributes):
        shares = np.arange(1.0, DOMAIN + 1) ** -rng.uniform(0.5, 1.2)
        ranks = rng.choice(DOMAIN, n_rows, p=shares / shares.sum())
        found[attribute] = rng.permutation(DOMAIN)[ranks]
    return found


def class_rows(
    n_rows: int, n_attributes: int, seed: int, *, cardinality: int = CARDINALITY
) -> Ints:
    """Return values in the manner of D3: few values, correlated through a class of each row.

    Args:
        n_rows: R.
        n_attributes: attributes.
        seed: chooses laws and rows.
        cardinality: values are 0 to one below this.
    """
    rng = np.random.default_rng([seed, 3])
    classes = rng.integers(0, N_CLASSES, n_rows)
    found = np.empty((n_attributes, n_rows), dtype=np.int64)
    for attribute in range(n_attributes):
        ends = rng.dirichlet(np.full(cardinality, 0.4), N_CLASSES).cumsum(axis=1)
        above = rng.random(n_rows)[:, None] > ends[classes]
        found[attribute] = np.minimum(above.sum(axis=1), cardinality - 1)
    return found


USUAL_FRAC = 0.8
"""Share of an attribute's values that are its usual value, in data that drifts."""


def phase_rows(n_rows: int, n_attributes: int, seed: int, phase: int) -> Ints:
    """Return one phase of data that drifts: uniform but for a usual value of half the attributes.

    Which attributes have one, and which value, is drawn anew for each phase: a construct that drops
    nearly everything in one may drop next to nothing in another.

    Args:
        n_rows: R.
        n_attributes: attributes.
        seed: chooses laws and rows.
        phase: number of the phase.
    """
    rng = np.random.default_rng([seed, 5, phase])
    found = rng.integers(0, DOMAIN, (n_attributes, n_rows))
    usual = rng.integers(0, DOMAIN, (n_attributes, 1))
    has_usual = rng.permutation(n_attributes)[:, None] < n_attributes // 2
    is_usual = rng.random(found.shape) < USUAL_FRAC
    return np.where(has_usual & is_usual, usual, found)


@dataclass(frozen=True, slots=True)
class RangeRules:
    """Rules that are conjunctions of ranges, at most one per attribute."""

    ranges: tuple[tuple[tuple[int, int, int], ...], ...]
    """Of each rule: attribute, lowest and highest value."""

    @classmethod
    def hot_spots(
        cls,
        n_rules: int,
        n_ranges: int,
        n_attributes: int,
        *,
        seed: int,
        spread: float = 15.0,
        width: int = 15,
        point_frac: float = 0.0,
        domain: int = DOMAIN,
    ) -> Self:
        """Return rules whose ranges lie around one hot spot per attribute.

        Args:
            n_rules: k.
            n_ranges: ranges of all rules together.
            n_attributes: attributes.
            seed: chooses them.
            spread: standard deviation of the centres.
            width: half-widths are 1 to this.
            point_frac: share of ranges of a single value ([0, 1]).
            domain: values are 0 to one below this.
        """
        rng = np.random.default_rng([seed, 4])
        hot = rng.uniform(0.15 * domain, 0.85 * domain, n_attributes)
        sizes = np.diff(np.linspace(0, n_ranges, n_rules + 1).astype(int))
        rules = []
        for size in sizes:
            chosen = np.sort(rng.choice(n_attributes, size, replace=False))
            middle = np.clip(np.rint(rng.normal(hot[chosen], spread)), 0, domain - 1).astype(int)
            half = rng.integers(1, width + 1, size) * (rng.random(size) >= point_frac)
            low, high = np.maximum(middle - half, 0), np.minimum(middle + half, domain - 1)
            rules.append(tuple(zip(chosen.tolist(), low.tolist(), high.tolist(), strict=True)))
        return cls(tuple(rules))

    def block(self) -> BitmapBlock:
        """Return the rules as a block; literals are numbered by rule and range."""
        flat = [each for rule in self.ranges for each in rule]
        numbers = iter(range(len(flat)))
        rules: list[Formula] = [
            all_of(Literal(next(numbers)) for _ in rule) for rule in self.ranges
        ]
        keys = [KeySet(((low, high),), holds_null=False) for _, low, high in flat]
        return BitmapBlock.build(rules, lambda i: flat[i][0], keys.__getitem__)

    def holds(self, rows: Ints) -> Bits:
        """Return which rule is true for which row ((R, k)), range by range."""
        found = np.ones((rows.shape[1], len(self.ranges)), dtype=np.bool_)
        for j, rule in enumerate(self.ranges):
            for attribute, low, high in rule:
                found[:, j] &= (rows[attribute] >= low) & (rows[attribute] <= high)
        return found


def bitmap_spread(block: BitmapBlock) -> float:
    """Return by how much regions of a construct differ in how many rules they leave possible.

    The standard deviation, over the regions of a construct other than NULL, of the share of rules
    possible, on average over constructs. The paper's "std dev" is not defined further.
    """
    shares = np.bitwise_count(block.bitmaps).sum(axis=1, dtype=np.float64) / block.n_rules
    at = block.region_at
    deviations = [shares[at[c] + 1 : at[c + 1]].std() for c in range(block.n_constructs)]
    return float(np.mean(deviations))


def rules_q1(seed: int, **given: Any) -> RangeRules:
    """Return 50 rules of 204 ranges on 10 attributes [ASC Table 1, Q1]."""
    return RangeRules.hot_spots(50, 204, 10, seed=seed, **given)


def rules_q2(seed: int, **given: Any) -> RangeRules:
    """Return 50 rules of 173 ranges on 15 attributes [ASC Table 1, Q2]."""
    return RangeRules.hot_spots(50, 173, 15, seed=seed, **given)


Q3_SIZES = ((30, 78, 6), (30, 81, 7), (35, 98, 8), (40, 138, 10), (50, 173, 15))
"""Rules, ranges and attributes of the members of Q3 [ASC Table 1]."""


def rules_q3(member: int, seed: int, **given: Any) -> RangeRules:
    """Return one of the five sets with more and more attributes [ASC Table 1, Q3]."""
    return RangeRules.hot_spots(*Q3_SIZES[member], seed=seed, **given)


def rules_q4(spread: float, seed: int) -> RangeRules:
    """Return 50 rules of 362 ranges on 10 attributes; less spread, more difference [ASC Q4]."""
    return RangeRules.hot_spots(50, 362, 10, seed=seed, spread=spread, width=40)
