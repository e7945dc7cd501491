"""Real rows: conjunctions like those of intrusion rules over KDD Cup 1999, whose traffic drifts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.filters.policies import BENCHMARK_POLICIES
from benchmarks.filters.simulated_loop import best_order, fixed_work, run_counted
from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_most, skipped
from benchmarks.harness.statistics import median, spread
from benchmarks.workloads import (
    INTRUSION_RULES_V1,
    data_folder,
    intrusion_stream,
    intrusion_v1,
)
from eddyline.ordering import ORDERING_POLICIES

POLICIES = {**ORDERING_POLICIES, **BENCHMARK_POLICIES}


def _against_best_fixed(settings: Settings) -> Measurement:
    table = intrusion_v1()
    if table is None:
        return skipped(f"no data at {data_folder()}; set EDDYLINE_DATA to the folder that has it")
    n_orders = settings.pick(12, 3)
    rules: dict[str, dict[str, Any]] = {}
    for name, rule in INTRUSION_RULES_V1.items():
        stream = intrusion_stream(table, rule)
        costs, histograms = stream.costs_ns, stream.histograms()
        best = best_order(histograms.sum(0), costs)
        fixed = fixed_work(histograms, best, costs).sum()
        switching = sum(
            fixed_work(each[None], best_order(each, costs), costs)[0] for each in histograms
        )
        rng = np.random.default_rng([7, len(rule)])
        written = [tuple(rng.permutation(len(rule)).tolist()) for _ in range(n_orders)]
        ratios = {
            policy: [
                run_counted(stream, written=order, seed=seed, policy=options()).total_ns / fixed
                for seed, order in enumerate(written)
            ]
            for policy, options in POLICIES.items()
        }
        rules[name] = {
            "best_fixed": [rule[f].text for f in best],
            "ns_per_row_best_fixed": fixed / stream.n_rows,
            "switching_oracle": switching / fixed,
            **{policy: round(median(each), 4) for policy, each in ratios.items()},
            "a_greedy_spread": spread(ratios["a_greedy"]),
        }
    worst = max(rules, key=lambda name: rules[name]["a_greedy"])
    told = "; ".join(
        f"{name} {row['a_greedy']:.3f} ({row['a_greedy_spread']}), switching oracle "
        f"{row['switching_oracle']:.3f}, rank {row['rank']:.3f}, "
        f"hill_climb {row['hill_climb']:.3f}, as written {row['fixed']:.3f}"
        for name, row in rules.items()
    )
    note = f"median over {n_orders} written orders of each rule; worst is {worst}: {told}"
    return Measurement(rules[worst]["a_greedy"], note, {"rules": rules})


SCENARIOS = (
    Scenario(
        id="intrusion_rules",
        shows="work over the best fixed order in hindsight, worst of six rules on real traffic",
        run=_against_best_fixed,
        target=at_most(1.05),
        policies=tuple(POLICIES),
        needs=frozenset({"data"}),
    ),
)
