"""The Python of pages that tell a story runs, from top to bottom, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.large, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("page", ["README.md", "docs/aggregates.md"])
def test_snippets_run_one_after_the_other(spark, page, tmp_path, monkeypatch):
    assert spark.version  # the session that el.session() returns is that of the tests
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text("utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    for found in re.finditer(r"(?ms)^```python\n(.*?)^```$", text):
        # Errors show the lines of the page.
        before = "\n" * text.count("\n", 0, found.start(1))
        exec(compile(before + found[1], str(ROOT / page), "exec"), names)
