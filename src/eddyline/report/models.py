"""Sections about models of a stream: segments and kept state."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from eddyline.models.streams.plan import COMPONENT
from eddyline.models.streams.view import ModelRecord, pictures
from eddyline.report.decisions import last_change
from eddyline.report.formatting import clipped, count, finite, instant, percent, ratio, size, span
from eddyline.report.sections import Facts, Figure, Line, Section, Table, Text, Tile, columns, notes
from eddyline.report.series import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eddyline.estimates.filters import Estimate
    from eddyline.models.streams.plan import StreamPlan
    from eddyline.models.streams.view import ModelView, Picture
    from eddyline.report.formatting import Unit
    from eddyline.report.sections import Mark, Part
    from eddyline.runtime.records import History

CHANGES = ("asked",)
"""Events of the journal that are another plan."""

TIMES = columns("step, time: ns, share: share, per segment: ns")
WAITING = columns(
    "stream, waiting: count, ahead of event time: count, in open runs: count, "
    "these given by (UTC): time"
)
BOUNDS = columns("attribute, of, asked, largest error: number")
ENTITIES = columns("entity, rows: count, segments: count, rows per segment: number")
STEPS = columns(
    "step, estimated: number, at least: number, at most: number, gave: number, "
    "true of estimate: number, varies by: share"
)
JOINS = columns(
    "join, asks before, estimated: ns, took: ns, side, estimated left: share, left: share"
)
MOST_STEPS = 8
"""Steps that a figure has a line for: those that take most of the time."""

WORDS = (
    ("Segment", "a polynomial of time that stands for a run of rows of an entity"),
    ("Waiting", "rows that later ones may still join in a segment"),
    ("Dropped", "rows that a declared model predicted as near as they have to be: they make none"),
    ("Broken", "declared models that ended because a row was too far from them"),
    ("Early", "results of the rows that have come, given before they are final"),
    ("Outside", "rows with values that they were said not to have, on which bounds depend"),
    ("Beyond", "results whose error is above the bound that was asked of them"),
    ("Kept", "segments that windows of later results look back at"),
    (
        "Estimated",
        "what a step gives for each segment that comes in, from histograms over coefficients of a "
        "sample, put right by how far estimates were off before; beside it what it gave in the "
        "newest batch",
    ),
    (
        "Asks before",
        "of which sides a join leaves out segments that surely are in no result, in this order, "
        "before it makes pairs",
    ),
)
"""Meanings of the words of these sections."""


def lines(record: ModelRecord) -> tuple[str, ...]:
    """Return what segments stand for, for the progress."""
    sentence = f"{count(record.n_rows)} rows in {count(record.n_segments)} segments"
    if record.n_dropped:
        sentence += f", {percent(record.n_dropped / record.n_rows)} of the rows dropped"
    waiting = f"{count(record.n_waiting)} rows waiting{_until(record)}"
    sentence = f"{sentence}; {waiting}, {size(record.n_bytes)}"
    ways = [f"{clipped(text, 60)} asks {way}" for text, way in _ways(record)]
    return (sentence, *ways)


def _until(record: ModelRecord) -> str:
    if not record.n_open or record.open_until is None:
        return ""
    return f" ({count(record.n_open)} in open runs until {instant(record.open_until)} UTC)"


def _ways(record: ModelRecord) -> list[tuple[str, str]]:
    """Return what joins ask before, in words."""
    plan = record.plan or {}
    return [
        (text, way if isinstance(way, str) else " then ".join(way) or "none")
        for text, way in plan.items()
    ]


def sections(view: ModelView, history: History) -> list[Section]:
    """Return for people what was fitted, how near, in what time, and what is kept."""
    total = view.counts.total
    tiles = [
        Tile("rows per segment", total.rows_per_segment, "number"),
        Tile("segments", total.n_segments, "count"),
    ]
    if total.n_dropped:
        tiles.append(Tile("rows dropped", total.n_dropped / total.n_rows, "share"))
    if n := total.n_outside + view.counts.work.n_beyond:
        tiles.append(Tile("rows outside, results beyond", n, "count"))
    facts = Facts(tuple(_facts(view)))
    parts = [
        facts,
        *_waiting(view),
        _bounds(view),
        *_estimates(view),
        *_times(view),
        *_figures(history),
    ]
    return [
        Section("Models", tuple(parts), tuple(tiles)),
        *last_change(history.last(*CHANGES, components=(COMPONENT,))),
        *notes(view.notes),
        *drawn(pictures(view.sketch, view.plan) if view.plan else ()),
        Section("Words of models", (Facts(WORDS),), is_aside=True),
    ]


def _facts(view: ModelView) -> list[tuple[str, str]]:
    counts, total, work = view.counts, view.counts.total, view.counts.work
    fitters = ", ".join(f"{name} {count(n)}" for name, n in sorted(total.fitters.items()))
    facts = [
        ("query", view.step),
        *([("bounds", view.bounds)] if view.bounds else []),
        (
            "rows",
            f"{count(total.n_rows)} in {count(total.n_segments)} segments, "
            f"{total.rows_per_segment:.1f} rows each",
        ),
        ("fitters", fitters or "none was chosen"),
        ("results", count(counts.n_results)),
        (
            "kept",
            f"{count(view.n_waiting)} rows waiting, {count(view.n_kept)} segments, "
            f"{size(view.n_bytes)}",
        ),
    ]
    if counts.n_early:
        n_early, n_taken_back = count(counts.n_early), count(counts.n_taken_back)
        facts.append(("early", f"{n_early} rows given early, {n_taken_back} that take back"))
    if total.n_dropped:
        facts.append(
            (
                "dropped",
                f"{count(total.n_dropped)} rows, {percent(total.n_dropped / total.n_rows)} of all; "
                f"{count(total.n_broken)} models were broken by a row",
            )
        )
    if total.n_outside:
        facts.append(
            (
                "outside",
                f"{count(total.n_outside)} rows outside of what was assumed: results of them may "
                "be off by more than their bounds, and their errors say so",
            )
        )
    if work.n_beyond:
        facts.append(
            ("beyond", f"{count(work.n_beyond)} results with an error above what was asked")
        )
    if total.n_off_earth:
        facts.append(
            (
                "no position",
                f"{count(total.n_off_earth)} rows with a latitude or longitude that is out of "
                "range; if these are many, check the order and the unit of the columns of track",
            )
        )
    if total.n_cut:
        facts.append(
            (
                "cut",
                f"{count(total.n_cut)} models whose rate has no solution within its bound up to "
                "their end: it explodes, or has no value; they say nothing from there on",
            )
        )
    if total.n_without or total.n_conflicts:
        facts.append(
            (
                "left out",
                f"{count(total.n_without)} rows without a value, {count(total.n_conflicts)} "
                "values that lost to a greater one at the same instant",
            )
        )
    return facts


def _waiting(view: ModelView) -> list[Part]:
    """Return a table of waiting rows, and why and until when they wait."""
    rows = tuple(
        (
            clipped(waiting.stream, 40),
            waiting.n_ahead + waiting.n_open,
            waiting.n_ahead,
            waiting.n_open,
            waiting.until,
        )
        for waiting in view.waiting
    )
    if not view.n_waiting:
        return []
    return [Table(WAITING, rows), Text(" ".join(_reasons(view)))]


def _reasons(view: ModelView) -> Iterator[str]:
    """Yield why rows wait."""
    if any(rows.n_ahead for rows in view.waiting):
        yield "Rows ahead of event time wait until it passes them; lateness delays event time."
    for waiting in view.waiting:
        if not waiting.n_open:
            continue
        suffix = f" of {clipped(waiting.stream, 40)}" if len(view.waiting) > 1 else ""
        wait = span(waiting.wait_us)
        if waiting.is_endless:
            yield f"A model{suffix} is final at the next row of its entity: it has no horizon."
            continue
        if not waiting.is_fitted:
            yield (
                f"A model{suffix} is final at the next row of its entity, or after {wait} "
                "(horizon)."
            )
            continue
        yield (
            f"An open run{suffix} ends when a row is too far from it, or when event time is {wait} "
            f"(max_gap) past its last row. Without more rows it ends at the time shown."
        )
        if waiting.prefix_rows:
            yield f"A new run first waits for {waiting.prefix_rows:,} rows (prefix_rows)."
        yield "A smaller max_gap or prefix_rows ends runs sooner."
    if _may_be_early(view.plan):
        yield "results='early' gives results before they are final."


def _may_be_early(plan: StreamPlan | None) -> bool:
    """Return whether a query waits for final results that it could give early."""
    if plan is None or plan.is_early or len(plan.stages) > 1:
        return False
    return plan.stages[0].ranges is None


def _bounds(view: ModelView) -> Table:
    """Return the bounds that were asked, and what of them was used."""
    rows = tuple(
        (
            clipped(bound.name, 40),
            "results" if bound.is_of_result else "models",
            bound.bound or "none",
            bound.largest(view.counts.work),
        )
        for bound in view.asked
    )
    note = (
        "The largest error of any segment or result so far, in the attribute's unit; a bound in "
        "per cent is a share of each row's value."
    )
    return Table(BOUNDS, tuple(row for row in rows if finite(row[3]) is not None), note)


def _estimates(view: ModelView) -> list[Part]:
    """Return what steps give and what joins ask before, beside what that was estimated to be."""
    steps = tuple(
        (clipped(step.text, 60), *_interval(step.estimate), step.gave, step.factor, step.varies)
        for step in view.steps
    )
    joins = tuple(
        (
            clipped(join.text, 60),
            join.way,
            None if join.estimate is None else join.estimate.value,
            join.ns or None,
            side.name,
            None if side.estimate is None else side.estimate.value,
            side.left,
        )
        for join in view.joins
        for side in join.sides
    )
    note = "Segments for each that comes in; of a join, on either side."
    parts: list[Part] = [Table(STEPS, steps, note)] if steps else []
    return parts + ([Table(JOINS, joins, "Times are for each segment.")] if joins else [])


def _interval(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


def _times(view: ModelView) -> list[Part]:
    """Return the time that tasks took by step, the longest first."""
    work = view.counts.work
    ns = work.ns
    whole = sum(ns.values())
    rows = tuple(
        (
            clipped(name, 60),
            time_ns,
            ratio(time_ns, whole),
            ratio(time_ns, view.counts.total.n_segments),
        )
        for name, time_ns in sorted(ns.items(), key=lambda pair: -pair[1])
    )
    note = (
        f"Time of tasks by step, {count(work.n_looked_at)} looks at an entity: added up over "
        "buckets, which run beside each other."
    )
    return [Table(TIMES, rows, note)] if rows else []


# -- over the batches ---------------------------------------------------------------------------


def _figures(history: History) -> list[Part]:
    """Return what became of rows over the batches: of each batch, not of all so far."""
    points = records_of(history.batches, ModelRecord)
    if len(points) < 2:
        return []
    ids = tuple(batch.batch_id for batch, _ in points)[1:]
    pairs = [(before, now) for (_, before), (_, now) in itertools.pairwise(points)]

    def each_batch(value: Callable[[ModelRecord], int]) -> tuple[float, ...]:
        return tuple(float(value(now) - value(before)) for before, now in pairs)

    def figure(title: str, lines: Sequence[Line], unit: Unit) -> list[Part]:
        shown = tuple(line for line in lines if any(line.values))
        return [Figure(title, ids, shown, unit, is_half=True)] if shown else []

    rows, segments, dropped = (
        each_batch(value)
        for value in (lambda r: r.n_rows, lambda r: r.n_segments, lambda r: r.n_dropped)
    )
    per_segment = tuple(map(ratio, rows, segments))
    share = tuple(map(ratio, dropped, rows)) if any(dropped) else ()
    violations = [
        Line("rows outside", each_batch(lambda r: r.n_outside)),
        Line("results beyond", each_batch(lambda r: r.n_beyond)),
        Line("models broken", each_batch(lambda r: r.n_broken)),
    ]
    names = sorted(points[-1][1].ns, key=lambda name: -points[-1][1].ns[name])[:MOST_STEPS]
    times = [
        Line(name, tuple(float(now.ns.get(name, 0) - was.ns.get(name, 0)) for was, now in pairs))
        for name in names
    ]
    return [
        *figure("Rows per segment, by batch", [Line("rows", per_segment)], "number"),
        *figure("Rows dropped, by batch", [Line("share", share)], "share"),
        *figure("Violations, by batch", violations, "count"),
        *figure("Time of tasks by step, by batch", times, "ns"),
    ]


# -- a few entities -----------------------------------------------------------------------------

_MARKS: dict[str, Mark] = {"rows": "points", "model": "line", "bound": "area", "answer": "line"}
_ORDER = ("model", "answer", "bound", "rows")
"""Colours go by place, so a model has the first one."""


def drawn(shown: Sequence[Picture]) -> list[Section]:
    """Return pictures of entities as a section: values of rows, which not everybody may see."""
    if not shown:
        return []
    figures = [_picture(picture, is_half=len(shown) > 1) for picture in shown]
    entities: dict[str, tuple[int, int]] = {}
    for picture in shown:
        n_rows, n_pieces = _counted(picture)
        if n_pieces:
            entities.setdefault(picture.entity, (n_rows, n_pieces))
    rows = tuple((clipped(name, 40), *n, ratio(*n)) for name, n in entities.items())
    note = Text(
        "The newest rows of a few entities, those of the least hash of their keys: rows, models, "
        "the bound around these, and what was asked of them."
    )
    return [Section("Some entities", (note, Table(ENTITIES, rows), *figures), shows_values=True)]


def _picture(picture: Picture, *, is_half: bool) -> Figure:
    lines = [
        Line(
            curve.name,
            curve.values,
            is_muted=curve.kind == "rows",
            at=curve.times,
            mark="points" if curve.is_dotted else _MARKS[curve.kind],
        )
        for curve in sorted(picture.curves, key=lambda curve: _ORDER.index(curve.kind))
    ]
    title = f"{clipped(picture.attribute, 40)} of {clipped(picture.entity, 40)}"
    return Figure(
        title, (), tuple(lines), "number", axis=picture.attribute, is_half=is_half, is_timed=True
    )


def _counted(picture: Picture) -> tuple[int, int]:
    """Return how many rows with a value and pieces are drawn."""
    rows = sum(
        value is not None
        for curve in picture.curves
        if curve.kind == "rows"
        for value in curve.values
    )
    pieces = sum(
        before is not None and value is None
        for curve in picture.curves
        if curve.kind == "model"
        for before, value in itertools.pairwise(curve.values)
    )
    return rows, pieces
