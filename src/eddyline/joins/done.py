"""Rows that leave the hot tier once they are done: where letting them go saves work.

A row is done once it was in its only result (see ``graph.covers``), or once the other streams have
passed its key or it is over in them (see ``arrival_order``). To let it go saves
the merges that it would still go through; what it costs is measured: finding rows in merged runs,
and writing those that leave apart. It is tried where enough rows are done, kept where it saves more
than it costs, and tried again ever more rarely where it does not.

The log of plans knows the shares of rows that are done. What merging them later costs is known once
they have left for a while, as is what letting them go takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import StateError
from eddyline.joins.operator.done_rows import DoneCounts
from eddyline.runtime.choice import UNKNOWN_NS, Choice, Conditions, are_names
from eddyline.runtime.journal import JournalEntry
from eddyline.state.bucket_state import FAN_IN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.runtime.choice import Situation

COMPONENT = "constraints"
"""Its name in the journal."""

LEAST_ROWS = 1_000
"""New rows by which it may be decided."""

LEAST_SHARE = 0.2
"""Least share of an input's rows that are done for which it is worth a try."""

FREE = 0.02
"""Share of the time of batches that letting rows go may take whatever it saves: fewer rows are hot,
and looked through, for it."""

TRIAL = 16
"""Batches after which what was saved is compared with what it cost: two sizes of merges."""

FADE = 0.9
"""What counts of a batch weigh one counted batch later."""

REST = 64
"""Batches until the next trial after one that did not pay; twice as many after each."""


class Known(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of the rows of one input."""

    is_leaving: bool = False
    """Whether its rows leave once they are done."""
    n_rows: float = 0.0
    """New rows, older batches counting less, as below."""
    n_done: float = 0.0
    """Rows that were seen to be done."""
    n_merged: float = 0.0
    """Rows that were merged."""
    merge_ns: float = 0.0
    """Time that took (ns)."""
    saved_ns: float = 0.0
    """Time that later merges are spared by rows that left (ns)."""
    cost_ns: float = 0.0
    """Time that letting them go took (ns)."""
    batch_ns: float = 0.0
    """Time of batches (ns)."""
    n_left: int = 0
    """Rows that left so far."""
    n_in_state: int = 0
    """Batches since it was decided last."""
    rest: int = REST
    """Batches until it is tried again."""
    left_rows: float = 0.0
    """New rows while rows left, and below that what of these is kept when they stay again."""
    left_done: float = 0.0
    """Those of them that were done."""
    left_saved_ns: float = 0.0
    """Time that later merges were spared (ns)."""
    left_cost_ns: float = 0.0
    """Time that letting rows go took beyond what is free (ns)."""

    @property
    def share(self) -> float:
        """The share of the rows that are done ([0, 1]; nan: none came)."""
        return min(self.n_done / self.n_rows, 1.0) if self.n_rows else math.nan

    def add(self, counts: DoneCounts, n_hot: int, ns: int) -> None:
        """Take in what a batch of so much time (ns) counted, after which so many rows are hot."""
        n_new_left = counts.n_new_done if self.is_leaving else 0
        n_left = counts.n_left + n_new_left
        self.n_rows = FADE * self.n_rows + counts.n_new
        self.n_done = FADE * self.n_done + counts.n_new_done + counts.n_old_done
        self.n_merged = FADE * self.n_merged + counts.n_merged
        self.merge_ns = FADE * self.merge_ns + counts.merge_ns
        per_row = self.merge_ns / self.n_merged if self.n_merged else 0.0
        n_merges = math.log(max(n_hot + n_left, 1) / max(counts.n_new, 1), FAN_IN)
        later = counts.n_left / 2 + n_new_left
        saved_ns = later * max(n_merges, 1.0) * per_row
        self.saved_ns = FADE * self.saved_ns + saved_ns
        self.cost_ns = FADE * self.cost_ns + counts.ns
        self.batch_ns = FADE * self.batch_ns + ns
        self.n_left += n_left
        if self.is_leaving:
            over_ns = max(counts.ns - FREE * ns, 0.0)
            self.left_rows = FADE * self.left_rows + counts.n_new
            self.left_done = FADE * self.left_done + counts.n_new_done + counts.n_old_done
            self.left_saved_ns = FADE * self.left_saved_ns + saved_ns
            self.left_cost_ns = FADE * self.left_cost_ns + over_ns

    def cost_ns_of(self, share: float, *, leaves: bool) -> float:
        """Return what a new row costs if rows leave, or what merging them later costs if not.

        Args:
            share: of the rows that are done ([0, 1]).
            leaves: whether they leave.

        Returns:
            ns; nan before they ever left.
        """
        if not self.left_rows or not self.left_done:
            return math.nan
        if leaves:
            return self.left_cost_ns / self.left_rows
        return share * self.left_saved_ns / self.left_done


@dataclass(frozen=True, slots=True)
class DoneView:
    """What is known of the rows of one input, for people."""

    name: str
    rule: str
    """``matched``, ``passed`` or ``closed``; see ``operator.done_rows``."""
    is_leaving: bool
    share: float
    n_left: int
    saved_ns: float
    cost_ns: float


class DoneChoice(Choice):
    """Lets rows go that are done by a rule, where it pays.

    Args:
        rule: see ``operator.done_rows``.
    """

    why_unlogged = ""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.component = f"{COMPONENT} {rule}"
        self.known: dict[str, Known] = {}
        self.seen = DoneConditions()
        """What the log of plans knows situations by."""

    @property
    def promises(self) -> bool:
        """Whether rows leave by the rule, or so many are done that it is worth a try."""
        return any(each.is_leaving or each.share >= LEAST_SHARE for each in self.known.values())

    @property
    def leaving(self) -> frozenset[str]:
        """The inputs whose rows leave once they are done."""
        return frozenset(name for name, each in self.known.items() if each.is_leaving)

    def step(
        self,
        names: Collection[str],
        fresh: Mapping[str, DoneCounts],
        n_hot: Mapping[str, int],
        ns: int,
        batch_id: int = -1,
        why: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[JournalEntry]:
        """Take in what a batch counted, and decide.

        Args:
            names: the inputs whose rows may be done by the rule.
            fresh: what was counted of them; nothing in batches that were not measured, but of rows
                that leave.
            n_hot: the rows of each that are hot after the batch.
            ns: the time that the batch took (ns).
            batch_id: the micro-batch, for the journal.
            why: what the rule goes by, by input, for the journal.
        """
        self.known = {name: self.known.get(name, Known()) for name in names}
        self.seen.step(tuple(sorted(self.known)), fresh)
        entries = []
        for name, each in self.known.items():
            if name in fresh or each.is_leaving:
                each.add(fresh.get(name, DoneCounts()), n_hot.get(name, 0), ns)
            each.n_in_state += 1
            if self.is_held or not _changes(each):
                continue
            before, evidence = self._text(name, each), _evidence(each)
            evidence |= (why or {}).get(name, {})
            _turn(each)
            after = self._text(name, each)
            entries.append(JournalEntry(batch_id, COMPONENT, self.rule, before, after, evidence))
        return entries

    def _text(self, name: str, each: Known) -> str:
        how = "until" if each.is_leaving else "whether or not"
        return f"{name} hot {how} {self.rule}"

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def plan(self) -> list[str]:
        """The inputs whose rows leave."""
        return sorted(self.leaving)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"a list of inputs whose rows may leave, of {sorted(self.known)}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether they are inputs whose rows may be done."""
        return are_names(plan) and {*plan} <= self.known.keys() and len({*plan}) == len(plan)

    def adopt(self, plan: Sequence[str]) -> None:
        """Let the rows of these inputs leave, and of no others."""
        for name, known in self.known.items():
            if known.is_leaving != (name in plan):
                known.is_leaving = name in plan
                known.saved_ns = known.cost_ns = known.batch_ns = 0.0
                known.n_in_state = 0

    def in_words(self, plan: Sequence[str]) -> str:
        """Return a plan in words."""
        told = ", ".join(f"{name} hot until {self.rule}" for name in plan)
        return told or f"rows stay, {self.rule} or not"

    def situation(self) -> Situation | None:
        """Return the share of the rows of each input that is done."""
        return self.seen.situation(tuple(sorted(self.known)))

    def cost_of(self, plan: Sequence[str], evidence: Any) -> float:
        """Return what letting rows go takes, or what merging them later does (ns per row)."""
        costs = [
            self.known[name].cost_ns_of(share, leaves=name in plan)
            if name in self.known
            else UNKNOWN_NS
            for name, share in evidence.items()
        ]
        return float(np.mean(costs)) if costs else UNKNOWN_NS

    # -- seeing and saving ----------------------------------------------------------------------

    def views(self) -> tuple[DoneView, ...]:
        """Return what is known, for people."""
        return tuple(
            DoneView(
                name,
                self.rule,
                each.is_leaving,
                each.share,
                each.n_left,
                each.saved_ns,
                each.cost_ns,
            )
            for name, each in self.known.items()
        )

    def snapshot(self) -> dict[str, Known]:
        """Return the learned state."""
        return self.known

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged.
        """
        try:
            self.known = msgspec.convert(state, dict[str, Known])
        except msgspec.ValidationError as error:
            msg = f"what was learned of the {self.rule} rows of a join cannot be read: {error}"
            raise StateError(msg) from error


def _changes(each: Known) -> bool:
    """Return whether the evidence says so."""
    if each.is_leaving:
        saved = max(each.saved_ns, FREE * each.batch_ns)
        return each.n_in_state >= TRIAL and saved < each.cost_ns
    return each.n_merged > 0 and each.share >= LEAST_SHARE and each.n_in_state >= TRIAL


def _turn(each: Known) -> None:
    each.is_leaving = not each.is_leaving
    each.saved_ns = each.cost_ns = each.batch_ns = 0.0
    each.n_in_state = 0
    if not each.is_leaving:
        each.n_in_state, each.rest = TRIAL - each.rest, 2 * each.rest


def _evidence(each: Known) -> dict[str, Any]:
    return {
        "done_share": each.share,
        "saved_ns": each.saved_ns,
        "cost_ns": each.cost_ns,
        "n_left": each.n_left,
    }


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
