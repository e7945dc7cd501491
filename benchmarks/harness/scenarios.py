"""The registry: every suite and its scenarios, in the order in which they run."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from benchmarks.harness.scenario import Scenario, Target

MODULES: dict[str, tuple[str, ...]] = {
    "filters": ("thesis", "predicate_eval", "intrusion", "spark_end_to_end"),
    "change": ("paper", "priced", "intrusion", "monitors", "quality", "bank"),
    "routing": ("counted", "spark"),
    "sharing": ("paper", "methods", "numbers", "sigma", "automaton"),
    "joins": ("chained", "growth", "operator", "caches", "caches_plans", "real", "pathway"),
}
"""Modules of scenarios by suite: ``python -m benchmarks run SUITE`` runs one of them."""

FOLDERS = {"sharing": "rules"}
"""Folders that are not called as their suite: rules keep the name of their results."""

TABLES = Path(__file__).resolve().parents[1] / "scenarios.md"


@cache
def scenarios(suite: str) -> tuple[Scenario, ...]:
    """Return the scenarios of a suite: those of its table, with what its modules run."""
    runs = {}
    for name in MODULES[suite]:
        runs |= import_module(f"benchmarks.{FOLDERS.get(suite, suite)}.{name}").RUNS
    table = TABLES.read_text("utf-8").partition(f"\n## {suite}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    found = tuple(
        Scenario(
            id=id_,
            shows=shows,
            run=runs.pop(id_),
            target=Target(float(target[1:]), target[0] == "≤") if target else None,
            policies=tuple(policies.split()),
            counted=measure == "counted",
            needs=tuple(needs.split()),
        )
        for id_, shows, target, measure, needs, policies in filter(None, rows[3:])
    )
    assert not runs, f"{suite} runs what {TABLES.name} does not declare: {', '.join(runs)}"
    return found
