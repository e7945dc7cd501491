"""The entries of a log of plans: situations, the plans that they were met by, and their rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.runtime.situations import UNKNOWN, Situation, distance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.data.arrays import Floats
    from eddyline.runtime.choice import Choice

SETTLED = 2
"""Batches after which a plan that was not given up is settled."""

MOST_KNOWN = 256
"""Plans of which a situation remembers what was computed."""

LEAST_ROWS = 30
"""Sampled rows below which they tell nothing, and rows of a batch below which these do not."""

MOST_MISTAKEN = 2
"""A situation that was mistaken for others so many times more than it was known again is not
recalled any more."""


SAME = 1.001
"""Plans that cost up to so many times as much as the cheapest are as good."""


class SavedSituation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A situation as it is saved."""

    shares: list[float | None]
    counts: list[float]
    evidence: Any
    n_sampled: float
    held: list[tuple[Any, float]]
    n_settled: int
    n_right: int
    n_mistaken: int


class Held:
    """Rows by the plan that they met."""

    def __init__(self, pairs: Iterable[tuple[Any, float]] = ()) -> None:
        self.n_rows: dict[str, float] = {}
        """By plan, as JSON."""
        for plan, n_rows in pairs:
            self.add(plan_key(plan), n_rows)

    def add(self, key: str, n_rows: float) -> None:
        """Add the rows of a batch."""
        self.n_rows[key] = self.n_rows.get(key, 0.0) + n_rows

    def take(self, other: Held) -> None:
        """Take over the rows of another."""
        for key, n_rows in other.n_rows.items():
            self.add(key, n_rows)
        other.n_rows.clear()

    def shortened(self, most: int) -> float:
        """Let go of the plans of the fewest rows; returns their rows."""
        surplus = sorted(self.n_rows, key=lambda key: self.n_rows[key])[: max(0, len(self) - most)]
        return sum(self.n_rows.pop(key) for key in surplus)

    def __len__(self) -> int:
        return len(self.n_rows)

    @property
    def total(self) -> float:
        """All rows."""
        return sum(self.n_rows.values())

    def pairs(self) -> list[tuple[Any, float]]:
        """Return plans and their rows."""
        return [(json.loads(key), n_rows) for key, n_rows in self.n_rows.items()]


def _make_room(known: dict[str, Any]) -> None:
    """Let go of what can be computed again, if it is much."""
    if len(known) >= MOST_KNOWN:
        known.clear()


@dataclass
class Logged:
    """A situation of the log."""

    seen: Situation
    """As it was when most was known of it."""
    held: Held = field(default_factory=Held)
    n_settled: int = 0
    """Batches after which a plan was settled in it."""
    n_right: int = 0
    """Recalls that were right."""
    n_mistaken: int = 0
    """Recalls in other situations that were like it at first."""
    prices: dict[str, float] = field(default_factory=dict)
    """What plans cost in it, as far as that was asked (per row; nan: not known)."""

    foreseen: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    """What rows would show under plans, as far as that was asked; see ``Choice.foreseen``."""

    def distance(self, now: Situation, target: Choice) -> float:
        """Return how far it is from what is measured.

        That is what samples say, if they are enough, and what all rows of the last batch showed
        under their plan.
        """
        found = []
        if now.n_sampled >= LEAST_ROWS:
            found.append(now.distance(self.seen))
        if now.met is not None:
            key = plan_key(now.met.plan)
            if key not in self.foreseen:
                _make_room(self.foreseen)
                self.foreseen[key] = target.foreseen(now.met.plan, self.seen.evidence)
            found.append(distance(now.met.shares, now.met.counts, *self.foreseen[key]))
        return max(found, default=UNKNOWN)

    @property
    def may_recall(self) -> bool:
        """Whether its plan may be taken again."""
        is_known = self.n_settled >= SETTLED and len(self.held) > 0
        return is_known and self.n_mistaken - self.n_right < MOST_MISTAKEN

    def see(self, now: Situation) -> None:
        """Keep what is measured if it is of more rows than what is known."""
        if now.n_sampled > self.seen.n_sampled:
            self.seen = replace(now, met=None)
            self.prices.clear()
            self.foreseen.clear()

    def price(self, target: Choice, key: str) -> float:
        """Return what a plan costs in it (per row; nan: not known)."""
        if not np.isfinite(self.prices.get(key, np.nan)):  # it may have become known since
            _make_room(self.prices)
            self.prices[key] = target.cost_of(json.loads(key), self.seen.evidence)
        return self.prices[key]

    def best(self, target: Choice) -> str:
        """Return the cheapest of the plans that it was met by, of several that of most rows."""
        prices = {key: self.price(target, key) for key in self.held.n_rows}
        least = min((price for price in prices.values() if np.isfinite(price)), default=np.inf)
        known = [key for key, price in prices.items() if price <= SAME * least]
        return max(known or prices, key=lambda key: self.held.n_rows[key])

    def absorb(self, other: Logged) -> None:
        """Take over another entry of the same situation."""
        self.held.take(other.held)
        self.n_settled += other.n_settled
        self.n_right += other.n_right
        self.n_mistaken += other.n_mistaken


def plan_key(plan: Any) -> str:
    """Return a plan as text, the same for equal plans."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True)


def saved(each: Logged) -> SavedSituation:
    """Return an entry as it is saved."""
    seen = each.seen
    shares = [share if np.isfinite(share) else None for share in seen.shares.tolist()]
    return SavedSituation(
        shares,
        seen.counts.tolist(),
        seen.evidence,
        seen.n_sampled,
        each.held.pairs(),
        each.n_settled,
        each.n_right,
        each.n_mistaken,
    )


def restored(given: SavedSituation, names: tuple[str, ...]) -> Logged:
    """Return an entry that was saved, with conditions of those names.

    Raises:
        ValueError: its parts do not fit together.
    """
    shares = np.array([np.nan if share is None else share for share in given.shares], np.float64)
    counts = np.array(given.counts, np.float64)
    fits = len(shares) == len(counts) == len(names) and (counts > 0.0).all()
    if not fits or not (np.isnan(shares) | ((shares >= 0.0) & (shares <= 1.0))).all():
        msg = f"{len(shares)} shares of {len(names)} conditions do not fit together"
        raise ValueError(msg)
    seen = Situation(names, shares, counts, given.evidence, given.n_sampled, is_settled=True)
    held = Held(given.held)
    return Logged(seen, held, given.n_settled, given.n_right, given.n_mistaken)
