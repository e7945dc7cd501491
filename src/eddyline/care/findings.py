"""Findings: what was looked at, whether it is right, and what to do if it is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from eddyline.report.formatting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    """Name of the thing."""
    level: Level
    """``ok``; ``warning``: works, but not as it should; ``error``: does not work."""
    said: str
    """What was found, and what to do about it."""


def is_fine(findings: Iterable[Finding]) -> bool:
    """Return whether no finding is an error."""
    return all(each.level != "error" for each in findings)


def findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as plain values."""
    return [asdict(each) for each in findings]


def told(findings: Iterable[Finding]) -> list[Text]:
    """Return findings as lines for a terminal."""
    return [
        Text.assemble(
            (f"{each.level:<9}", _STYLES[each.level]), one_line(f"{each.what}: {each.said}")
        )
        for each in findings
    ]
