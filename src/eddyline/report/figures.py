"""The figures of a page, as plain values that Plotly's JavaScript draws.

A figure names colours by slot, not by value: the page gives every slot a colour for light and for
dark surroundings. Names are escaped here because Plotly reads labels as a kind of HTML.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from eddyline.report.formatting import clipped, finite
from eddyline.report.sections import MAX_COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.report.sections import Figure, Line


Drawn = dict[str, Any]

MUTED = -1
"""Slot of lines that are there for comparison, and of those beyond the colours."""

INSTANTS: Drawn = {"type": "date", "title": {"text": "Event time (UTC)"}}
"""Axis of event time."""

MAX_MARKS = 40
"""Most changes that are marked by a line; more would hide the data."""

FEW_POINTS = 40
"""Up to so many points, each one is marked on its line."""

HEIGHT_PX = 280
"""Height of a figure, except where every line has a row of its own."""

_ROW_PX = 30
_MARGINS_PX = 50
_LABEL_PX = 17
_LABEL_WIDTH = 22
_HOVER_WIDTH = 60
_HEADROOM = 1.08
_SIGNIFICANT = ".5g"
_PRECISE = ".10g"
"""Of lines with instants of their own, whose pieces are nearer to each other than to 0."""


class Colours:
    """The colour slots of a page: lines of one name have one colour in all of its figures."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def slots_of(self, figure: Figure) -> list[int]:
        """Return the colour slot of each line; an area has that of the first line.

        A name keeps the slot that it had in a figure before, unless another line of this figure has
        it; new names take the first slots that no line of this figure has.
        """
        lines = [line for line in figure.lines if not line.is_muted and line.mark != "area"]
        plain = [line.name for line in lines][:MAX_COLOURS]
        taken: dict[str, int] = {}
        for name in plain:
            slot = self._slots.get(name)
            if slot is not None and slot not in taken.values():
                taken[name] = slot
        free = (slot for slot in range(MAX_COLOURS) if slot not in taken.values())
        taken |= {name: next(free) for name in plain if name not in taken}
        self._slots = {**taken, **self._slots}
        around = taken[plain[0]] if plain else MUTED
        slot_of = {line.name: around for line in figure.lines if line.mark == "area"} | taken
        return [MUTED if line.is_muted else slot_of.get(line.name, MUTED) for line in figure.lines]


def drawn(figure: Figure, slots: Sequence[int]) -> Drawn:
    """Return a figure as Plotly's traces and layout; each line has a colour slot."""
    numbers = (finite(value) for line in figure.lines for value in line.values)
    values = [value for value in numbers if value is not None]
    top = max(values, default=0.0)
    scale, suffix = _scale(figure, top)
    # Colours are drawn above the muted lines.
    pairs = sorted(zip(figure.lines, slots, strict=True), key=lambda pair: pair[1] != MUTED)
    traces = [_trace(figure, line, slot, scale, suffix) for line, slot in pairs]
    axis, high = _axis(figure, top / scale, suffix)
    if figure.axis:
        axis["title"] = {"text": _escaped(figure.axis, _LABEL_WIDTH)}
    labels = [
        {"y": end / scale, "text": _escaped(line.name, _LABEL_WIDTH), "slot": slot}
        for line, slot in zip(figure.lines, slots, strict=True)
        if (end := _last(line.values)) is not None and _has_label(figure, line, slot)
    ]
    low = 0.0
    if figure.is_timed:
        low, high = axis["range"] = _room(values or [0.0])
    return {
        "data": traces,
        "layout": {
            "height": height(figure),
            "hovermode": "closest",
            "xaxis": INSTANTS if figure.is_timed else _batches(figure.batch_ids),
            "yaxis": axis,
        },
        "labels": labels if figure.unit == "position" else apart(labels, high, low),
        "marks": list(figure.marks) if len(figure.marks) <= MAX_MARKS else [],
    }


def height(figure: Figure) -> int:
    """Return the height of a figure (pixels)."""
    n_rows = max(len(figure.lines), 3)
    return _MARGINS_PX + _ROW_PX * n_rows if figure.unit == "position" else HEIGHT_PX


def is_drawing(figure: Figure) -> bool:
    """Return whether lines have instants of their own, so that none ends beside its label."""
    return any(line.at for line in figure.lines)


def _has_label(figure: Figure, line: Line, slot: int) -> bool:
    if len(figure.lines) == 1 or is_drawing(figure):
        return False
    return slot != MUTED or line.is_muted or figure.unit == "position"


def _trace(figure: Figure, line: Line, slot: int, scale: float, suffix: str) -> Drawn:
    is_area = len(figure.lines) == 1 and not line.at
    is_rank = figure.unit == "position"
    thick = 5 if is_rank and len(figure.marks) <= MAX_MARKS else 2
    width = 1.5 if is_area or (is_rank and slot == MUTED) else thick
    if slot == MUTED and not line.is_muted and not is_rank:
        width = 1
    value_form = "%{y:.1%}" if figure.unit == "share" else f"%{{y:,.4~g}}{suffix}"
    details = "<br>%{customdata}" if line.details else ""
    place_form = "%{x|%Y-%m-%d %H:%M:%S.%L}" if figure.is_timed else "batch %{x}"
    drawn_at = line.at or figure.batch_ids
    places = (
        [None if micros is None else micros / 1000 for micros in drawn_at]
        if figure.is_timed
        else drawn_at
    )
    form = _PRECISE if line.at else _SIGNIFICANT
    return {
        "type": "scatter",
        "x": list(places),
        "y": [_short(value, scale, form) for value in line.values],
        "name": _escaped(line.name, _HOVER_WIDTH),
        "slot": slot,
        "mode": "lines+markers" if len(figure.batch_ids) <= FEW_POINTS else "lines",
        "line": {"width": width},
        "marker": {"size": width + 4},
        "customdata": list(line.details),
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>{place_form}"
        f"{'' if is_rank else f': {value_form}'}{details}<extra></extra>",
        **({"fill": "tozeroy"} if is_area else {}),
        **_of_mark(line),
    }


def _of_mark(line: Line) -> Drawn:
    """Return what is different of lines with instants of their own, by how they are drawn."""
    if line.mark == "points":
        return {"mode": "markers", "marker": {"size": 4}}
    if line.mark == "area":
        around = {"fill": "toself", "hoverinfo": "skip", "hovertemplate": None}
        return {"mode": "lines", "line": {"width": 0}, **around}
    return {"mode": "lines"} if line.at else {}


def _scale(figure: Figure, top: float) -> tuple[float, str]:
    """Return the size of the unit that values are drawn in, and what stands behind a value."""
    if figure.unit == "ns":
        units = (("ms", 1e6), ("µs", 1e3))
        unit, size = next((candidate for candidate in units if top >= candidate[1]), ("ns", 1.0))
        return size, f" {unit}"
    return 1.0, " bytes" if figure.unit == "bytes" else ""


def _axis(figure: Figure, top: float, suffix: str) -> tuple[Drawn, float]:
    """Return the axis of values, and its top."""
    if figure.unit == "position":
        n = len(figure.lines)
        ticks = {"tickvals": list(range(1, n + 1)), "showgrid": False}
        return {"range": [n + 0.6, 0.4], "title": {"text": "Position"}, **ticks}, float(n)
    if figure.unit == "share":
        # The line of what drops everything keeps its full width.
        return {"range": [0, 1.02], "tickformat": ".0%"}, 1.02
    high = top * _HEADROOM or 1.0
    form = "~s" if top >= 1000 else ",~g"
    title = {"title": {"text": suffix.strip()}} if suffix else {}
    return {"range": [0, high], "tickformat": form, **title}, high


def _batches(batch_ids: Sequence[int]) -> Drawn:
    first, last = batch_ids[0], batch_ids[-1]
    pad = max(0.5, 0.005 * (last - first))
    axis = {"title": {"text": "Batch"}, "range": [first - pad, last + pad], "tickformat": ",~g"}
    return {**axis, "dtick": 1} if last - first < 10 else axis


def _room(values: Sequence[float]) -> list[float]:
    """Return the ends of an axis on which some values have room, whether they are near 0 or not."""
    low, high = min(values), max(values)
    pad = (high - low or abs(high) or 1.0) * (_HEADROOM - 1)
    return [low - pad, high + pad]


def apart(labels: list[Drawn], high: float, low: float = 0.0) -> list[Drawn]:
    """Move labels up or down so that none covers another; high and low are ends of the axis."""
    gap = (high - low) * _LABEL_PX / (HEIGHT_PX - _MARGINS_PX)
    ceiling = high
    moved = []
    for label in sorted(labels, key=lambda label: -label["y"]):
        y = min(label["y"], ceiling)
        moved.append({**label, "y": y})
        ceiling = y - gap
    floor = low
    for label in reversed(moved):
        label["y"] = max(label["y"], floor)
        floor = label["y"] + gap
    return moved


def _escaped(name: str, width: int) -> str:
    return html.escape(clipped(name, width), quote=False)


def _short(value: float | None, scale: float, form: str = _SIGNIFICANT) -> float | None:
    number = finite(value)
    return None if number is None else float(format(number / scale, form))


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if finite(value) is not None), None)


class Figures:
    """The figures of a page by their names, in the order in which the page asks for them."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._colours = Colours()

    def add(self, figure: Figure) -> tuple[str, list[tuple[str, int, str]]]:
        """Return the name of a figure on the page, and the meaning of its colours.

        The colours are told for screens that are too narrow for labels on the lines.
        """
        name, slots = f"figure-{len(self.data)}", self._colours.slots_of(figure)
        self.data[name] = drawn(figure, slots)
        is_told, is_whole = len(figure.lines) > 1, is_drawing(figure)
        pairs = zip(figure.lines, slots, strict=True)
        shown = (pair for pair in pairs if is_told and (is_whole or pair[1] != MUTED))
        return name, list(dict.fromkeys((line.name, slot, line.mark) for line, slot in shown))
