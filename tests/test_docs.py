"""The pages name what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from eddyline.aggregates.functions import AGGREGATES
from eddyline.options import (
    AggregateOptions,
    AlarmOptions,
    FilterOptions,
    JoinOptions,
    ModelOptions,
    RunOptions,
    SharingOptions,
)
from eddyline.ordering import ORDERING_POLICIES
from eddyline.query.script import read_script
from eddyline.query.select.reader import read_query

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
TO_COME = {"src/eddyline/change/threshold.py", "src/eddyline/ordering/lookahead.py"}
"""Files of examples: a reader would write them."""
OPTIONS = (ROOT / "docs" / "options.md").read_text("utf-8")
AGGREGATED = (ROOT / "docs" / "aggregates.md").read_text("utf-8")
JOINED = (ROOT / "docs" / "joins.md").read_text("utf-8")
QUERIES = {"docs/aggregates.md", "docs/joins.md"}
"""Pages whose SQL is queries; that of the others is scripts."""
ORDERS = {"id": "bigint", "customer": "int", "total": "bigint", "ordered_at": "timestamp"}
PAYMENTS = {"order_id": "bigint", "amount": "bigint", "paid_at": "timestamp"}
CLICKS = {"page": "string", "country": "string", "ms": "int", "ts": "timestamp"}
"""The columns of the streams of that page."""


@pytest.mark.parametrize("field", fields(FilterOptions), ids=lambda field: field.name)
def test_every_option_stands_on_the_page_with_its_default(field):
    row = next(
        (line for line in OPTIONS.splitlines() if line.startswith(f"| `{field.name}` |")), ""
    )
    assert row, f"docs/options.md has no row for the option {field.name!r}"
    shown = f'"{field.default}"' if isinstance(field.default, str) else str(field.default)
    assert shown in row.split("|")[2], f"docs/options.md says {row}, the default is {shown}"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *[("rules", field) for field in fields(SharingOptions)],
        *[("joins", field) for field in fields(JoinOptions)],
        *[("aggregates", field) for field in fields(AggregateOptions)],
        *[("alarms", field) for field in fields(AlarmOptions)],
        *[("models", field) for field in fields(ModelOptions)],
        *[("runs", field) for field in fields(RunOptions)],
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_every_option_of_a_kind_stands_on_the_page_with_its_default(kind, field):
    page = OPTIONS.partition(f"| option of {kind} |")[2].partition("\n## ")[0]
    row = next((line for line in page.splitlines() if line.startswith(f"| `{field.name}` |")), "")
    assert row, f"docs/options.md has no row for the option {field.name!r} of {kind}"
    shown = f'"{field.default}"' if isinstance(field.default, str) else str(field.default)
    assert shown in row.split("|")[2], f"docs/options.md says {row}, the default is {shown}"


@pytest.mark.parametrize("name", ORDERING_POLICIES)
def test_every_policy_stands_on_the_page(name):
    assert f"`{name}`" in OPTIONS, f"docs/options.md does not name the policy {name!r}"


@pytest.mark.parametrize("name", sorted({name.partition("(")[0] for name in AGGREGATES}))
def test_every_aggregate_function_stands_on_the_page(name):
    assert f"`{name}(" in AGGREGATED, f"docs/aggregates.md does not name {name}()"


def queries_of(page):
    """Return the queries of a page's blocks of SQL; each begins a line."""
    blocks = re.findall(r"(?ms)^```sql\n(.*?)^```$", page)
    return [query for block in blocks for query in re.split(r"(?m)^(?=SELECT)", block) if query]


@pytest.mark.parametrize("text", queries_of(AGGREGATED), ids=lambda text: " ".join(text.split()))
def test_queries_of_the_page_of_aggregates_can_be_read(text):
    names = {name for name in AGGREGATES if "(" not in name}
    columns = {"clicks": CLICKS, "orders": CLICKS}
    read = read_query(text, columns, aggregates=names, times=dict.fromkeys(columns, "ts"))
    assert read.grouping is not None or read.overs


def has_script(page):
    """Whether a page has SQL that is a script."""
    name = Path(page).relative_to(ROOT).as_posix()
    return name not in QUERIES and "```sql\n" in Path(page).read_text("utf-8")


@pytest.mark.parametrize("text", queries_of(JOINED), ids=lambda text: " ".join(text.split()))
def test_queries_of_the_page_of_joins_can_be_read(text):
    times = {"orders": "ordered_at", "payments": "paid_at"}
    read = read_query(text, {"orders": ORDERS, "payments": PAYMENTS}, times=times)
    if "BETWEEN" in text:
        windows = ["RANGE 5 MINUTES, from the condition", "NOW, from the condition"]
        assert [each.window.shown for each in read.inputs] == windows
    else:
        last = read.parts[-1] if read.parts else read
        assert last.kind in {"left", "anti"}


@pytest.mark.parametrize(
    "page",
    [page for page in map(str, (*PAGES, *(ROOT / "docs").rglob("*/*.md"))) if has_script(page)],
)
def test_scripts_of_pages_can_be_read(page):
    blocks = re.findall(r"(?ms)^```sql\n(.*?)^```$", Path(page).read_text("utf-8"))
    assert all(read_script(block) for block in blocks)


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))], ids=str
)
def test_links_between_pages_lead_somewhere(page):
    for part in page.read_text("utf-8").split("](")[1:]:
        target = part.split(")")[0].split("#")[0]
        if target and "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_modules_that_pages_name_are_there(page):
    names = set(re.findall(r"`([\w./-]+\.py)`", page.read_text("utf-8"))) - TO_COME
    files = [f"/{each.relative_to(ROOT).as_posix()}" for each in ROOT.rglob("*.py")]
    assert [each for each in names if not any(file.endswith(f"/{each}") for file in files)] == []
