"""What is told of a windowed join, as texts: one computation for explanation and report.

Texts are on one line, but neither markup nor HTML: who shows them escapes them.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Any

from eddyline.watch.formatting import (
    TIMES,
    UNKNOWN,
    clipped,
    count,
    duration,
    finite,
    instant,
    one_line,
    percent,
    ratio,
    significant,
    size,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.joins.view import CacheView, InputView, JoinView, PipelineView

NAME_WIDTH = 40
"""Most characters of a name in a table."""

_EMITS = {
    "istream": "each result is emitted once, when it comes to be",
    "dstream": "each result is emitted once, when it is no more",
    "rstream": "all results that stand are emitted whenever a row arrives",
}
"""What each kind of output is, in words."""

ARRIVED = ("arrived", "joined", "late", "no time")
KEPT = ("kept", "size", "runs", "latest (UTC)")
INPUTS = ("input", "window", *ARRIVED, *KEPT)
"""Titles of the table of inputs, of which two are texts."""

PROBES = ("rows of", "meet", "#", "written", "looked up", "found", "drops", "time each")
"""Titles of the table of pipelines, of which two are texts."""

CACHES = ("rows of", "cached", "asked", "had", "saves per batch", "costs per batch", "size")
"""Titles of the table of caches, of which two are texts."""


def summary(view: JoinView) -> list[str]:
    """Return in sentences what is emitted, by which keys, in which grid, and what was found."""
    said = _EMITS.get(view.emits)
    how = f": {said}" if said else ""
    n_inputs = len(view.inputs)
    return [
        f"Join of {n_inputs} inputs, {one_line(view.emits).upper()}{how}.",
        f"Keys: {'; '.join(one_line(key) for key in view.keys) or UNKNOWN}.",
        _grid(view),
        _found(view),
    ]


def _grid(view: JoinView) -> str:
    n_buckets = prod(view.grid)
    shape = f"{f' {TIMES} '.join(map(str, view.grid))} = " if len(view.grid) > 1 else ""
    lead = f"Rows lie in {shape}{count(n_buckets)} bucket{'' if n_buckets == 1 else 's'}"
    if n := len(view.splits):
        keys = "1 frequent key" if n == 1 else f"{count(n)} frequent keys"
        lead += f", those of {keys} cut by event time, too ({one_line('; '.join(view.splits))})"
    if finite(view.fullest) is None or n_buckets == 1:
        return f"{lead}."
    return (
        f"{lead}; in the newest batch the fullest had {significant(view.fullest)} {TIMES} the mean."
    )


def _found(view: JoinView) -> str:
    if not any(each.n_arrived or each.n_joined for each in view.inputs):
        return "No row has arrived yet."
    n = view.n_results
    combinations = "1 combination" if n == 1 else f"{count(n)} combinations"
    return f"{combinations} of rows found, before conditions that are no equalities."


def holding_back(view: JoinView) -> list[str]:
    """Return which stream keeps rows in the windows of the others, if one does.

    A row leaves a window when no row that is still awaited can meet it. So the stream whose
    awaited rows are the earliest decides for the others.
    """
    streams = [each for each in view.inputs if not each.is_table]
    awaited = sorted(
        (each.awaited_from, at) for at, each in enumerate(streams) if each.awaited_from is not None
    )
    if len(awaited) < max(2, len(streams)) or awaited[0][0] == awaited[1][0]:
        return []
    (first, at), (second, _) = awaited[:2]
    name = clipped(streams[at].name, NAME_WIDTH)
    return [
        f"{name} holds back expiry: its rows are awaited from {instant(first)} UTC on, "
        f"{span(second - first)} before those of any other stream; until it moves on, the windows "
        f"of the others let go of nothing that could meet them."
    ]


def waiting(view: JoinView) -> list[str]:
    """Return which rows are kept back until event time has passed them, if any are."""
    found = [
        f"{clipped(each.name, NAME_WIDTH)} {count(each.n_waiting)}"
        for each in view.inputs
        if each.n_waiting
    ]
    return [f"Rows that wait until no earlier one can come: {', '.join(found)}."] if found else []


def input_rows(view: JoinView) -> list[tuple[str, ...]]:
    """Return the table of inputs (``INPUTS``)."""
    return [_input_row(each) for each in view.inputs]


def _input_row(each: InputView) -> tuple[str, ...]:
    name = one_line(each.name)
    if each.stream != each.name:
        name += f" ({one_line(each.stream)})"
    arrived = (each.n_arrived, each.n_joined, each.n_late, each.n_untimed)
    # The rows of a table do not arrive: nothing is known where a zero would stand.
    known = (None, each.n_joined, None, None) if each.is_table else arrived
    return (
        clipped(name, NAME_WIDTH),
        clipped(each.window, NAME_WIDTH),
        *map(count, known),
        count(each.n_kept),
        size(each.n_bytes),
        count(each.n_runs),
        instant(each.latest),
    )


def probe_rows(view: JoinView) -> list[tuple[str, ...]]:
    """Return the table of pipelines (``PROBES``); each is named once."""
    return [row for each in view.pipelines for row in _probe_rows(each)]


def _probe_rows(pipeline: PipelineView) -> Iterator[tuple[str, ...]]:
    written = {name: str(place + 1) for place, name in enumerate(pipeline.written)}
    for position, probe in enumerate(pipeline.probes):
        yield (
            "" if position else clipped(pipeline.name, NAME_WIDTH),
            clipped(probe.other, NAME_WIDTH),
            str(position + 1),
            written.get(probe.other, UNKNOWN),
            count(probe.n_in),
            count(probe.n_out),
            percent(probe.drop_frac),
            duration(ratio(probe.ns, probe.n_in)),
        )


def cache_rows(view: JoinView) -> list[tuple[str, ...]]:
    """Return the table of caches (``CACHES``)."""
    return [_cache_row(each) for each in view.caches]


def _kept(each: CacheView) -> str:
    """Return what a cache keeps: joined rows of windows, or those with a row of its partners."""
    windows, partners = (
        " ⋈ ".join(clipped(name, NAME_WIDTH) for name in names)
        for names in (each.windows, each.partners)
    )
    return f"({windows}) ⋉ {partners}" if partners else windows


def _cache_row(each: CacheView) -> tuple[str, ...]:
    return (
        clipped(each.pipeline, NAME_WIDTH),
        _kept(each),
        count(each.n_probes),
        percent(ratio(each.n_hits, each.n_probes)),
        duration(each.benefit_ns),
        duration(each.cost_ns),
        size(each.n_bytes),
    )


def join_facts(view: JoinView) -> dict[str, Any]:
    """Return everything known of a join as plain values (JSON), None for what is not known."""
    found: dict[str, Any] = _plain(asdict(view))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return finite(value) if isinstance(value, float) else value
