"""Learning of orders for classes of rows, from samples.

The values of an attribute tell classes apart. In come sampled rows: their outcomes under all
filters, and the bin of each attribute that they fall in. Out come counters per bin, the information
of an attribute about each filter, and one order per class. Read in this order: the outcomes of
rows; the counters of an attribute and how neighbouring ranges merge; information; pass fractions of
bins; orders of classes.

*Information* needs the counters alone: how many sampled rows fall in each bin, and how many of
those pass each filter. All filters are counted on the same rows, so there is no round of profiling
one filter after the other. Conventions: 0 log 0 = 0; an empty bin adds nothing; an attribute that
is constant in the sample has gain ratio 0, and so has any attribute of a filter that passes all or
nothing. [Bizarro05 3, 4.1]

Deviations: the paper accepts an attribute by a fixed threshold of the gain ratio, for which it
gives no value. By chance alone the gain of an attribute with d bins is (d - 1) / (2 R ln 2)
bits, so a gain counts here only if a likelihood-ratio test finds it significant too. The gain
ratios printed in [Bizarro05 Ex 3.2] are off by an operator precedence; these follow its (5).

*Orders.* Rows with the same outcomes and the same class are one *cell* with a weight, so the work
depends on how many different rows there are. A filter's pass fraction in a bin is drawn towards its
overall pass fraction, by as much as its pass fractions differ between bins no more than by chance
(empirical Bayes); a filter that the attribute says nothing of has its overall one everywhere. These
fractions, taken as independent, are the prior of a class. The rows of the class itself come on top:
they say how the filters depend on each other there. With few rows the order is the paper's, by
content-specific pass fraction; with many it is the greedy order of the class. [Bizarro05 4.2;
Babu05 4.3]

*Fan-out.* A look-up in a table or a window may make several rows of one. In place of a pass
fraction it has the mean number of rows that it makes: below 1 it drops, above 1 it multiplies, and
each row of these is one more evaluation of all that comes later. Its information is that of two
tests: whether a row finds a partner, and whether it finds more than the mean. [Bizarro05 4.5 leaves
the test open]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data.arrays import Bytes, Floats, Indices, Ints, Mask
from eddyline.data.outcomes import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.outcomes import Bits
    from eddyline.routing.table import Partition
    from eddyline.stats.profile import AttributeSample, Order

Orders = Indices
"""Orders as rows of a matrix ((G, F))."""

MAX_CANDIDATES = 32
"""Orders that are weighed against each other for the table."""

MIN_GROUP_GAIN = 0.001
"""Least saving of an order group, as a share of the cost of all rows: less is noise, and
each group is a branch."""


MAX_WEIGHT = 2.0
"""Most that a row may weigh, in medians: a few rows of a time when little was sampled would make
everything uncertain [truncated importance weights, Ionides08]."""

MIN_LOSS = 0.02
"""Least loss of a class by another order to need its own, as a share of the cost of a row."""

MANY_CODES = 256
"""Distinct outcome codes above which it is faster to count each filter's rows by themselves."""

MERGE_LEVEL = 0.01
"""Chance of keeping two neighbouring ranges apart that are alike."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Sampled rows by their outcomes alone."""

    drops: Bits
    """Mask of the filters that drop a row of each code ((Q, F))."""
    of_row: Indices
    """Code of each row ((M,))."""
    weights: Floats
    """Weight of each row, 1 on average ((M,))."""
    partners: Floats | None = None
    """Rows that each filter makes of a row of each code ((Q, F)); None: one, unless it drops it."""

    @classmethod
    def from_drops(
        cls, drops: Bits, codes: Bytes, weights: Floats, partners: Floats | None = None
    ) -> Self:
        """Return sampled rows grouped by outcome.

        Args:
            drops: the filters that drop each row ((M, F)).
            codes: the outcomes, packed ((M, B)).
            weights: of the rows ((M,)).
            partners: the rows that each filter makes of each ((M, F)).
        """
        if len(weights) == 0:
            return cls(drops, np.zeros(0, dtype=np.intp), weights, partners)
        first, of_row = grouped(codes)
        weights = np.minimum(weights, MAX_WEIGHT * np.median(weights))
        code_partners = None if partners is None else partners[first]
        return cls(drops[first], of_row, weights / weights.mean(), code_partners)

    @classmethod
    def of_sample(cls, sample: AttributeSample, n_filters: int) -> Self:
        """Return the rows of a sample, grouped by outcome."""
        bits = sample.bits(n_filters)
        return cls.from_drops(bits, sample.codes, sample.weights, sample.partners())

    @property
    def n_rows(self) -> int:
        """M, the number of rows."""
        return len(self.weights)

    @property
    def losses(self) -> Floats:
        """Share of a row of each code that each filter takes away; below 0 if it adds ((Q, F))."""
        return self.drops.astype(np.float64) if self.partners is None else 1.0 - self.partners

    @property
    def tests(self) -> Bits:
        """Masks of the codes by which attributes are judged ((Q, T)): first what is dropped.

        Where filters make several rows of one, then those that find no more than the mean.
        """
        if self.partners is None or not len(self.partners):
            return self.drops
        counts = np.bincount(self.of_row, minlength=len(self.drops))
        means = counts @ self.partners / max(counts.sum(), 1)
        return np.hstack([self.drops, self.partners <= means])

    def costs(self, orders: Orders, costs_ns: Floats) -> Floats:
        """Return the cost of a row of each code under each order ((G, F)) (ns; (Q, G))."""
        if self.partners is not None:
            reach = np.cumprod(self.partners[:, orders[:, :-1]], axis=2)
            in_order = costs_ns[orders]
            total: Floats = in_order[:, 0] + (reach * in_order[:, 1:]).sum(axis=2)
            return total
        drops = self.drops[:, orders]
        drops[:, :, -1] = True  # whoever comes this far pays for the last filter either way
        spent = costs_ns[orders].cumsum(axis=1)
        totals: Floats = spent[np.arange(len(orders)), drops.argmax(axis=2)]
        return totals

    def least_costs(self, costs_ns: Floats) -> Floats:
        """Return the least cost of a row of each code, under whatever order (ns; (Q,))."""
        if self.partners is not None:
            ranks = np.argsort((self.partners - 1.0) / costs_ns, axis=1, kind="stable")
            reach = np.cumprod(np.take_along_axis(self.partners, ranks, 1)[:, :-1], axis=1)
            cost = costs_ns[ranks]
            total: Floats = cost[:, 0] + (reach * cost[:, 1:]).sum(axis=1)
            return total
        least = np.where(self.drops, costs_ns, np.inf).min(axis=1)
        totals: Floats = np.minimum(least, costs_ns.sum())
        return totals


@dataclass(frozen=True, slots=True)
class Classifier:
    """An attribute that may tell something."""

    partition: Partition
    bins: Indices
    """Bin of each row ((M,))."""
    seen: Floats
    """Rows in each bin and each part of the sample ((D, J))."""
    passed: Floats
    """Of those, the rows that pass each test; see ``Outcomes.tests`` ((T, D, J))."""
    made: Floats | None = None
    """The rows that each filter makes of them ((F, D, J)); None: as many as pass."""

    @property
    def n_bins(self) -> int:
        """D, the number of bins."""
        return len(self.seen)

    def merged(self, tests: Mask) -> Self:
        """Return the attribute with fewer ranges: neighbours that say the same are one.

        The likeliest pair is merged until every two neighbours differ beyond chance in what they
        say of the tests ((T,)) that the attribute tells about [Kerber92].
        """
        if self.partition.kind != "ranges":
            return self
        seen, passed = self.seen[:-1].sum(axis=1), self.passed[tests, :-1].sum(axis=2)
        kept = np.arange(len(seen) - 1)
        from scipy.special import chdtri  # noqa: PLC0415 - loading it takes longer than most tasks

        least = chdtri(max(tests.sum(), 1), MERGE_LEVEL)
        while len(kept):
            statistic = difference(seen, passed)
            edge = int(statistic.argmin())
            if statistic[edge] > least:
                break
            seen = _merged_counts(seen, edge)
            passed = _merged_counts(passed, edge)
            kept = np.delete(kept, edge)
        useless = set(range(len(self.partition.points))) - set(kept.tolist())
        starts = np.array([0, *(kept + 1), self.n_bins - 1])
        number = np.repeat(np.arange(len(starts)), np.diff(starts, append=self.n_bins))
        return type(self)(
            self.partition.without(useless),
            number[self.bins],
            np.add.reduceat(self.seen, starts, axis=0),
            np.add.reduceat(self.passed, starts, axis=1),
            None if self.made is None else np.add.reduceat(self.made, starts, axis=1),
        )


def _merged_counts(counts: Floats, edge: int) -> Floats:
    """Return counts with bins ``edge`` and ``edge + 1`` of the last axis as one."""
    starts = np.delete(np.arange(counts.shape[-1]), edge + 1)
    return np.add.reduceat(counts, starts, axis=-1)


def entropy(pass_frac: Floats) -> Floats:
    """Return the entropy of an outcome that passes with some probability (bits) [Bizarro05 (2)].

    >>> entropy(np.array([0.0, 0.5, 1.0]))
    array([0., 1., 0.])
    """
    return _information(pass_frac) + _information(1.0 - pass_frac)


def _information(frac: Floats) -> Floats:
    """Return -x log2 x; 0 at 0."""
    logs = np.log2(frac, out=np.zeros_like(frac), where=frac > 0.0)
    return 0.0 - frac * logs


@dataclass(frozen=True, slots=True)
class Gains:
    """Information of each of K attributes about each of F filters."""

    info: Floats
    """Information gain (bits; ≥ 0; (F, K)) [Bizarro05 (3)]."""
    split_info: Floats
    """Entropy of the bins themselves (bits; (K,)) [Bizarro05 (4)]."""
    n_filled: Ints
    """Bins that hold a sampled row ((K,))."""
    n_rows: float
    """R, the sampled rows."""

    @property
    def ratio(self) -> Floats:
        """Gain ratio ((F, K)) [Bizarro05 (5)]."""
        safe = np.where(self.split_info > 0.0, self.split_info, 1.0)
        ratios: Floats = np.where(self.split_info > 0.0, self.info / safe, 0.0)
        return ratios

    @property
    def g_statistic(self) -> Floats:
        """Likelihood-ratio statistic: chi-square with ``n_filled - 1`` degrees if by chance."""
        statistics: Floats = 2.0 * np.log(2.0) * self.n_rows * self.info
        return statistics

    @property
    def beyond_chance(self) -> Floats:
        """Information gain less what chance alone gives on average (bits; ≥ 0; (F, K))."""
        chance = np.maximum(self.n_filled - 1, 0) / (2.0 * np.log(2.0) * max(self.n_rows, 1.0))
        excess: Floats = np.maximum(self.info - chance, 0.0)
        return excess

    def is_significant(self, level: float) -> Mask:
        """Return a mask of the gains that chance does not explain ((F, K)).

        ``level`` is the chance of one false attribute per filter, shared by all ((0, 1)).
        """
        degrees = np.maximum(self.n_filled - 1, 1)
        from scipy.special import chdtri  # noqa: PLC0415 - loading it takes longer than most tasks

        bound = chdtri(degrees, level / max(len(degrees), 1))
        mask: Mask = (self.n_filled > 1) & (self.g_statistic > bound)
        return mask


def gains(seen: Sequence[Floats], passed: Sequence[Floats]) -> Gains:
    """Return the gains of counters [Bizarro05 4.1].

    They are the rows in each bin of each attribute (``In``; K times (D_k,)) and, of those, the
    ones that pass each filter (``Out``; K times (F, D_k)).

    >>> found = gains([np.array([50.0, 50.0, 50.0])], [np.array([[5.0, 10.0, 45.0]])])
    >>> float(found.ratio[0, 0].round(6)), float(found.g_statistic[0, 0].round(1))
    (0.263504, 86.8)
    """
    n_rows = float(seen[0].sum()) if seen else 0.0
    info, split = [], []
    for rows, good in zip(seen, passed, strict=True):
        share = rows / max(n_rows, 1.0)
        overall = good.sum(axis=1) / max(n_rows, 1.0)
        within = entropy(good / np.maximum(rows, 1.0)) @ share
        info.append(np.maximum(entropy(overall) - within, 0.0))
        split.append(_information(share).sum())
    filled = [int((rows > 0).sum()) for rows in seen]
    n_filters = len(passed[0]) if passed else 0
    table = np.stack(info, axis=1) if info else np.zeros((n_filters, 0))
    return Gains(table, np.array(split), np.array(filled, dtype=np.int64), n_rows)


def difference(seen: Floats, passed: Floats) -> Floats:
    """Return the difference of each bin from the next: likelihood-ratio statistic ((D - 1,)).

    By chance alone it is chi-square with as many degrees as there are filters. For the counters of
    an attribute see ``gains``.
    """
    both, good = seen[:-1] + seen[1:], passed[:, :-1] + passed[:, 1:]
    apart = seen * entropy(passed / np.maximum(seen, 1.0))
    bits = both * entropy(good / np.maximum(both, 1.0)) - apart[:, :-1] - apart[:, 1:]
    statistics: Floats = 2.0 * np.log(2.0) * np.maximum(bits, 0.0).sum(axis=0)
    return statistics


def count(
    bins: Sequence[Indices],
    sizes: Sequence[int],
    code: Indices,
    drops: Bits,
) -> tuple[list[Floats], list[Floats]]:
    """Return the counters of a sample: ``In`` and ``Out`` of all attributes and all filters.

    Args:
        bins: the bin of each row, for each attribute (K times (M,)).
        sizes: how many bins each attribute has (K).
        code: outcome code of each row ((M,)).
        drops: which filter drops a row of each code ((Q, F)).
    """
    passes = (~drops).astype(np.float64)
    n_codes = len(drops)
    seen: list[Floats] = []
    passed: list[Floats] = []
    for bins_of_rows, size in zip(bins, sizes, strict=True):
        if n_codes > MANY_CODES:
            seen.append(np.bincount(bins_of_rows, minlength=size).astype(np.float64))
            by_filter = [
                np.bincount(bins_of_rows, is_passing, minlength=size)
                for is_passing in passes[code].T
            ]
            passed.append(np.array(by_filter, dtype=np.float64))
            continue
        # Rows of one code pass the same filters, so it is enough to count those.
        cells = np.bincount(bins_of_rows * n_codes + code, minlength=size * n_codes)
        table = cells.reshape(size, n_codes).astype(np.float64)
        seen.append(table.sum(axis=1))
        passed.append((table @ passes).T)
    return seen, passed


@dataclass(frozen=True, slots=True)
class Cells:
    """Sampled rows by class and outcome."""

    classes: Indices
    """The classes that have rows, ascending ((C,))."""
    starts: Indices
    """First cell of each class ((C,))."""
    owner: Indices
    """Class of each cell, as a place in ``classes`` ((N,))."""
    code: Indices
    """Outcome code of each cell ((N,))."""
    of_row: Indices
    """Cell of each row ((M,))."""

    @classmethod
    def from_outcomes(cls, class_of_row: Indices, outcomes: Outcomes) -> Self:
        """Return the cells of rows whose class is known ((M,))."""
        n_codes = len(outcomes.drops)
        keys, of_row = np.unique(class_of_row * n_codes + outcomes.of_row, return_inverse=True)
        classes = keys // n_codes
        starts = np.flatnonzero(np.diff(classes, prepend=-1))
        owner = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(classes)))
        return cls(classes[starts], starts, owner, keys % n_codes, of_row.ravel())

    def sums(self, weights: Floats) -> Floats:
        """Return the weight of each cell ((N,)) from that of each row ((M,))."""
        return np.bincount(self.of_row, weights=weights).astype(np.float64)


def shrunk(seen: Floats, passed: Floats, variance: float | None = None) -> Floats:
    """Return the pass fraction in each bin, drawn towards the overall one ([0, 1]; (D,)).

    How strongly is estimated: by how much the bins differ beyond chance [DerSimonian86]. Of rows
    that are made, which are counted in place of those that pass, the ``variance`` is given.

    >>> shrunk(np.array([50.0, 50.0]), np.array([25.0, 26.0])).round(2)
    array([0.51, 0.51])
    >>> shrunk(np.array([50.0, 50.0, 0.0]), np.array([5.0, 45.0, 0.0])).round(2)
    array([0.11, 0.89, 0.5 ])
    """
    total = seen.sum()
    overall = passed.sum() / max(total, 1.0)
    chance = overall * (1.0 - overall) if variance is None else variance
    fracs = np.divide(passed, seen, out=np.full(len(seen), overall), where=seen > 0)
    spread = seen @ (fracs - overall) ** 2 - (np.count_nonzero(seen) - 1) * chance
    scale = total - (seen @ seen) / max(total, 1.0)
    if spread <= 0.0 or scale <= 0.0:
        return np.full(len(seen), overall)
    prior_rows = chance * scale / spread
    fracs_shrunk: Floats = (passed + prior_rows * overall) / (seen + prior_rows)
    return fracs_shrunk


def greedy_orders(
    cells: Cells, losses: Floats | Bits, weights: Floats, prior_drops: Floats, costs_ns: Floats
) -> Orders:
    """Return for each class the order of the most dropped per cost ((C, F)).

    ``losses`` ((N, F)) and ``weights`` ((N,)) are of the cells. ``prior_drops`` is the weight that
    each filter is taken to drop at any position before anything is seen there ((C, F)).
    """
    losses = np.asarray(losses, dtype=np.float64)
    n_classes, n_filters = prior_drops.shape
    orders = np.empty((n_classes, n_filters), dtype=np.intp)
    every, places = np.arange(n_classes), np.arange(len(weights))
    is_left = np.ones((n_classes, n_filters), dtype=np.bool_)
    alive = losses * weights[:, None]
    for position in range(n_filters):
        ratio = (np.add.reduceat(alive, cells.starts, axis=0) + prior_drops) / costs_ns
        best = np.where(is_left, ratio, -np.inf).argmax(axis=1)
        orders[:, position] = best
        is_left[every, best] = False
        alive *= (1.0 - losses[places, best[cells.owner]])[:, None]
    return orders


def independent_costs(pass_fracs: Floats, orders: Orders, costs_ns: Floats) -> Floats:
    """Return a row's cost under each order ((G, F)) if filters are independent (ns; (C, G)).

    ``pass_fracs`` are of each filter in each class, or the rows that it makes of one ((C, F)).
    """
    reach = np.cumprod(pass_fracs[:, orders[:, :-1]], axis=2)
    costs = costs_ns[orders]
    totals: Floats = costs[:, 0] + (reach * costs[:, 1:]).sum(axis=2)
    return totals


@dataclass(frozen=True, slots=True)
class Learned:
    """Orders, and which class takes which."""

    orders: Orders
    """The orders in use, the default first ((G, F)); perhaps once more, for classes that need it
    whatever becomes of the default."""
    groups: Indices
    """Place in ``orders`` of each class of the cells ((C,))."""


def learn(
    cells: Cells,
    outcomes: Outcomes,
    weights: Floats,
    pass_fracs: Floats,
    default: Order,
    costs_ns: Floats,
    *,
    prior_rows: float,
    max_groups: int,
    group_ns: float,
) -> Learned:
    """Return an order for each class: few different ones, and the default where none is better.

    Args:
        cells: the rows by class.
        outcomes: their outcomes.
        weights: weight of each cell; 0 for what is not to be learned from ((N,)).
        pass_fracs: of each filter in each class, or the rows that it makes of one ((C, F)).
        default: the order of all rows.
        costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
        prior_rows: rows of independent filters that each class is taken to have (≥ 0).
        max_groups: most groups (≥ 2).
        group_ns: what one more order costs per input row (ns; ≥ 0).
    """
    prior = prior_rows * (1.0 - pass_fracs)
    losses = outcomes.losses[cells.code]
    greedy = greedy_orders(cells, losses, weights, prior, costs_ns)
    of_class = np.add.reduceat(weights, cells.starts)
    candidates = _distinct(greedy, of_class + prior_rows, default)
    by_code = outcomes.costs(candidates, costs_ns)
    seen = np.add.reduceat(by_code[cells.code] * weights[:, None], cells.starts, axis=0)
    costs = seen + prior_rows * independent_costs(pass_fracs, candidates, costs_ns)
    # The prior stands for rows that are not there: in proportion, it is not to weigh in a choice.
    costs *= (of_class / np.maximum(of_class + prior_rows, 1e-9))[:, None]
    least = max(group_ns * weights.sum(), MIN_GROUP_GAIN * costs[:, 0].sum())
    chosen = _choose(costs, max(2, max_groups - 1), least)
    groups = costs[:, chosen].argmin(axis=1)
    needs = (groups == 0) & _needs_default(costs[:, chosen], of_class)
    if needs.any() and len(chosen) < max_groups:
        groups[needs] = len(chosen)
        chosen.append(0)
    return Learned(candidates[chosen], groups)


def _needs_default(costs: Floats, of_class: Floats) -> Mask:
    """Return a mask of the classes that would lose far more by another order than all rows ((C,)).

    What is the order of all rows today is one of several that are as good to rows in general, and
    may be another one tomorrow; such a class keeps it. The first column of costs ((C, G)) is its.
    """
    rows = max(of_class.sum(), 1e-9)
    in_general = np.maximum((costs - costs[:, :1]).sum(axis=0) / rows, 0.0)
    of_each = (costs - costs[:, :1]) / np.maximum(of_class, 1e-9)[:, None]
    least = MIN_LOSS * costs[:, 0].sum() / rows
    mask: Mask = (of_each > 2.0 * in_general + least).any(axis=1)
    return mask


def _distinct(orders: Orders, weights: Floats, default: Order) -> Orders:
    """Return the default and the distinct orders that most rows want ((G, F))."""
    place: dict[bytes, int] = {np.array(default, dtype=np.intp).tobytes(): 0}
    number = np.array([place.setdefault(order.tobytes(), len(place)) for order in orders])
    wanted = np.bincount(number, weights=weights, minlength=len(place))
    wanted[0] = np.inf
    distinct = np.array([np.frombuffer(key, dtype=np.intp) for key in place])
    return distinct[np.argsort(-wanted, kind="stable")[:MAX_CANDIDATES]]


def _choose(costs: Floats, max_groups: int, least: float) -> list[int]:
    """Return the orders to use, best first: each must save ``least`` (ns) beside those before it.

    The first one, the default, is always used.
    """
    chosen, best = [0], costs[:, 0]
    while len(chosen) < min(max_groups, costs.shape[1]):
        saved = np.maximum(best[:, None] - costs, 0.0).sum(axis=0)
        index = int(saved.argmax())
        if saved[index] <= least:
            break
        chosen.append(index)
        best = np.minimum(best, costs[:, index])
    return chosen
