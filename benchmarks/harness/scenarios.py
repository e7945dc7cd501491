"""The registry: every suite and its scenarios, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from benchmarks.filters.policies import BENCHMARK_POLICIES
from benchmarks.harness.scenario import Run, Scenario, Target
from eddyline.ordering import ORDERING_POLICIES

MODULES: dict[str, tuple[str, ...]] = {
    "filters": (
        "thesis",
        "predicate_eval",
        "intrusion",
        "spark_end_to_end",
        "as_read",
        "lane",
        "local_files",
        "task_results",
    ),
    "change": (
        "paper",
        "priced",
        "payoff",
        "intrusion",
        "monitors",
        "quality",
        "bank",
        "recurring",
        "recurring_kinds",
    ),
    "routing": ("counted", "joins", "spark"),
    "sharing": ("paper", "methods", "numbers", "few", "lane", "floors", "sigma", "automaton"),
    "joins": (
        "chained",
        "growth",
        "operator",
        "caches",
        "caches_plans",
        "real",
        "pathway",
        "lane",
        "time_bounds",
        "shared",
    ),
    "aggregates": ("windows", "queries", "over", "joined", "growth", "silent", "nexmark", "lane"),
    "models": (
        "fits",
        "crossovers",
        "pulse",
        "answers",
        "figures",
        "engines",
        "door",
        "early",
        "one_sided",
        "lane",
    ),
    "constraints": (
        "learned",
        "waiting",
        "thesis",
        "discard",
        "expressway",
        "road_cql",
        "real",
        "spark",
        "lateness",
    ),
    "alarms": ("estimates", "sharing", "adaptive", "vessels"),
    "page": ("cost",),
    "lakehouse": ("kafka", "delta"),
    "peers": ("windows", "nexmark"),
}
"""Modules of scenarios by suite: ``python -m benchmarks run SUITE`` runs one of them."""

FOLDERS = {"sharing": "rules"}
"""Folders that are not called as their suite: rules keep the name of their results."""

ALL_POLICIES = (*ORDERING_POLICIES, *BENCHMARK_POLICIES)

TABLES = Path(__file__).resolve().parents[1] / "scenarios.md"


@cache
def scenarios(suite: str) -> tuple[Scenario, ...]:
    """Return the scenarios of a suite: the rows of its table, each with what runs it."""
    runs: dict[str, Run] = {}
    for name in MODULES[suite]:
        runs |= import_module(f"benchmarks.{FOLDERS.get(suite, suite)}.{name}").RUNS
    found = tuple(_scenario(row, runs) for row in _rows(suite))
    more = runs.keys() - {each.id for each in found}
    assert not more, f"{suite} runs what {TABLES.name} does not declare: {', '.join(sorted(more))}"
    return found


def _rows(suite: str) -> list[list[str]]:
    """Return the cells of each row of a suite's table, without its head."""
    section = TABLES.read_text("utf-8").partition(f"\n## {suite}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _scenario(row: list[str], runs: Mapping[str, Run]) -> Scenario:
    id_, shows, target, measure, needs, policies = row
    assert id_ in runs, f"{TABLES.name} declares {id_}, which no RUNS of its suite has"
    return Scenario(
        id=id_,
        shows=shows,
        run=runs[id_],
        target=Target(float(target[1:]), at_most=target[0] == "≤") if target else None,
        policies=ALL_POLICIES if policies == "all" else tuple(policies.split()),
        counted=measure == "counted",
        needs=tuple(needs.split()),
    )
