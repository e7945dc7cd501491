"""What ``make release`` checks finds what is wrong, and the version is one."""

from __future__ import annotations

import pytest
import yaml
from tools import release

CITATION = yaml.safe_load((release.ROOT / "CITATION.cff").read_text("utf-8"))
WHEEL = {each.removeprefix("src/") for each in release.tracked("src/eddyline")}
LICENCE = "eddyline-1.dist-info/licenses/LICENSE"
ARCHIVE = {
    f"eddyline-1/{each}"
    for each in release.tracked("src") | release.tracked("docs") | release.BESIDE
}


def test_the_changelog_says_which_version_this_is_and_all_agree():
    assert release.check_versions() == str(CITATION["version"])


def test_a_version_that_differs_is_told_with_its_place(monkeypatch):
    monkeypatch.setattr(release, "versions", lambda: {"here": "1.0", "there": "1.1"})
    with pytest.raises(release.ReleaseError, match=r"here: 1\.0, there: 1\.1"):
        release.check_versions()


def test_a_whole_wheel_and_archive_pass():
    release.check_wheel(WHEEL | {LICENCE})
    release.check_archive(ARCHIVE)


@pytest.mark.parametrize(
    "name",
    ["py.typed", "spark/log4j2.properties", "report/templates/page.html"],
)
def test_a_wheel_that_lacks_a_file_does_not_pass(name):
    with pytest.raises(release.ReleaseError, match=f"the wheel lacks eddyline/{name}"):
        release.check_wheel((WHEEL | {LICENCE}) - {f"eddyline/{name}"})


def test_a_wheel_without_the_licence_does_not_pass():
    with pytest.raises(release.ReleaseError, match="LICENSE"):
        release.check_wheel(WHEEL)


@pytest.mark.parametrize("name", ["tests/data/rows.parquet", "src/eddyline/kernel.nbc"])
def test_an_archive_with_what_is_not_published_does_not_pass(name):
    with pytest.raises(release.ReleaseError, match=f"should not have {name}"):
        release.check_archive(ARCHIVE | {f"eddyline-1/{name}"})


def test_the_citation_names_the_five_works():
    works = CITATION["references"]
    assert len(works) == 5
    assert all(work["title"] and work["authors"] and work["year"] for work in works)
    families = {work["authors"][0]["family-names"] for work in works}
    assert families == {"Ahmad", "Babu", "Bizarro", "Lee", "Tsamoura"}
    page = (release.ROOT / "docs" / "references.md").read_text("utf-8")
    assert [work["title"] for work in works if work["title"].lower() not in flat(page)] == []


def flat(text: str) -> str:
    return " ".join(text.split()).lower()
