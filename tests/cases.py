"""Cases of large tests: CI runs one in three of each test, other ones with each commit."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def newest_commit() -> str:
    """Return the commit of the tests; an empty text outside a repository."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""


def drawn(items: Sequence[pytest.Item], one_in: int, drawn_by: str) -> set[pytest.Item]:
    """Return all quick tests, and of the cases of each large test one in so many, at least one.

    Args:
        items: what was collected.
        one_in: 1 keeps all cases.
        drawn_by: says which cases; another text draws other ones.
    """
    if one_in == 1:
        return set(items)
    kept, cases = set(), defaultdict(list)
    for item in items:
        if item.get_closest_marker("large"):
            cases[item.nodeid.partition("[")[0]].append(item)
        else:
            kept.add(item)
    for same in cases.values():
        same.sort(key=lambda item: (is_soak(item), crc32(f"{drawn_by} {item.nodeid}".encode())))
        kept.update(same[: ceil(len(same) / one_in)])
    return kept


def is_soak(item: pytest.Item) -> bool:
    """Return whether a case takes minutes, so that it is skipped unless many are drawn."""
    return item.get_closest_marker("soak") is not None
