"""Router: finds classes of rows that should take orders of their own.

    sample ─► cut attributes into bins ─► which tell what a filter drops? ─► one order per bin
                                                                               │
    table in force ◄── pays, out of sample and on the newest rows ◄────────────┘

In come sampled rows of all filters' outcomes with the values of the attributes, the order in force
and what things cost (``Prices``). Out comes a ``RouteProposal``: another table, or none. The router
never sees the rows themselves and never a clock. A table has one attribute: of several that tell
something, the one whose table saves most. [Bizarro05 4: Content-Learns]

What a table saves is judged on rows that its orders were not learned from: each part of the
sample in turn (``Search``). It must exceed what routing costs beyond doubt (``Saving``), and the
newest rows must save too. A table in force is reviewed on few newest rows and many: a change for
the worse shows in the few at once, a table that never paid in the many. [Bizarro05 4.1, trial of a
classifier]

Deviations, all of them because a sample of a batch is at hand instead of single tuples: every
filter is profiled on the same rows, not one after the other; a class has one order for a whole
batch; a table is accepted by a paired comparison on rows that it was not learned from, not by two
readings of throughput; pass fractions come from the unbiased sample, not from routed tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eddyline.errors import PlanError
from eddyline.routing.learning import (
    Cells,
    Classifier,
    Outcomes,
    count,
    gains,
    greedy_orders,
    learn,
    shrunk,
)
from eddyline.routing.table import MAX_GROUPS, Partition, RouteTable, choose_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.data.outcomes import Bits
    from eddyline.routing.learning import Learned
    from eddyline.stats.profile import AttributeSample, Order

Kind = Literal["number", "category"]
"""Whether the values of an attribute have an order, or only equality means anything."""

MIN_RATIO = 0.001
"""Gain ratio below which an attribute counts as useless for a filter: the paper's gamma, which it
gives no value. Samples are large here and ``LEVEL`` keeps chance out, so it can be far below the
0.03 that 150 rows would need."""

LEVEL = 0.01
"""Chance of taking a useless attribute for one that tells something, per filter."""

EXTREME_FRAC = 0.02
"""A filter that passes less than this, or drops less than this, has its place in any order
and is not asked about [Bizarro05 4.4 gives no number]."""

PRIOR_ROWS = 50.0
"""Rows by which a class's own rows are drawn towards what its bin says."""

MIN_ROWS = 400
"""Sampled rows before anything is learned."""

MIN_GAIN = 0.01
"""Share of the cost that a table must save."""

MIN_REFINEMENT = 0.005
"""Share of the cost that a table must save on the one in force: less than a first table has to,
because it rests on more rows, and a first table of few would stay for long."""

Z_SCORE = 2.0
"""Standard errors by which the saving must exceed what routing costs; half of that is enough to
replace a table."""

MAX_TRIED = 4
"""Attributes that are tried, those that tell most."""

N_FOLDS = 4
"""Parts of a sample: a table learned from all but one is judged on that one."""

N_BLOCKS = 8
"""Runs of neighbouring rows that the parts are made of: a part lies apart in time, too."""

LONG_FIRST = (1, 2, 4, 8)
"""Shares of the sample (one in so many, the newest) that a table is searched in: all of it, and
less only if nothing in it holds for the newest rows."""

SHORT_FIRST = (8, 4, 2, 1)
"""The same once the table in force no longer does what it did: the newest rows first."""

REVIEW_ROWS = 50
"""Sampled rows that a table in force is judged by, if there are no more."""

FALLING_Z = 3.0
"""Standard errors by which the newest rows must save less than those before to call it a change."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in one decision (ns)."""

    order: Order
    """The order of all rows."""
    costs_ns: Floats
    """Cost of one evaluation of each filter (> 0; (F,))."""
    route_ns: float = 0.0
    """Finding a row's group (per input row; ≥ 0)."""
    group_ns: float = 0.0
    """Each group but the first, such as one more call of each filter per batch (per input row)."""

    def overhead_ns(self, n_groups: int) -> float:
        """Return the cost of routing to so many groups, per input row (ns)."""
        return self.route_ns + (n_groups - 1) * self.group_ns


@dataclass(frozen=True, slots=True)
class RouteProposal:
    """Another table, or none, and the evidence for it."""

    table: RouteTable | None
    """None: every row takes the order of all rows."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check: attributes, gain ratios, cost with and without."""


class Router:
    """Proposes route tables for one conjunction.

    Args:
        filter_ids: names of the filters (F).
        attributes: names of the attributes (K).
        kinds: of each attribute, whether its values have an order (``number``) or not
            (``category``) (K).
        reads: of each filter, the attributes beside which it reads nothing: a bin of one of those
            is no prediction but the filter's own work [Bizarro05 Fig 8] (F).
        max_groups: most order groups ([2, MAX_GROUPS]).
        min_refinement: least share of the cost that a table must save on the one in force.

    Raises:
        PlanError: names, kinds and reads do not fit together.
    """

    def __init__(
        self,
        filter_ids: Sequence[str],
        attributes: Sequence[str],
        kinds: Sequence[Kind],
        reads: Sequence[frozenset[str]],
        *,
        max_groups: int = MAX_GROUPS,
        min_refinement: float = MIN_REFINEMENT,
    ) -> None:
        if len(attributes) != len(kinds) or len(reads) != len(filter_ids):
            msg = (
                f"{len(attributes)} attributes with {len(kinds)} kinds and {len(filter_ids)} "
                f"filters with {len(reads)} sets of attributes read do not fit"
            )
            raise PlanError(msg, attributes=tuple(attributes), filters=tuple(filter_ids))
        self._max_groups = max_groups
        self._min_refinement = min_refinement
        is_read = [[name in read for name in attributes] for read in reads]
        self._subject = Subject(
            tuple(filter_ids),
            tuple(attributes),
            tuple(kinds),
            np.array(is_read, dtype=np.bool_).reshape(len(filter_ids), len(attributes)),
        )

    def propose(
        self, prices: Prices, table: RouteTable | None, sample: AttributeSample
    ) -> RouteProposal | None:
        """Return a better table, or one that says to stop routing; None leaves things alone.

        Args:
            prices: the order of all rows, and what things cost.
            table: the table in force.
            sample: the newest sampled rows.
        """
        sample = sample.of(self._subject.attributes)
        if len(prices.order) < 2 or not self._subject.attributes:
            return None if table is None else RouteProposal(None, {"reason": "nothing to route"})
        held: Floats | None = None
        shares: tuple[int, ...] = LONG_FIRST
        is_stale = False
        if table is not None:
            held, is_stale = self._held(table, sample, prices)
            shares = SHORT_FIRST if is_stale else LONG_FIRST[:1]
        for share in shares:
            rows = sample.last(sample.n_rows // share)
            if rows.n_rows < MIN_ROWS:
                continue
            search = Search(self._subject, rows, prices, self._max_groups, is_stale=is_stale)
            best = search.run()
            if best and self._is_better(*best, table, held, rows, prices):
                return RouteProposal(best[1], search.evidence(*best))
            if share == 1 and not search.has_classifier:
                break  # an attribute that tells anything of late shows among all rows, too
        if table is None or held is not None:
            return None
        return _stopped(sample, prices, table)

    def review(
        self, prices: Prices, table: RouteTable, sample: AttributeSample
    ) -> RouteProposal | None:
        """Return a proposal to stop routing if the table in force no longer pays, else None.

        A fraction of the work of ``propose``, to be asked after every batch while there is a
        table, and of however few rows are left of the sample after a change: a table must not
        stay because it takes long to learn another. The arguments are those of ``propose``.
        """
        sample = sample.of(self._subject.attributes)
        has_stopped = self._held(table, sample, prices)[0] is None
        return _stopped(sample, prices, table) if has_stopped else None

    def _held(
        self, table: RouteTable, sample: AttributeSample, prices: Prices
    ) -> tuple[Floats | None, bool]:
        """Look whether the table in force still does what it was chosen for.

        It is looked at over the newest rows, few and more: a change for the worse shows in the few
        at once, a table that never paid in the many.

        Returns:
            What each row costs under it ((M,)), or None if it stopped paying; and whether it saves
            less on the newest rows than on those before.
        """
        if table.attribute not in self._subject.attributes or table.n_groups < 2:
            return None, True
        outcomes = Outcomes.of_sample(sample, len(prices.order))
        routed = routed_costs(table.with_default(prices.order), sample, outcomes, prices)
        if sample.n_rows < REVIEW_ROWS:
            return routed, False
        base = outcomes.costs(np.array([prices.order]), prices.costs_ns)[outcomes.of_row, 0]
        saving = Saving(base - routed, outcomes.weights, prices.overhead_ns(table.n_groups))
        n_newest = sample.n_rows
        while n_newest >= REVIEW_ROWS:
            mean, error = saving.over(n_newest)
            if mean + FALLING_Z * error < 0.0:
                return None, True
            n_newest //= 2
        least = MIN_ROWS
        if sample.n_rows >= least and saving.over(sample.n_rows)[0] <= 0.0:
            return None, True
        is_stale = saving.is_falling(least)
        now, error = saving.over(least)
        return (None if is_stale and now <= Z_SCORE * error else routed), is_stale

    def _is_better(
        self,
        trial: Trial,
        new: RouteTable,
        table: RouteTable | None,
        held: Floats | None,
        rows: AttributeSample,
        prices: Prices,
    ) -> bool:
        """Return whether a new table saves enough beside the one in force."""
        if table is None or held is None:
            return True
        more = (new.n_groups - table.n_groups) * prices.group_ns
        saving = Saving(held[-rows.n_rows :] - trial.routed_ns, trial.saving.weights, more)
        mean, error = saving.over(rows.n_rows)
        least = self._min_refinement * float(held.mean())
        newest, _ = saving.over(MIN_ROWS)
        return mean - 0.5 * Z_SCORE * error > least and newest > 0.0


def _stopped(sample: AttributeSample, prices: Prices, table: RouteTable) -> RouteProposal:
    """Return the proposal to stop routing, with what it cost."""
    evidence = {
        "reason": "routing stopped paying",
        "n_rows": sample.n_rows,
        "route_cost_ns": prices.overhead_ns(table.n_groups),
        "costs_ns": prices.costs_ns.tolist(),
    }
    return RouteProposal(None, evidence)


# -- the search in one sample ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trial:
    """An attribute, and what a table of it saves on rows that it was not learned from."""

    attribute: int
    saving: Saving
    routed_ns: Floats
    """Cost of each row under it ((M,))."""


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
        subject: Subject,
        sample: AttributeSample,
        prices: Prices,
        max_groups: int,
        *,
        is_stale: bool,
    ) -> None:
        self.subject = subject
        self.is_stale = is_stale
        self.has_classifier = False
        self.sample = sample
        self.prices = prices
        self.max_groups = max_groups
        self.outcomes = Outcomes.of_sample(sample, len(prices.order))
        self.tests: Bits = self.outcomes.tests
        self.fold = np.arange(sample.n_rows) * N_BLOCKS // sample.n_rows % N_FOLDS
        self.left_out: dict[str, str] = {}
        self.base_ns = self._base()

    def _base(self) -> Floats:
        """Return the cost of each row under the better of two orders for all rows ((M,)).

        The order in force may not be up to date; what a better order for all rows would save, too,
        is not to the credit of routing.
        """
        outcomes, costs = self.outcomes, self.prices.costs_ns
        one = Cells.from_outcomes(np.zeros(outcomes.n_rows, dtype=np.intp), outcomes)
        weights = one.sums(outcomes.weights)
        losses = outcomes.losses[one.code]
        prior: Floats = 1e-3 * (weights @ losses)[None, :]
        greedy = greedy_orders(one, losses, weights, prior, costs)[0]
        by_code = outcomes.costs(np.array([self.prices.order, greedy]), costs)
        better = int((weights @ by_code[one.code]).argmin())
        row_costs: Floats = by_code[outcomes.of_row, better]
        return row_costs

    def run(self) -> tuple[Trial, RouteTable] | None:
        """Return the best table if it pays, and the trial that showed it."""
        least = self.outcomes.least_costs(self.prices.costs_ns)[self.outcomes.of_row]
        most = float(self.outcomes.weights @ (self.base_ns - least)) / self.outcomes.n_rows
        if most <= self.prices.overhead_ns(2):
            return None
        usable, is_own = self._usable()
        if not usable:
            return None
        self.gains = gains(
            [classifier.seen.sum(axis=1) for classifier in usable],
            [classifier.passed.sum(axis=2) for classifier in usable],
        )
        self.tells = self._tells(is_own)
        self.has_classifier = bool(self.tells.any())
        if not self.has_classifier:
            return None
        self.worth = self._by_filter(self.gains.beyond_chance * self.tells).sum(axis=0)
        self.usable = [
            classifier.merged(self.tells[:, k]) if self.tells[:, k].any() else classifier
            for k, classifier in enumerate(usable)
        ]
        trial = self._best_trial()
        if trial is None or not self._pays(trial):
            return None
        table = self._table(trial.attribute)
        if len(set(table.orders)) < 2 or len(set(table.groups)) < 2:
            return None
        return trial, table

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.prices.order)

    def _by_filter(self, of_tests: Floats) -> Floats:
        """Return what is of tests by the tests of a filter, and by filter ((T / F, F, K))."""
        return of_tests.reshape(-1, self.n_filters, of_tests.shape[1])

    def _usable(self) -> tuple[list[Classifier], Mask]:
        """Cut the attributes into bins; note why some are left out.

        Returns:
            The attributes that are left, and which test reads which of them ((T, K')).
        """
        classifiers, columns = [], []
        names, kinds = self.subject.attributes, self.subject.kinds
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            values = np.ascontiguousarray(self.sample.values[:, place])
            part = choose_partition(name, kind, values)
            if isinstance(part, str):
                self.left_out[name] = part
            else:
                classifiers.append(self._attribute(part, part.bins(values)))
                columns.append(self.subject.own[:, place])
        by_filter = np.array(columns, dtype=np.bool_).reshape(len(classifiers), self.n_filters).T
        return classifiers, np.tile(by_filter, (self.tests.shape[1] // self.n_filters, 1))

    def _attribute(self, part: Partition, bins: Indices) -> Classifier:
        """Count an attribute, part by part of the sample."""
        size = part.n_bins
        cells, outcomes = bins * N_FOLDS + self.fold, self.outcomes
        seen, passed = count([cells], [size * N_FOLDS], outcomes.of_row, self.tests)
        by_fold = seen[0].reshape(size, N_FOLDS), passed[0].reshape(-1, size, N_FOLDS)
        if outcomes.partners is None:
            return Classifier(part, bins, *by_fold)
        of_filters = outcomes.partners[outcomes.of_row].T
        sums = [
            np.bincount(cells, row_partners, minlength=size * N_FOLDS)
            for row_partners in of_filters
        ]
        partners = np.array(sums, dtype=np.float64).reshape(-1, size, N_FOLDS)
        return Classifier(part, bins, *by_fold, partners)

    def _tells(self, is_own: Mask) -> Mask:
        """Return a mask of the usable attributes that tell of each test ((T, K'))."""
        pass_fracs = 1.0 - self.tests[self.outcomes.of_row].mean(axis=0)
        moves = np.abs(pass_fracs - 0.5) <= 0.5 - EXTREME_FRAC
        mask: Mask = (
            (self.gains.ratio > MIN_RATIO)
            & self.gains.is_significant(LEVEL)
            & ~is_own
            & moves[:, None]
        )
        return mask

    def _best_trial(self) -> Trial | None:
        """Return the trial of the attribute that saves most, of those that tell most."""
        worth = self.worth.sum(axis=0)
        tried = [k for k in np.argsort(-worth, kind="stable").tolist()[:MAX_TRIED] if worth[k]]
        trials = [self._trial(k) for k in tried]
        n_rows = self.outcomes.n_rows
        return max(trials, key=lambda trial: trial.saving.over(n_rows)[0], default=None)

    def _trial(self, attribute: int) -> Trial:
        """Learn on all parts but one and judge on that one, in turn."""
        cells = Cells.from_outcomes(self.usable[attribute].bins, self.outcomes)
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
            pass_fracs = self._pass_fracs(attribute, cells.classes, fold)
            learned = self._learn(cells, weights - by_fold[:, fold], pass_fracs)
            by_code = outcomes.costs(learned.orders, self.prices.costs_ns)
            routed[:, fold] = by_code[cells.code, learned.groups[cells.owner]]
            n_groups = max(n_groups, len(learned.orders))
        rows = routed[cells.of_row, self.fold]
        overhead = self.prices.overhead_ns(n_groups)
        saving = Saving(self.base_ns - rows, outcomes.weights, overhead)
        return Trial(attribute, saving, rows)

    def _learn(self, cells: Cells, weights: Floats, pass_fracs: Floats) -> Learned:
        return learn(
            cells,
            self.outcomes,
            weights,
            pass_fracs,
            self.prices.order,
            self.prices.costs_ns,
            prior_rows=PRIOR_ROWS,
            max_groups=self.max_groups,
            group_ns=self.prices.group_ns,
        )

    def _pass_fracs(self, attribute: int, bins: Indices, left_out: int | None = None) -> Floats:
        """Return the pass fraction of each filter in some bins of an attribute ((C, F)).

        Of a filter that makes several rows of one, it is their number.

        A filter of which the attribute says nothing has the same one in all of them. One part of
        the sample may be left out: the one that is not to be learned from.
        """
        usable, partners = self.usable[attribute], self.outcomes.partners
        seen, passed = usable.seen, usable.passed if usable.made is None else usable.made
        spread = None if partners is None else partners[self.outcomes.of_row].var(axis=0)
        if left_out is not None:
            seen, passed = np.delete(seen, left_out, 1), np.delete(passed, left_out, 2)
        rows, by_filter = seen.sum(axis=1), passed.sum(axis=2)
        fracs = np.empty((len(bins), self.n_filters))
        for f, worth in enumerate(self.worth[:, attribute]):
            if worth > 0.0:
                variance = None if spread is None else float(spread[f])
                fracs[:, f] = shrunk(rows, by_filter[f], variance)[bins]
            else:
                fracs[:, f] = by_filter[f].sum() / max(rows.sum(), 1.0)
        return fracs

    def _pays(self, trial: Trial) -> bool:
        """Whether a trial saves beyond doubt, and among the newest rows no less.

        After a change older rows do not speak for the newest, which then have to prove it alone.
        """
        n_rows = self.outcomes.n_rows
        mean, error = trial.saving.over(n_rows)
        least = MIN_GAIN * float(self.base_ns.mean())
        if mean <= max(least, Z_SCORE * error):
            return False
        newest, error = trial.saving.over(MIN_ROWS)
        if self.is_stale:
            return newest > Z_SCORE * error
        return newest > 0.0 and not trial.saving.is_falling(MIN_ROWS)

    def _table(self, attribute: int) -> RouteTable:
        """Return the table that all rows of the sample teach."""
        cells = Cells.from_outcomes(self.usable[attribute].bins, self.outcomes)
        weights = cells.sums(self.outcomes.weights)
        learned = self._learn(cells, weights, self._pass_fracs(attribute, cells.classes))
        orders = [tuple(map(int, order)) for order in learned.orders]
        # A bin without a row follows all rows.
        groups = np.zeros(self.usable[attribute].n_bins, dtype=np.intp)
        groups[cells.classes] = learned.groups
        partition = self.usable[attribute].partition
        return RouteTable(partition, tuple(orders), tuple(groups.tolist())).compact()

    def evidence(self, trial: Trial, table: RouteTable) -> dict[str, Any]:
        """Return the evidence for what ``run`` returned, as plain values."""
        names = self.subject.filter_ids
        saved, error = trial.saving.over(self.outcomes.n_rows)
        group = table.group_of(_values_of(table, self.sample))
        shares = np.bincount(group, weights=self.outcomes.weights, minlength=table.n_groups)
        filters, k = {}, trial.attribute
        ratio, statistic = (
            self._by_filter(values).max(axis=0)
            for values in (self.gains.ratio, self.gains.g_statistic)
        )
        for f in np.flatnonzero(self.worth[:, k] > 0.0).tolist():
            filters[names[f]] = {
                "attribute": table.attribute,
                "gain_ratio": float(ratio[f, k]),
                "g_statistic": float(statistic[f, k]),
            }
        weighted = self.outcomes.weights / self.outcomes.n_rows
        return {
            "filters": filters,
            "left_out": self.left_out,
            "cost_ns": float(weighted @ self.base_ns),
            "routed_cost_ns": float(weighted @ trial.routed_ns),
            "route_cost_ns": trial.saving.overhead_ns,
            "saved_ns": saved,
            "standard_error_ns": error,
            "n_rows": self.outcomes.n_rows,
            "n_classes": len(table.groups),
            "share_of_rows": (shares / self.outcomes.n_rows).round(4).tolist(),
        }


# -- what a table saves ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of a table per input row against one order, net of the cost of routing."""

    rows_ns: Floats
    """Saved on each row, weighted to 1 on average ((M,))."""
    weights: Floats
    """Weight of each row ((M,))."""
    overhead_ns: float
    """Cost of routing per input row."""

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


def routed_costs(
    table: RouteTable, sample: AttributeSample, outcomes: Outcomes, prices: Prices
) -> Floats:
    """Return the cost of each row under a table (ns; (M,))."""
    group = table.group_of(_values_of(table, sample))
    return outcomes.costs(np.array(table.orders), prices.costs_ns)[outcomes.of_row, group]


def _values_of(table: RouteTable, sample: AttributeSample) -> Floats:
    """Return the values of the attribute of a table in a sample that has it ((M,))."""
    values: Floats = sample.values[:, sample.attributes.index(table.attribute)]
    return values
