"""What constraints keep cold of a join's windows, in words and figures, and what it brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.view import JoinRecord
from eddyline.report.formatting import UNKNOWN, clipped, count, counted, percent, ratio, size, span
from eddyline.report.sections import Figure, Line, Section, Table, Text, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.joins.view import JoinView
    from eddyline.report.formatting import Unit
    from eddyline.report.series import Point

    Values = Mapping[str, tuple[float | None, ...]]

NAME_WIDTH = 40
"""Most characters of a name in a sentence or a table."""

TIERS = columns(
    "input, hot for, partners within, pairs: count, hot: count, hot size: bytes, cold: count, "
    "cold size: bytes, found cold: count, share found cold: share"
)
DISCARDS = columns(
    "input, kept for, partners within, dropped: count, "
    "missing at most: count, about: number, partners missed: count"
)
DONE = columns("input, once, leaves, rows: share, left: count, spares: ns, takes: ns")
CLUSTERS = columns("stream, key, rows within, closes, measured: count, later: count")
WORDS = (
    ("Hot, cold", "rows that are likely to be asked for, and those behind filters of their keys"),
    ("Partners within", "the time that holds nearly all pairs of those that were measured"),
    ("Found cold", "pairs that took longer than the constraint says; none is missed"),
    ("Matched, passed", "rows that were in their only result; whose key others have passed"),
    ("Closed", "rows whose key has come in all other streams, and comes no more"),
    ("Rows within", "the time after the first row of a key that holds nearly all others"),
)
"""Meanings of the words of these sections, where there are some."""

OF_DISCARDS = (
    ("Dropped", "rows that were hardly asked for any more; of their keys a summary is kept"),
    ("Missing at most", "results that were not found for want of dropped rows: never more"),
    ("About", "an estimate of the same, without what a summary counts too many"),
    ("Partners missed", "those that are known for certain: k is raised by them"),
)
"""The same where rows are dropped."""


def words(view: JoinView) -> tuple[tuple[str, str], ...]:
    """Return the meanings of the words of the sections of a join."""
    if view.discards:
        return OF_DISCARDS
    return WORDS if view.tiers else ()


def sections(view: JoinView, points: Sequence[Point]) -> list[Section]:
    """Return what is cold, why, and what that brings; nothing without constraints."""
    if view.discards:
        said = [Text(each) for each in missing(view)]
        figures = _figures_of_discards(points)
        return [Section("constraints", (*said, _discards(view), *figures))]
    if not view.tiers:
        return []
    tables = [_tiers(view)] + ([_done(view)] if view.done else [])
    tables += [_clusters(view)] if view.clusters else []
    said = [Text(each) for each in summary(view)]
    return [Section("constraints", (*said, *tables, *_figures(points)))]


def summary(view: JoinView) -> list[str]:
    """Return in sentences how much is cold, how often it was asked for, and what it spares."""
    n_cold = sum(each.n_cold for each in view.inputs)
    n_rows = n_cold + sum(each.n_kept for each in view.inputs)
    if not n_cold:
        return ["No row of the windows is cold so far."]
    bytes_cold = sum(each.cold_bytes for each in view.inputs)
    n_found, n_pairs = (
        sum(getattr(each, name) for each in view.tiers) for name in ("n_cold", "n_pairs")
    )
    said = [
        f"{counted(n_cold, 'row')} of the windows are cold, {percent(ratio(n_cold, n_rows))} of "
        f"them: {size(bytes_cold)} that are read for keys alone that pass their filters, and "
        f"merged no more. {count(n_found)} of {counted(n_pairs, 'pair')} were found there, and "
        f"none is missed."
    ]
    leaving = [each for each in view.done if each.is_leaving]
    if leaving:
        spares, takes = (
            sum(getattr(each, name) for each in leaving) * 1e-3 for name in ("saved_ns", "cost_ns")
        )
        said.append(
            f"Rows that leave once they are done spare {span(int(spares))} of merges of late, and "
            f"take {span(int(takes))}."
        )
    return said


def missing(view: JoinView) -> list[str]:
    """Return in sentences how much was dropped, and what that cost at most."""
    n_dropped, n_most, n_seen = (
        sum(getattr(each, name) for each in view.discards)
        for name in ("n_dropped", "n_most", "n_seen")
    )
    about = sum(each.n_about for each in view.discards)
    if not n_dropped:
        return ["No row was dropped so far, and no result is missing."]
    n_bytes = sum(each.dropped_bytes for each in view.inputs)
    said = f"Dropped as hardly asked for: {counted(n_dropped, 'row')}; {size(n_bytes)} are kept of "
    said += "their keys. "
    if not n_most:
        return [said + "No result is missing for that."]
    return [
        f"{said}Results missing for that: at most {count(n_most)}, about {count(about)}; found: "
        f"{count(view.n_results)}. Partners known to be missed: {count(n_seen)}."
    ]


def _discards(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(each.name, NAME_WIDTH),
            "its window" if each.kept_for is None else span(each.kept_for),
            span(each.bound) if each.n_pairs else UNKNOWN,
            each.n_dropped,
            each.n_most,
            each.n_about,
            each.n_seen,
        )
        for each in view.discards
    )
    note = (
        "For how long the rows of an input are kept, what was dropped, and the results that are "
        "missing for it, before conditions that are no equalities."
    )
    return Table(DISCARDS, rows, note)


def _tiers(view: JoinView) -> Table:
    inputs = {each.name: each for each in view.inputs}
    rows = tuple(
        (
            clipped(each.name, NAME_WIDTH),
            "all rows" if each.hot_for is None else span(each.hot_for),
            span(each.bound) if each.n_pairs else UNKNOWN,
            each.n_pairs,
            inputs[each.name].n_kept,
            inputs[each.name].n_bytes,
            inputs[each.name].n_cold,
            inputs[each.name].cold_bytes,
            each.n_cold,
            ratio(each.n_cold, each.n_pairs),
        )
        for each in view.tiers
    )
    note = "For how long the rows of a window are likely to be asked for, and what is cold."
    return Table(TIERS, rows, note)


def _done(view: JoinView) -> Table:
    rows = []
    for each in view.done:
        words = clipped(each.name, NAME_WIDTH), each.rule, "yes" if each.is_leaving else "no"
        rows.append((*words, each.share, each.n_left, each.saved_ns, each.cost_ns))
    note = (
        "Whether rows leave the hot tier once they were in the one result that they can be in "
        "(matched), once all other streams have passed their key (passed), or once it is over in "
        "all of them (closed); and what merges that spares against what it takes, of late."
    )
    return Table(DONE, tuple(rows), note)


def _clusters(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(each.name, NAME_WIDTH),
            clipped(view.keys[each.key], NAME_WIDTH),
            span(each.bound) if each.n_rows else UNKNOWN,
            "yes" if each.is_used else "no",
            each.n_rows,
            each.n_beyond,
        )
        for each in view.clusters
    )
    return Table(CLUSTERS, rows, "How long after its first row a key still comes.")


# -- over the batches ---------------------------------------------------------------------------


def _figures(points: Sequence[Point]) -> Iterator[Figure]:
    """Yield what is cold after each batch, the bounds, and what was found cold, where any is."""
    records = [next(point.records(JoinRecord), None) for point in points]
    inputs = next((each.inputs for each in reversed(records) if each is not None), ())
    # After a restart with other inputs, what came before is of other windows.
    known = [each if each is not None and each.inputs == inputs else None for each in records]
    cold = _by_input(known, inputs, lambda each: each.cold_rows)
    bounds = _by_input(known, inputs, lambda each: each.within_us)
    closes = _by_input(known, inputs, lambda each: each.closes_us)
    in_s, closes_in_s = (
        {name: tuple(map(_seconds, of_line)) for name, of_line in each.items()}
        for each in (bounds, closes)
    )
    found = tuple(None if each is None else each.n_found_cold for each in known)
    yield from _figure("Rows in the cold tiers", points, cold, "count")
    yield from _figure("Partners within", points, in_s, "number", axis="s")
    yield from _figure("Rows of a key within", points, closes_in_s, "number", axis="s")
    yield from _figure("Pairs found cold so far", points, {"pairs": found}, "count")


def _figures_of_discards(points: Sequence[Point]) -> Iterator[Figure]:
    """Yield what is kept and known after each batch, and what is missing of it at most."""
    records = [next(point.records(JoinRecord), None) for point in points]

    def of(value: Callable[[JoinRecord], float]) -> tuple[float | None, ...]:
        return tuple(None if each is None else value(each) for each in records)

    rows = {
        "kept": of(lambda each: sum(each.n_kept)),
        "dropped in the batch": of(lambda each: each.n_dropped),
    }
    lost = {
        "at most": of(lambda each: each.n_missing_at_most),
        "about": of(lambda each: each.n_missing_about),
        "found": of(lambda each: each.n_results),
    }
    yield from _figure("Rows kept and dropped", points, rows, "count")
    yield from _figure("Results missing", points, lost, "count")


def _by_input(
    records: Sequence[JoinRecord | None],
    inputs: Sequence[str],
    values: Callable[[JoinRecord], tuple[int | None, ...]],
) -> Values:
    """Return the values of each input after each batch; records of older runs may have none."""
    return {
        name: tuple(
            None if each is None or not values(each) else values(each)[at] for each in records
        )
        for at, name in enumerate(inputs)
    }


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _figure(
    title: str, points: Sequence[Point], values: Values, unit: Unit, *, axis: str = ""
) -> Iterator[Figure]:
    """Yield a figure if there is something to see."""
    if any(any(of_line) for of_line in values.values()):
        lines = tuple(Line(name, of_line) for name, of_line in values.items())
        ids = tuple(each.batch_id for each in points)
        yield Figure(title, ids, lines, unit, is_half=True, axis=axis)
