"""Rule trees written out for other engines mean the same; what runs alone, and how it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness.isolated import alone, peak_bytes, python_below
from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios
from benchmarks.rules import automaton as sharing_automaton
from benchmarks.rules import sigma as sharing_sigma
from benchmarks.rules.forms import differing
from benchmarks.rules.written import (
    LOWER,
    CannotWriteError,
    cost_of,
    folded_columns,
    polars_expression,
    spark_sql,
)

from eddyline.query.conditions import And, IsNull, Not, Operand, Or, Rule, TextTest, ValueTest
from eddyline.sql.regexes import Wild
from eddyline.sql.types import STRING
from tests.oracles.rules import matches

A, B = (Operand(f"`{name}`", STRING, (name,)) for name in "ab")
ANY, ONE = Wild("%"), Wild("_")
TEXTS = [
    None,
    "",
    "x",
    "X",
    "xy",
    "yx",
    "a.b",
    "axb",
    "50%",
    "5_0",
    "it's",
    "C:\\x\\y",
    "é",
    "É\nx",
]
PIECES = ["x", "y", ".", "%", "_", "'", "\\", "é", "xy", "5"]


def drawn(rng, depth=0):
    """A random tree of what Sigma rules are made of."""
    kind = rng.integers(0, 8 if depth < 3 else 4)
    operand = (A, B)[rng.integers(0, 2)]
    if kind == 0:
        return IsNull(operand)
    if kind == 1:
        return ValueTest(operand, "regex", ["x.", "^[a-z]+$", r"\.b"][rng.integers(0, 3)])
    if kind < 4:
        parts = []
        for _ in range(rng.integers(0, 4)):
            parts.append((ANY, ONE, PIECES[rng.integers(0, len(PIECES))])[rng.integers(0, 3)])
            if len(parts) > 1 and isinstance(parts[-1], str) and isinstance(parts[-2], str):
                parts[-2:] = [parts[-2] + parts[-1]]
        return TextTest(operand, tuple(parts), folded=bool(rng.integers(0, 2)))
    if kind == 4:
        return Not(drawn(rng, depth + 1))
    many = tuple(drawn(rng, depth + 1) for _ in range(rng.integers(1, 7)))
    return And(many) if kind < 6 else Or(many)


def test_polars_says_what_the_oracle_says():
    rng = np.random.default_rng(0)
    rows = [{"`a`": a, "`b`": b} for a in TEXTS for b in TEXTS]
    frame = polars.DataFrame(
        {name: [row[f"`{name}`"] for row in rows] for name in "ab"},
        schema=dict.fromkeys("ab", polars.String),
    )
    lower = [polars.col(name).str.to_lowercase().alias(LOWER + name) for name in "ab"]
    frame = frame.with_columns(lower)
    n_true = 0
    for number in range(300):
        tree = drawn(rng)
        expected = [bool(found) for found in matches([Rule("r", tree)], rows)]
        said = frame.select(polars_expression(tree).fill_null(value=False).alias("r"))["r"]
        assert said.to_list() == expected, (number, tree)
        n_true += sum(expected)
    assert 0.1 < n_true / (300 * len(rows)) < 0.9


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (TextTest(A, ("x",)), "`a` = 'x'"),
        (TextTest(A, ()), "`a` = ''"),
        (TextTest(A, ("x",), folded=True), "lower_a = 'x'"),
        (TextTest(A, ("x", ANY)), "startswith(`a`, 'x')"),
        (TextTest(A, (ANY, "\\x.exe"), folded=True), r"endswith(lower_a, '\\x.exe')"),
        (TextTest(A, (ANY, "it's", ANY)), r"contains(`a`, 'it\'s')"),
        (TextTest(A, ("5%", ONE, "\\")), r"`a` LIKE '5\\%_\\\\'"),
        (ValueTest(A, "regex", "\\d", 2), r"`a` RLIKE '(?i)\\d'"),
        (Not(IsNull(A)), "(NOT `a` IS NULL)"),
    ],
)
def test_spark_sql_of_one_test(node, expected):
    assert spark_sql(node) == expected


def test_what_costs_least_comes_first():
    dear, cheap = TextTest(A, (ANY, "x", ANY)), TextTest(B, (ANY, "y"))
    assert cost_of(cheap) < cost_of(dear)
    assert spark_sql(And((dear, cheap))) == "(endswith(`b`, 'y') AND contains(`a`, 'x'))"


def test_only_columns_that_are_folded_are_lowered():
    tree = And((TextTest(A, ("x",)), Not(Or((TextTest(B, ("x",), folded=True),)))))
    assert folded_columns([Rule("r", tree)]) == ["b"]


@pytest.mark.parametrize("write", [spark_sql, polars_expression])
def test_what_cannot_be_said_is_refused(write):
    with pytest.raises(CannotWriteError):
        write(ValueTest(A, "cidr", "10.0.0.0/8"))


def test_counts_are_compared_rule_by_rule():
    assert differing({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5}) == {"b": (2, 5)}


def test_other_counts_are_an_error_not_a_figure():
    found = {"different": {"r": (1, 2)}}
    with pytest.raises(AssertionError, match="other counts of 1 rules"):
        sharing_sigma._compared(found, "Spark SQL")


def test_a_function_runs_in_a_process_of_its_own():
    assert alone("json:loads", s='{"a": 1}', environment={"PYTHONHASHSEED": "0"}) == {"a": 1}


def test_a_child_that_fails_says_how():
    with pytest.raises(RuntimeError, match="JSONDecodeError"):
        alone("json:loads", s="nothing")


def test_memory_and_workers_are_read_from_proc():
    if not Path("/proc/self/status").is_file():
        pytest.skip("no /proc")
    assert peak_bytes() > 2**20
    assert peak_bytes(2**30) == 0
    assert python_below(2**30) == []


def test_without_data_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("EDDYLINE_DATA", str(tmp_path))
    monkeypatch.setattr(sharing_sigma, "alone", None)
    ids = {*sharing_sigma.RUNS, *sharing_automaton.RUNS}
    chosen = [scenario for scenario in scenarios("sharing") if scenario.id in ids]
    assert len(chosen) == len(ids) == 7
    for scenario in chosen:
        measurement = scenario.measure(Settings(quick=True))
        assert scenario.status(measurement) == "skipped"
        assert "EDDYLINE_DATA" in measurement.note
