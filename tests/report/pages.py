"""Reads what the report of a run says."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from eddyline.report.html import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from eddyline.report.sections import RunView

EVIL = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "a & b",
    "\"><b onclick='alert(4)'>",
    "%{x} <b>bold</b> `tick` {{ 7 * 7 }}\n{% raw %}",
)


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page_of(view: RunView, tmp_path: Path) -> str:
    return write_report(view, tmp_path / "report.html").read_text("utf-8")


def own_part(page: str) -> str:
    """Return the page without Plotly's own code."""
    return re.sub(r"<script>/\*\*.*?</script>", "<script></script>", page, flags=re.DOTALL)


def elements_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(own_part(page))
    return parser.found


def figures_of(page: str) -> dict[str, dict[str, Any]]:
    """Return the figures that are drawn, by their titles; those of one title are numbered."""
    data = re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)
    drawn = json.loads(data.group(1)) if data else {}
    places = re.findall(r"<h3>([^<]*)</h3>(?:(?!<h3>).)*?id=\"(figure-\d+)\"", page, re.DOTALL)
    assert [name for _, name in places] == sorted(drawn, key=lambda name: int(name[7:]))
    found: dict[str, dict[str, Any]] = {}
    for title, name in places:
        text = html.unescape(title)
        found[text if text not in found else f"{text} {len(found)}"] = drawn[name]
    return found


def check_nothing_runs(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Check that no text became an element that loads or runs something; returns the elements."""
    found = elements_of(page)
    assert not {tag for tag, _ in found} & {"img", "iframe", "object", "embed", "base"}
    assert not [attrs for _, attrs in found if any(name.startswith("on") for name in attrs)]
    return found


def check_harmless(page: str) -> None:
    """Check that no text of a report became an element, an attribute or code."""
    tags = [tag for tag, _ in check_nothing_runs(page)]
    assert tags.count("script") == (3 if 'id="figures"' in page else 0)
    assert not {"b", "link"} & {*tags}
