"""Stream-Star: rows whose class decides how often each filter passes [Bizarro05 6.1].

A stream of facts joins N dimension tables by key; a join is a look-up that passes or drops the
row. One attribute, ``attr_c``, is the row's class; given the class, the filters are independent,
and filter f passes with probability ``pass_fracs[f][class]``. The other attributes depend on
nothing. The paper leaves the query, the class weights and that independence to be read between the
lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from eddyline.data import outcomes as outcome
from eddyline.errors import OptionError
from eddyline.options import in_range
from eddyline.stats.profile import AttributeSample
from eddyline.testing.generators import Below

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import Order


N_KEYS = 10_000
"""Rows of each dimension table; a key from there on finds nothing [Bizarro05 6.1]."""

NOISE = ("constant", "sequence", "key", "few")
"""Kinds of attributes that tell nothing, in turn: one value, the number of the row, one of
``N_KEYS`` keys, one of 24 values [Bizarro05 6.4]."""


@dataclass(frozen=True, slots=True)
class StarRows:
    """Drawn rows: what drops them, what is observed of them, and the truth."""

    drops: Bits
    """Which filter drops which row ((R, F))."""
    values: Floats
    """Values of ``StarStream.attributes`` ((R, K))."""
    keys: Ints
    """Foreign keys: filter f passes a row iff its key is below ``N_KEYS`` ((R, F))."""
    classes: Ints
    """Class of each row: ``attr_c`` ((R,))."""

    @property
    def n_rows(self) -> int:
        """R, the number of rows."""
        return len(self.drops)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarStream:
    """Rows of C classes for F filters.

    The same object always generates the same rows.

    >>> stream = StarStream.skewed(4, 0.05)
    >>> stream.pass_fracs[1]
    (1.0, 0.05, 1.0, 1.0)
    >>> float(round(stream.cost_of_one_order(), 4)), float(round(stream.cost_per_class(), 4))
    (2.575, 1.15)

    Raises:
        OptionError: a value is out of its range, or the table is not rectangular.
    """

    pass_fracs: tuple[tuple[float, ...], ...]
    """How often each filter passes a row of each class ([0, 1]; (F, C))."""
    weights: tuple[float, ...] = ()
    """Share of each class (> 0; they are scaled to 1; (C,)); equal if omitted."""
    n_noise: int = 8
    """Attributes that depend on nothing (≥ 0), of the kinds of ``NOISE`` in turn."""
    seed: int = 0
    """Chooses the rows (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "n_noise", 0, 2**16)
        in_range(self, "seed", 0, 2**63)
        n_classes = len(self.pass_fracs[0]) if self.pass_fracs else 0
        fracs = [s for each in self.pass_fracs for s in each]
        is_table = n_classes > 0 and all(len(each) == n_classes for each in self.pass_fracs)
        if not is_table or not all(0.0 <= s <= 1.0 for s in fracs):
            msg = f"pass_fracs must be rows of equally many numbers in [0, 1]: {self.pass_fracs!r}"
            raise OptionError(msg, pass_fracs=self.pass_fracs)
        if self.weights and (len(self.weights) != n_classes or min(self.weights) <= 0.0):
            msg = f"weights must be {n_classes} numbers above 0, got {self.weights!r}"
            raise OptionError(msg, weights=self.weights)

    @classmethod
    def skewed(cls, n_filters: int, a: float, aggregate: float = 0.05, **given: Any) -> Self:
        """Return the stream of the experiments on skew [Bizarro05 6.3].

        Filter i passes its own class with probability A and each other class with probability B,
        such that every class passes all filters with the same probability: to a single order all
        filters look alike.

        Args:
            n_filters: N, filters and classes (≥ 2).
            a: A ([``aggregate``, 1]).
            aggregate: share of rows that pass all filters ((0, 1]).
            **given: other fields.
        """
        b = min(1.0, (aggregate / a) ** (1.0 / (n_filters - 1)))
        fracs = np.where(np.eye(n_filters, dtype=bool), a, b)
        return cls(pass_fracs=tuple(map(tuple, fracs.tolist())), **given)

    @classmethod
    def random(
        cls, n_filters: int, seed: int, aggregate: float | None = None, **given: Any
    ) -> Self:
        """Return a stream with uniform random pass fractions [Bizarro05 6.4, 6.5].

        Args:
            n_filters: N, filters and classes (≥ 1).
            seed: chooses the pass fractions and the rows.
            aggregate: share of rows that pass all filters ((0, 1)): all pass fractions are raised
                to one power that gives it; left to chance if omitted.
            **given: other fields.
        """
        fracs = np.random.default_rng([seed, 64]).random((n_filters, n_filters))
        if aggregate is not None:
            fracs = fracs ** _power(fracs, aggregate)
        return cls(pass_fracs=tuple(map(tuple, fracs.tolist())), seed=seed, **given)

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.pass_fracs)

    @property
    def n_classes(self) -> int:
        """C, the number of classes."""
        return len(self.pass_fracs[0])

    @property
    def filter_ids(self) -> tuple[str, ...]:
        """Names of the filters."""
        return tuple(f"f{f}" for f in range(self.n_filters))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes: ``attr_c``, then those that depend on nothing."""
        noise = (f"{NOISE[k % len(NOISE)]}{k}" for k in range(self.n_noise))
        return "attr_c", *noise

    @property
    def predicates(self) -> tuple[Below, ...]:
        """The filters as predicates on the columns of ``table``."""
        return tuple(Below(f"fk{f}", float(N_KEYS)) for f in range(self.n_filters))

    def draw(self, n_rows: int) -> StarRows:
        """Return rows."""
        rng = np.random.default_rng(self.seed)
        fracs, shares = np.array(self.pass_fracs), self._shares()
        classes = rng.choice(self.n_classes, size=n_rows, p=shares)
        drops = rng.random((n_rows, self.n_filters)) >= fracs.T[classes]
        keys = rng.integers(0, N_KEYS, (n_rows, self.n_filters)) + N_KEYS * drops
        noise = [_noise(k, n_rows, rng) for k in range(self.n_noise)]
        values = np.stack([classes.astype(np.float64), *noise], axis=1)
        return StarRows(drops, values, keys, classes)

    def sample(self, n_rows: int) -> AttributeSample:
        """Return rows as a sample of attributes."""
        rows = self.draw(n_rows)
        return AttributeSample(
            self.attributes, rows.values, outcome.pack(rows.drops), np.ones(n_rows)
        )

    def table(self, n_rows: int) -> pa.Table:
        """Return the rows as an Arrow table: ``id``, attributes, a key per filter (``fk0`` …)."""
        rows = self.draw(n_rows)
        named = dict(zip(self.attributes, rows.values.T, strict=True))
        keys = {f"fk{f}": column for f, column in enumerate(rows.keys.T)}
        return pa.table({"id": np.arange(n_rows), **named, **keys})

    def best_orders(self, costs_ns: Floats | None = None) -> list[Order]:
        """Return the cheapest order of each class (C): what an oracle knows [Bizarro05 6.2]."""
        return [_ranked(fracs, self._costs(costs_ns)) for fracs in np.array(self.pass_fracs).T]

    def cost_per_class(self, costs_ns: Floats | None = None) -> float:
        """Return the expected cost of a row if each class takes its best order (ns).

        Args:
            costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)); 1 if omitted.
        """
        return self.cost(self.best_orders(costs_ns), costs_ns)

    def cost_of_one_order(self, costs_ns: Floats | None = None) -> float:
        """Return the expected cost of a row under one order, by overall pass fractions (ns)."""
        overall = np.array(self.pass_fracs) @ self._shares()
        order = _ranked(overall, self._costs(costs_ns))
        return self.cost([order] * self.n_classes, costs_ns)

    def cost(self, orders: list[Order], costs_ns: Floats | None = None) -> float:
        """Return the expected cost of a row if each class takes its order (ns)."""
        costs, total = self._costs(costs_ns), 0.0
        columns = zip(np.array(self.pass_fracs).T, orders, self._shares(), strict=True)
        for fracs, order, share in columns:
            reach = np.cumprod([1.0, *fracs[list(order)][:-1]])
            total += float(share * (costs[list(order)] @ reach))
        return total

    def _shares(self) -> Floats:
        shares = np.array(self.weights or (1.0,) * self.n_classes)
        scaled: Floats = shares / shares.sum()
        return scaled

    def _costs(self, costs_ns: Floats | None) -> Floats:
        return np.ones(self.n_filters) if costs_ns is None else costs_ns


def _ranked(pass_fracs: Floats, costs: Floats) -> Order:
    """Return filters by drop fraction per cost, the first filter first among equals."""
    return tuple(np.argsort((pass_fracs - 1.0) / costs, kind="stable").tolist())


def _noise(number: int, n_rows: int, rng: np.random.Generator) -> Floats:
    kind = NOISE[number % len(NOISE)]
    if kind == "constant":
        return np.full(n_rows, float(number))
    if kind == "sequence":
        return np.arange(n_rows, dtype=np.float64)
    return rng.integers(0, N_KEYS if kind == "key" else 24, n_rows).astype(np.float64)


def _power(fracs: Floats, aggregate: float) -> float:
    """Return the power that the pass fractions are raised to, by bisection."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if (fracs**middle).prod(axis=0).mean() > aggregate:
            low = middle
        else:
            high = middle
    return low
