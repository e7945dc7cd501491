"""docs/change_detection.md names every detector, and every option with its default."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from eddyline.change import DETECTORS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "change_detection.md").read_text("utf-8")


@pytest.mark.parametrize("name", DETECTORS)
def test_every_option_stands_on_the_page_with_its_default(name):
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 4, "which one, what was measured, cost, options"
    for field in fields(DETECTORS[name]):
        shown = f"`{field.name}={field.default!r}`"
        assert shown in rows[-1], f"docs/change_detection.md has no {shown} for {name}"
