"""Change detectors on every monitored statistic: one each for F(F+1)/2 drop fractions and F costs.

A drop fraction is that of a filter given a prefix of the order in force; its items are block
estimates of the sampled rows [Tsamoura16 4, 6]. A cost's items are the time that a filter took in a
batch over the time that was expected, as r / (1 + r), which lies in (0, 1).

A change of a drop fraction makes everything before its change point stale; of several, the newest
counts. A change of order re-initialises the detectors whose prefix became another set.

Detectors have to be trained, and where little is sampled that takes long; so the two-sample test,
which needs no training, stands beside them unless it is switched off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.change import options_of
from eddyline.data import codes as outcome
from eddyline.data.sampling import seed_of
from eddyline.options import in_range, is_switch
from eddyline.runtime.monitors.protocol import Finding
from eddyline.runtime.monitors.two_sample import TwoSampleOptions
from eddyline.stats.blocks import BlockEstimates, changed_prefixes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.change.protocol import DetectorBank
    from eddyline.ordering.protocol import Order
    from eddyline.stats.profile import FilterProfile

_KEPT_BLOCKS = 64
"""Blocks of a prefix whose beginnings are remembered; a change that began earlier than the oldest
of them is taken to have begun there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorMonitorOptions:
    """Which detector watches, and what it is fed.

    Raises:
        OptionError: the detector is unknown, or a value is out of its range.
    """

    detector: Any = "beta_cusum"
    """A name of ``eddyline.change.DETECTORS``, its options object, or a detector of river."""
    block_rows: int = 50
    """Sampled rows that a prefix lets through per estimate, the k of [Tsamoura16 6] (≥ 2)."""
    watch_costs: bool = True
    """Whether the filters' costs are watched too."""
    two_sample: bool = True
    """Whether a batch that contradicts the window is a change too, whatever the detectors say."""

    def __post_init__(self) -> None:
        options_of(self.detector)
        in_range(self, "block_rows", 2, 2**20)
        is_switch(self, "watch_costs")
        is_switch(self, "two_sample")

    def build(self, n_filters: int, seed: int) -> DetectorMonitor:
        """Return a fresh monitor."""
        return DetectorMonitor(self, n_filters, seed)


class DetectorMonitor:
    """Asks the policy after a change, then each time the fresh evidence has doubled."""

    def __init__(self, options: DetectorMonitorOptions, n_filters: int, seed: int) -> None:
        detector = options_of(options.detector)
        self._options = options
        self._n_filters = n_filters
        self._seed = seed
        self._blocks = BlockEstimates(n_filters, options.block_rows)
        self._fracs: DetectorBank = detector.build(n_filters * n_filters)
        """Detector i · F + f watches filter f given the first i filters of the order."""
        self._costs: DetectorBank = detector.build(n_filters if options.watch_costs else 0)
        self._test = TwoSampleOptions().build(n_filters, seed) if options.two_sample else None
        self._n_tuples = 0
        """Profile tuples so far."""
        self._n_rows = 0
        """Sampled rows so far; seeds the order in which they are taken."""
        self._block_starts = np.zeros((n_filters, _KEPT_BLOCKS), dtype=np.int64)
        """Profile tuples before each of the newest blocks of each prefix, oldest first."""
        self._open_since = np.zeros(n_filters, dtype=np.int64)
        """Profile tuples before the open block of each prefix."""

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        known: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> Finding | None:
        """Feed the detectors."""
        contradiction = None
        if self._test is not None:
            contradiction = self._test.observe(fresh, order, known, cost_ratios)
        oldest_fresh, found = self._observe_drops(fresh, order)
        costs = self._observe_costs(cost_ratios)
        if found is None and costs is None:
            return contradiction
        evidence: dict[str, Any] = {"detector": str(self._options.detector)}
        n_fresh = None
        if found is not None:
            prefix, f = found
            n_fresh = self._n_tuples - oldest_fresh
            evidence["filter"] = fresh.filter_ids[f]
            evidence["given"] = [fresh.filter_ids[each] for each in order[:prefix]]
            evidence["n_fresh"] = n_fresh
        if costs is not None:
            evidence["costs_of"] = [fresh.filter_ids[f] for f in np.flatnonzero(costs)]
        if contradiction is not None:
            n_fresh, evidence = contradiction.n_fresh, {**evidence, **contradiction.evidence}
        return Finding(n_fresh, costs, evidence)

    def _observe_drops(
        self, fresh: FilterProfile, order: Order
    ) -> tuple[int, tuple[int, int] | None]:
        """Feed block estimates; returns where the newest change began, and what it is of."""
        drops = self._in_random_order(fresh)
        n_tuples = self._n_tuples + np.concatenate([[0], np.cumsum(drops.any(axis=1))])
        newest, found, row = -1, None, 0
        for n_rows, estimates in self._blocks.add(drops, order):
            row += n_rows
            full = np.logical_not(np.isnan(estimates).all(axis=1))
            if not full.any():
                continue
            self._close_blocks(full, int(n_tuples[row]))
            flags = self._fracs.update(estimates.ravel())
            if flags.any():
                began, detector = self._newest_change(np.flatnonzero(flags))
                if began >= newest:
                    newest, found = began, divmod(detector, self._n_filters)
        self._n_tuples = int(n_tuples[-1])
        self._n_rows += len(drops)
        return newest, found

    def _in_random_order(self, fresh: FilterProfile) -> NDArray[np.bool_]:
        """Return which filter drops which sampled row, rows that pass put in at random places.

        A profile counts rows that pass without saying between which others they came.
        """
        n_passed = round(fresh.n_passed)
        n_sampled = fresh.n_tuples + n_passed
        drops = np.zeros((n_sampled, self._n_filters), dtype=np.bool_)
        rng = np.random.default_rng(seed_of(self._seed, self._n_rows))
        places = np.sort(rng.permutation(n_sampled)[: fresh.n_tuples])
        drops[places] = outcome.unpack(fresh.codes, self._n_filters)
        return drops

    def _close_blocks(self, full: NDArray[np.bool_], n_tuples: int) -> None:
        """Remember where the blocks began that were just filled."""
        self._block_starts[full, :-1] = self._block_starts[full, 1:]
        self._block_starts[full, -1] = self._open_since[full]
        self._open_since[full] = n_tuples

    def _newest_change(self, detectors: NDArray[np.intp]) -> tuple[int, int]:
        """Return how many tuples came before the newest of the changes, and its detector."""
        items_back = self._fracs.n_seen[detectors] - self._fracs.change_points[detectors]
        block = _KEPT_BLOCKS - np.clip(items_back, 0, _KEPT_BLOCKS)
        prefixes = detectors // self._n_filters
        began = np.where(
            items_back > 0,
            self._block_starts[prefixes, np.minimum(block, _KEPT_BLOCKS - 1)],
            self._open_since[prefixes],
        )
        newest = int(began.argmax())
        return int(began[newest]), int(detectors[newest])

    def _observe_costs(self, ratios: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Feed costs; returns the filters whose cost changed."""
        if self._costs.n == 0:
            return None
        flags = self._costs.update(ratios / (1.0 + ratios))
        return flags if flags.any() else None

    def is_due(self, n_tuples: int, n_new: int, max_tuples: int) -> bool:
        """Return whether the fresh evidence has doubled, or the whole window is new.

        A change is acted on as soon as there is any evidence of what came after it. What that
        evidence cannot tell yet it tells when there is twice as much of it.
        """
        return n_new > 0 and n_new >= (max_tuples if n_tuples >= max_tuples else n_tuples / 2.0)

    def reordered(self, before: Order, after: Order) -> None:
        """Re-initialise the detectors whose prefix is another set of filters now."""
        changed = changed_prefixes(before, after)
        self._blocks.forget(changed)
        self._open_since[changed] = self._n_tuples
        # A filter that moved into a prefix is not watched behind it any more; one that moved out
        # is watched anew. Where the set is the same, each filter behind it means what it meant.
        self._fracs.reset(np.repeat(changed, self._n_filters))

    def snapshot(self) -> dict[str, Any]:
        """Return blocks and detectors as plain values."""
        return {
            "fracs": self._fracs.snapshot(),
            "costs": self._costs.snapshot(),
            "blocks": self._blocks.snapshot(),
            "n_tuples": self._n_tuples,
            "n_rows": self._n_rows,
            "block_starts": self._block_starts.tolist(),
            "open_since": self._open_since.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        self._fracs.restore(state["fracs"])
        self._costs.restore(state["costs"])
        self._blocks.restore(state["blocks"])
        self._n_tuples = int(state["n_tuples"])
        self._n_rows = int(state["n_rows"])
        self._block_starts = np.array(state["block_starts"], dtype=np.int64)
        self._open_since = np.array(state["open_since"], dtype=np.int64)
