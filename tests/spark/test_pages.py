"""What pages tell runs, from top to bottom, in an empty folder, on what the page takes as given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eddyline.sigma.loading import load_rules
from tools import snippets

ROOT = Path(__file__).resolve().parents[2]
GIVEN = Path(__file__).with_name("given")
"""What pages take as given, such as the DataFrame ``events``: Python files by the pages' names."""
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if snippets.has_snippets(page)
)


def given(page: Path) -> str:
    file = GIVEN / f"{page.stem.lower()}.py"
    return file.read_text("utf-8") if file.exists() else ""


@pytest.mark.spark
@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_snippets_run_one_after_the_other(page, tmp_path):
    # In a process of its own: the folder of relative paths is where Spark was started.
    (tmp_path / "given_here.py").write_text(given(ROOT / page), "utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    told = tmp_path / Path(page).name.replace(".md", ".py")
    told.write_text(snippets.script(ROOT / page), "utf-8")
    code = f"from given_here import *\nexec(compile(open({str(told)!r}).read(), {page!r}, 'exec'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
