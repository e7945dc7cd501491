"""The experiments of [ASC 6]: in which order selection constructs are visited, counted.

An evaluation is one construct looked at for one row. Adaptive runs learn from scratch, and each
sampled row counts as an evaluation of every construct on top of its normal way. The best and the
worst fixed order are exact, over the same rows, known beforehand.

The paper's rules and laws are not described, and its census is not at hand:
``tests.oracles.rule_data`` says what stands in for them. In place of D3 there are 15 columns of 8
values each, correlated through a class that no column tells, because the rules that the paper runs
on it name 15 attributes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tests.oracles.rule_data import (
    CARDINALITY,
    Q3_SIZES,
    RangeRules,
    bitmap_spread,
    class_rows,
    phase_rows,
    rules_q1,
    rules_q2,
    rules_q3,
    rules_q4,
    uniform_rows,
    zipf_rows,
)
from tests.oracles.sharing import best_and_worst, ticket_routing, visits_after_sets

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio
from benchmarks.rules.sequences import RearrangementOptions, SequencePolicy
from eddyline.data.arrays import Ints
from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.match.matcher import Selection
from eddyline.rules.plan import SelectionSequence
from eddyline.rules.planning.sequence_learning import RegionSample, greedy_macro, hybrid, macro

BATCH_ROWS = 2_000
"""Rows of a batch: the sequence changes only between batches."""

REVIEW_ROWS = 10_000
"""λ [ASC 6]."""

MIN_CHANGE = 0.05
"""μ, where it is not swept. The paper's 0 has everything learned again at every look."""

SAMPLE_ROWS = 1_000
"""τ of macro-sequences (ours)."""

HYBRID_SAMPLE_ROWS = 2_000
"""τ of micro-arrows, which are learned from parts of it (ours)."""

Rows = Callable[[int, int], Ints]
"""Draws rows: so many, by a seed."""

TICKET_ROWS = 30_000
"""Rows that the lottery is run on: its mean hardly moves after the first thousands."""


@dataclass(frozen=True)
class AdaptiveRun:
    """What an adaptive run came to."""

    evaluations: Ints
    """Evaluations of each batch along its sequence."""
    n_sampled: int
    """Evaluations of sampled rows in all constructs."""
    n_learned: int
    """How often a sequence was learned."""
    micro_frac: float
    """Share of micro-arrows among all arrows followed."""
    n_rows: int

    @property
    def per_row(self) -> float:
        """Evaluations per row, those of sampled rows included."""
        return float(self.evaluations.sum() + self.n_sampled) / self.n_rows


def adaptive(block: BitmapBlock, rows: Ints, learner: str, **given: Any) -> AdaptiveRun:
    """Run a stream under a policy that starts without knowing anything."""
    size = HYBRID_SAMPLE_ROWS if learner == "hybrid" else SAMPLE_ROWS
    options = {"review_rows": REVIEW_ROWS, "min_change": MIN_CHANGE, "sample_rows": size, **given}
    policy = SequencePolicy(block, RearrangementOptions(learner=learner, **options))
    evaluations, counts, n_learned, n_sampled = [], None, 0, 0
    selection = Selection(block, policy.sequence)
    for start in range(0, rows.shape[1], BATCH_ROWS):
        keys = np.ascontiguousarray(rows[:, start : start + BATCH_ROWS])
        nulls = np.zeros(keys.shape, dtype=np.bool_)
        wanted = np.arange(min(policy.n_wanted, keys.shape[1]))
        if len(wanted):
            n_sampled += len(wanted) * block.n_constructs
            if policy.learn(block.regions(keys, nulls, wanted)):
                selection = Selection(block, policy.sequence)
            n_learned += policy.n_wanted == 0
        found = selection.select(keys, nulls).counts
        policy.observe(found)
        counts = found if counts is None else counts + found
        evaluations.append(found.n_evaluated)
    n_arrows = 0 if counts is None else counts.n_evaluated - counts.n_rows
    micro_frac = counts.n_followed / n_arrows if counts is not None and n_arrows > 0 else 0.0
    return AdaptiveRun(np.array(evaluations), n_sampled, n_learned, micro_frac, rows.shape[1])


def fixed(block: BitmapBlock, rows: Ints, plan: SelectionSequence) -> float:
    """Return the evaluations per row of a sequence that stays."""
    nulls = np.zeros(rows.shape, dtype=np.bool_)
    found = Selection(block, plan).select(rows, nulls).counts
    return float(found.n_evaluated / rows.shape[1])


def everything(block: BitmapBlock, rows: Ints) -> RegionSample:
    """Return all rows as a sample."""
    nulls = np.zeros(rows.shape, dtype=np.bool_)
    return RegionSample.from_regions(block, block.regions(rows, nulls, np.arange(rows.shape[1])))


def compared(rules: RangeRules, rows: Ints, seed: int, **given: Any) -> dict[str, float]:
    """Return evaluations per row of every scheme."""
    block = rules.block()
    whole = everything(block, rows)
    alive = visits_after_sets(whole.bitmaps, block.initial)
    best, worst = (each[0] / rows.shape[1] for each in best_and_worst(alive))
    some = min(TICKET_ROWS, rows.shape[1])
    rng = np.random.default_rng([seed, 6])
    found = {
        "best": best,
        "worst": worst,
        "ticket": ticket_routing(whole.bitmaps[-some:], block.initial, rng) / some,
    }
    for learner in ("greedy", "macro", "hybrid"):
        run = adaptive(block, rows, learner, **given)
        found[learner] = run.per_row
        found[f"{learner}_learned"] = run.n_learned
    found["matched_frac"] = alive[-1] / rows.shape[1]
    return found


def _over_best(table: list[dict[str, float]], scheme: str) -> float:
    return median(each[scheme] / each["best"] for each in table)


def _told(table: list[dict[str, float]]) -> str:
    ratios = ", ".join(
        f"{scheme} {_over_best(table, scheme):.3f}"
        for scheme in ("macro", "hybrid", "greedy", "ticket", "worst")
    )
    best = median(each["best"] for each in table)
    matched = median(each["matched_frac"] for each in table)
    return (
        f"over the best fixed order ({best:.2f} evaluations per row): {ratios}; macro "
        f"{spread(each['macro'] / each['best'] for each in table)}; "
        f"{100 * matched:.1f} % of rows match a rule"
    )


def compare(
    settings: Settings,
    scheme: str,
    rules: Callable[[int], RangeRules],
    rows: Rows,
    n_rows: int = 500_000,
    n_seeds: int = 5,
) -> Measurement:
    """Rules, drawn by seed, over rows: one scheme counts, the others are told beside it."""
    n = settings.pick(n_rows, 50_000)
    seeds = settings.seeds(n_seeds, 2)
    table = [compared(rules(seed), rows(n, seed), seed) for seed in seeds]
    return Measurement(round(_over_best(table, scheme), 4), _told(table), {"per_row": table})


def _few_valued(seed: int, make: Callable[..., RangeRules] = rules_q1) -> RangeRules:
    return make(seed, domain=CARDINALITY, width=1, spread=3.0, point_frac=0.3)


def _correlated(n_attributes: int) -> Rows:
    """Return what draws correlated columns of few values."""
    return lambda n, seed: class_rows(n, n_attributes, seed)


def _uniform(n: int, seed: int) -> Ints:
    return uniform_rows(n, 10, seed)


def _skewed(n: int, seed: int) -> Ints:
    return zipf_rows(n, 10, seed)


def _phase(number: int) -> Rows:
    """Return what draws one phase of data that drifts."""
    return lambda n, seed: phase_rows(n, 10, seed, number)


def _drifting(n_rows: int, seed: int) -> Ints:
    """Return five phases of data that drifts: half the attributes have a usual value."""
    return np.concatenate([_phase(number)(n_rows // 5, seed) for number in range(5)], axis=1)


def attributes(settings: Settings) -> Measurement:
    """Five sets of rules with more and more attributes, on skewed data."""
    n = settings.pick(200_000, 20_000)
    told, ratios, details = [], [], {}
    for member, (_, _, n_attributes) in enumerate(Q3_SIZES):
        table = [
            compared(rules_q3(member, seed), zipf_rows(n, n_attributes, seed), seed)
            for seed in settings.seeds(3, 1)
        ]
        found = {s: _over_best(table, s) for s in ("macro", "hybrid", "greedy", "ticket", "worst")}
        details[str(n_attributes)] = table
        ratios.append(found["macro"])
        told.append(
            f"{n_attributes}: macro {found['macro']:.3f}, hybrid {found['hybrid']:.3f}, "
            f"ticket {found['ticket']:.3f}, worst {found['worst']:.3f}"
        )
    note = f"over the best fixed order, by attributes: {'; '.join(told)}"
    return Measurement(round(max(ratios), 4), note, {"per_row": details})


def micro(settings: Settings) -> Measurement:
    """50 rules of 362 ranges whose centres spread less and less, on uniform data."""
    n = settings.pick(500_000, 50_000)
    told, omegas = [], []
    for width in (40.0, 20.0, 10.0, 5.0):
        found = []
        for seed in settings.seeds(5, 1):
            block, rows = rules_q4(width, seed).block(), uniform_rows(n, 10, seed)
            plain, arrows = (adaptive(block, rows, learner) for learner in ("macro", "hybrid"))
            found.append((bitmap_spread(block), arrows.micro_frac, arrows.per_row / plain.per_row))
        deviation, share, omega = (float(np.mean(each)) for each in zip(*found, strict=True))
        told.append(f"{deviation:.2f}: ω {omega:.4f}, ξ {share:.3f}")
        omegas.append(omega)
    return Measurement(round(omegas[-1], 4), f"by std dev: {'; '.join(told)}", {"omega": omegas})


def recovery(settings: Settings, one: Rows, other: Rows) -> Measurement:
    """Two kinds of rows alternate: periods until the sequence is as good as the best for a kind."""
    n_block, n_blocks = settings.pick(100_000, 40_000), 8
    by_change: dict[str, Any] = {}
    for min_change in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5):
        lags, ratios, learned = [], [], []
        for seed in settings.seeds(5, 2):
            block, pair = rules_q1(seed).block(), (one(n_block, seed), other(n_block, seed))
            own = [everything(block, part).cost(_best(block, part)) for part in pair]
            rows = np.concatenate([pair[k % 2] for k in range(n_blocks)], axis=1)
            run = adaptive(block, rows, "macro", min_change=min_change)
            per_review = run.evaluations.reshape(-1, REVIEW_ROWS // BATCH_ROWS).sum(axis=1)
            per_row = (per_review / REVIEW_ROWS).reshape(n_blocks, -1)
            for k in range(1, n_blocks):
                good = per_row[k] <= 1.05 * own[k % 2]
                lags.append(int(good.argmax()) if good.any() else per_row.shape[1])
            ratios.append(run.per_row / float(np.mean(own)))
            learned.append(run.n_learned)
        lost = [lag for lag in lags if lag > 0]
        by_change[f"{min_change:g}"] = {
            "lag": median(lost) if lost else 0.0,
            "worst_lag": max(lags),
            "changes": len(lags),
            "changes_that_cost": len(lost),
            "ratio": round(median(ratios), 4),
            "learned": median(learned),
        }
    told = "; ".join(
        f"μ {name}: {row['lag']:g} (worst {row['worst_lag']}; {row['changes_that_cost']} of "
        f"{row['changes']}), {row['ratio']:.3f} × each block's best, learned {row['learned']:g} ×"
        for name, row in by_change.items()
    )
    note = (
        f"periods of {REVIEW_ROWS:,} rows until the way of rows is within 5 %, median of the "
        f"changes after which the first is not; then the whole run, samples included: {told}"
    )
    return Measurement(by_change[f"{MIN_CHANGE:g}"]["lag"], note, by_change)


def _best(block: BitmapBlock, rows: Ints) -> tuple[int, ...]:
    return best_and_worst(visits_after_sets(everything(block, rows).bitmaps, block.initial))[0][1]


def kernel_time(settings: Settings) -> Measurement:
    """Time per row of sequences learned from the first rows, on rows that were not seen."""
    n = settings.pick(400_000, 50_000)
    told, ratios, details = [], [], {}
    cases: dict[str, tuple[RangeRules, Ints]] = {
        "D1": (rules_q1(0), uniform_rows(n, 10, 0)),
        "D2": (rules_q1(0), zipf_rows(n, 10, 0)),
        "D2, 512 rules, searched": _searched(n),
        "D3": (_few_valued(0, rules_q2), class_rows(n, 15, 0)),
    }
    for name, (rules, rows) in cases.items():
        block, nulls = rules.block(), np.zeros(rows.shape, dtype=np.bool_)
        sample = RegionSample.from_regions(block, block.regions(rows, nulls, np.arange(4_000)))
        best = macro(sample)
        plans = {
            "macro": best,
            "greedy": greedy_macro(sample),
            "hybrid": hybrid(sample, best),
            "worst": SelectionSequence(_worst(sample)),
        }
        runs: dict[str, Callable[[], object]] = {}
        for label, plan in plans.items():
            selection = Selection(block, plan)
            runs[label] = partial(selection.select, rows, nulls)
        times = interleaved(runs, settings.pick(7, 3), clock=time.process_time)
        per_row = {label: 1e9 * each.median / n for label, each in times.items()}
        work = {label: fixed(block, rows, plan) for label, plan in plans.items()}
        ratios.append(paired_ratio(times["macro"], times["worst"]))
        details[name] = {"ns_per_row": per_row, "evaluations": work}
        told.append(
            f"{name}: "
            + ", ".join(f"{label} {per_row[label]:.0f} ({work[label]:.2f})" for label in plans)
        )
    note = f"ns per row (evaluations): {'; '.join(told)}"
    return Measurement(round(median(ratios), 4), note, details)


def _searched(n_rows: int) -> tuple[RangeRules, Ints]:
    """Return 512 rules on values too far apart for look-up tables."""
    wide = 1_000_003
    rules = RangeRules.hot_spots(512, 2_048, 12, seed=0, point_frac=0.3)
    ranges = tuple(tuple((a, lo * wide, hi * wide) for a, lo, hi in rule) for rule in rules.ranges)
    return RangeRules(ranges), zipf_rows(n_rows, 12, 0) * wide


def _worst(sample: RegionSample) -> tuple[int, ...]:
    """Return the dearest order on the sample; of many constructs, the best one reversed."""
    if sample.block.n_constructs > 10:
        return macro(sample).macro[::-1]
    return best_and_worst(visits_after_sets(sample.bitmaps, sample.block.initial))[1][1]


RUNS: Runs = {
    "sharing_macro_d1": partial(compare, scheme="macro", rules=rules_q1, rows=_uniform),
    "sharing_macro_d2": partial(compare, scheme="macro", rules=rules_q1, rows=_skewed),
    "sharing_macro_d3": partial(
        compare,
        scheme="macro",
        rules=partial(_few_valued, make=rules_q2),
        rows=_correlated(15),
        n_rows=200_000,
        n_seeds=3,
    ),
    "sharing_hybrid_correlated": partial(
        compare, scheme="hybrid", rules=_few_valued, rows=_correlated(10)
    ),
    "sharing_hybrid_drifting": partial(compare, scheme="hybrid", rules=rules_q1, rows=_drifting),
    "sharing_attributes": attributes,
    "sharing_micro_arrows": micro,
    "sharing_recovery": partial(recovery, one=_uniform, other=_skewed),
    "sharing_recovery_drifting": partial(recovery, one=_phase(0), other=_phase(1)),
    "sharing_kernel_time": kernel_time,
}
