"""A windowed join in words: its pipelines, caches and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from eddyline.watch.layout import last_change, section
from eddyline.watch.wording import one_line

if TYPE_CHECKING:
    from eddyline.runtime.join_view import JoinView


def join_in_words(view: JoinView) -> RenderableType:
    """Return what there is to say of a join."""
    parts: list[RenderableType] = [Text(one_line(view.name), style="bold")]
    parts += [
        Text(" -> ".join([each.name, *(probe.other for probe in each.probes)]))
        for each in view.pipelines
    ]
    parts += last_change(view.last_change)
    if view.notes:
        parts += section("notes", [Text(f"• {one_line(note)}") for note in view.notes])
    return Group(*parts)
