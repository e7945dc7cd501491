"""The search for a route table in one sample: which attributes, which classes, does it pay.

A set of attributes grows by the one that saves most, as long as it saves beyond doubt. What a set
saves is judged on rows that its orders were not learned from: each part of the sample in turn.
[Bizarro05 4.1, trial of a classifier attribute]
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eddyline.routing.classifier import Classifier
from eddyline.routing.gain import count, gains
from eddyline.routing.learning import (
    Cells,
    Outcomes,
    class_bins,
    greedy_orders,
    independent_costs,
    learn,
    shrunk,
)
from eddyline.routing.partitions import Partition, choose_partition
from eddyline.routing.saving import Saving
from eddyline.routing.table import MAX_CLASSES, RouteTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.data.outcomes import Bits
    from eddyline.routing.learning import Learned
    from eddyline.routing.options import RouterOptions
    from eddyline.routing.saving import Prices
    from eddyline.stats.profile import AttributeSample


Kind = Literal["number", "category"]
"""Whether the values of an attribute have an order, or only equality means anything."""

N_FOLDS = 4
"""Parts of a sample: a table learned from all but one is judged on that one."""

N_BLOCKS = 8
"""Runs of neighbouring rows that the parts are made of: a part lies apart in time, too."""

MAX_TRIED = 4
"""Attributes that are tried, those that tell most."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A set of attributes, and what a table of them saves on rows it was not learned from."""

    attributes: tuple[int, ...]
    saving: Saving
    routed_ns: Floats
    """Cost of each row under it ((M,))."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table that pays, and the trial that showed it."""

    trial: Trial
    table: RouteTable


@dataclass(frozen=True, slots=True)
class Subject:
    """The filters of a conjunction and the attributes that rows may be told apart by."""

    filter_ids: tuple[str, ...]
    """Names of the filters (F)."""
    attributes: tuple[str, ...]
    """Names of the attributes (K)."""
    kinds: tuple[Kind, ...]
    """Of each attribute, whether its values have an order (K)."""
    own: Mask
    """Mask of the attributes that each filter reads itself ((F, K))."""


class Search:
    """One search for a table: the sample, read once, and the results that its steps share."""

    def __init__(
        self,
        options: RouterOptions,
        subject: Subject,
        sample: AttributeSample,
        prices: Prices,
        *,
        is_stale: bool,
    ) -> None:
        self.options = options
        self.subject = subject
        self.is_stale = is_stale
        self.has_classifier = False
        self.sample = sample
        self.prices = prices
        self.drops: Bits = sample.bits(len(prices.order))
        self.outcomes = Outcomes.of(self.drops, sample.codes, sample.weights)
        self.fold = np.arange(sample.n_rows) * N_BLOCKS // sample.n_rows % N_FOLDS
        self.left_out: dict[str, str] = {}
        self.base_ns = self._base()

    def _base(self) -> Floats:
        """Return the cost of each row under the better of two orders for all rows ((M,)).

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

    def run(self) -> Found | None:
        """Return the best table if it pays."""
        least = self.outcomes.least_costs(self.prices.costs_ns)[self.outcomes.of_row]
        most = float(self.outcomes.weights @ (self.base_ns - least)) / self.outcomes.n_rows
        if most <= self.prices.overhead_ns(2, 1):
            return None
        usable, own = self._usable()
        if not usable:
            return None
        self.gains = gains(
            [each.seen.sum(axis=1) for each in usable],
            [each.passed.sum(axis=2) for each in usable],
        )
        self.tells = self._tells(own)
        self.has_classifier = bool(self.tells.any())
        if not self.has_classifier:
            return None
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
        return Found(trial, table)

    def _usable(self) -> tuple[list[Classifier], Mask]:
        """Cut the attributes into bins; note why some are left out.

        Returns:
            The attributes that are left, and which filter reads which of them ((F, K')).
        """
        found, own = [], []
        names, kinds = self.subject.attributes, self.subject.kinds
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            values = np.ascontiguousarray(self.sample.values[:, place])
            part = choose_partition(name, kind, values, self.options.n_buckets)
            if isinstance(part, str):
                self.left_out[name] = part
            elif part.n_bins > self.options.max_classes:
                self.left_out[name] = "more bins than classes are allowed"
            else:
                found.append(self._attribute(part, part.bins(values)))
                own.append(self.subject.own[:, place])
        n_filters = self.drops.shape[1]
        return found, np.array(own, dtype=np.bool_).reshape(len(found), n_filters).T

    def _attribute(self, part: Partition, bins: Indices) -> Classifier:
        """Count an attribute, part by part of the sample."""
        size = part.n_bins
        cells, outcomes = bins * N_FOLDS + self.fold, self.outcomes
        seen, passed = count([cells], [size * N_FOLDS], outcomes.of_row, outcomes.drops)
        by_fold = seen[0].reshape(size, N_FOLDS), passed[0].reshape(-1, size, N_FOLDS)
        return Classifier(part, bins, *by_fold)

    def _tells(self, own: Mask) -> Mask:
        """Return a mask of the usable attributes that tell of each filter ((F, K'))."""
        options = self.options
        pass_fracs = 1.0 - self.drops.mean(axis=0)
        moves = np.abs(pass_fracs - 0.5) <= 0.5 - options.extreme_frac
        found: Mask = (
            (self.gains.ratio > options.min_ratio)
            & self.gains.is_significant(options.level)
            & ~own
            & moves[:, None]
        )
        return found

    def _forward(self) -> Trial | None:
        """Choose attributes one by one: each must save more, on rows not learned from."""
        worth = self.worth.sum(axis=0)
        tried = [k for k in np.argsort(-worth, kind="stable").tolist()[:MAX_TRIED] if worth[k]]
        most = min(self.options.max_classes, MAX_CLASSES)
        best: Trial | None = None
        while tried and (best is None or len(best.attributes) < self.options.max_attributes):
            so_far = () if best is None else best.attributes
            sets = [(*so_far, k) for k in tried if self._n_classes((*so_far, k)) <= most]
            trials = [self._trial(each) for each in sets]
            found = max(
                trials, key=lambda trial: trial.saving.over(len(self.fold))[0], default=None
            )
            if found is None or (best is not None and not self._is_better(found, best)):
                break
            best = found
            tried = [k for k in tried if k not in best.attributes]
        return best

    def _n_classes(self, attributes: Iterable[int]) -> int:
        return prod(self.usable[k].n_bins for k in attributes)

    def _is_better(self, found: Trial, best: Trial) -> bool:
        more = found.saving.overhead_ns - best.saving.overhead_ns
        saving = Saving(best.routed_ns - found.routed_ns, found.saving.weights, more)
        mean, error = saving.over(len(self.fold))
        return mean - self.options.z_score * error > 0.0

    def _trial(self, attributes: tuple[int, ...]) -> Trial:
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
        overhead = self.prices.overhead_ns(n_groups, len(attributes))
        saving = Saving(self.base_ns - rows, outcomes.weights, overhead)
        return Trial(attributes, saving, rows)

    def _cells(self, attributes: tuple[int, ...]) -> Cells:
        number = np.zeros(self.outcomes.n_rows, dtype=np.intp)
        for k in attributes:
            number = number * self.usable[k].n_bins + self.usable[k].bins
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
        self, attributes: tuple[int, ...], classes: Indices, left_out: int | None = None
    ) -> Floats:
        """Return the pass fraction of each filter in some classes of a set of attributes ((C, F)).

        Each filter goes by the attribute of the set that tells most about it [Bizarro05 4.2]. One
        part of the sample may be left out: the one that is not to be learned from.
        """
        bins = class_bins(classes, [self.usable[k].n_bins for k in attributes])
        found = np.empty((len(classes), self.drops.shape[1]))
        for f, worth in enumerate(self.worth[:, list(attributes)]):
            u = int(worth.argmax())
            attribute = self.usable[attributes[u]]
            seen, passed = attribute.seen, attribute.passed[f]
            if left_out is not None:
                seen, passed = np.delete(seen, left_out, 1), np.delete(passed, left_out, 1)
            if worth[u] > 0.0:
                found[:, f] = shrunk(seen.sum(axis=1), passed.sum(axis=1))[bins[u]]
            else:
                found[:, f] = passed.sum() / max(seen.sum(), 1.0)
        return found

    def _pays(self, trial: Trial) -> bool:
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

    def _unseen(self, attributes: tuple[int, ...], learned: Learned) -> Indices:
        """Return the group of each class as its bins ask for, if all of them were seen."""
        sizes = [self.usable[k].n_bins for k in attributes]
        classes = np.arange(self._n_classes(attributes))
        fracs = self._pass_fracs(attributes, classes)
        costs = independent_costs(fracs, learned.orders, self.prices.costs_ns)
        groups: Indices = costs.argmin(axis=1)
        for k, of_class in zip(attributes, class_bins(classes, sizes), strict=True):
            groups[(self.usable[k].seen.sum(axis=1) == 0)[of_class]] = 0
        return groups

    def evidence(self, found: Found) -> dict[str, Any]:
        """Return the evidence for a table that ``run`` returned, as plain values."""
        trial, table = found.trial, found.table
        names = self.subject.filter_ids
        saved, error = trial.saving.over(self.outcomes.n_rows)
        columns = [self.subject.attributes.index(name) for name in table.attributes]
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
