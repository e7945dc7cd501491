"""Choice: one plan of an operator that could be another.

All that is done with such a plan is here. An operator has a choice for each thing that it decides,
such as the order of its filters or the cut of its rows. It lists them as ``choices``. From there
each choice is found by all who need it:

* **the run** gives it what a batch observed (``step``, whose arguments are its own), and writes the
  returned decisions to the journal;
* **a person** holds a plan in force (``run.pin``) and lets it adapt again (``run.adapt``);
* **the log of plans** knows its ``situation`` and what plans cost there, and recalls the plan that
  was good when the situation comes again;
* **the checkpoint** keeps what it has learned: the attributes in ``learned``, or what its own
  ``snapshot`` and ``restore`` say.

A choice with a plan in force, the words of what is ``possible`` and a test of it can be pinned. One
that also tells its situation and the cost of plans is logged. Everything else has defaults.

Invariants: a plan changes the work and never the answer. A choice sees counts and profiles, and
never rows. While it is held it goes on to learn and decides nothing, in tasks and on the driver. A
new choice is one class derived from ``Choice``, and one line in the ``choices`` of its operator.

**Situations** are the conditions under which a plan is good, in units that can be compared. Every
condition is a share ([0, 1]), such as that of rows that a filter drops. Shares are compared as
angles, asin √share: there the noise of a share that was counted over n rows is 1 / (2 √n), whatever
the share. ``Conditions`` counts shares batch by batch, where no monitor says when they change. A
batch whose shares are further from those before it than ``LEAVES`` begins anew. So what is known is
never of two situations together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.data.learned import Learns
from eddyline.errors import PlanError
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.runtime.records import Record

UNKNOWN_NS = float("nan")


@dataclass(frozen=True, slots=True)
class Advice:
    """What the evidence says of a plan that is held."""

    plan: Any
    """The plan that it calls the best, as plain values."""
    cost_ns: float = UNKNOWN_NS
    """Expected cost of that plan (ns per input row; nan: unknown)."""
    held_cost_ns: float = UNKNOWN_NS
    """Expected cost of the plan that is held (ns per input row; nan: unknown)."""


class Choice(Learns, ABC):
    """One plan of an operator; derive choices from it."""

    component: str
    """Its name in the journal, in pins and in the log; unique in the query."""
    is_adaptive: bool = True
    """Whether the plan may change at all, by the options of its query."""
    is_held: bool = False
    """Whether the plan stays as it is, whatever the evidence."""

    # -- the plan -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The plan in force, as plain values that JSON knows."""

    @property
    @abstractmethod
    def possible(self) -> str:
        """The plans that may be pinned, in words."""

    @abstractmethod
    def is_possible(self, plan: Any) -> bool:
        """Return whether a plan may be put in force; it is of any type."""

    def adopt(self, plan: Any) -> None:
        """Put a possible plan in force in place of another; between batches only.

        Needed where others than the one in force are possible.
        """
        raise NotImplementedError

    def in_words(self, plan: Any) -> Any:
        """Return a plan as people and the journal are told of it."""
        return plan

    def decision(
        self, batch_id: int, event: str, before: Any, after: Any, evidence: dict[str, Any]
    ) -> JournalEntry:
        """Return the journal's entry of another plan, and why."""
        return JournalEntry(batch_id, self.component, event, before, after, evidence)

    # -- a person -------------------------------------------------------------------------------

    def check(self, plan: Any) -> None:
        """Raise PlanError if a plan cannot be pinned."""
        if not self.is_possible(plan):
            msg = (
                f"{plan!r:.300} is no plan of {self.component!r}; possible is {self.possible}; in "
                f"force is {self.plan!r}"
            )
            raise PlanError(msg, component=self.component, plan=plan)

    def hold(self, plan: Any) -> None:
        """Put a plan in force, and keep it there; between batches, unless it is in force.

        Raises:
            PlanError: it cannot be pinned.
        """
        self.check(plan)
        if plan != self.plan:
            self.adopt(plan)
        self.is_held = True

    def release(self) -> None:
        """Let the plan adapt again, from the one in force."""
        self.is_held = False

    def advice(self) -> Advice | None:
        """Return what the evidence says while the plan is held; None if it says nothing."""
        return None

    # -- the log of plans -----------------------------------------------------------------------

    why_unlogged: str = "nothing is measured by which its conditions would be known again"
    """Why the plans that were in force are not logged; empty if they are."""
    cost_unit: str = "ns"
    """Unit of ``cost_of``: time, or what is counted in place of it."""
    per: str = "row"
    """What costs are of."""
    recalls: bool = True
    """Whether a plan of before may be put in force for what is known of its situation."""
    changes_within: bool = False
    """Whether tasks change the plan within a batch: most rows of one meet the plan after it."""
    min_gain: float = 1.0
    """How many times cheaper a plan has to be, by enough of the newest rows, to be recalled."""

    @property
    def identity(self) -> str:
        """What plans and evidence are of, where that may change in a run; another begins anew."""
        return ""

    def situation(self) -> Situation | None:
        """Return the conditions of the plan, as measured since they last changed.

        None while too little is known of them.
        """
        return None

    def cost_of(self, plan: Any, evidence: Any) -> float:  # noqa: ARG002
        """Return what a plan costs by the evidence of a situation (nan: unknown)."""
        return UNKNOWN_NS

    def rows_met(self, n_rows: int) -> int:
        """Return how many rows met the plan in the last batch, of ``n_rows`` of the query."""
        return n_rows

    def foreseen(self, plan: Any, evidence: Any) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return what rows would show under a plan by the evidence of a situation.

        Returns:
            Shares and counts, as in ``Situation.met``.
        """
        return np.zeros(0), np.zeros(0)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> Any | None:  # noqa: ARG002
        """Return the best plan for all situations together; None if only those in force are known.

        Args:
            held: the evidence of each situation, and the rows for which it held.
        """
        return None

    def take(self, plan: Any, evidence: Any) -> None:  # noqa: ARG002
        """Put a possible plan in force, and begin with the evidence of a situation before."""
        self.adopt(plan)

    def let_go(self) -> None:
        """Let go of the evidence that ``take`` began with: it was of another situation."""

    # -- the progress ---------------------------------------------------------------------------

    def record(self) -> Record | None:
        """Return the state of the plan after a batch, for progress and report; None: nothing."""
        return None


class OneOfFew(Choice):
    """A choice whose plan is one text of a few; it heeds ``is_held`` where it decides."""

    plan: str = ""
    plans: tuple[str, ...]
    """The plans that are possible."""
    advised: str | None = None
    """The plan that the evidence calls the best; None if it does not tell."""

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"one of {', '.join(map(repr, self.plans))}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is one of the plans."""
        return isinstance(plan, str) and plan in self.plans

    def adopt(self, plan: str) -> None:
        """Put another plan in force."""
        self.plan = plan

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        return None if self.advised is None else Advice(self.advised)


class AsItStands(Choice):
    """A choice whose plan nobody writes by hand: only the one in force can be pinned."""

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return "only the plan in force"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is the plan in force."""
        return type(plan) is type(self.plan) and bool(plan == self.plan)


def are_names(plan: Any) -> bool:
    """Return whether a plan of any type is a list of texts, as orders are."""
    return isinstance(plan, list | tuple) and all(isinstance(name, str) for name in plan)


# -- situations --------------------------------------------------------------------------------

ALIKE = 0.1
"""Angles that differ by less are the same however well they were measured: shares of 0.45 and 0.55,
or of 0.01 and 0.04."""

UNKNOWN = float("inf")
"""Distance where nothing can be compared."""

LEAVES = 1.5
"""Distance beyond which a run has left its situation. Situations are recognized up to a distance of
1; but each batch is compared with the one in force, and noise exceeds 1 now and then."""

LEAST_ROWS = 30
"""Fewest sampled rows, and fewest rows of a batch, that count as a measurement."""

MOST_TOLD = 40
"""Most conditions of a situation in an entry of the journal."""

Z_SCORE = 2.5
"""Standard errors by which two shares may differ beyond ``ALIKE`` and still be the same."""


@dataclass(frozen=True, slots=True)
class Met:
    """What the rows of the last batch met, whether they were sampled or not."""

    plan: Any
    """The plan that all of them met."""
    shares: Floats
    """What is seen of the conditions under that plan ([0, 1]; nan: not known; (K,))."""
    counts: Floats
    """Rows that each was counted over (≥ 0; (K,))."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is measured of the conditions of a plan."""

    names: tuple[str, ...]
    """What the conditions are of, for people; situations of other names are not compared."""
    shares: Floats
    """The conditions ([0, 1]; nan: not known; (C,))."""
    counts: Floats
    """Rows that each was counted over (> 0; (C,))."""
    evidence: Any
    """Plain values by which any plan can be priced later; see ``Choice.cost_of``."""
    n_sampled: float
    """Rows that were looked at."""
    is_settled: bool
    """Whether there are enough of them to choose a plan by."""
    met: Met | None = None
    """What all rows of the last batch showed; never saved."""

    def distance(self, other: Situation) -> float:
        """Return how far apart two are by their conditions; see ``distance``."""
        if self.names != other.names:
            return UNKNOWN
        return distance(self.shares, self.counts, other.shares, other.counts)

    def plain(self) -> dict[str, float]:
        """Return the conditions for the journal: those that are known, the first of many."""
        named = zip(self.names, self.shares.tolist(), strict=True)
        rounded = ((name, round(share, 4)) for name, share in named if np.isfinite(share))
        return dict(islice(rounded, MOST_TOLD))


def distance(shares: Floats, counts: Floats, other: Floats, other_counts: Floats) -> float:
    """Return how far apart the same shares of two measurements are; up to 1 they may be the same.

    It is the greatest difference, over what may differ without meaning anything. Infinite where
    nothing can be compared.
    """
    rows, other_rows = np.maximum(counts, 1.0), np.maximum(other_counts, 1.0)
    noise = 0.5 * np.sqrt(1.0 / rows + 1.0 / other_rows)
    apart = np.abs(_angles(shares) - _angles(other)) / (ALIKE + Z_SCORE * noise)
    distances = apart[np.isfinite(apart) & (counts >= 1.0) & (other_counts >= 1.0)]
    return float(distances.max()) if len(distances) else UNKNOWN


def _angles(shares: Floats) -> Floats:
    angles: Floats = np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
    return angles


KEPT = 0.8
"""Weight of a row one batch later; a new row has weight 1."""


class Conditions:
    """Shares of rows since they last changed; newer batches count more."""

    def __init__(self) -> None:
        self._forget(())

    def _forget(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._hits, self.counts = np.zeros(len(names)), np.zeros(len(names))
        self.n_sampled = 0.0

    @property
    def shares(self) -> Floats:
        """The share of each condition ([0, 1]; nan: not known; (C,))."""
        shares = np.full(len(self.names), np.nan)
        np.divide(self._hits, self.counts, out=shares, where=self.counts > 0.0)
        return shares

    def step(
        self, names: tuple[str, ...], shares: Floats, counts: Floats, n_sampled: float
    ) -> bool:
        """Take in a batch.

        Args:
            names: what the conditions are of.
            shares: of the batch ([0, 1]; nan: not measured in it; (C,)).
            counts: rows that each was counted over (≥ 0; (C,)).
            n_sampled: rows that were looked at.

        Returns:
            True if the batch differs from all before it: from here on only the batch counts.
            False if ``names`` changed, because then nothing can be compared.
        """
        is_told = np.isfinite(shares) & (counts > 0.0)
        is_other = False
        if names != self.names:
            self._forget(names)
        elif is_told.any():
            apart = distance(shares, counts, self.shares, self.counts)
            is_other = bool(np.isfinite(apart)) and apart > LEAVES
        if is_other:
            self._forget(names)
        weights = np.where(is_told, KEPT, 1.0)
        fresh = np.where(is_told, counts, 0.0)
        self._hits = weights * self._hits + fresh * np.where(is_told, shares, 0.0)
        self.counts = weights * self.counts + fresh
        self.n_sampled = (KEPT if n_sampled else 1.0) * self.n_sampled + n_sampled
        return is_other

    def situation(self, evidence: Any, least: float, met: Met | None = None) -> Situation | None:
        """Return the conditions as the log knows them; None while nothing was measured.

        Args:
            evidence: plain values that price any plan.
            least: rows that have to be looked at to choose a plan by.
            met: what all rows of the last batch showed.
        """
        if not self.n_sampled and met is None:
            return None
        return Situation(
            self.names,
            self.shares,
            np.maximum(self.counts, 1.0),
            evidence,
            self.n_sampled,
            is_settled=self.n_sampled >= least,
            met=met,
        )
