"""The page of metrics names those that there are, and its alerts parse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from eddyline.report.metrics import KINDS

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "metrics.md").read_text("utf-8")
NAMES = {kind.name for kind in KINDS}
OF_HISTOGRAMS = {
    f"{kind.name}_{part}"
    for kind in KINDS
    if kind.type == "histogram"
    for part in ("bucket", "sum", "count")
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_metric_stands_on_the_page_with_its_type(kind):
    assert f"| `{kind.name}` | {kind.type} |" in PAGE


def test_the_alerts_parse_and_name_metrics_that_exist():
    (block,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)
    (group,) = yaml.safe_load(block)["groups"]
    alerts = group["rules"]
    assert len({each["alert"] for each in alerts}) == len(alerts) >= 8
    for each in alerts:
        named = set(re.findall(r"\beddyline_\w+", each["expr"]))
        assert named
        assert named <= NAMES | OF_HISTOGRAMS, each["alert"]
        assert each["annotations"]["summary"]
        assert each["labels"]["severity"] in {"page", "ticket"}
        assert each["expr"].count("(") == each["expr"].count(")")
