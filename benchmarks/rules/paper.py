"""The experiments of [ASC 6]: in which order selection constructs are visited, counted.

An evaluation is one construct looked at for one row. Adaptive runs learn from scratch, and each
sampled row counts as an evaluation of every construct on top of its normal way. The best and the
worst fixed order are exact, over the same rows, known beforehand.

The paper's rules and laws are not described, and its census is not at hand: ``testing.rule_data``
says what stands in for them. In place of D3 there are 15 columns of 8 values each, correlated
through a class that no column tells, because the rules that the paper runs on it name 15
attributes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_most
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio
from benchmarks.rules.sequences import RearrangementOptions, SequencePolicy
from eddyline.rules.match.selection import Selection
from eddyline.rules.planning.hybrid_sequence import hybrid
from eddyline.rules.planning.sequence import SelectionSequence
from eddyline.rules.planning.sequence_learning import RegionSample, greedy_macro, macro

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eddyline.rules.compile.bitmap_block import BitmapBlock

    Ints = NDArray[np.int64]

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

TICKET_ROWS = 30_000
"""Rows that the lottery is run on: its mean hardly moves after the first thousands."""


@dataclass(frozen=True)
class Run:
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


def adaptive(
    block: BitmapBlock, rows: Ints, learner: str, *, skips: bool = False, **given: Any
) -> Run:
    """Run a stream under a policy that starts without knowing anything."""
    size = HYBRID_SAMPLE_ROWS if learner == "hybrid" else SAMPLE_ROWS
    options = {"review_rows": REVIEW_ROWS, "min_change": MIN_CHANGE, "sample_rows": size, **given}
    options["skips"] = skips
    policy = SequencePolicy(block, RearrangementOptions(learner=learner, **options))
    evaluations, counts, n_learned, n_sampled = [], None, 0, 0
    selection = Selection(block, policy.sequence, skips=skips)
    for start in range(0, rows.shape[1], BATCH_ROWS):
        keys = np.ascontiguousarray(rows[:, start : start + BATCH_ROWS])
        nulls = np.zeros(keys.shape, dtype=np.bool_)
        wanted = np.arange(min(policy.n_wanted, keys.shape[1]))
        if len(wanted):
            n_sampled += len(wanted) * block.n_constructs
            if policy.learn(block.regions(keys, nulls, wanted)):
                selection = Selection(block, policy.sequence, skips=skips)
            n_learned += policy.n_wanted == 0
        found = selection.select(keys, nulls).counts
        policy.observe(found)
        counts = found if counts is None else counts + found
        evaluations.append(found.n_evaluated)
    micro_frac = 0.0 if counts is None else counts.micro_frac
    return Run(np.array(evaluations), n_sampled, n_learned, micro_frac, rows.shape[1])


def fixed(block: BitmapBlock, rows: Ints, plan: SelectionSequence, **given: Any) -> float:
    """Return the evaluations per row of a sequence that stays."""
    nulls = np.zeros(rows.shape, dtype=np.bool_)
    return Selection(block, plan, **given).select(rows, nulls).counts.n_evaluated / rows.shape[1]


def everything(block: BitmapBlock, rows: Ints) -> RegionSample:
    """Return all rows as a sample."""
    nulls = np.zeros(rows.shape, dtype=np.bool_)
    return RegionSample.of(block, block.regions(rows, nulls, np.arange(rows.shape[1])))


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
    found["over"] = adaptive(block, rows, "macro", skips=True, **given).per_row
    found["matched_frac"] = alive[-1] / rows.shape[1]
    return found


def _over_best(table: list[dict[str, float]], scheme: str) -> float:
    return median(each[scheme] / each["best"] for each in table)


def _told(table: list[dict[str, float]]) -> str:
    ratios = ", ".join(
        f"{scheme} {_over_best(table, scheme):.3f}"
        for scheme in ("macro", "hybrid", "greedy", "ticket", "worst")
    )
    ratios += f", macro that passes over constructs without use {_over_best(table, 'over'):.3f}"
    best = median(each["best"] for each in table)
    matched = median(each["matched_frac"] for each in table)
    return (
        f"over the best fixed order ({best:.2f} evaluations per row): {ratios}; macro "
        f"{spread(each['macro'] / each['best'] for each in table)}; "
        f"{100 * matched:.1f} % of rows match a rule"
    )


def _compare(
    settings: Settings,
    rules: Callable[[int], RangeRules],
    rows: Callable[[int, int], Ints],
    scheme: str,
    *,
    n_rows: int = 500_000,
    n_seeds: int = 5,
    **given: Any,
) -> Measurement:
    n = settings.pick(n_rows, 50_000)
    table = [
        compared(rules(seed), rows(n, seed), seed, **given) for seed in settings.seeds(n_seeds, 2)
    ]
    return Measurement(round(_over_best(table, scheme), 4), _told(table), {"per_row": table})


def macro_d1(settings: Settings) -> Measurement:
    """Uniform data, 50 rules on 10 attributes."""
    return _compare(settings, rules_q1, lambda n, seed: uniform_rows(n, 10, seed), "macro")


def macro_d2(settings: Settings) -> Measurement:
    """Skewed data, the same rules."""
    return _compare(settings, rules_q1, lambda n, seed: zipf_rows(n, 10, seed), "macro")


def _few_valued(seed: int, *, n: int = 15) -> RangeRules:
    make = rules_q2 if n == 15 else rules_q1
    return make(seed, domain=CARDINALITY, width=1, spread=3.0, point_frac=0.3)


def macro_d3(settings: Settings) -> Measurement:
    """Correlated columns of few values, 50 rules on 15 attributes."""
    return _compare(
        settings,
        _few_valued,
        lambda n, seed: class_rows(n, 15, seed),
        "macro",
        n_rows=200_000,
        n_seeds=3,
    )


def hybrid_correlated(settings: Settings) -> Measurement:
    """Correlated columns of few values, 50 rules on 10 attributes."""
    return _compare(
        settings,
        lambda seed: _few_valued(seed, n=10),
        lambda n, seed: class_rows(n, 10, seed),
        "hybrid",
    )


def _drifting(n_rows: int, seed: int) -> Ints:
    """Return five phases of data that drifts."""
    return np.concatenate([phase_rows(n_rows // 5, 10, seed, k) for k in range(5)], axis=1)


def hybrid_drifting(settings: Settings) -> Measurement:
    """Half the attributes have a usual value, other ones at every fifth of the rows."""
    return _compare(settings, rules_q1, _drifting, "hybrid")


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


def _recovery(settings: Settings, blocks: Callable[[int, int], tuple[Ints, Ints]]) -> Measurement:
    n_block, n_blocks = settings.pick(100_000, 40_000), 8
    by_change: dict[str, Any] = {}
    for min_change in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5):
        lags, ratios, learned = [], [], []
        for seed in settings.seeds(5, 2):
            block, pair = rules_q1(seed).block(), blocks(n_block, seed)
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


def recovery(settings: Settings) -> Measurement:
    """D1 and D2 alternate; how long until the sequence is as good as the block's own best."""
    return _recovery(settings, lambda n, seed: (uniform_rows(n, 10, seed), zipf_rows(n, 10, seed)))


def recovery_drifting(settings: Settings) -> Measurement:
    """Two phases of data that drifts alternate."""
    return _recovery(
        settings, lambda n, seed: (phase_rows(n, 10, seed, 0), phase_rows(n, 10, seed, 1))
    )


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
        "D3": (_few_valued(0), class_rows(n, 15, 0)),
    }
    for name, (rules, rows) in cases.items():
        block, nulls = rules.block(), np.zeros(rows.shape, dtype=np.bool_)
        sample = RegionSample.of(block, block.regions(rows, nulls, np.arange(4_000)))
        best = macro(sample)
        plans = {
            "macro": (best, False),
            "greedy": (greedy_macro(sample), False),
            "hybrid": (hybrid(sample, best), False),
            "worst": (SelectionSequence(_worst(sample)), False),
            "passing over": (best, True),
        }
        runs: dict[str, Callable[[], object]] = {}
        for label, (plan, skips) in plans.items():
            selection = Selection(block, plan, skips=skips)
            runs[label] = lambda selection=selection: selection.select(rows, nulls)  # noqa: B023
        times = interleaved(runs, settings.pick(7, 3), clock=time.process_time)
        per_row = {label: 1e9 * each.median / n for label, each in times.items()}
        work = {
            label: fixed(block, rows, plan, skips=skips) for label, (plan, skips) in plans.items()
        }
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


def passing_over(settings: Settings) -> Measurement:
    """Constructs that cannot decide a rule that is left are passed over (ours)."""
    n = settings.pick(200_000, 20_000)
    told, ratios = [], []
    for name, rules, rows in (
        ("D1", rules_q1, lambda seed: uniform_rows(n, 10, seed)),
        ("D2", rules_q1, lambda seed: zipf_rows(n, 10, seed)),
        ("D3", lambda seed: _few_valued(seed, n=10), lambda seed: class_rows(n, 10, seed)),
    ):
        found = []
        for seed in settings.seeds(5, 1):
            block, stream = rules(seed).block(), rows(seed)
            whole = everything(block, stream)
            best = whole.cost(_best(block, stream))
            part = RegionSample.of(block, whole.regions[:SAMPLE_ROWS], skips=True)
            spent = fixed(block, stream, macro(part), skips=True)
            found.append(spent / best)
        ratios.append(median(found))
        told.append(f"{name} {median(found):.3f} ({spread(found)})")
    note = f"evaluations over the best fixed order that passes over none: {', '.join(told)}"
    return Measurement(round(max(ratios), 4), note, {"ratios": ratios})


SCENARIOS = (
    Scenario(
        id="sharing_macro_d1",
        shows="evaluations of the macro-sequence over the best fixed order's, uniform data; "
        "learning and its samples count [ASC 6, Fig 6]",
        run=macro_d1,
        target=at_most(1.03),
        policies=(),
    ),
    Scenario(
        id="sharing_macro_d2",
        shows="the same, skewed data [ASC 6, Fig 6]",
        run=macro_d2,
        target=at_most(1.03),
        policies=(),
    ),
    Scenario(
        id="sharing_macro_d3",
        shows="the same, 15 correlated columns of few values in place of the census [ASC 6, Fig 6]",
        run=macro_d3,
        target=at_most(1.03),
        policies=(),
    ),
    Scenario(
        id="sharing_hybrid_correlated",
        shows="evaluations with micro-arrows over the best fixed order's, correlated columns",
        run=hybrid_correlated,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_hybrid_drifting",
        shows="the same, half the columns have a usual value, other ones at every fifth",
        run=hybrid_drifting,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_attributes",
        shows="evaluations of the macro-sequence over the best fixed order's, worst of 6 to 15 "
        "attributes [ASC 6, Fig 7]",
        run=attributes,
        target=at_most(1.03),
        policies=(),
    ),
    Scenario(
        id="sharing_micro_arrows",
        shows="evaluations with micro-arrows over those without, rules of the greatest std dev "
        "[ASC 6, Fig 8]",
        run=micro,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_recovery",
        shows="periods of λ rows until the sequence fits again after D1 and D2 alternate, median, "
        "μ = 0.05 [ASC 6, Fig 9]",
        run=recovery,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_recovery_drifting",
        shows="the same, two phases of data that drifts",
        run=recovery_drifting,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_passing_over",
        shows="evaluations over the best fixed order's if constructs that cannot decide anything "
        "any more are passed over, worst of three data sets",
        run=passing_over,
        target=at_most(1.0),
        policies=(),
    ),
    Scenario(
        id="sharing_kernel_time",
        shows="time of the macro-sequence over the worst order's",
        run=kernel_time,
        target=at_most(1.0),
        policies=(),
        counted=False,
    ),
)
