"""Output of a notebook's cell that is updated in place."""

from __future__ import annotations

import html
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100
"""Characters of a line."""


class Cell:
    """What a cell shows, in IPython: its kernels update outputs that have an identity."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display")
        self._handle: Any = None

    def show(self, drawing: RenderableType) -> None:
        """Show a drawing in place of the one before."""
        shown = self._display.HTML(f"<pre>{html.escape(_text(drawing))}</pre>")
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _text(drawing: RenderableType) -> str:
    console = Console(file=StringIO(), width=WIDTH, force_jupyter=False, force_terminal=False)
    with console.capture() as captured:
        console.print(drawing)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
