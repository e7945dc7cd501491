"""Windowed joins in words and figures. Imports ``joins/`` and ``report/`` beside it."""

from eddyline.report.joins.windows import WORDINGS, holding_back, lines, sections

__all__ = ["WORDINGS", "holding_back", "lines", "sections"]
