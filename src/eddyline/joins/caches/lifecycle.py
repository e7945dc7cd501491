"""The life of a candidate cache: used, profiled or neither; and bans of caches that were bad.

    profiled ──chosen──► used          at a re-optimisation, when everything is measured
    profiled ──not chosen──► unused
    used ──costs more than it saves, or not chosen──► unused
    used ──re-optimisation, hides probes of another one──► profiled
    unused ──re-optimisation──► profiled
    any ──its pipeline is reordered──► gone

So the choice follows at once where a cache turns bad, and at the next re-optimisation where one
turns good. [Babu05 5.5.5, with its three refinements; 5.7]

Deviations: what a cache is worth is compared with what it was when caches were last chosen, not
when they were last measured, so that slow drifts add up; and after a cache was lost, caches are
always chosen anew, as what it held back may be worth using now. A reorder also ends caches of
*other* pipelines whose changes fell out of the one that was reordered; the thesis misses that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eddyline.joins.caches.prefix_invariant import Candidate, Store

Key = TypeVar("Key")

CHANGE_FRAC = 0.2
"""Change of a benefit or a cost, as a share of it, that asks for a new choice [Babu05 5.5.5]."""

FIRST_BAN = 32
"""Batches for which a cache that was bad in use is not tried again; twice as many each time."""

MOST_BAN = 4096
"""Most batches for which it is not."""


class State(Enum):
    """The state of a candidate."""

    USED = "used"
    """Serves probes."""
    PROFILED = "profiled"
    """Serves no probes, and is measured."""
    UNUSED = "unused"
    """Neither."""


@dataclass(frozen=True, slots=True)
class Worths:
    """Benefits and costs of caches by the newest estimates (per unit of time).

    Only estimates that rest on enough observations are in it: a cache that began to be used is
    empty and would look bad at once.
    """

    benefits: Mapping[Candidate, float] = field(default_factory=dict)
    """The work that a candidate saves."""
    costs: Mapping[Store, float] = field(default_factory=dict)
    """The work to keep a store consistent."""

    def of(self, candidates: Collection[Candidate]) -> Worths:
        """Return the worths of some candidates."""
        benefits = {each: saved for each, saved in self.benefits.items() if each in candidates}
        stores = {each.store for each in benefits}
        costs = {store: cost for store, cost in self.costs.items() if store in stores}
        return Worths(benefits, costs)

    def net(self, cache: Candidate) -> float:
        """Return the benefit of a cache, less the cost of its store; 0 if it is not known."""
        if cache not in self.benefits:
            return 0.0
        return self.benefits[cache] - self.costs.get(cache.store, 0.0)

    def has_moved(self, since: Worths, frac: float) -> bool:
        """Return whether a benefit or a cost is new, or changed by more than a share of it."""
        return _has_moved(since.benefits, self.benefits, frac) or _has_moved(
            since.costs, self.costs, frac
        )


@dataclass(frozen=True, slots=True)
class CacheStates:
    """The state of every candidate; a value, replaced by the next one at each step."""

    states: Mapping[Candidate, State]
    """The state of each candidate."""
    is_measuring: bool = True
    """Whether a choice is due as soon as every profiled candidate is measured."""
    paused: frozenset[Candidate] = frozenset()
    """Profiled candidates that were used before: their stores are kept consistent meanwhile."""
    basis: Worths = field(default_factory=Worths)
    """The worths by which the caches in use were chosen; none if one of them was lost since."""

    @classmethod
    def of(cls, candidates: Iterable[Candidate]) -> Self:
        """Return the start: everything is measured."""
        return cls(dict.fromkeys(candidates, State.PROFILED))

    def which(self, *states: State) -> tuple[Candidate, ...]:
        """Return the candidates in some states."""
        return tuple(each for each, state in self.states.items() if state in states)

    @property
    def used(self) -> tuple[Candidate, ...]:
        """The caches that serve probes."""
        return self.which(State.USED)

    @property
    def kept(self) -> tuple[Store, ...]:
        """The stores whose taps run: of used caches, and of those that are only paused."""
        return tuple(dict.fromkeys(each.store for each in (*self.used, *self.paused)))

    def step(
        self,
        worths: Worths,
        choose: Callable[[Worths], Collection[Candidate]],
        *,
        is_due: bool,
        change_frac: float = CHANGE_FRAC,
    ) -> CacheStates:
        """Return the states after a batch by the newest estimates.

        ``choose`` returns the candidates to use, of those whose worths it is given; it is called at
        most once, if a choice is made. ``is_due``: the time between two re-optimisations is over.
        """
        current = self._without_bad_ones(worths)
        if is_due and not current.is_measuring:
            current = current._measuring()
        in_play = current.which(State.USED, State.PROFILED)
        if not current.is_measuring or not set(in_play) <= set(worths.benefits):
            return current
        measured = worths.of(in_play)
        if not measured.has_moved(current.basis, change_frac):
            return current._settled({*current.used, *current.paused}, current.basis)
        return current._settled(choose(measured), measured)

    def reordered(self, pipelines: Collection[str], candidates: Iterable[Candidate]) -> CacheStates:
        """Return the states after a change of the orders of some pipelines [Babu05 5.5.5, 5.7].

        A cache stays as it is if its own pipeline has its old order, and it is still a candidate:
        the set whose pipelines tell its changes is then still closed, and the taps where they were.
        """
        states = {
            each: State.PROFILED
            if each.pipeline in pipelines
            else self.states.get(each, State.PROFILED)
            for each in candidates
        }
        paused = {each for each in self.paused if each in states and each.pipeline not in pipelines}
        return replace(self, states=states, paused=frozenset(paused), basis=Worths())

    def _without_bad_ones(self, worths: Worths) -> CacheStates:
        """Stop using what costs more than it saves; caches that share a store stand together."""
        bad = {each for each in self.used if worths.benefits.get(each, 0.0) < 0.0}
        left = [each for each in self.used if each not in bad]
        for store in {each.store for each in left} & set(worths.costs):
            sharing = [each for each in left if each.store == store]
            saved = [worths.benefits[each] for each in sharing if each in worths.benefits]
            if len(saved) == len(sharing) and sum(saved) < worths.costs[store]:
                bad.update(sharing)
        if not bad:
            return self
        return replace(self._with(dict.fromkeys(bad, State.UNUSED)), basis=Worths())

    def _measuring(self) -> CacheStates:
        """Profile what is not used, and what hides its probes."""
        asked = self.which(State.UNUSED, State.PROFILED)
        hiding = {each for each in self.used if any(each.hides(other) for other in asked)}
        profiled = dict.fromkeys([*asked, *hiding], State.PROFILED)
        return replace(self._with(profiled), is_measuring=True, paused=frozenset(hiding))

    def _settled(self, chosen: Collection[Candidate], basis: Worths) -> CacheStates:
        states = {each: State.USED if each in chosen else State.UNUSED for each in self.states}
        return CacheStates(states, is_measuring=False, basis=basis)

    def _with(self, changed: Mapping[Candidate, State]) -> CacheStates:
        return replace(self, states={**self.states, **changed})


def _has_moved(before: Mapping[Key, float], now: Mapping[Key, float], frac: float) -> bool:
    return any(
        each not in before or abs(value - before[each]) > frac * abs(before[each])
        for each, value in now.items()
    )


class Bans:
    """Caches that took more than they saved: they are not tried again for a time.

    The time doubles with every ban, so trying costs little however often an estimate was wrong.
    """

    def __init__(self) -> None:
        self._bans: dict[Candidate, tuple[int, int]] = {}

    def add(self, cache: Candidate, batch_id: int) -> None:
        """Ban a cache from a batch on."""
        _, last = self._bans.get(cache, (0, FIRST_BAN // 2))
        length = min(2 * last, MOST_BAN)
        self._bans[cache] = batch_id + length, length

    def has(self, cache: Candidate, batch_id: int) -> bool:
        """Return whether a cache is banned in a batch."""
        until, _ = self._bans.get(cache, (0, 0))
        return batch_id < until
