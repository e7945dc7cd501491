"""Monitors: judges of which evidence is fresh.

They also decide when the policy is asked. A monitor sees profiles and orders, never rows
[Tsamoura16 4]. ``MONITORS`` registers those that are no detector. The name of a change detector is
a monitor too: that detector on every monitored statistic. Read this file in its order:

1. **The protocol**: ``Monitor``, its options, and ``Finding``, a change that it found.
2. **The fixed window**: the newest profile tuples are fresh, however old they are [Babu05 4.3.1].
3. **The two-sample test**: every row of a batch against the evidence of the window. Every row says
   what the filters dropped in the order in force, not only the sampled ones, so a large change
   shows within one batch. The window alone is much slower to follow, above all where little is
   sampled. The test needs no training, and sees neither small shifts nor changes of what a filter
   would drop elsewhere in the order.
4. **Change detectors**: one each for F(F+1)/2 drop fractions and F costs. A drop fraction is that
   of a filter given a prefix of the order in force; its items are block estimates of the sampled
   rows [Tsamoura16 4, 6]. A cost's items are the time that a filter took in a batch over the time
   that was expected, as r / (1 + r), which lies in (0, 1). A change of a drop fraction makes
   everything before its change point stale; of several, the newest counts. A change of order
   re-initialises the detectors whose prefix became another set. Samples are thin, and detectors
   have to be trained. What the order in force drops, every row says, where an executor counts rows:
   so each position has one more detector, fed by blocks of all rows. The two-sample test, which
   needs no training, stands beside them unless it is switched off.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from eddyline.change import DETECTORS, options_of
from eddyline.change.protocol import advance
from eddyline.data import outcomes as outcome
from eddyline.data.jit import compiled
from eddyline.data.learned import Learns
from eddyline.data.outcomes import seed_of
from eddyline.errors import OptionError
from eddyline.options import in_range, is_switch
from eddyline.ordering.protocol import drop_fracs, reach
from eddyline.registry import unknown
from eddyline.stats.profile import BlockEstimates, changed_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from eddyline.change.protocol import DetectorBank, DetectorOptions
    from eddyline.stats.profile import FilterProfile, Order

DUE_FRAC = 0.05
"""Share of a fixed window that must be new before the policy is asked again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A change that a monitor found."""

    n_fresh: int | None
    """Newest profile tuples that came after the change; None if what filters drop is unchanged."""
    costs: NDArray[np.bool_] | None
    """Filters whose cost changed ((F,)); None if none did."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check."""


class Monitor(Protocol):
    """Watches the evidence of one conjunction.

    The loop calls ``observe`` once per batch, before the batch's profile joins the window, and
    ``reordered`` after each change of order. All calls come from one thread.
    """

    block_rows: int
    """Input rows per block of counts that the profiles should bring; 0: none."""

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        window_profile: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> Finding | None:
        """Take in what a batch observed.

        Args:
            fresh: the profile of the batch, which ran under ``order``.
            order: the order in force.
            window_profile: the profile of the window, without the batch.
            cost_ratios: time that each filter took over the time that was expected; nan where it
                was not called or nothing was expected ((F,)).

        Returns:
            A change, if there is one.
        """

    def is_due(self, n_tuples: int, n_new: int, max_tuples: int) -> bool:
        """Return whether the policy is to be asked for a better order.

        Args:
            n_tuples: profile tuples in the window.
            n_new: of those, the ones since the policy was asked last.
            max_tuples: profile tuples that the window can hold.
        """

    def reordered(self, before: Order, after: Order) -> None:
        """Take note of a change of order: what was conditional on the old one means nothing now."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON)."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""


class MonitorOptions(Protocol):
    """The options of a monitor: a frozen dataclass that validates itself and builds monitors."""

    def build(self, n_filters: int, seed: int) -> Monitor:
        """Return a fresh monitor for a conjunction of ``n_filters`` filters."""


# -- the fixed window --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Nothing to set: the loop has a window of ``runtime.order_loop.WINDOW_ROWS``."""

    def build(self, n_filters: int, seed: int) -> WindowMonitor:  # noqa: ARG002 protocol
        """Return a fresh monitor."""
        return WindowMonitor()


class WindowMonitor(Learns):
    """Finds no change: evidence leaves the window by its age alone. Nothing is kept."""

    block_rows = 0

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        window_profile: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> Any:
        """Find no change."""

    def is_due(self, n_tuples: int, n_new: int, max_tuples: int) -> bool:  # noqa: ARG002 protocol
        """Return whether a twentieth of a full window is new."""
        return n_new >= DUE_FRAC * max_tuples

    def reordered(self, before: Order, after: Order) -> None:
        """Do nothing."""


# -- the two-sample test -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSampleOptions:
    """Options of the test whether a batch contradicts the window.

    Raises:
        OptionError: a value is out of its range.
    """

    min_diff: float = 0.1
    """Drop fractions that differ by less are no change ([0, 1])."""
    z_score: float = 4.0
    """Standard errors of both samples by which they must differ beyond that (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "min_diff", 0.0, 1.0)
        in_range(self, "z_score", 0.0, 1e6)

    def build(self, n_filters: int, seed: int) -> TwoSampleMonitor:  # noqa: ARG002 protocol
        """Return a fresh monitor."""
        return TwoSampleMonitor(self)


class TwoSampleMonitor(WindowMonitor):
    """A fixed window of which all evidence goes when a batch contradicts it."""

    def __init__(self, options: TwoSampleOptions) -> None:
        self._options = options

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        window_profile: FilterProfile,
        cost_ratios: NDArray[np.float64],  # noqa: ARG002 protocol
    ) -> Finding | None:
        """Compare what each position dropped with what the window says it drops."""
        filters = list(order)
        n_in = fresh.rows_in[filters]
        if n_in.any() and fresh.ran_under == order:
            n_out = fresh.rows_out[filters]
            now = np.divide(n_in - n_out, n_in, out=np.zeros(len(filters)), where=n_in > 0)
        else:
            now = drop_fracs(order, fresh)
            n_in = _reached(now, fresh)
        before = drop_fracs(order, window_profile)
        n_known = _reached(before, window_profile)
        both = np.maximum(n_known + n_in, 1.0)
        pooled = (before * n_known + now * n_in) / both
        inverse = 1.0 / np.maximum(n_known, 1.0) + 1.0 / np.maximum(n_in, 1.0)
        least = self._options.min_diff + self._options.z_score * np.sqrt(
            pooled * (1.0 - pooled) * inverse
        )
        differs = (np.abs(now - before) > least) & (n_known >= 1.0) & (n_in >= 1.0)
        if not differs.any():
            return None
        position = int(differs.argmax())
        evidence = {
            "filter": window_profile.filter_ids[order[position]],
            "position": position,
            "drop_frac_before": float(before[position]),
            "drop_frac_now": float(now[position]),
        }
        return Finding(0, None, evidence)


def _reached(fracs: NDArray[np.float64], profile: FilterProfile) -> NDArray[np.float64]:
    """Return the number of sampled rows that reached each position, given its drops ((F,))."""
    return (profile.n_tuples + profile.n_passed) * reach(fracs)


# -- change detectors --------------------------------------------------------------------------

MAIN_BLOCK_ROWS = 2000
"""Input rows per block of counts: five items of each position from an Arrow batch."""

MIN_MAIN_ROWS = 500
"""Rows that reach a position until its block is full."""

MIN_SHIFT = 0.02
"""Shifts that estimates of so many rows would show, but that no order depends on."""

_KEPT_BLOCKS = 64
"""Blocks of a prefix whose beginnings are remembered; a change that began earlier than the oldest
of them is taken to have begun there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorMonitorOptions:
    """Options of the monitor: its detector, and what that is fed.

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
    preprocess: Any = None
    """What items pass before detectors see them: a name of ``eddyline.change.PREPROCESSORS``, an
    options object, or a sequence of these."""

    def __post_init__(self) -> None:
        in_range(self, "block_rows", 2, 2**20)
        self.detector_options()
        is_switch(self, "watch_costs")
        is_switch(self, "two_sample")

    def detector_options(self, *, of_all_rows: bool = False) -> DetectorOptions:
        """Return the detector's options; those of one that is given by name suit its items.

        Items are estimates of a few sampled rows, or of large blocks of all rows.
        """
        chosen = options_of(self.detector)
        if not isinstance(self.detector, str) or not is_dataclass(chosen):
            return options_of(self.detector, preprocess=self.preprocess)
        names = {field.name for field in fields(chosen)}
        wanted = (
            {"block_rows": MAIN_BLOCK_ROWS, "min_shift": MIN_SHIFT}
            if of_all_rows
            else {"block_rows": self.block_rows}
        )
        suited = {name: value for name, value in wanted.items() if name in names}
        return options_of(self.detector, preprocess=self.preprocess, **suited)

    def build(self, n_filters: int, seed: int) -> DetectorMonitor:
        """Return a fresh monitor."""
        return DetectorMonitor(self, n_filters, seed)


class DetectorMonitor(Learns):
    """Asks the policy after a change, then each time the fresh evidence has doubled."""

    learned = ("_fracs", "_costs", "_blocks", "_main", "_n_tuples", "_n_rows", "_starts")

    def __init__(self, options: DetectorMonitorOptions, n_filters: int, seed: int) -> None:
        detector = options.detector_options()
        self._main = _MainPass(options.detector_options(of_all_rows=True).build(n_filters))
        self.block_rows = MAIN_BLOCK_ROWS
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
        self._starts = BlockStarts(n_filters)

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        window_profile: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> Finding | None:
        """Feed the detectors."""
        contradiction = None
        if self._test is not None:
            contradiction = self._test.observe(fresh, order, window_profile, cost_ratios)
        first = self._n_tuples
        oldest_fresh, change = self._observe_drops(fresh, order)
        if fresh.blocks is not None and fresh.ran_under == order:
            began, position = self._main.observe(fresh.blocks, order, first, self._n_tuples)
            if position >= 0 and began >= oldest_fresh:
                oldest_fresh, change = began, (position, order[position])
        costs = self._observe_costs(cost_ratios)
        if contradiction is not None:
            self._forget_filter(order[contradiction.evidence["position"]], order)
        if change is None and costs is None:
            return contradiction
        evidence: dict[str, Any] = {"detector": str(self._options.detector)}
        n_fresh = None
        if change is not None:
            prefix, f = change
            n_fresh = self._n_tuples - oldest_fresh
            evidence["filter"] = fresh.filter_ids[f]
            evidence["given"] = [fresh.filter_ids[filter_index] for filter_index in order[:prefix]]
            evidence["n_fresh"] = n_fresh
        if costs is not None:
            evidence["costs_of"] = [fresh.filter_ids[f] for f in np.flatnonzero(costs)]
        if contradiction is not None:  # of two findings, the one that needs no training counts
            n_fresh = contradiction.n_fresh
            evidence = {"costs_of": evidence.get("costs_of", [])} | contradiction.evidence
            change = None
        if change is not None:
            self._forget_filter(change[1], order)
        return Finding(n_fresh, costs, evidence)

    def _forget_filter(self, f: int, order: Order) -> None:
        """Start every detector anew whose fraction a change of one filter changes.

        They are those of the filter itself, given any prefix, and of all filters given a prefix
        that it is of. The others would report the same change once more, late.
        """
        position = order.index(f)
        behind = np.arange(self._n_filters) > position
        stale = np.repeat(behind[:, None], self._n_filters, axis=1)
        stale[:, f] = True
        self._fracs.reset(stale.ravel())
        self._blocks.forget(behind)
        self._starts.reopen(behind, self._n_tuples)
        self._main.forget(np.arange(self._n_filters) >= position, self._n_tuples)

    def _observe_drops(
        self, fresh: FilterProfile, order: Order
    ) -> tuple[int, tuple[int, int] | None]:
        """Feed block estimates; returns where the newest change began, and what it is of."""
        drops = self._in_random_order(fresh)
        n_tuples = self._n_tuples + np.concatenate([[0], np.cumsum(drops.any(axis=1))])
        newest, change, row = -1, None, 0
        for lengths, estimates in self._blocks.add(drops, order):
            full = np.logical_not(np.isnan(estimates).all(axis=2))
            ends = n_tuples[row + np.cumsum(lengths)]
            row += int(lengths.sum())
            items = estimates.reshape(len(full), -1)
            for began, detectors in _changes(self._fracs, self._starts, items, full, ends):
                first = int(np.argmax(began))
                if began[first] >= newest:
                    newest, change = began[first], divmod(detectors[first], self._n_filters)
        self._n_tuples = int(n_tuples[-1])
        self._n_rows += len(drops)
        return newest, change

    def _in_random_order(self, fresh: FilterProfile) -> NDArray[np.bool_]:
        """Return a mask of the filters that drop each sampled row of a batch, in random order.

        A profile counts rows that pass without saying between which others they came, and where
        classes of rows or tasks were run one after the other, neighbours are alike.
        """
        n_passed = round(fresh.n_passed)
        n_sampled = fresh.n_tuples + n_passed
        drops = np.zeros((n_sampled, self._n_filters), dtype=np.bool_)
        rng = np.random.default_rng(seed_of(self._seed, self._n_rows))
        drops[rng.permutation(n_sampled)[: fresh.n_tuples]] = outcome.unpack(
            fresh.codes, self._n_filters
        )
        return drops

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
        self._starts.reopen(changed, self._n_tuples)
        # A filter that moved into a prefix is not watched behind it any more; one that moved out
        # is watched anew. Where the set is the same, each filter behind it means what it meant.
        self._fracs.reset(np.repeat(changed, self._n_filters))
        self._main.forget(changed | (np.array(before) != np.array(after)), self._n_tuples)


class _MainPass(Learns):
    """A detector for each position of the order in force, fed by blocks of all rows."""

    learned = ("_bank", "_starts", "_counts")

    def __init__(self, bank: DetectorBank) -> None:
        self._bank = bank
        self._starts = BlockStarts(bank.n)
        self._counts = np.zeros((2, bank.n))
        """Rows in and out of the open block of each position."""

    def observe(
        self, blocks: NDArray[np.int64], order: Order, n_before: int, n_after: int
    ) -> tuple[int, int]:
        """Take in the counts of a batch: rows in and out of each filter ((blocks, 2, F)).

        ``n_before`` and ``n_after`` count the profile tuples before the batch and after it.

        Returns:
            How many tuples came before the newest change, and its position; -1 if there is none.
        """
        newest, position = -1, -1
        items = np.full((len(blocks), self._bank.n), np.nan)
        fill_positions(blocks[:, :, list(order)], self._counts, items)
        ends = n_before + (n_after - n_before) * np.arange(1, len(blocks) + 1) // len(blocks)
        for changes in _changes(self._bank, self._starts, items, ~np.isnan(items), ends):
            for began, changed_position in zip(*changes, strict=True):
                if began >= newest:
                    newest, position = began, changed_position
        return newest, position

    def forget(self, positions: NDArray[np.bool_], n_tuples: int) -> None:
        """Start anew where another filter stands behind another prefix now ((F,))."""
        self._bank.reset(positions)
        self._counts[:, positions] = 0.0
        self._starts.reopen(positions, n_tuples)

    def check_learned(self) -> None:
        """Raise StateError if a restored block lets more rows out than came in."""
        rows_in, rows_out = self._counts
        if not ((rows_out >= 0.0) & (rows_out <= rows_in) & np.isfinite(rows_in)).all():
            self._damaged("an open block of all rows lets more rows out than came in")


class BlockStarts(Learns):
    """Starts of the newest blocks of n series of blocks, in profile tuples before them."""

    learned = ("_closed", "_open")

    def __init__(self, n: int) -> None:
        self._closed = np.zeros((n, _KEPT_BLOCKS), dtype=np.int64)
        self._open = np.zeros(n, dtype=np.int64)

    def close(self, full: NDArray[np.bool_], n_tuples: NDArray[np.int64]) -> None:
        """Take note of the blocks that were filled ((T, n)) when so many tuples had come ((T,))."""
        close_blocks(full, n_tuples, self._closed, self._open)

    def reopen(self, which: NDArray[np.bool_], n_tuples: int) -> None:
        """Take note that some open blocks start anew ((n,))."""
        self._open[which] = n_tuples

    def of(self, series: int, items_back: int) -> int:
        """Return the number of tuples before a block; 0 items back is the open one."""
        if items_back <= 0:
            return int(self._open[series])
        return int(self._closed[series, -min(items_back, _KEPT_BLOCKS)])


def _changes(
    bank: DetectorBank,
    starts: BlockStarts,
    items: NDArray[np.float64],
    full: NDArray[np.bool_],
    ends: NDArray[np.int64],
) -> Iterator[tuple[list[int], list[int]]]:
    """Feed rows of items to a bank.

    Args:
        bank: m detectors for each of n series of blocks.
        starts: the blocks of the series.
        items: one row for each update ((T, n · m)).
        full: which series have filled a block ((T, n)).
        ends: profile tuples up to the end of those blocks ((T,)).

    Yields:
        For each row that shows a change, the number of tuples before the changes and the detectors
        that found them.
    """
    is_used = full.any(axis=1)
    if not is_used.all():
        items, full, ends = items[is_used], full[is_used], ends[is_used]
    n_per_series, start = max(bank.n // max(full.shape[1], 1), 1), 0
    while start < len(items):
        n_taken, flags = advance(bank, items[start:])
        starts.close(full[start : start + n_taken], ends[start : start + n_taken])
        start += n_taken
        detectors = np.flatnonzero(flags)
        if detectors.size:
            items_back = bank.n_seen[detectors] - bank.change_points[detectors]
            pairs = zip((detectors // n_per_series).tolist(), items_back.tolist(), strict=True)
            yield [starts.of(*pair) for pair in pairs], detectors.tolist()


@compiled
def close_blocks(
    full: NDArray[np.bool_],
    n_tuples: NDArray[np.int64],
    closed: NDArray[np.int64],
    opened: NDArray[np.int64],
) -> None:
    """Move the open blocks that were filled to the closed ones; see ``BlockStarts.close``."""
    for t in range(len(full)):
        for i in range(full.shape[1]):
            if full[t, i]:
                for k in range(closed.shape[1] - 1):
                    closed[i, k] = closed[i, k + 1]
                closed[i, -1] = opened[i]
                opened[i] = n_tuples[t]


@compiled
def fill_positions(
    blocks: NDArray[np.int64], counts: NDArray[np.float64], items: NDArray[np.float64]
) -> None:
    """Add blocks of counts up until enough rows reach a position; write what it drops of them.

    Args:
        blocks: rows in and out of each position ((T, 2, F)).
        counts: rows in and out of the open block of each position ((2, F)).
        items: takes the fractions ((T, F)).
    """
    for t in range(len(blocks)):
        for i in range(counts.shape[1]):
            counts[0, i] += blocks[t, 0, i]
            counts[1, i] += blocks[t, 1, i]
            if counts[0, i] >= MIN_MAIN_ROWS:
                items[t, i] = (counts[0, i] - counts[1, i]) / counts[0, i]
                counts[0, i] = 0.0
                counts[1, i] = 0.0


# -- monitors by name --------------------------------------------------------------------------

MONITORS: dict[str, type[MonitorOptions]] = {
    "window": WindowOptions,
    "two_sample": TwoSampleOptions,
}
"""Monitors besides the change detectors."""


def monitor(spec: Any) -> MonitorOptions:
    """Return the options of a monitor that is given by name, as a detector or as options.

    Args:
        spec: a name of ``MONITORS`` or of ``eddyline.change.DETECTORS``, the options object of
            either, or a detector of river.

    Raises:
        OptionError: the name is unknown, or the object is neither.

    >>> monitor("two_sample").z_score
    4.0
    """
    if isinstance(spec, str):
        if spec in MONITORS:
            return MONITORS[spec]()
        try:
            return DetectorMonitorOptions(detector=spec)
        except OptionError:
            if spec in DETECTORS:
                raise
            msg = unknown("monitor", spec, [*MONITORS, *DETECTORS])
            raise OptionError(msg, monitor=spec) from None
    if isinstance(spec, (*MONITORS.values(), DetectorMonitorOptions)):
        return cast("MonitorOptions", spec)
    return DetectorMonitorOptions(detector=spec)
