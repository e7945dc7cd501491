"""What constraints, done rows and cuts of a join are known again by, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.constraints.bounds import n_beyond
from eddyline.runtime.conditions import KEPT, Conditions
from eddyline.state.grid import N_BINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.joins.operator.done_rows import DoneCounts
    from eddyline.joins.operator.partner_ages import AgeCounts
    from eddyline.runtime.situations import Situation
    from eddyline.state.grid import Bins

CUTS = 12
"""Ages at which pairs are told apart: a half of a window, a quarter, and so on."""

LEAST_AGE = 0.5
"""Pairs of a bin below which it is forgotten."""

GROUPS = 24
"""Groups of bins of hashes of which the rows are compared; a divisor of ``N_BINS``."""

LEAST_ROWS = 1_000
"""Rows or pairs by which a plan of these may be chosen."""


class AgeConditions:
    """The ages of the pairs that are found in windows, since they last changed.

    Args:
        lengths: of the windows (µs), by input.
    """

    def __init__(self, lengths: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.names = tuple(
            f"partners in {name} older than 1/{2 ** (at + 1)} of its window"
            for name in lengths
            for at in range(CUTS)
        )
        self.known = Conditions()
        self.n_pairs = dict.fromkeys(lengths, 0.0)
        self.bins: dict[str, dict[int, float]] = {name: {} for name in lengths}
        """Pairs by the bin of their age, by input."""

    def step(self, ages: Mapping[str, AgeCounts]) -> None:
        """Take in what a batch measured."""
        told = {name: each for name, each in ages.items() if each.is_measured and each.n_pairs}
        if not told:
            return
        shares, counts = [], []
        for name, length in self.lengths.items():
            each = told.get(name)
            n = float(each.n_pairs) if each else 0.0
            older = [n_beyond(each.bins, length >> at) for at in range(1, CUTS + 1)] if each else []
            shares += [min(m / n, 1.0) for m in older] or [np.nan] * CUTS
            counts += [n] * CUTS
        n_pairs = sum(float(each.n_pairs) for each in told.values())
        is_other = self.known.step(self.names, np.array(shares), np.array(counts), n_pairs)
        for name, each in told.items():
            kept = 0.0 if is_other else KEPT
            self.n_pairs[name] = kept * self.n_pairs[name] + each.n_pairs
            bins = {number: kept * n for number, n in self.bins[name].items()}
            for number, n in each.bins.items():
                bins[number] = bins.get(number, 0.0) + n
            self.bins[name] = {number: n for number, n in bins.items() if n >= LEAST_AGE}

    def situation(self) -> Situation | None:
        """Return the conditions as the log knows them."""
        evidence = {
            name: [round(n, 1), [[number, round(n, 1)] for number, n in self.bins[name].items()]]
            for name, n in self.n_pairs.items()
            if n
        }
        return self.known.situation(evidence, LEAST_ROWS * max(len(evidence), 1))


class DoneConditions:
    """The share of the rows of inputs that are done by a rule, since it last changed."""

    def __init__(self) -> None:
        self.known = Conditions()

    def step(self, names: tuple[str, ...], fresh: Mapping[str, DoneCounts]) -> None:
        """Take in what a batch counted of some inputs."""
        n_new = np.array([float(fresh[each].n_new) if each in fresh else 0.0 for each in names])
        if not n_new.any():
            return
        n_done = np.array(
            [
                float(fresh[each].n_new_done + fresh[each].n_old_done) if each in fresh else 0.0
                for each in names
            ]
        )
        shares = np.divide(n_done, n_new, out=np.full(len(names), np.nan), where=n_new > 0)
        said = tuple(f"rows of {each} that are done" for each in names)
        self.known.step(said, np.minimum(shares, 1.0), n_new, float(n_new.sum()))

    def situation(self, names: tuple[str, ...]) -> Situation | None:
        """Return the conditions as the log knows them, of the inputs that they were counted of."""
        shares = self.known.shares.tolist()
        if len(shares) != len(names):
            return None
        evidence = {
            name: round(share, 5)
            for name, share in zip(names, shares, strict=True)
            if np.isfinite(share)
        }
        return self.known.situation(evidence, LEAST_ROWS)


class HashConditions:
    """How the hashes of the rows of inputs are spread, since that last changed."""

    def __init__(self) -> None:
        self.known = Conditions()
        self.bins: Bins = {}

    def step(self, fresh: Bins) -> None:
        """Take in how many rows of a batch have a hash in each bin, by input and key class."""
        totals = {key: float(of.sum()) for key, of in fresh.items()}
        if not any(totals.values()):
            return
        names: list[str] = []
        shares: list[float] = []
        counts: list[float] = []
        for (name, key), of in fresh.items():
            n = totals[name, key]
            grouped = of.reshape(-1, GROUPS).sum(axis=0)
            names += [f"rows of {name} in part {at} of key {key}" for at in range(GROUPS)]
            shares += (grouped / n).tolist() if n else [np.nan] * GROUPS
            counts += [n] * GROUPS
        n_rows = max(totals.values())
        is_other = self.known.step(tuple(names), np.array(shares), np.array(counts), n_rows)
        kept = 0.0 if is_other else KEPT
        none = np.zeros(N_BINS)
        self.bins = {key: kept * self.bins.get(key, none) + of for key, of in fresh.items()}

    def situation(self) -> Situation | None:
        """Return the conditions as the log knows them."""
        evidence: list[Any] = [
            [name, key, np.round(of).astype(int).tolist()] for (name, key), of in self.bins.items()
        ]
        return self.known.situation(evidence, LEAST_ROWS)
