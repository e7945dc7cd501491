"""The tables of the page on benchmarks, and the pages of results, have the stored results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import results

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
STORED = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_table_of_a_suite_has_the_stored_values(path):
    page = PAGE.read_text("utf-8")
    run = results.read(path)
    assert results.start_of(run["suite"]) in page
    assert results.with_run(page, run) == page, f"python -m benchmarks report {path} --into {PAGE}"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_page_of_results_has_the_stored_values(path):
    page = path.with_suffix(".md").read_text("utf-8")
    assert results.markdown(results.read(path)) == page, f"python -m benchmarks report {path}"
