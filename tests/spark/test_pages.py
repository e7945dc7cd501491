"""What pages tell runs, from top to bottom, in an empty folder, on what the page takes as given."""

from __future__ import annotations

import sys

import pytest
from tools import snippets

PAGES = [
    page.relative_to(snippets.ROOT).as_posix()
    for page in [snippets.ROOT / "README.md", *sorted((snippets.ROOT / "docs").rglob("*.md"))]
    if snippets.has_snippets(page)
]


@pytest.mark.spark
@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("soon_started")
@pytest.mark.parametrize("page", PAGES)
def test_snippets_run_one_after_the_other(page, tmp_path):
    # Commands in the page's own process: each by itself would start a JVM. Others test that they
    # start, and make release runs those of the README so.
    done = snippets.run(snippets.ROOT / page, sys.executable, tmp_path, starts_commands=False)
    assert done.returncode == 0, done.stderr[-4000:]
    if page.startswith("docs/tutorials/"):  # elsewhere a text may be what others print
        lines = {line.strip() for line in done.stdout.splitlines()}
        assert [line for line in snippets.printed(snippets.ROOT / page) if line not in lines] == []
