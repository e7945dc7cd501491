"""The figures of a report, as plain values that Plotly's JavaScript draws.

A figure names colours by slot, not by value: the page gives every slot a colour for light and for
dark surroundings. Names are escaped here because Plotly reads labels as a kind of HTML.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eddyline.watch.formatting import clipped, count, finite, ratio

if TYPE_CHECKING:
    from eddyline.watch.html.series import BlockSeries, Point

Figure = dict[str, Any]
Values = Sequence[float | None]

N_SLOTS = 8
"""Colours that stay apart from each other, also for colour-blind readers."""

MUTED = -1
"""Slot of lines that are there for comparison."""

MAX_MARKS = 40
"""Most changes that are marked by a line; more would hide the data."""

FEW_POINTS = 40
"""Up to so many points, each one is marked on its line."""

HEIGHT_PX = 280
"""Height of a figure, except where every filter has a row of its own."""

_ROW_PX = 30
_MARGINS_PX = 50
_LABEL_PX = 17
_LABEL_WIDTH = 22
_HOVER_WIDTH = 60
_HEADROOM = 1.08
_SIGNIFICANT = ".5g"


def slots_of(series: BlockSeries) -> dict[int, int]:
    """Return the colour slot of each filter shown: as written if all have one, else by rank."""
    coloured = sorted(series.shown[:N_SLOTS])
    return {f: coloured.index(f) if f in coloured else MUTED for f in series.shown}


def order_figure(series: BlockSeries) -> Figure:
    """Draw at which position each filter stands, batch by batch."""
    slots, names = slots_of(series), series.filter_ids
    ranks = series.ranks()
    thick = 5 if len(series.changes) <= MAX_MARKS else 2
    data = [
        _line(
            series.batch_ids,
            [None if rank is None else rank + 1 for rank in ranks[f]],
            name=names[f],
            slot=slots[f],
            width=thick if slots[f] != MUTED else 1.5,
            customdata=[None if p is None else p + 1 for p in series.positions(f)],
            hover="batch %{x}: position %{customdata}",
        )
        for f in _muted_first(series.shown, slots)
    ]
    n_shown = len(series.shown)
    labels = [
        _label(rank + 1, names[f], slots[f])
        for f in series.shown
        if (rank := _last(ranks[f])) is not None
    ]
    axis = {
        "range": [n_shown + 0.6, 0.4],
        "tickvals": list(range(1, n_shown + 1)),
        "showgrid": False,
        "title": {"text": "Position"},
    }
    height = _MARGINS_PX + _ROW_PX * max(n_shown, 3)
    return _figure(
        "order",
        series.batch_ids,
        data,
        axis,
        labels=labels,
        changes=series.changes,
        height=height,
    )


def drop_figure(series: BlockSeries) -> Figure | None:
    """Draw which share of the rows that reach it each filter drops."""
    slots, names = slots_of(series), series.filter_ids
    lines = {f: series.drop_fracs(f) for f in series.shown}
    if all(_last(line) is None for line in lines.values()):
        return None
    data = [
        _line(
            series.batch_ids,
            lines[f],
            name=names[f],
            slot=slots[f],
            width=2 if slots[f] != MUTED else 1,
            hover="batch %{x}: drops %{y:.1%}",
        )
        for f in _muted_first(series.shown, slots)
    ]
    ends = {f: end for f in series.shown if (end := _last(lines[f])) is not None}
    labels = [_label(end, names[f], slots[f]) for f, end in ends.items() if slots[f] != MUTED]
    top = 1.02  # the line of a filter that drops everything keeps its full width
    axis = {"range": [0, top], "tickformat": ".0%", "title": {"text": "Rows dropped"}}
    return _figure(
        "drops",
        series.batch_ids,
        data,
        axis,
        labels=_apart(labels, top),
        changes=series.changes,
    )


def cost_figure(series: BlockSeries) -> Figure | None:
    """Draw the expected cost of the order in force against that of the written order."""
    cost, as_written = series.costs_ns(), series.as_written_ns()
    top = _top([*cost, *as_written])
    if top is None:
        return None
    unit, size = _unit(top)
    lines = (("as written", as_written, MUTED), ("in force", cost, 0))
    data = [
        _line(
            series.batch_ids,
            [None if value is None else value / size for value in values],
            name=name,
            slot=slot,
            width=2,
            hover=f"%{{y:,.4~g}} {unit} per row",
        )
        for name, values, slot in lines
    ]
    high = top / size * _HEADROOM
    ends = [(_last(values), name, slot) for name, values, slot in lines]
    labels = [_label(end / size, name, slot) for end, name, slot in ends if end is not None]
    axis = {"range": [0, high], "title": {"text": f"{unit} per row"}}
    return _figure(
        "cost",
        series.batch_ids,
        data,
        axis,
        labels=_apart(labels, high),
        changes=series.changes,
        hovermode="x unified",
    )


def rate_figure(points: Sequence[Point], changes: Sequence[int]) -> Figure | None:
    """Draw the input rows per second of each batch."""
    return _area("rate", points, [point.rows_per_s for point in points], "Rows per second", changes)


def evaluation_figure(points: Sequence[Point], changes: Sequence[int]) -> Figure | None:
    """Draw how many predicates were evaluated per input row, where that was counted."""
    counted = [point.n_evaluations for point in points]
    if not any(counted):
        return None
    per_row = [ratio(n, point.n_rows) for n, point in zip(counted, points, strict=True)]
    texts = [
        f"{count(n / len(point.batches))} per batch"
        for n, point in zip(counted, points, strict=True)
    ]
    return _area("evaluations", points, per_row, "Evaluations per row", changes, texts=texts)


def input_slots(inputs: Sequence[str]) -> dict[str, int]:
    """Return the colour slot of each input of a join: as the query names them."""
    return {name: at if at < N_SLOTS else MUTED for at, name in enumerate(inputs)}


def window_figures(points: Sequence[Point]) -> tuple[Figure | None, Figure | None]:
    """Draw how many rows the window of each input holds after each batch, and their size."""
    records = [point.join for point in points]
    known = [record for record in records if record is not None]
    inputs = known[-1].inputs if known else ()
    rows = [None if r is None or r.inputs != inputs else r.n_kept for r in records]
    sizes = [None if r is None or r.inputs != inputs else r.n_bytes for r in records]
    return (
        _window_figure("rows-kept", points, inputs, rows, "Rows", "rows"),
        _window_figure("bytes-kept", points, inputs, sizes, "Bytes", "bytes"),
    )


def _window_figure(
    name: str,
    points: Sequence[Point],
    inputs: Sequence[str],
    values: Sequence[Sequence[int] | None],
    title: str,
    unit: str,
) -> Figure | None:
    batch_ids = [point.batch_id for point in points]
    lines = {
        at: [None if of is None else float(of[at]) for of in values] for at in range(len(inputs))
    }
    top = _top([value for line in lines.values() for value in line])
    if top is None:
        return None
    slots = dict(enumerate(input_slots(inputs).values()))
    data = [
        _line(
            batch_ids,
            lines[at],
            name=inputs[at],
            slot=slots[at],
            width=2 if slots[at] != MUTED else 1,
            hover="batch %{x}: %{y:,.4~g} " + unit,
        )
        for at in _muted_first(list(lines), slots)
    ]
    high = top * _HEADROOM or 1
    labels = [
        _label(end, inputs[at], slots[at])
        for at, line in lines.items()
        if slots[at] != MUTED and (end := _last(line)) is not None
    ]
    axis = {
        "range": [0, high],
        "tickformat": "~s" if top >= 1000 else ",~g",
        "title": {"text": title},
    }
    return _figure(name, batch_ids, data, axis, labels=_apart(labels, high), changes=())


def result_figure(points: Sequence[Point]) -> Figure | None:
    """Draw how many combinations of rows each batch of a join found."""
    found = [_mean_of(point, "n_results") for point in points]
    return _area("results", points, found, "Combinations found", ())


def late_figure(points: Sequence[Point]) -> Figure | None:
    """Draw how many rows of each batch came too late to be joined; nothing if none did."""
    late = [_mean_of(point, "n_late") for point in points]
    return _area("late", points, late, "Late rows", ()) if any(late) else None


def _mean_of(point: Point, count_name: str) -> float | None:
    """Return the mean of a count of the batches of a point, of those that have it."""
    counts = [getattr(batch.join, count_name) for batch in point.batches if batch.join is not None]
    return sum(counts) / len(counts) if counts else None


def _area(
    name: str,
    points: Sequence[Point],
    values: Values,
    title: str,
    changes: Sequence[int],
    *,
    texts: Sequence[str] = (),
) -> Figure | None:
    top = _top(values)
    if top is None:
        return None
    batch_ids = [point.batch_id for point in points]
    hover = "batch %{x}: %{y:,.4~g} " + title.lower()
    line = _line(batch_ids, values, name=title, slot=0, width=1.5, hover=hover)
    line |= {"fill": "tozeroy"}
    if texts:
        line |= {"customdata": list(texts)}
        line["hovertemplate"] = hover + "<br>%{customdata}<extra></extra>"
    axis = {"range": [0, top * _HEADROOM or 1], "tickformat": "~s" if top >= 1000 else ",~g"}
    return _figure(name, batch_ids, [line], axis, changes=changes)


def _line(
    x: Sequence[int],
    y: Values,
    *,
    name: str,
    slot: int,
    width: float,
    hover: str,
    customdata: Sequence[Any] = (),
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": list(x),
        "y": [_short(value) for value in y],
        "name": _escaped(name, _HOVER_WIDTH),
        "slot": slot,
        "mode": "lines+markers" if len(x) <= FEW_POINTS else "lines",
        "line": {"width": width},
        "marker": {"size": width + 4},
        "customdata": list(customdata),
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>",
    }


def _figure(
    name: str,
    batch_ids: Sequence[int],
    data: list[dict[str, Any]],
    y_axis: dict[str, Any],
    *,
    labels: Sequence[dict[str, Any]] = (),
    changes: Sequence[int],
    height: int = HEIGHT_PX,
    hovermode: str = "closest",
) -> Figure:
    first, last = batch_ids[0], batch_ids[-1]
    pad = max(0.5, 0.005 * (last - first))
    x_axis: dict[str, Any] = {
        "title": {"text": "Batch"},
        "range": [first - pad, last + pad],
        "tickformat": ",~g",
    }
    if last - first < 10:
        x_axis["dtick"] = 1
    layout = {"height": height, "hovermode": hovermode, "xaxis": x_axis, "yaxis": y_axis}
    marks = list(changes) if len(changes) <= MAX_MARKS else []
    return {
        "name": name,
        "data": data,
        "layout": layout,
        "labels": list(labels),
        "marks": marks,
    }


def _label(y: float, name: str, slot: int) -> dict[str, Any]:
    """Return what stands at the right end of a line."""
    return {"y": y, "text": _escaped(name, _LABEL_WIDTH), "slot": slot}


def _apart(labels: list[dict[str, Any]], high: float) -> list[dict[str, Any]]:
    """Move labels up or down so that none covers another; high is the top of the axis."""
    gap = high * _LABEL_PX / (HEIGHT_PX - _MARGINS_PX)
    ceiling = high
    moved = []
    for label in sorted(labels, key=lambda label: -label["y"]):
        y = min(label["y"], ceiling)
        moved.append({**label, "y": y})
        ceiling = y - gap
    floor = 0.0
    for label in reversed(moved):
        label["y"] = max(label["y"], floor)
        floor = label["y"] + gap
    return moved


def _muted_first(shown: Sequence[int], slots: dict[int, int]) -> list[int]:
    """Return the filters in the order of drawing: colours above the muted lines."""
    return sorted(shown, key=lambda f: slots[f] != MUTED)


def _escaped(name: str, width: int) -> str:
    return html.escape(clipped(name, width), quote=False)


def _short(value: float | None) -> float | None:
    known = finite(value)
    return None if known is None else float(format(known, _SIGNIFICANT))


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def _top(values: Values) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _unit(top_ns: float) -> tuple[str, float]:
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if top_ns >= size:
            return unit, size
    return "ns", 1.0
