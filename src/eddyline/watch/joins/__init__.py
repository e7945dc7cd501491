"""Windowed joins in words and figures. Imports ``joins/`` and ``watch/`` beside it."""

from eddyline.watch.joins.windows import WORDINGS, holding_back, lines, sections

__all__ = ["WORDINGS", "holding_back", "lines", "sections"]
