"""The router: whether classes of rows should take orders of their own, and which.

    sample ─► partition attributes ─► which tell what a filter drops? ─► one order per class
                                                                              │
    table in force ◄── pays, out of sample and on the newest rows ◄───────────┘

It sees sampled rows of all filters' outcomes, never the rows themselves and never a clock.
[Bizarro05 4: Content-Learns]

Deviations, all of them because a sample of a batch is at hand instead of single tuples: every
filter is profiled on the same rows, not one after the other; a class has one order for a whole
batch; a table is accepted by a paired comparison on rows that it was not learned from, not by two
readings of throughput; pass fractions come from the unbiased sample, not from routed tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from eddyline.errors import PlanError
from eddyline.options import in_range
from eddyline.routing.gain import count, difference, gains
from eddyline.routing.learning import (
    Cells,
    Outcomes,
    class_buckets,
    greedy_orders,
    independent_costs,
    learn,
    shrunk,
)
from eddyline.routing.partitions import Partition, choose_partition
from eddyline.routing.protocol import RouteProposal
from eddyline.routing.table import MAX_CLASSES, MAX_GROUPS, RouteTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eddyline.data.codes import Bits
    from eddyline.routing.learning import Learned
    from eddyline.routing.protocol import Order
    from eddyline.stats.attributes import AttributeSample

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Kind = Literal["number", "category"]

N_FOLDS = 4
"""Parts of a sample: a table learned from all but one is judged on that one."""

N_BLOCKS = 8
"""Runs of neighbouring rows that the parts are made of: a part lies apart in time, too."""

LONG_FIRST = (1, 2, 4)
"""Shares of the sample (one in so many, the newest) that a table is searched in: all of it, and
less only if nothing in it holds for the newest rows."""

SHORT_FIRST = (8, 4, 2, 1)
"""The same once the table in force no longer does what it did: the newest rows first."""

FALLING_Z = 3.0
"""Standard errors by which the newest rows must save less than those before to call it a change."""

MERGE_LEVEL = 0.01
"""Chance of keeping two neighbouring ranges apart that are alike."""

MAX_TRIED = 4
"""Attributes that are tried, those that tell most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """When classes of rows get orders of their own.

    Raises:
        OptionError: a value is out of its range.
    """

    n_buckets: int = 24
    """Most buckets of an attribute with many values ([2, 128]) [Bizarro05 Table 2]."""
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
    """Rows by which a class's own rows are drawn towards what its buckets say ([0, 1e6])."""
    min_rows: int = 400
    """Sampled rows before anything is learned ([8, 2^31])."""
    min_gain: float = 0.01
    """Share of the cost that a table must save, or another table save on it ([0, 1))."""
    z_score: float = 2.0
    """Standard errors by which the saving must exceed what routing costs ([0, 100])."""

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
        in_range(self, "z_score", 0.0, 100.0)


@dataclass(frozen=True, slots=True)
class _Prices:
    """What things cost in one decision."""

    order: Order
    costs_ns: Floats
    """Cost of one evaluation ((F,))."""
    route_ns: float
    """Finding a row's group (per input row)."""
    group_ns: float
    """One more group (per input row)."""

    def overhead_ns(self, n_groups: int) -> float:
        """Return what routing costs per input row (ns)."""
        return self.route_ns + (n_groups - 1) * self.group_ns


@dataclass(frozen=True, slots=True)
class _Saving:
    """What a table saves per input row against one order, net of what routing costs."""

    rows_ns: Floats
    """Saved on each row, weighted to 1 on average ((M,))."""
    weights: Floats
    """Weight of each row ((M,))."""
    overhead_ns: float
    """What routing costs per input row."""

    def over(self, n_newest: int) -> tuple[float, float]:
        """Return the mean net saving of the newest rows and its standard error (ns)."""
        return self._mean(self.rows_ns[-n_newest:], self.weights[-n_newest:])

    def is_falling(self, n_newest: int) -> bool:
        """Return whether the newest rows save less than those before, beyond chance."""
        if len(self.rows_ns) < 2 * n_newest:
            return False
        before, error_before = self._mean(self.rows_ns[:-n_newest], self.weights[:-n_newest])
        now, error = self.over(n_newest)
        return bool(before - now > FALLING_Z * np.hypot(error_before, error))

    def _mean(self, rows: Floats, weights: Floats) -> tuple[float, float]:
        total = weights.sum()
        mean = float(weights @ rows / total)
        error = float(np.sqrt((weights**2) @ (rows - mean) ** 2) / total)
        return mean - self.overhead_ns, error


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute that may tell something."""

    partition: Partition
    buckets: Ints
    """Bucket of each row ((M,))."""
    seen: Floats
    """Rows in each bucket and each part of the sample ((D, J))."""
    passed: Floats
    """Of those, the rows that pass each filter ((F, D, J))."""

    @property
    def n_buckets(self) -> int:
        """D, the number of buckets."""
        return len(self.seen)

    def merged(self, filters: NDArray[np.bool_]) -> Self:
        """Return the attribute with fewer ranges: neighbours that say the same are one.

        The likeliest pair is merged until every two neighbours differ beyond chance in what they
        say of the filters that the attribute tells about [Kerber92].

        Args:
            filters: those filters ((F,)).
        """
        if self.partition.kind != "ranges":
            return self
        seen, passed = self.seen[:-1].sum(axis=1), self.passed[filters, :-1].sum(axis=2)
        kept = np.arange(len(seen) - 1)
        least = chdtri(max(filters.sum(), 1), MERGE_LEVEL)
        while len(kept):
            statistic = difference(seen, passed)
            edge = int(statistic.argmin())
            if statistic[edge] > least:
                break
            seen = _merge(seen, edge)
            passed = _merge(passed, edge)
            kept = np.delete(kept, edge)
        useless = set(range(len(self.partition.points))) - set(kept.tolist())
        starts = np.array([0, *(kept + 1), self.n_buckets - 1])
        number = np.repeat(np.arange(len(starts)), np.diff(starts, append=self.n_buckets))
        return type(self)(
            self.partition.without(useless),
            number[self.buckets],
            np.add.reduceat(self.seen, starts, axis=0),
            np.add.reduceat(self.passed, starts, axis=1),
        )


def _merge(counts: Floats, edge: int) -> Floats:
    """Return counts with buckets ``edge`` and ``edge + 1`` of the last axis as one."""
    starts = np.delete(np.arange(counts.shape[-1]), edge + 1)
    found: Floats = np.add.reduceat(counts, starts, axis=-1)
    return found


@dataclass(frozen=True, slots=True)
class _Trial:
    """A set of attributes, and what a table of them saves on rows it was not learned from."""

    attributes: tuple[int, ...]
    saving: _Saving
    routed_ns: Floats
    """What each row costs under it ((M,))."""


class Router:
    """Proposes route tables for one conjunction.

    Args:
        filter_ids: names of the filters (F).
        attributes: names of the attributes (K).
        kinds: of each attribute, whether its values have an order (``number``) or not
            (``category``) (K).
        reads: of each filter, the attributes that it reads itself: a bucket of one of those is
            no prediction but the filter's own work [Bizarro05 Fig 8] (F).
        options: when to route.

    Raises:
        PlanError: names, kinds and reads do not fit together.
    """

    def __init__(
        self,
        filter_ids: Sequence[str],
        attributes: Sequence[str],
        kinds: Sequence[Kind],
        reads: Sequence[frozenset[str]],
        options: RouterOptions | None = None,
    ) -> None:
        if len(attributes) != len(kinds) or len(reads) != len(filter_ids):
            msg = (
                f"{len(attributes)} attributes with {len(kinds)} kinds and {len(filter_ids)} "
                f"filters with {len(reads)} sets of attributes read do not fit"
            )
            raise PlanError(msg, attributes=tuple(attributes), filters=tuple(filter_ids))
        self.filter_ids = tuple(filter_ids)
        self.attributes = tuple(attributes)
        self.kinds = tuple(kinds)
        self.options = options or RouterOptions()
        own = [[name in read for name in self.attributes] for read in reads]
        self.own = np.array(own, dtype=np.bool_).reshape(len(filter_ids), len(attributes))

    def propose(
        self,
        order: Order,
        table: RouteTable | None,
        sample: AttributeSample,
        costs_ns: Floats,
        route_cost_ns: float = 0.0,
        group_cost_ns: float = 0.0,
    ) -> RouteProposal | None:
        """Return a better table, or one that says to stop routing; None leaves things alone.

        Args:
            order: the order of all rows.
            table: the table in force.
            sample: the newest sampled rows.
            costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
            route_cost_ns: what it costs to find a row's group (ns per input row; ≥ 0).
            group_cost_ns: what each group but the first adds, such as one more call of each filter
                per batch (ns per input row; ≥ 0).
        """
        prices = _Prices(order, costs_ns, route_cost_ns, group_cost_ns)
        sample = sample.of(self.attributes)
        if len(order) < 2 or not self.attributes:
            return None if table is None else RouteProposal(None, {"reason": "nothing to route"})
        if sample.n_rows < self.options.min_rows:
            return None
        held: Floats | None = None
        shares: tuple[int, ...] = LONG_FIRST
        is_stale = False
        if table is not None:
            held, is_stale = self._held(table, sample, prices)
            shares = SHORT_FIRST if is_stale else LONG_FIRST[:1]
        for share in shares:
            rows = sample.last(sample.n_rows // share)
            found = None
            if rows.n_rows >= self.options.min_rows:
                found = _Search(self, rows, prices, is_stale=is_stale).run()
            proposal = found and self._if_better(found, table, held, rows, prices)
            if proposal:
                return proposal
        if table is None or held is not None:
            return None
        return RouteProposal(None, {"reason": "routing stopped paying", "n_rows": sample.n_rows})

    def _held(
        self, table: RouteTable, sample: AttributeSample, prices: _Prices
    ) -> tuple[Floats | None, bool]:
        """Look whether the table in force still does what it was chosen for.

        It is looked at over the newest rows, few and more: a change for the worse shows in the few
        at once, a table that never paid in the many.

        Returns:
            What each row costs under it ((M,)), or None if it stopped paying; and whether it saves
            less on the newest rows than on those before.
        """
        if not set(table.attributes) <= set(self.attributes) or table.n_groups < 2:
            return None, True
        outcomes = Outcomes.of(sample.bits(len(prices.order)), sample.codes, sample.weights)
        routed = _routed(table.with_default(prices.order), sample, outcomes, prices)
        base = outcomes.costs(np.array([prices.order]), prices.costs_ns)[outcomes.of_row, 0]
        saving = _Saving(base - routed, outcomes.weights, prices.overhead_ns(table.n_groups))
        z, least = self.options.z_score, self.options.min_rows
        n_newest = sample.n_rows // 2
        while n_newest >= least:
            mean, error = saving.over(n_newest)
            if mean + z * error < 0.0:
                return None, True
            n_newest //= 2
        if saving.over(sample.n_rows)[0] <= 0.0:
            return None, True
        is_stale = saving.is_falling(least)
        now, error = saving.over(least)
        return (None if is_stale and now <= z * error else routed), is_stale

    def _if_better(
        self,
        found: tuple[_Trial, RouteProposal],
        table: RouteTable | None,
        held: Floats | None,
        rows: AttributeSample,
        prices: _Prices,
    ) -> RouteProposal | None:
        """Return the proposal unless the table in force is about as good."""
        trial, proposal = found
        if table is None or held is None or proposal.table is None:
            return proposal
        more = prices.overhead_ns(proposal.table.n_groups) - prices.overhead_ns(table.n_groups)
        saving = _Saving(held[-rows.n_rows :] - trial.routed_ns, trial.saving.weights, more)
        mean, error = saving.over(rows.n_rows)
        least = self.options.min_gain * float(held.mean())
        newest, _ = saving.over(self.options.min_rows)
        is_better = mean - self.options.z_score * error > least and newest > 0.0
        return proposal if is_better else None


class _Search:
    """One search for a table: the sample, read once, and what the steps share."""

    def __init__(
        self, router: Router, sample: AttributeSample, prices: _Prices, *, is_stale: bool
    ) -> None:
        self.router = router
        self.is_stale = is_stale
        self.options = router.options
        self.sample = sample
        self.prices = prices
        self.drops: Bits = sample.bits(len(prices.order))
        self.outcomes = Outcomes.of(self.drops, sample.codes, sample.weights)
        self.fold = np.arange(sample.n_rows) * N_BLOCKS // sample.n_rows % N_FOLDS
        self.left_out: dict[str, str] = {}
        self.base_ns = self._base()

    def _base(self) -> Floats:
        """Return what each row costs under the better of two orders for all rows ((M,)).

        The order in force may not be up to date; what a better order for all rows would save, too,
        is not to the credit of routing.
        """
        outcomes, costs = self.outcomes, self.prices.costs_ns
        one = Cells.of(np.zeros(outcomes.n_rows, dtype=np.intp), outcomes)
        weights = one.sums(outcomes.weights)
        drops = outcomes.drops[one.code]
        prior: Floats = 1e-3 * (weights @ drops)[None, :]
        greedy = greedy_orders(one, drops, weights, prior, costs)[0]
        by_code = outcomes.costs(np.array([self.prices.order, greedy]), costs)
        better = int((weights @ by_code[one.code]).argmin())
        found: Floats = by_code[outcomes.of_row, better]
        return found

    def run(self) -> tuple[_Trial, RouteProposal] | None:
        """Return the best table and its evidence, if there is one that pays."""
        least = self.outcomes.least_costs(self.prices.costs_ns)[self.outcomes.of_row]
        most = float(self.outcomes.weights @ (self.base_ns - least)) / self.outcomes.n_rows
        if most <= self.prices.overhead_ns(2):
            return None
        usable, own = self._usable()
        if not usable:
            return None
        self.gains = gains(
            [each.seen.sum(axis=1) for each in usable],
            [each.passed.sum(axis=2) for each in usable],
        )
        self.tells = self._tells(own)
        self.worth = self.gains.beyond_chance * self.tells
        self.usable = [
            each.merged(self.tells[:, k]) if self.tells[:, k].any() else each
            for k, each in enumerate(usable)
        ]
        trial = self._forward()
        if trial is None or not self._pays(trial):
            return None
        table = self._table(trial.attributes)
        if len(set(table.orders)) < 2:
            return None
        return trial, RouteProposal(table, self._evidence(trial, table))

    def _usable(self) -> tuple[list[_Attribute], NDArray[np.bool_]]:
        """Cut the attributes into buckets; note why some are left out.

        Returns:
            The attributes that are left, and which filter reads which of them ((F, K')).
        """
        found, own = [], []
        names, kinds = self.router.attributes, self.router.kinds
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            values = np.ascontiguousarray(self.sample.values[:, place])
            part = choose_partition(name, kind, values, self.options.n_buckets)
            if isinstance(part, str):
                self.left_out[name] = part
            elif part.n_buckets > self.options.max_classes:
                self.left_out[name] = "more buckets than classes are allowed"
            else:
                found.append(self._attribute(part, part.buckets(values)))
                own.append(self.router.own[:, place])
        n_filters = self.drops.shape[1]
        return found, np.array(own, dtype=np.bool_).reshape(len(found), n_filters).T

    def _attribute(self, part: Partition, buckets: Ints) -> _Attribute:
        """Count an attribute, part by part of the sample."""
        size = part.n_buckets
        cells, outcomes = buckets * N_FOLDS + self.fold, self.outcomes
        seen, passed = count([cells], [size * N_FOLDS], outcomes.of_row, outcomes.drops)
        by_fold = seen[0].reshape(size, N_FOLDS), passed[0].reshape(-1, size, N_FOLDS)
        return _Attribute(part, buckets, *by_fold)

    def _tells(self, own: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which usable attribute tells something about which filter ((F, K'))."""
        options = self.options
        pass_fracs = 1.0 - self.drops.mean(axis=0)
        moves = np.abs(pass_fracs - 0.5) <= 0.5 - options.extreme_frac
        found: NDArray[np.bool_] = (
            (self.gains.ratio > options.min_ratio)
            & self.gains.is_significant(options.level)
            & ~own
            & moves[:, None]
        )
        return found

    def _forward(self) -> _Trial | None:
        """Choose attributes one by one: each must save more, on rows not learned from."""
        worth = self.worth.sum(axis=0)
        tried = [k for k in np.argsort(-worth, kind="stable").tolist()[:MAX_TRIED] if worth[k]]
        best: _Trial | None = None
        while tried and (best is None or len(best.attributes) < self.options.max_attributes):
            so_far = () if best is None else best.attributes
            sets = [(*so_far, k) for k in tried if self._n_classes((*so_far, k)) <= self._most]
            trials = [self._trial(each) for each in sets]
            found = max(
                trials, key=lambda trial: trial.saving.over(len(self.fold))[0], default=None
            )
            if found is None or (best is not None and not self._is_better(found, best)):
                break
            best = found
            tried = [k for k in tried if k not in best.attributes]
        return best

    @property
    def _most(self) -> int:
        return min(self.options.max_classes, MAX_CLASSES)

    def _n_classes(self, attributes: Iterable[int]) -> int:
        total = 1
        for k in attributes:
            total *= self.usable[k].n_buckets
        return total

    def _is_better(self, found: _Trial, best: _Trial) -> bool:
        more = found.saving.overhead_ns - best.saving.overhead_ns
        saving = _Saving(best.routed_ns - found.routed_ns, found.saving.weights, more)
        mean, error = saving.over(len(self.fold))
        return mean - self.options.z_score * error > 0.0

    def _trial(self, attributes: tuple[int, ...]) -> _Trial:
        """Learn on all parts but one and judge on that one, in turn."""
        cells = self._cells(attributes)
        n_cells, outcomes = len(cells.owner), self.outcomes
        by_fold = np.bincount(
            cells.of_row * N_FOLDS + self.fold,
            weights=outcomes.weights,
            minlength=n_cells * N_FOLDS,
        ).reshape(n_cells, N_FOLDS)
        weights = by_fold.sum(axis=1)
        routed = np.empty((n_cells, N_FOLDS))
        n_groups = 1
        for fold in range(N_FOLDS):
            pass_fracs = self._pass_fracs(attributes, cells.classes, fold)
            learned = self._learn(cells, weights - by_fold[:, fold], pass_fracs)
            by_code = outcomes.costs(learned.orders, self.prices.costs_ns)
            routed[:, fold] = by_code[cells.code, learned.groups[cells.owner]]
            n_groups = max(n_groups, len(learned.orders))
        rows = routed[cells.of_row, self.fold]
        overhead = self.prices.overhead_ns(n_groups)
        saving = _Saving(self.base_ns - rows, outcomes.weights, overhead)
        return _Trial(attributes, saving, rows)

    def _cells(self, attributes: tuple[int, ...]) -> Cells:
        number = np.zeros(self.outcomes.n_rows, dtype=np.intp)
        for k in attributes:
            number = number * self.usable[k].n_buckets + self.usable[k].buckets
        return Cells.of(number, self.outcomes)

    def _learn(self, cells: Cells, weights: Floats, pass_fracs: Floats) -> Learned:
        return learn(
            cells,
            self.outcomes,
            weights,
            pass_fracs,
            self.prices.order,
            self.prices.costs_ns,
            prior_rows=self.options.prior_rows,
            max_groups=self.options.max_groups,
            group_ns=self.prices.group_ns,
        )

    def _pass_fracs(
        self, attributes: tuple[int, ...], classes: Ints, left_out: int | None = None
    ) -> Floats:
        """Return the pass fraction of each filter in some classes ((C, F)).

        Each filter goes by the attribute of the set that tells most about it [Bizarro05 4.2].

        Args:
            attributes: the set.
            classes: the classes ((C,)).
            left_out: the part of the sample that is not to be learned from.
        """
        buckets = class_buckets(classes, [self.usable[k].n_buckets for k in attributes])
        found = np.empty((len(classes), self.drops.shape[1]))
        for f, worth in enumerate(self.worth[:, list(attributes)]):
            u = int(worth.argmax())
            attribute = self.usable[attributes[u]]
            seen, passed = attribute.seen, attribute.passed[f]
            if left_out is not None:
                seen, passed = np.delete(seen, left_out, 1), np.delete(passed, left_out, 1)
            if worth[u] > 0.0:
                found[:, f] = shrunk(seen.sum(axis=1), passed.sum(axis=1))[buckets[u]]
            else:
                found[:, f] = passed.sum() / max(seen.sum(), 1.0)
        return found

    def _pays(self, trial: _Trial) -> bool:
        """Whether a trial saves beyond doubt, and among the newest rows no less.

        After a change older rows do not speak for the newest, which then have to prove it alone.
        """
        z, n_rows = self.options.z_score, self.outcomes.n_rows
        mean, error = trial.saving.over(n_rows)
        least = self.options.min_gain * float(self.base_ns.mean())
        if mean <= max(least, z * error):
            return False
        newest, error = trial.saving.over(self.options.min_rows)
        if self.is_stale:
            return newest > z * error
        return newest > 0.0 and not trial.saving.is_falling(self.options.min_rows)

    def _table(self, attributes: tuple[int, ...]) -> RouteTable:
        """Return the table that all rows of the sample teach."""
        cells = self._cells(attributes)
        weights = cells.sums(self.outcomes.weights)
        pass_fracs = self._pass_fracs(attributes, cells.classes)
        learned = self._learn(cells, weights, pass_fracs)
        parts = [self.usable[k].partition for k in attributes]
        orders = [tuple(map(int, order)) for order in learned.orders]
        groups = self._unseen(attributes, learned)
        groups[cells.classes] = learned.groups
        return RouteTable(tuple(parts), tuple(orders), tuple(groups.tolist())).compact()

    def _unseen(self, attributes: tuple[int, ...], learned: Learned) -> Ints:
        """Return the group of each class as its buckets ask for, if all of them were seen."""
        sizes = [self.usable[k].n_buckets for k in attributes]
        classes = np.arange(self._n_classes(attributes))
        fracs = self._pass_fracs(attributes, classes)
        costs = independent_costs(fracs, learned.orders, self.prices.costs_ns)
        groups: Ints = costs.argmin(axis=1)
        for k, of_class in zip(attributes, class_buckets(classes, sizes), strict=True):
            groups[(self.usable[k].seen.sum(axis=1) == 0)[of_class]] = 0
        return groups

    def _evidence(self, trial: _Trial, table: RouteTable) -> dict[str, Any]:
        """Return what the proposal rests on, as plain values."""
        names = self.router.filter_ids
        saved, error = trial.saving.over(self.outcomes.n_rows)
        columns = [self.router.attributes.index(name) for name in table.attributes]
        group = table.group_of(self.sample.values[:, columns])
        shares = np.bincount(group, weights=self.outcomes.weights, minlength=table.n_groups)
        told = {}
        for f, name in enumerate(names):
            worth = self.worth[f, list(trial.attributes)]
            k = trial.attributes[int(worth.argmax())]
            if worth.max() > 0.0:
                told[name] = {
                    "attribute": self.usable[k].partition.attribute,
                    "gain_ratio": float(self.gains.ratio[f, k]),
                    "g_statistic": float(self.gains.g_statistic[f, k]),
                }
        weighted = self.outcomes.weights / self.outcomes.n_rows
        return {
            "filters": told,
            "left_out": self.left_out,
            "cost_ns": float(weighted @ self.base_ns),
            "routed_cost_ns": float(weighted @ trial.routed_ns),
            "route_cost_ns": trial.saving.overhead_ns,
            "saved_ns": saved,
            "standard_error_ns": error,
            "n_rows": self.outcomes.n_rows,
            "n_classes": table.n_classes,
            "share_of_rows": (shares / self.outcomes.n_rows).round(4).tolist(),
        }


def _routed(
    table: RouteTable, sample: AttributeSample, outcomes: Outcomes, prices: _Prices
) -> Floats:
    """Return what each row costs under a table (ns; (M,))."""
    columns = [sample.attributes.index(name) for name in table.attributes]
    group = table.group_of(sample.values[:, columns])
    found: Floats = outcomes.costs(np.array(table.orders), prices.costs_ns)[outcomes.of_row, group]
    return found
