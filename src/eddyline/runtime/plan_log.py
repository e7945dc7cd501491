"""Log of plans: the situations of a run, and their plans.

It also has the number of rows of each. ``PlanLog`` has a ``ComponentLog`` for each choice that is
logged. What comes in: after each batch, the choice with its newest ``Situation``, the plan that the
batch began with, and the batch's rows. What goes out: decisions to recall a plan, and views of what
adapting has brought.

1. A batch is in the situation of before, in one that was met earlier, or in a new one.
2. A situation that comes again gets the plan that was good for it, without learning it again. What
   is then measured says whether they were the same; if not, the recall was mistaken and is undone.
3. ``Logged`` keeps a situation, the plans that it was met by, and their rows. From these
   ``hindsight`` prices what the plans in force cost, and what the best single plan would have.

The log is bounded in situations, conditions and plans. What it lets go of is counted.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import EddylineError, StateError
from eddyline.runtime.choice import LEAST_ROWS, LEAVES, UNKNOWN, Situation, distance
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.data.arrays import Floats
    from eddyline.runtime.choice import Choice

MOST_SITUATIONS, MOST_CONDITIONS = 64, 20_000
"""Most situations of a component, and most conditions of all of them: about 1 MB, which is saved
with each batch. Beyond that the situation with the fewest rows is dropped."""

LEAST_SITUATIONS = 8
"""Situations that are kept whatever the number of their conditions."""

MOST_PLANS = 8
"""Plans whose rows a situation counts apart; beyond that the plan of the fewest rows is dropped."""

SOON = 2
"""Batches within which another situation shows that a recall was a mistake; later it is taken for
another change, such as where no rows of the batches between were sampled."""

MAX_LOSS = 1.1
"""While few rows were sampled since a change, a recalled plan may cost this many times as much as
the plan in force. Once the rows are enough to choose a plan by, it must be cheaper."""

CLEARLY = 0.9
"""A plan that was never in force in a situation is recalled there if it costs at most this share of
the best plan that was."""

DAMAGED = (EddylineError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors that damaged evidence raises, or evidence of another component."""


class SavedComponent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log of one component as it is saved."""

    names: tuple[str, ...]
    situations: list[SavedSituation]
    current: int | None
    recalled_at: int | None
    waiting: list[tuple[Any, float]]
    n_left_out: float
    identity: str = ""


class ComponentLog:
    """The situations of one component."""

    def __init__(self, component: str) -> None:
        self.component = component
        self.identity = ""
        """What all is of; see ``Choice.identity``."""
        self.names: tuple[str, ...] = ()
        self.situations: list[Logged] = []
        self.current: Logged | None = None
        """The one that the run is in, as far as it is known."""
        self.recalled_at: int | None = None
        """The batch after which its plan was recalled, while nothing says that it was right."""
        self.waiting = Held()
        """Rows since it was last known which situation they are of."""
        self.n_left_out = 0.0

    def step(
        self, target: Choice, ran_under: Any, n_rows: float, batch_id: int, *, recalls: bool
    ) -> list[JournalEntry]:
        """Take note of a batch; see ``PlanLog.step``."""
        if target.identity != self.identity:
            self._forget()
            self.n_left_out += self.waiting.total()
            self.waiting, self.identity = Held(), target.identity
        self.waiting.add({plan_key(ran_under): n_rows})
        self.n_left_out += self.waiting.shortened()
        now = target.situation()
        if now is None or (now.n_sampled < LEAST_ROWS and now.met is None):
            return []
        if now.names != self.names:  # other filters: nothing of before can be compared
            self._forget()
            self.names = now.names
        if self.current is not None and self.current.distance(now, target) <= LEAVES:
            self._stay(self.current, now)
            return []
        entries = self._mistaken(target, now, batch_id)
        near = self._nearest(now, target)
        if near is None:
            self.current = self._new(now) if now.is_settled else None
            return entries
        if recalls and near.may_recall:
            entries += self._recalled(near, now, target, batch_id)
        self.current = near
        self._note(near, now)
        return entries

    def _stay(self, logged: Logged, now: Situation) -> None:
        """Take note of a batch in the situation that was known."""
        if now.met is not None or now.is_settled:
            logged.n_right += self.recalled_at is not None
            self.recalled_at = None
        logged.n_settled += now.is_settled
        self._note(logged, now)
        self._merge(logged)

    def _note(self, logged: Logged, now: Situation) -> None:
        logged.held.take(self.waiting)
        self.n_left_out += logged.held.shortened()
        if now.is_settled:
            logged.see(now)

    def _new(self, now: Situation) -> Logged:
        """Return a situation that was not met before."""
        logged = Logged(now, n_settled=1)
        self.situations.append(logged)
        self._note(logged, now)
        most = MOST_CONDITIONS // max(1, len(self.names))
        while len(self.situations) > min(max(most, LEAST_SITUATIONS), MOST_SITUATIONS):
            least = min(self.situations[:-1], key=lambda situation: situation.held.total())
            self._remove(least)
            self.n_left_out += least.held.total()
        return logged

    def _merge(self, logged: Logged) -> None:
        """Make one entry of those that are near now that more is known of one of them."""
        for other in [situation for situation in self.situations if situation is not logged]:
            if logged.seen.distance(other.seen) <= 1.0:
                logged.absorb(other)
                self._remove(other)

    def _remove(self, logged: Logged) -> None:
        self.situations = [situation for situation in self.situations if situation is not logged]

    def _nearest(self, now: Situation, target: Choice) -> Logged | None:
        """Return the situation that this is, if it is one of those before.

        None, too, while it may be one of several with different plans and more may come to be
        known.
        """
        near = [
            (situation.distance(now, target), place)
            for place, situation in enumerate(self.situations)
        ]
        nearest = sorted(pair for pair in near if pair[0] <= 1.0)
        if not nearest or (len(nearest) > 1 and not now.is_settled):
            return None
        return self.situations[nearest[0][1]]

    def _mistaken(self, target: Choice, now: Situation, batch_id: int) -> list[JournalEntry]:
        """Give up the plan that was recalled for another situation than this one is."""
        recalled_at, self.recalled_at = self.recalled_at, None
        if recalled_at is None or self.current is None or batch_id > recalled_at + SOON:
            return []
        self.current.n_mistaken += 1
        target.let_go()
        evidence = {"taken_for": self.current.seen.plain(), "now": now.plain()}
        plan = target.in_words(target.plan)
        return [JournalEntry(batch_id, self.component, "mistaken", plan, plan, evidence)]

    def _recalled(
        self, logged: Logged, now: Situation, target: Choice, batch_id: int
    ) -> list[JournalEntry]:
        """Take the plan of a situation that has come again, unless the newest rows oppose it."""
        plan, before = self._best(logged, target), target.plan
        cost, in_force = (target.cost_of(candidate, now.evidence) for candidate in (plan, before))
        # Where enough is known already, the plan in force was chosen by it.
        limit = in_force / target.min_gain if now.is_settled else MAX_LOSS * in_force
        is_opposed = cost >= limit if now.is_settled else cost > limit
        if not target.is_possible(plan) or is_opposed:
            return []
        target.take(plan, logged.seen.evidence)
        self.recalled_at = batch_id
        evidence = {
            "then": logged.seen.plain(),
            "now": now.plain(),
            "distance": round(logged.distance(now, target), 3),
            "held_for_rows": round(logged.held.total()),
            "sampled_rows": round(now.n_sampled),
        }
        plans = target.in_words(before), target.in_words(plan)
        return [JournalEntry(batch_id, self.component, "recall", *plans, evidence)]

    def _best(self, logged: Logged, target: Choice) -> Any:
        """Return the plan to recall in a situation.

        It is the best of those that it was met by, unless its evidence calls another one clearly
        cheaper: of other situations, or what is chosen by that evidence.
        """
        own_key = logged.best(target)
        others = dict.fromkeys(compared(self.situations))
        chosen = target.best_single([(logged.seen.evidence, 1.0)])
        if chosen is not None:
            others[plan_key(chosen)] = None
        limit = CLEARLY * logged.price(target, own_key)
        prices = {key: logged.price(target, key) for key in others if key != own_key}
        better = {key: price for key, price in prices.items() if price < limit}
        for key in sorted(better, key=better.__getitem__):
            plan = json.loads(key)
            if target.is_possible(plan):
                return plan
        return json.loads(own_key)

    def _forget(self) -> None:
        self.n_left_out += sum(situation.held.total() for situation in self.situations)
        self.situations, self.current, self.recalled_at = [], None, None

    def view(self, target: Choice) -> LogView:
        """Return what the plans in force cost, and what the best of them alone would have."""
        if target.identity != self.identity:
            return LogView(self.component)
        seen = hindsight(self.situations, target)
        return LogView(
            self.component,
            n_situations=len(self.situations),
            n_rows=sum(situation.held.total() for situation in self.situations),
            n_left_out=self.n_left_out + self.waiting.total(),
            n_right=sum(situation.n_right for situation in self.situations),
            n_mistaken=sum(situation.n_mistaken for situation in self.situations),
            hindsight=replace(seen, best=None if seen.best is None else target.in_words(seen.best)),
            unit=target.cost_unit,
            per=target.per,
        )

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> SavedComponent:
        """Return the log as values that msgspec encodes."""
        place = next(
            (i for i, situation in enumerate(self.situations) if situation is self.current), None
        )
        return SavedComponent(
            self.names,
            [saved(situation) for situation in self.situations],
            place,
            self.recalled_at,
            self.waiting.pairs(),
            self.n_left_out,
            self.identity,
        )

    def restore(self, saved_component: SavedComponent, target: Choice) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            ValueError, LookupError, TypeError, EddylineError: it is damaged.
        """
        self.names, self.identity = saved_component.names, saved_component.identity
        self.situations = [
            restored(situation, saved_component.names) for situation in saved_component.situations
        ]
        self.waiting, self.n_left_out = (
            Held.from_pairs(saved_component.waiting),
            saved_component.n_left_out,
        )
        if saved_component.current is not None:
            self.current = self.situations[
                range(len(self.situations)).index(saved_component.current)
            ]
        self.recalled_at = saved_component.recalled_at
        numbers = [self.n_left_out, *self.waiting.values()]
        for situation in self.situations:
            numbers += [*situation.held.values(), situation.seen.n_sampled]
            numbers += [situation.n_settled, situation.n_right, situation.n_mistaken]
            for plan in (target.plan, *(plan for plan, _ in situation.held.pairs())):
                target.cost_of(plan, situation.seen.evidence)
        if not all(0.0 <= number < float("inf") for number in numbers):
            msg = "a number of rows, batches or recalls is less than 0"
            raise ValueError(msg)


class PlanLog:
    """The log of one run: of each component that measures what its plan depends on.

    Args:
        recalls: whether plans are taken again; the log is kept in any case.
    """

    def __init__(self, *, recalls: bool = True) -> None:
        self.recalls = recalls
        self._logs: dict[str, ComponentLog] = {}
        self._changing = threading.Lock()
        """Held while the log changes, or is looked at from another thread."""

    def step(
        self,
        targets: Mapping[str, Choice],
        ran_under: Mapping[str, Any],
        n_rows: int,
        batch_id: int,
    ) -> list[JournalEntry]:
        """Take note of a batch, and recall plans where situations come again.

        Called once for each batch, after its loops have learned from it.

        Args:
            targets: what can be planned, by component.
            ran_under: the plans that the batch began with, by component.
            n_rows: rows that the query took in.
            batch_id: the micro-batch.

        Returns:
            The decisions: plans recalled, and those given up.
        """
        entries: list[JournalEntry] = []
        if not n_rows:
            return entries  # what loops took in last is of a batch before
        with self._changing:
            self._logs = {name: log for name, log in self._logs.items() if name in targets}
            for name, target in targets.items():
                if not target.is_adaptive:
                    continue
                log, met = self._logs.get(name), target.rows_met(n_rows)
                if name not in ran_under or target.why_unlogged:
                    if log is not None:
                        log.n_left_out += met
                    continue
                log = self._logs.setdefault(name, ComponentLog(name))
                recalls = self.recalls and target.recalls and not target.is_held
                plan = target.plan if target.changes_within else ran_under[name]
                entries += log.step(target, plan, met, batch_id, recalls=recalls)
        return entries

    def views(self, targets: Mapping[str, Choice]) -> tuple[LogView, ...]:
        """Return what the log says of each component that may adapt."""
        with self._changing:
            return tuple(
                LogView(name, why_not=target.why_unlogged)
                if target.why_unlogged or name not in self._logs
                else self._logs[name].view(target)
                for name, target in targets.items()
                if target.is_adaptive
            )

    def snapshot(self) -> dict[str, SavedComponent]:
        """Return the log as values that msgspec encodes."""
        return {name: log.snapshot() for name, log in self._logs.items()}

    def restore(self, state: Any, targets: Mapping[str, Choice]) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        What is of no component any more is let go of.

        Raises:
            StateError: it is damaged.
        """
        try:
            logs = msgspec.convert(state, dict[str, SavedComponent], from_attributes=True)
            for name in logs.keys() & targets.keys():
                if targets[name].is_adaptive and targets[name].identity == logs[name].identity:
                    log = ComponentLog(name)
                    log.restore(logs[name], targets[name])
                    self._logs[name] = log
        except DAMAGED as error:
            msg = f"the saved log of plans is damaged: {error}; start from an empty checkpoint"
            raise StateError(msg) from error


SETTLED = 2
"""Settled batches that a situation needs before its plan may be recalled."""

MOST_KNOWN = 256
"""Plans whose prices a situation keeps."""

MOST_MISTAKEN = 2
"""The plan of a situation is not recalled once its mistaken recalls exceed the right ones by this
many."""

SAME = 1.001
"""Plans up to this factor of the cheapest count as equally good."""


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


class Held(dict[str, float]):
    """Rows by the plan that they met, as JSON."""

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[Any, float]]) -> Held:
        """Return the rows of some plans."""
        return cls((plan_key(plan), n_rows) for plan, n_rows in pairs)

    def add(self, rows: Mapping[str, float]) -> None:
        """Add rows by plans."""
        for key, n_rows in rows.items():
            self[key] = self.get(key, 0.0) + n_rows

    def take(self, other: Held) -> None:
        """Take over the rows of another."""
        self.add(other)
        other.clear()

    def total(self) -> float:
        """Return all rows."""
        return sum(self.values())

    def shortened(self) -> float:
        """Let go of the plans of the fewest rows if there are many; returns their rows."""
        surplus = sorted(self, key=self.__getitem__)[: max(0, len(self) - MOST_PLANS)]
        return sum(self.pop(key) for key in surplus)

    def pairs(self) -> list[tuple[Any, float]]:
        """Return plans and their rows."""
        return [(json.loads(key), n_rows) for key, n_rows in self.items()]


def _make_room(cache: dict[str, Any]) -> None:
    """Let go of what can be computed again, if it is much."""
    if len(cache) >= MOST_KNOWN:
        cache.clear()


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
        distances = []
        if now.n_sampled >= LEAST_ROWS:
            distances.append(now.distance(self.seen))
        if now.met is not None:
            key = plan_key(now.met.plan)
            if key not in self.foreseen:
                _make_room(self.foreseen)
                self.foreseen[key] = target.foreseen(now.met.plan, self.seen.evidence)
            distances.append(distance(now.met.shares, now.met.counts, *self.foreseen[key]))
        return max(distances, default=UNKNOWN)

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
        prices = {key: self.price(target, key) for key in self.held}
        least = min((price for price in prices.values() if np.isfinite(price)), default=np.inf)
        cheapest = [key for key, price in prices.items() if price <= SAME * least]
        return max(cheapest or prices, key=self.held.__getitem__)

    def absorb(self, other: Logged) -> None:
        """Take over another entry of the same situation."""
        self.held.take(other.held)
        self.n_settled += other.n_settled
        self.n_right += other.n_right
        self.n_mistaken += other.n_mistaken


def plan_key(plan: Any) -> str:
    """Return a plan as text, the same for equal plans."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True)


def saved(logged: Logged) -> SavedSituation:
    """Return an entry as it is saved."""
    seen = logged.seen
    shares = [share if np.isfinite(share) else None for share in seen.shares.tolist()]
    return SavedSituation(
        shares,
        seen.counts.tolist(),
        seen.evidence,
        seen.n_sampled,
        logged.held.pairs(),
        logged.n_settled,
        logged.n_right,
        logged.n_mistaken,
    )


def restored(saved_situation: SavedSituation, names: tuple[str, ...]) -> Logged:
    """Return an entry that was saved, with conditions of those names.

    Raises:
        ValueError: its parts do not fit together.
    """
    shares = np.array(
        [np.nan if share is None else share for share in saved_situation.shares], np.float64
    )
    counts = np.array(saved_situation.counts, np.float64)
    fits = len(shares) == len(counts) == len(names) and (counts > 0.0).all()
    if not fits or not (np.isnan(shares) | ((shares >= 0.0) & (shares <= 1.0))).all():
        msg = f"{len(shares)} shares of {len(names)} conditions do not fit together"
        raise ValueError(msg)
    seen = Situation(
        names, shares, counts, saved_situation.evidence, saved_situation.n_sampled, is_settled=True
    )
    held = Held.from_pairs(saved_situation.held)
    return Logged(
        seen, held, saved_situation.n_settled, saved_situation.n_right, saved_situation.n_mistaken
    )


MOST_COMPARED = 32
"""Plans whose prices in all situations are compared: those that were in force for most rows. Where
each situation has plans of its own, a price of each in each would be hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Costs by the evidence of all situations, each for the rows for which it held."""

    cost: float = float("nan")
    """Of the plans that were in force (per row; nan: not known)."""
    best: Any = None
    """The single plan that would have cost least: of those that were in force for most rows, and
    the one that is chosen for all situations together."""
    best_cost: float = float("nan")
    """What it would have cost (per row)."""
    n_plans: int = 0
    """Plans that were in force."""
    n_unpriced: int = 0
    """Of those that are compared, what cannot be priced in every situation, and is left out."""

    @property
    def saved(self) -> float:
        """Share of the cost of the best single plan that was saved (nan: not known)."""
        return 1.0 - self.cost / self.best_cost if self.best_cost > 0.0 else float("nan")


@dataclass(frozen=True, slots=True)
class LogView:
    """What the log says of one component."""

    component: str
    n_situations: int = 0
    n_rows: float = 0.0
    """Rows of all situations."""
    n_left_out: float = 0.0
    """Rows of which no situation was known, or that was let go of."""
    n_right: int = 0
    """Recalls that were right."""
    n_mistaken: int = 0
    """Recalls that were given up."""
    hindsight: Hindsight = field(default_factory=Hindsight)
    unit: str = "ns"
    """Of costs: ``ns``, or what is counted in place of time."""
    per: str = "row"
    """What costs are of."""
    why_not: str = ""
    """Why its plans are not logged, if they are not."""


def hindsight(situations: Sequence[Logged], target: Choice) -> Hindsight:
    """Return what plans have cost in some situations, and what the best of them would have."""
    n_rows = np.array([situation.held.total() for situation in situations])
    if not n_rows.sum() > 0.0:
        return Hindsight()
    keys = compared(situations)
    prices = np.array([[situation.price(target, key) for key in keys] for situation in situations])
    # Rows under a plan without a price make the sum one that is not known.
    spent = [
        n * situation.price(target, key)
        for situation in situations
        for key, n in situation.held.items()
        if n > 0.0
    ]
    cost = float(sum(spent) / n_rows.sum())
    singles = dict(zip(keys, n_rows @ prices / n_rows.sum(), strict=True))
    n_unpriced = int(np.isnan(list(singles.values())).sum())
    priced = [(float(single), json.loads(key)) for key, single in singles.items()]
    evidence = [situation.seen.evidence for situation in situations]
    together = target.best_single(list(zip(evidence, n_rows.tolist(), strict=True)))
    if together is not None:
        price = sum(n * target.cost_of(together, e) for n, e in zip(n_rows, evidence, strict=True))
        priced.append((float(price / n_rows.sum()), together))
    finite = [pair for pair in priced if np.isfinite(pair[0])]
    best_cost, best = min(finite, key=lambda pair: pair[0]) if finite else (float("nan"), None)
    n_plans = len({key for situation in situations for key in situation.held})
    return Hindsight(cost, best, best_cost, n_plans, n_unpriced)


def compared(situations: Sequence[Logged]) -> list[str]:
    """Return the plans that were in force for most rows, in the order in which they came."""
    n_rows = Held()
    for situation in situations:
        n_rows.add(situation.held)
    most = set(sorted(n_rows, key=n_rows.__getitem__, reverse=True)[:MOST_COMPARED])
    return [key for key in n_rows if key in most]
