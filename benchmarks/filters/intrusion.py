"""Real rows: conjunctions like those of intrusion rules over KDD Cup 1999, whose traffic drifts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.filters.policies import BENCHMARK_POLICIES
from benchmarks.filters.simulated_loop import best_work, fixed_work, run_counted
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.workloads import INTRUSION_RULES_V1, intrusion_stream, intrusion_v1
from eddyline.ordering import ORDERING_POLICIES
from eddyline.testing.reference_orders import cheapest_order

POLICIES = {**ORDERING_POLICIES, **BENCHMARK_POLICIES}


def _against_best_fixed(settings: Settings) -> Measurement:
    table = intrusion_v1()
    n_orders = settings.pick(12, 3)
    rules: dict[str, dict[str, Any]] = {}
    for name, rule in INTRUSION_RULES_V1.items():
        stream = intrusion_stream(table, rule)
        costs, histograms = stream.costs_ns, stream.histograms()
        best = cheapest_order(histograms.sum(0), costs)
        fixed = fixed_work(histograms, best, costs).sum()
        switching = sum(best_work(each[None], costs) for each in histograms)
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


RUNS: Runs = {"intrusion_rules": _against_best_fixed}
