"""Rules made from a few lines, and events as the operands of trees see them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from eddyline.query.conditions import Constant, NativeTest
from eddyline.sigma import read
from tests.oracles.rules import truth

TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string"}
HEAD = """\
title: A rule
id: 11111111-2222-3333-4444-555555555555
logsource: {product: windows}
"""


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def sigma_data():
    """The folder with published rules and events; skipped, saying so, without it."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("EDDYLINE_DATA", beside)) / "sigma"
    if not folder.exists():
        pytest.skip(f"no Sigma rules at {folder}; set EDDYLINE_DATA to the folder above it")
    return folder


def text_of(detection: str) -> str:
    """Return a rule with this detection, given as lines without indentation."""
    lines = "".join(f"  {line}\n" for line in detection.strip("\n").splitlines())
    condition = "" if "condition:" in detection else "  condition: selection\n"
    return f"{HEAD}detection:\n{lines}{condition}"


def leaves_of(node):
    """Return the leaves of a rule tree."""
    return [each for each in node.walk() if not each.children and not isinstance(each, Constant)]


def type_of(value) -> str:
    if isinstance(value, dict):
        return f"struct<{','.join(f'{key}:{type_of(part)}' for key, part in value.items())}>"
    return TYPES[type(value)]


def operand_value(sql: str, event):
    """Return the value of an operand: a column, a path, or one of them as a text."""
    cast = re.fullmatch(r"CAST\((.*) AS STRING\)", sql)
    if cast:
        value = operand_value(cast[1], event)
        return (
            str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
        )
    value = event
    for name in re.findall(r"`([^`]*)`", sql):
        value = None if value is None else value[name]
    return value


def native_value(sql: str, event):
    """Return what Spark says of two fields that are the same in any case."""
    texts = [
        operand_value(text, event)
        for text in re.fullmatch(r"lower\((.*)\) = lower\((.*)\)", sql).groups()
    ]
    return None if None in texts else texts[0].lower() == texts[1].lower()


def row_of(tree, event):
    """Return what the oracle of trees wants to know of an event."""
    row = {}
    for leaf in leaves_of(tree):
        if isinstance(leaf, NativeTest):
            row[leaf.sql] = native_value(leaf.sql, event)
        else:
            row[leaf.operand.sql] = operand_value(leaf.operand.sql, event)
    return row


def said(detection: str, event, columns=None, **options):
    """Return what a rule says of an event: True, False or None."""
    found = read(text_of(detection), cache=False, **options)
    assert not found.skipped, found.skipped
    known = columns or {name: type_of(value) for name, value in event.items()}
    tree = found.sources[0].bind(known, ansi=True).tree
    return truth(tree, row_of(tree, {name: event.get(name) for name in known}))


@pytest.fixture(scope="session")
def ask():
    return said


@pytest.fixture(scope="session")
def rule_text():
    return text_of


@pytest.fixture(scope="session")
def oracle_row():
    return row_of
