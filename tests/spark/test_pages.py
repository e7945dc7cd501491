"""What pages tell runs, from top to bottom, in an empty folder, on what the page takes as given."""

from __future__ import annotations

import pytest
from tools import snippets

from tests.spark.page_process import PageProcess

PAGES = [
    page.relative_to(snippets.ROOT).as_posix()
    for page in [snippets.ROOT / "README.md", *sorted((snippets.ROOT / "docs").rglob("*.md"))]
    if snippets.has_snippets(page)
]


@pytest.fixture(scope="session")
def process(tmp_path_factory):
    made = PageProcess(tmp_path_factory.mktemp("pages"))
    yield made
    made.close()


@pytest.mark.spark
@pytest.mark.large("runs all snippets of a page: several queries, each planned for the first time")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_snippets_run_one_after_the_other(page, process):
    outcome = process.run(snippets.ROOT / page)
    assert outcome.is_whole, outcome.errors[-4000:]
    if page.startswith("docs/tutorials/"):  # elsewhere a text may be what others print
        lines = {line.strip() for line in outcome.output.splitlines()}
        assert [line for line in snippets.printed(snippets.ROOT / page) if line not in lines] == []
