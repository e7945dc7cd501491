"""The Python of pages that tell a story runs, from top to bottom, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.large, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("page", ["README.md", "docs/aggregates.md"])
def test_snippets_run_one_after_the_other(page, tmp_path):
    # In a process of its own: the folder of relative paths is where Spark was started.
    lines = [""] * len((text := (ROOT / page).read_text("utf-8")).splitlines())
    for found in re.finditer(r"(?ms)^```python\n(.*?)^```$", text):
        first = text.count("\n", 0, found.start(1))
        own = found[1].splitlines()
        lines[first : first + len(own)] = own  # errors show the lines of the page
    script = tmp_path / "page.py"
    script.write_text("\n".join(lines), "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
