"""The page on the sources names what there is, and has every experiment with its stored value."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.results import VALUE, shown
from benchmarks.harness.scenarios import MODULES, scenarios

import eddyline

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "sources.md").read_text("utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
SCENARIOS = {each.id: each.shows for suite in MODULES for each in scenarios(suite)}
STORED = {
    each["id"]: each
    for path in (ROOT / "benchmarks" / "results").glob("*.json")
    for each in json.loads(path.read_text("utf-8"))["results"]
}
EXPERIMENTS = {
    source: [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    for source, table in re.findall(
        r"(?ms)^\*\*\[(\w+)\]\*\*[^\n]*\n\n(\|.*?)(?:\n\n|\Z)", PAGE.partition("## Experiments")[2]
    )
}
ROWS = [row for rows in EXPERIMENTS.values() for row in rows]
CITES = re.compile(r"\((?:Figs? \d|Table \d|Exps? \d)|\[ASC 6|\[Bizarro05 6|^Fig 5")
"""What the declaration of a scenario says if it repeats an experiment of a source."""


def numbers(chapter: int, first: int, last: int) -> set[str]:
    return {f"{chapter}.{number}" for number in range(first, last + 1)}


MEASURED = {
    "Babu05": {
        "Fig": numbers(4, 11, 24) | numbers(5, 11, 23) | numbers(6, 10, 18),
        "Table": {"4.2", "5.2", "6.1", "6.3"},
    },
    "Tsamoura16": {"Fig": {"1"}, "Table": set("123"), "Exp": set("1234567")},
    "ASC": {"Fig": set("6789")},
    "Bizarro05": {"Fig": {*"3456789", "10"}},
    "Ahmad09": {"Fig": numbers(2, 4, 12) | numbers(3, 8, 13) | numbers(4, 4, 6)},
}
"""The figures, tables and experiments of each source that have measurements."""


def named(cell: str, kind: str) -> set[str]:
    """Return the numbers of figures or tables that a cell names, ranges spelled out."""
    found = set()
    for listed in re.findall(rf"\b{kind}s? ([\d.]+(?:(?:, | to | and )[\d.]+)*)", cell):
        for part in re.split(", | and ", listed):
            first, _, last = part.partition(" to ")
            chapter, _, number = first.rpartition(".")
            stop = int((last or first).rpartition(".")[2])
            chapters = f"{chapter}." if chapter else ""
            found |= {f"{chapters}{each}" for each in range(int(number), stop + 1)}
    return found


def scenarios_of(text: str) -> list[str]:
    return [name for name in re.findall(r"`(\w+)`", text) if name in SCENARIOS]


@pytest.mark.parametrize(
    ("source", "kind"), [(source, kind) for source, kinds in MEASURED.items() for kind in kinds]
)
def test_every_figure_and_table_with_measurements_has_a_row(source, kind):
    in_rows = set().union(*(named(row[0], kind) for row in EXPERIMENTS[source]))
    assert in_rows == MEASURED[source][kind]


def test_every_scenario_that_repeats_an_experiment_is_on_the_page():
    repeats = {name for name, shows in SCENARIOS.items() if CITES.search(shows)}
    assert len(repeats) > 50
    assert repeats - set(scenarios_of(PAGE)) == set()


def test_a_row_has_a_scenario_or_says_why_not():
    for row in ROWS:
        assert len(row) == 3
        assert all(row), row
        assert scenarios_of(row[2]) or row[2].startswith("**none**: "), row
        for reason in re.findall(r"\*\*none\*\*(?!, `)(.*)", row[2]):
            assert re.match(r": \S", reason), row


def test_values_are_the_stored_ones():
    values = {*VALUE.findall(PAGE)}
    names = {name for name, _ in values}
    assert names <= SCENARIOS.keys()
    stored = {(name, shown(STORED[name]["value"]) if name in STORED else "none") for name in names}
    assert values == stored, "python -m benchmarks report RESULTS.json --into docs/sources.md"


@pytest.mark.parametrize("source", MEASURED)
def test_further_figures_are_in_notes_of_results_or_in_the_benchmarks(source):
    for row in EXPERIMENTS[source]:
        notes = [STORED[name]["note"] for name in scenarios_of(row[2]) if name in STORED]
        told = [*notes, BENCHMARKS] if "**none**" in row[2] else notes
        known = set(re.findall(r"-?\d+\.\d+", " ".join(told)))
        further = re.findall(r"-?\d+\.\d+", re.sub(r"\*\*.*?\*\*", "", row[2]))
        assert [figure for figure in further if figure not in known] == [], row


def test_files_and_calls_that_the_page_names_are_there():
    files = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert len(files) > 50
    places = (ROOT / "src" / "eddyline", ROOT)
    assert [name for name in files if not any((at / name).exists() for at in places)] == []
    for name, inner in re.findall(r"`el\.(\w+)(?:\.(\w+))?`", PAGE):
        assert name in eddyline.__all__
        assert not inner or inner in getattr(eddyline, name).__all__
