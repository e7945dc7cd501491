"""A query that asks alarms, as the set shows it: in words, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.report.html import write_report
from eddyline.report.sections import RunView, arranged
from eddyline.report.terminal import explain
from eddyline.runtime.records import History

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Operator


class AlarmsShown:
    """How an operator solves alarms, for people.

    Args:
        operator: that solves them.
        query: what it is called.
    """

    def __init__(self, operator: Operator, query: str) -> None:
        self._operator, self._query = operator, query

    def explain(self, entries: Iterable[JournalEntry], width: int) -> str:
        """Return in words how alarms are solved; ``entries`` are decisions so far."""
        sections = self._operator.sections(History(journal=tuple(entries)))
        return explain(self._query, arranged(sections), width=width)

    def report(self, entries: Iterable[JournalEntry], path: str | Path) -> Path:
        """Write a page of it."""
        history = History(journal=tuple(entries))
        sections = tuple(self._operator.sections(history))
        view = RunView(self._query, self._operator.text, history=history, sections=sections)
        return write_report(view, path)
