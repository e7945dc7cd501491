"""Profile of a conjunction, and its sliding window.

It has what execution observed of the filters. *Profile.* A profile is keyed by filter id, never by
the position in some order. So profiles of different tasks, batches and orders merge, and survive a
change of plan. Profiles merge associatively and, as a bag of rows, commutatively. [Babu05 4.3.1]

*Attributes.* A profile keeps outcomes only of rows that some filter drops. To see whether an
attribute tells which filter will drop a row, every sampled row is needed, with the attribute's
value: ``AttributeSample``.

*Window.* ``ProfileWindow`` holds the newest profile tuples and the costs measured with them. Expiry
counts profile tuples, not batches, so the window spans the same evidence however rows are cut into
batches. [Babu05 4.3.1]
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, index
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from eddyline.data import outcomes as outcome
from eddyline.data.jit import compiled
from eddyline.data.learned import Learns
from eddyline.errors import PlanError
from eddyline.stats.costs import CostSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.data.outcomes import Bits


if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    K = TypeVar("K", bound=Hashable)
    T = TypeVar("T")


Order = tuple[int, ...]
"""The order of a conjunction: ``order[position]`` is the index of a filter."""

MAX_BLOCKS = 256
"""Blocks of counts that a profile keeps, the newest ones."""


@dataclass(frozen=True, slots=True)
class FilterProfile:
    """Sampled outcomes, costs and counts of the F filters of one conjunction.

    A sampled row that some filter drops is a *profile tuple*: its outcome code has a bit for each
    filter. Sampled rows that pass every filter only count.
    """

    filter_ids: tuple[str, ...]
    """Names of the filters; index f of every array here is the filter ``filter_ids[f]``."""
    codes: outcome.Codes
    """Outcome codes of the profile tuples, oldest first ((R, B))."""
    weights: Floats
    """Input rows that each profile tuple stands for: 1 / sampling probability ((R,))."""
    passed: float
    """Input rows that the sampled rows that passed every filter stand for."""
    n_passed: float
    """Number of sampled rows that those are."""
    costs: CostSums
    """Costs of the calls that were made."""
    rows_in: Floats
    """Rows on which each filter was evaluated in the main pass, sampled or not ((F,))."""
    rows_out: Floats
    """Of ``rows_in``, the rows that passed ((F,))."""
    n_rows: int = 0
    """Input rows seen."""
    n_batches: int = 0
    """Arrow batches, or pieces of them, that they came in (0 where there are none)."""
    n_kept: int = 0
    """Input rows that passed every filter."""
    n_evaluations: int = 0
    """Evaluations made in all, profiling included."""
    n_extra: int = 0
    """Of ``n_evaluations``, those that only profiling needed."""
    n_raised: Floats = field(default_factory=lambda: np.zeros(0))
    """Rows on which each filter raised and was set aside ((F,))."""
    basis: Order | None = None
    """The order under which partial codes were taken; None if every bit of every code is known."""
    ran_under: Order | None = None
    """The order that all rows met; None if there were several, or if it is not known: then
    ``rows_in`` and ``rows_out`` are of no single order."""
    blocks: Ints | None = None
    """Rows in and out of each filter in consecutive blocks of input rows that met ``ran_under``,
    where a monitor asks for them; never saved ((blocks, 2, F))."""
    attributes: AttributeSample | None = None
    """Every sampled row with its attributes, where attributes were observed; never saved."""

    @classmethod
    def empty(cls, filter_ids: tuple[str, ...]) -> Self:
        """Return the profile of nothing."""
        n = len(filter_ids)
        return cls(
            filter_ids=filter_ids,
            codes=np.zeros((0, outcome.n_bytes(n)), dtype=np.uint8),
            weights=np.zeros(0),
            passed=0.0,
            n_passed=0.0,
            costs=CostSums.empty(n),
            rows_in=np.zeros(n),
            rows_out=np.zeros(n),
            n_raised=np.zeros(n),
        )

    @classmethod
    def of_sample(
        cls,
        filter_ids: tuple[str, ...],
        drops: Mask,
        *,
        prob: float = 1.0,
        costs: CostSums | None = None,
        basis: Order | None = None,
    ) -> Self:
        """Return the profile of sampled rows alone, without counts of the main pass.

        Args:
            filter_ids: names of the filters (F).
            drops: which filter drops which sampled row ((R, F)); all-false rows passed.
            prob: sampling probability ((0, 1]).
            costs: costs of the filters; unknown if omitted.
            basis: the order under which the bits were taken, if some are unknown.
        """
        dropped = drops.any(axis=1)
        base = cls.empty(filter_ids)
        n_dropped = int(dropped.sum())
        return replace(
            base,
            codes=outcome.pack(drops[dropped]) if n_dropped else base.codes,
            weights=np.full(n_dropped, 1.0 / prob),
            passed=(len(drops) - n_dropped) / prob,
            n_passed=float(len(drops) - n_dropped),
            costs=base.costs if costs is None else costs,
            basis=basis,
        )

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.filter_ids)

    @property
    def n_tuples(self) -> int:
        """R, the number of profile tuples."""
        return len(self.codes)

    def bits(self) -> tuple[Mask, Floats]:
        """Return the distinct outcome bits ((K, F)) and the weight of each ((K,))."""
        codes, weights = outcome.histogram(self.codes, self.weights)
        return outcome.unpack(codes, self.n_filters), weights

    def last(self, n_tuples: int) -> Self:
        """Return a copy with only the newest profile tuples, passed rows in proportion."""
        if n_tuples >= self.n_tuples:
            return self
        share = n_tuples / self.n_tuples
        start = self.n_tuples - n_tuples
        return replace(
            self,
            codes=self.codes[start:],
            weights=self.weights[start:],
            passed=self.passed * share,
            n_passed=self.n_passed * share,
        )

    def to_state(self) -> dict[str, Any]:
        """Return the evidence as plain values, to be saved: sample and costs, not the counts."""
        return {
            "codes": self.codes.tobytes().hex(),
            "weights": self.weights.tolist(),
            "passed": self.passed,
            "n_passed": self.n_passed,
            "costs": self.costs.to_state(),
            "basis": None if self.basis is None else list(self.basis),
        }

    @classmethod
    def from_state(cls, filter_ids: tuple[str, ...], state: dict[str, Any]) -> Self:
        """Return the evidence that ``to_state`` saved.

        Raises:
            PlanError: its parts do not fit together.
        """
        base = cls.empty(filter_ids)
        codes = np.frombuffer(bytes.fromhex(state["codes"]), dtype=np.uint8)
        codes = codes.reshape(-1, base.codes.shape[1])
        weights = np.array(state["weights"], dtype=np.float64)
        passed, n_passed = float(state["passed"]), float(state["n_passed"])
        costs = CostSums.from_state(state["costs"])
        basis = None if state["basis"] is None else tuple(map(index, state["basis"]))
        counts = np.append(weights, [passed, n_passed])
        fits = weights.shape == (len(codes),) and costs.sums.shape == base.costs.sums.shape
        is_order = basis is None or sorted(basis) == list(range(len(filter_ids)))
        if not (fits and is_order and np.isfinite(counts).all() and (counts >= 0.0).all()):
            msg = f"{len(codes)} codes, {weights.shape} weights, order {basis} do not fit together"
            raise PlanError(msg, filters=filter_ids)
        return replace(
            base,
            codes=codes,
            weights=weights,
            passed=passed,
            n_passed=n_passed,
            costs=costs,
            basis=basis,
        )


def merge(profiles: Iterable[FilterProfile]) -> FilterProfile:
    """Return one profile of everything that the given profiles observed.

    Partial codes can be read only with the order that they were taken under: of profiles that
    ran under different orders, the sample of the newest order is kept, and the counts of all.

    Raises:
        PlanError: the profiles are of different filters, or there is none.
    """
    parts = list(profiles)
    if not parts:
        msg = "cannot merge no profiles; start from FilterProfile.empty(filter_ids)"
        raise PlanError(msg)
    first = parts[0]
    for part in parts:
        if part.filter_ids != first.filter_ids:
            msg = f"cannot merge profiles of filters {part.filter_ids} and {first.filter_ids}"
            raise PlanError(msg, left=first.filter_ids, right=part.filter_ids)
    if len(parts) == 1:
        return first
    orders = [part.basis for part in parts if part.basis is not None]
    basis = orders[-1] if orders else None
    readable = [part for part in parts if part.basis in {None, basis}]
    ran = {part.ran_under for part in parts if part.rows_in.any()}
    ran_under = ran.pop() if len(ran) == 1 else None
    blocks = [part.blocks for part in parts if part.blocks is not None]
    has_blocks = ran_under is not None and blocks
    counts: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
    return FilterProfile(
        filter_ids=first.filter_ids,
        codes=np.concatenate([part.codes for part in readable]),
        weights=np.concatenate([part.weights for part in readable]),
        passed=sum(part.passed for part in readable),
        n_passed=sum(part.n_passed for part in readable),
        costs=reduce(add, (part.costs for part in parts)),
        basis=basis,
        ran_under=ran_under,
        blocks=np.concatenate(blocks)[-MAX_BLOCKS:] if has_blocks else None,
        attributes=_joined_attributes(parts),
        **counts,
    )


_COUNTS = (
    *("rows_in", "rows_out", "n_rows", "n_batches", "n_kept"),
    *("n_evaluations", "n_extra", "n_raised"),
)
"""What profiles of any orders add up."""


def merge_tasks(profiles: Sequence[FilterProfile], n_tuples: int, n_rows: int) -> FilterProfile:
    """Return one profile of tasks that ran side by side, by partition.

    Each task has the same say, whosever report came first: an equal share of the sample (profile
    tuples, and rows with attributes), which is interleaved, since none came after another's.

    Raises:
        PlanError: the profiles are of different filters, or there is none.
    """
    count = max(len(profiles), 1)
    shares = [profile.last(-(-n_tuples // count)) for profile in profiles]
    whole = merge(shares)
    if count == 1:
        return whole
    # The first rows of each come first and the last ones last: the newest rows are of all tasks.
    place = side_by_side([len(share.codes) for share in shares])
    if len(place) == len(whole.codes):  # all of them could be read
        whole = replace(whole, codes=whole.codes[place], weights=whole.weights[place])
    if whole.attributes is not None:
        newest = whole.attributes.attributes
        sampled = [p.attributes.last(-(-n_rows // count)) for p in shares if p.attributes]
        same = [sample for sample in sampled if sample.attributes == newest]
        order = side_by_side([sample.n_rows for sample in same])
        whole = replace(whole, attributes=joined(same).take(order))
    if whole.blocks is not None:
        counted = [share.blocks for share in shares if share.blocks is not None]
        length = min(map(len, counted))
        whole = replace(whole, blocks=np.sum([blocks[-length:] for blocks in counted], axis=0))
    return whole


def _joined_attributes(parts: list[FilterProfile]) -> AttributeSample | None:
    """Return the attribute samples of the profiles that observed what the newest of them did."""
    observed = [part.attributes for part in parts if part.attributes is not None]
    if not observed:
        return None
    newest = observed[-1].attributes
    return joined([sample for sample in observed if sample.attributes == newest])


_PARTS = 16
"""Parts of a full window: costs leave with a part, so they are at most a sixteenth too old, and
one merge of all of them per batch stays cheap."""


class ProfileWindow:
    """The newest ``max_tuples`` profile tuples (≥ 1) of one conjunction."""

    def __init__(self, filter_ids: tuple[str, ...], max_tuples: int) -> None:
        self.filter_ids = filter_ids
        self.max_tuples = max_tuples
        self._parts: deque[FilterProfile] = deque()
        self._merged: FilterProfile | None = None

    def push(self, profile: FilterProfile) -> None:
        """Add the newest profile and let the oldest profile tuples go."""
        part = replace(profile.last(self.max_tuples), attributes=None, blocks=None)
        newest = self._parts[-1] if self._parts else None
        if newest and newest.n_tuples + part.n_tuples <= self.max_tuples // _PARTS:
            part = merge([self._parts.pop(), part])
        self._parts.append(part)
        self._expire()

    def _expire(self) -> None:
        """Let the oldest profile tuples go, and the costs of parts that are gone whole."""
        surplus = sum(part.n_tuples for part in self._parts) - self.max_tuples
        while surplus > 0:
            oldest = self._parts.popleft()
            if oldest.n_tuples > surplus:
                self._parts.appendleft(oldest.last(oldest.n_tuples - surplus))
            surplus -= oldest.n_tuples
        self._merged = None

    def forget_costs(self, filters: Mask) -> None:
        """Take the costs of some filters ((F,)) out, because they will not come again."""
        self._parts = deque(
            replace(part, costs=part.costs.without(filters)) for part in self._parts
        )
        self._merged = None

    def keep_newest(self, n_tuples: int) -> None:
        """Let older profile tuples go, but not the costs: what filters drop has changed."""
        profile = self.profile()
        kept = profile.last(n_tuples) if n_tuples else FilterProfile.empty(self.filter_ids)
        self._parts = deque([replace(kept, costs=profile.costs)])
        self._merged = None

    def begin_with(self, *profiles: FilterProfile) -> None:
        """Replace the content by profiles, the oldest first."""
        self._parts = deque(replace(profile, attributes=None, blocks=None) for profile in profiles)
        self._expire()

    def profile(self) -> FilterProfile:
        """Return everything in the window as one profile."""
        if self._merged is None:
            empty = FilterProfile.empty(self.filter_ids)
            self._merged = merge(self._parts) if self._parts else empty
        return self._merged

    def to_state(self) -> list[dict[str, Any]]:
        """Return the content as plain values, part by part, so that expiry goes on as before."""
        return [part.to_state() for part in self._parts]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Replace the content by what ``to_state`` returned."""
        self._parts = deque(FilterProfile.from_state(self.filter_ids, part) for part in state)
        self._expire()


@dataclass(frozen=True, slots=True)
class AttributeSample:
    """M sampled rows, oldest first: values of K attributes, outcomes of F filters."""

    attributes: tuple[str, ...]
    """Names of the attributes; column k of ``values`` is ``attributes[k]``."""
    values: Floats
    """Values as numbers, nan for NULL; of texts, a hash ((M, K))."""
    codes: outcome.Codes
    """Outcome codes; zero for a row that passes every filter ((M, B))."""
    weights: Floats
    """Input rows that each sampled row stands for ((M,))."""

    @classmethod
    def empty(cls, attributes: Sequence[str], n_filters: int) -> Self:
        """Return a sample of no rows."""
        return cls(
            tuple(attributes),
            np.zeros((0, len(attributes))),
            np.zeros((0, outcome.n_bytes(n_filters)), dtype=np.uint8),
            np.zeros(0),
        )

    @property
    def n_rows(self) -> int:
        """M, the number of sampled rows."""
        return len(self.weights)

    def bits(self, n_filters: int) -> outcome.Bits:
        """Return a mask of the filters that drop each row ((M, F))."""
        return outcome.unpack(self.codes, n_filters)

    def partners(self) -> Floats | None:
        """Return what each filter makes of each row; None: one row, unless it drops it."""
        return None

    def take(self, rows: Indices | slice) -> Self:
        """Return the rows at some places, in that order."""
        return type(self)(self.attributes, self.values[rows], self.codes[rows], self.weights[rows])

    def last(self, n_rows: int) -> Self:
        """Return the newest rows."""
        return self if n_rows >= self.n_rows else self.take(slice(self.n_rows - n_rows, None))

    def of(self, attributes: Sequence[str]) -> Self:
        """Return the sample with these attributes alone; nan where one was not observed."""
        place = {name: k for k, name in enumerate(self.attributes)}
        values = np.full((self.n_rows, len(attributes)), np.nan)
        for column, name in enumerate(attributes):
            if name in place:
                values[:, column] = self.values[:, place[name]]
        return type(self)(tuple(attributes), values, self.codes, self.weights)


@dataclass(frozen=True, slots=True)
class PartnerSample(AttributeSample):
    """Sampled rows that look-ups make several rows of; a code is how many, for each look-up."""

    @classmethod
    def empty(cls, attributes: Sequence[str], n_filters: int) -> Self:
        """Return a sample of no rows."""
        values, codes = np.zeros((0, len(attributes))), np.zeros((0, n_filters), np.uint8)
        return cls(tuple(attributes), values, codes, np.zeros(0))

    def bits(self, n_filters: int) -> outcome.Bits:
        """Return a mask of the look-ups that drop each row ((M, F))."""
        bits: outcome.Bits = self.codes[:, :n_filters] == 0
        return bits

    def partners(self) -> Floats | None:
        """Return how many rows each look-up makes of each row ((M, F))."""
        return self.codes.astype(np.float64)


def side_by_side(lengths: Sequence[int]) -> Indices:
    """Return the order that interleaves series of some lengths which stand one behind the other.

    >>> side_by_side([2, 4])
    array([2, 0, 3, 4, 1, 5])
    """
    place = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in lengths])
    return np.argsort(place, kind="stable")


def joined(samples: Sequence[AttributeSample]) -> AttributeSample:
    """Return one sample of all rows, in that order.

    Raises:
        PlanError: there is none, or they are of different attributes.
    """
    if not samples:
        msg = "cannot join no samples; start from AttributeSample.empty(attributes, n_filters)"
        raise PlanError(msg)
    first = samples[0]
    for sample in samples:
        if sample.attributes != first.attributes:
            msg = f"cannot join samples of {first.attributes} and {sample.attributes}"
            raise PlanError(msg, left=first.attributes, right=sample.attributes)
    if len(samples) == 1:
        return first
    return type(first)(
        first.attributes,
        np.concatenate([sample.values for sample in samples]),
        np.concatenate([sample.codes for sample in samples]),
        np.concatenate([sample.weights for sample in samples]),
    )


def both(one: Mapping[K, T], other: Mapping[K, T], how: Callable[[T, T], T]) -> dict[K, T]:
    """Return what either has; ``how`` puts together what both have."""
    merged = {**one, **other}
    return merged | {name: how(one[name], other[name]) for name in one if name in other}


# -- block estimates -------------------------------------------------------------------------------
# Block estimates: what filters drop given a prefix of the order, from a few sampled rows each.
#
# Change detectors watch numbers, not rows. For each prefix of the order, the sampled rows that the
# prefix lets through are cut into consecutive blocks; a full block gives one estimate of the drop
# fraction of every filter that stands behind the prefix [Tsamoura16 6].
#
# Deviation: the paper cuts the profile into blocks of k rows before it looks which of them a prefix
# lets through. Deep in the order too few of them are left to estimate anything, so here the rows
# that are let through fill the block, however many sampled rows that takes.


_MOST_CELLS = 2**16
"""Estimates that are made together (half a MiB)."""


class BlockEstimates(Learns):
    """Open blocks of the F prefixes of an order: k rows that the prefix lets through fill one."""

    learned = ("_reached", "_dropped")

    def __init__(self, n_filters: int, block_rows: int) -> None:
        self.n_filters = n_filters
        self.block_rows = block_rows
        self._reached = np.zeros(n_filters)
        """Rows of the open block of each prefix; entry i is the first i filters of the order."""
        self._dropped = np.zeros((n_filters, n_filters))
        """Of those, the rows that each filter drops, by prefix and filter."""

    def add(self, drops: Bits, order: Order) -> Iterator[tuple[Ints, Floats]]:
        """Take in sampled rows.

        Args:
            drops: which filter drops which row, oldest row first ((R, F)); rows that pass
                included.
            order: the order whose prefixes are watched.

        Yields:
            For T runs of at most ``block_rows`` rows: the length of each run ((T,)), and the drop
            fraction of each filter given each prefix ((T, F, F), by run, prefix length and filter;
            nan where the run filled no block, and where the filter is of the prefix).
        """
        rows, filters = np.ascontiguousarray(drops, dtype=np.bool_), np.array(order, dtype=np.int64)
        most_rows = max(_MOST_CELLS // self.n_filters**2, 1) * self.block_rows
        for start in range(0, len(rows), most_rows):
            part = rows[start : start + most_rows]
            n_runs = -(-len(part) // self.block_rows)
            lengths = np.full(n_runs, self.block_rows)
            lengths[-1] = len(part) - (n_runs - 1) * self.block_rows
            estimates = np.full((n_runs, self.n_filters, self.n_filters), np.nan)
            fill_blocks(part, filters, self.block_rows, self._reached, self._dropped, estimates)
            yield lengths, estimates

    def forget(self, prefixes: Mask) -> None:
        """Empty the open blocks of some prefixes ((F,))."""
        self._reached[prefixes] = 0.0
        self._dropped[prefixes] = 0.0

    def check_learned(self) -> None:
        """Raise StateError if a restored block is not open."""
        is_open = (self._reached >= 0.0) & (self._reached < self.block_rows)
        fits = (self._dropped >= 0.0) & (self._dropped <= self._reached[:, None])
        if not (is_open.all() and fits.all()):
            self._damaged("an open block has more rows than it can, or drops more than it has")


@compiled
def fill_blocks(
    drops: Mask, order: Ints, block_rows: int, reached: Floats, dropped: Floats, estimates: Floats
) -> None:
    """Count rows into the open block of each prefix; write estimates of the blocks they fill.

    Args:
        drops: which filter drops which row ((R, F)).
        order: the order whose prefixes are watched ((F,)).
        block_rows: rows of a run, and of a block.
        reached: rows of each open block ((F,)).
        dropped: of those, the rows that each filter drops ((F, F), by prefix and filter).
        estimates: takes the fractions after each run that filled a block ((T, F, F)).
    """
    n = len(order)
    for row in range(len(drops)):
        for i in range(n):
            reached[i] += 1.0
            for c in range(i, n):
                dropped[i, order[c]] += drops[row, order[c]]
            if drops[row, order[i]]:
                break
        if (row + 1) % block_rows and row + 1 < len(drops):
            continue
        for i in range(n):
            if reached[i] >= block_rows:
                for c in range(i, n):
                    estimates[row // block_rows, i, order[c]] = dropped[i, order[c]] / reached[i]
                reached[i] = 0.0
                dropped[i] = 0.0


def changed_prefixes(before: Order, after: Order) -> Mask:
    """Return a mask of the prefix lengths that name other filters in another order ((F,)).

    >>> changed_prefixes((0, 1, 2), (1, 0, 2))
    array([False,  True, False])
    """
    n = len(before)
    # The sets of the first i agree iff as many distinct filters are in both of them together.
    rank = np.empty(n, dtype=np.int64)
    rank[list(before)] = np.arange(n)
    furthest = np.maximum.accumulate(rank[list(after)])
    changed = np.zeros(n, dtype=np.bool_)
    changed[1:] = furthest[:-1] >= np.arange(1, n)
    return changed
