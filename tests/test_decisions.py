"""Each decision says whether it is in force, and the list of decisions says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
LIST = (FOLDER / "README.md").read_text("utf-8")
STATUS = re.compile(
    r"\*\*Status\.\*\* (In force\.|In force in part\.(?= \S)|"
    r"Superseded by \[\d+\]\(\d{4}-[\w-]+\.md\)\.|Removed\.(?= \S))"
)
"""After "in force in part" and "removed" the status goes on: with what is not in force, and why."""


def status_of(page: Path) -> str:
    """Return the status of a page, without the number of what supersedes it; "" if it has none."""
    paragraphs = page.read_text("utf-8").split("\n\n")
    status = STATUS.match(" ".join(paragraphs[1].split()))
    return status[1].split(" by ")[0].removesuffix(".") if status else ""


def part_of(link: re.Match[str]) -> str:
    """Return the status that a line of the list stands for, by its heading and its mark."""
    heading = re.findall(r"(?m)^## (.*)$", LIST[: link.start()])[-1]
    return f"{heading} in part" if link["mark"] else heading


LISTED = [
    (link["page"], link["title"], part_of(link))
    for link in re.finditer(
        r"(?m)^\* \[(?P<title>.*)\]\((?P<page>\d{4}-.*\.md)\)(?P<mark> \*\(in part\)\*)?$", LIST
    )
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_listed_once_with_its_title_and_status(page):
    assert status_of(page), f"{page.name} has no status of the known forms in its second paragraph"
    title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
    assert [each for each in LISTED if each[0] == page.name] == [
        (page.name, title, status_of(page))
    ]


def test_what_is_in_force_is_listed_first():
    headings = re.findall(r"(?m)^## (.*)$", LIST)
    assert headings == ["In force", "Superseded", "Removed"]


def test_numbers_of_decisions_are_their_files():
    assert [page.name[:4] for page in PAGES] == [
        f"{int(page.read_text('utf-8').removeprefix('# ').partition('.')[0]):04d}" for page in PAGES
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_at_most_350_words(page):
    assert len(page.read_text("utf-8").split()) <= 350
