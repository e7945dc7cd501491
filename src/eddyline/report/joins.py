"""Sections about windowed joins: windows, pipelines, caches, constraints.

The lead says what is emitted, by which keys and in which grid, and which stream holds back expiry.
Then come the windows of the inputs, the order of each pipeline, caches, what constraints keep cold
or drop, and the batches as figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from eddyline.joins.plan import BROADCAST, BUCKETS
from eddyline.joins.view import JoinRecord
from eddyline.report.clock import learned_tables
from eddyline.report.decisions import ROUTING, last_change
from eddyline.report.formatting import (
    TIMES,
    UNKNOWN,
    VALUE_WIDTH,
    Wording,
    clipped,
    count,
    counted,
    finite,
    instant,
    one_line,
    order_text,
    percent,
    ratio,
    significant,
    size,
    span,
)
from eddyline.report.sections import (
    Column,
    Entity,
    Facts,
    Figure,
    Line,
    Section,
    Table,
    Text,
    Tile,
    columns,
    notes,
)
from eddyline.report.series import how_often, order_series, points_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eddyline.joins.view import CacheView, JoinView, PipelineView
    from eddyline.report.formatting import Unit
    from eddyline.report.series import OrderSeries, Point
    from eddyline.runtime.records import History


CHANGES = (
    "order",
    "routes",
    "grid",
    "way",
    "tree",
    "caches",
    "lateness",
    "tiers",
    "matched",
    "passed",
    "closed",
    "filtered",
    "kept",
    "results",
)
"""Events of the journal that are another plan."""

NAME_WIDTH = 40
"""Most characters of a name in a sentence or a table."""

SHOWN_INPUTS = 5
"""Windows that progress names."""

_EMITS = {
    "istream": "each result is emitted once, when it comes to be",
    "dstream": "each result is emitted once, when it is no more",
    "rstream": "all results that stand are emitted whenever a row arrives",
}
"""Kinds of output, in words."""

_KINDS = {
    "left": "combinations at once, and rows of {0} that have no partner in {1}, with NULLs",
    "semi": "rows of {0} that have a partner in {1}, each once",
    "anti": "rows of {0} that have no partner in {1}, each once",
}
"""What joins that are not inner emit, in words."""

ARRIVED = columns("input, window, arrived: count, joined: count, late: count, no time: count")
KEPT = columns("input, kept: count, size: bytes, runs: count, latest (UTC): time")
PROBES = columns(
    "rows of, meet, #: count, written: count, "
    "looked up: count, found: count, drops: share, time each: ns"
)
CLASSES = (
    *columns("rows of"),
    Column("rows", shows_values=True),
    *columns("order, of sampled: share"),
)
MEMBERS = columns("query, own windows, rows that it needs, found: count, time: ns")
CACHES = columns(
    "rows of, cached, asked: count, "
    "had: share, saves per batch: ns, costs per batch: ns, size: bytes"
)
WORDS = (
    ("Window", "the rows of an input that new rows of the others can still meet"),
    ("Joined", "rows that passed the conditions on their input alone and met the windows"),
    ("Late", "rows older than their stream allows; they are kept apart and never joined"),
    ("No time", "rows without an event time, which are in no stream"),
    ("Kept", "rows that are stored, one for each bucket that a row lies in"),
    ("Runs", "sorted files that the rows of a window are in"),
    ("Looked up, found", "rows of the batches since the pipeline has the order that it has now"),
    ("Drops", "share of the sampled rows that find no partner in that window"),
    ("Bucket", "a part of the keys; the rows of a bucket are joined in one task"),
)
"""Meanings of the words of these sections."""


def lines(record: JoinRecord) -> tuple[str, ...]:
    """Return what the windows hold, for the progress."""
    phrases = [f"windows {_held(record)}"]
    if record.n_cold:
        phrases.append(f"{count(record.n_cold)} rows cold, {size(record.cold_bytes)}")
    if record.n_missing_at_most:
        phrases.append(f"at most {count(record.n_missing_at_most)} results missing")
    counts = {"late": record.n_late, "filtered": record.n_filtered, "waiting": record.n_waiting}
    return (*phrases, *(f"{count(n)} {what}" for what, n in counts.items() if n))


def _held(record: JoinRecord) -> str:
    """Say how many rows the windows hold, the fullest first."""
    held = sorted(zip(record.n_kept, record.inputs, strict=True), key=lambda pair: -pair[0])
    shown = ", ".join(f"{clipped(name)} {count(n)}" for n, name in held[:SHOWN_INPUTS])
    more = f", … {count(len(held) - SHOWN_INPUTS)} more" if len(held) > SHOWN_INPUTS else ""
    return f"{count(sum(record.n_kept))} rows, {size(sum(record.n_bytes))}: {shown}{more}"


def sections(view: JoinView, history: History) -> list[Section]:
    """Return a join as it stands, and as it came to be, as people may want to see it."""
    points = points_of(history.batches)
    ran = [
        series
        for pipeline in _every_pipeline(view)
        if (series := order_series(pipeline.component, history.batches)) is not None
    ]
    learned = learned_tables(view.learned)
    pipelines = {
        component
        for pipeline in _every_pipeline(view)
        for component in (pipeline.component, f"routes {pipeline.name}")
    }
    components = {"join", "tables", "table filter", "products", "constraints", *pipelines}
    return [
        _lead(view, points, history, ran),
        Section(
            "inputs",
            (_arrived(view), _kept(view), *learned, *_series(points)),
            entities=tuple(_entities(view)),
        ),
        *_members(view),
        *(_pipelines(view, *group) for group in _pipelines_by_query(view)),
        *_caches(view),
        *constraint_sections(view, points),
        *map(_order, ran),
        *last_change(history.last(*CHANGES, components=components), wordings_of(view)),
        *notes(view.notes),
        Section("what the words mean", (Facts((*WORDS, *constraint_words(view))),), is_aside=True),
    ]


def _entities(view: JoinView) -> Iterator[Entity]:
    """Yield what the graph of the plan shows of a join: exchange, windows and caches."""
    if view.way == BROADCAST:
        where = (("rows meet", "where the rows of the stream are: each task has the tables"),)
        yield Entity("broadcast", "tables", JoinRecord.component, where)
    else:
        fullest = finite(view.fullest)
        of_mean = "" if fullest is None else f"{significant(fullest)} {TIMES} the mean"
        facts = (
            ("keys", "; ".join(view.keys) or UNKNOWN),
            ("buckets", _shape(view.grid)),
            ("fullest bucket", of_mean),
            ("frequent keys that are cut", "; ".join(view.splits)),
        )
        yield Entity("exchange", "buckets", JoinRecord.component, facts)
    for source in view.inputs:
        latest = "" if source.latest is None else f"{instant(source.latest)} UTC"
        window = (("window", source.window), ("latest row", latest), ("runs", count(source.n_runs)))
        yield Entity("window", source.name, JoinRecord.component, window, source.name)
    for cache in view.caches:
        rows = (
            ("asked by rows of", cache.pipeline),
            ("keys asked for", count(cache.n_probes)),
            ("keys that it had", percent(ratio(cache.n_hits, cache.n_probes))),
            ("size", size(cache.n_bytes)),
        )
        name = f"{cache.pipeline}: {' ⋈ '.join(cache.windows)}"
        yield Entity("cache", name, JoinRecord.component, rows)


# -- in sentences -------------------------------------------------------------------------------


def _lead(
    view: JoinView, points: Sequence[Point], history: History, ran: Sequence[OrderSeries]
) -> Section:
    sentences = [*summary(view), *holding_back(view), *waiting(view), *dropped_by_tables(view)]
    if n_ordered := sum(len(series.filter_ids) > 1 for series in ran):
        first = history.batches[0].batch_id
        n = sum(entry.event == "order" and entry.batch_id >= first for entry in history.journal)
        sentences.append(f"The orders of {counted(n_ordered, 'pipeline')} {how_often(n)}.")
    tiles = []
    records = [record for point in points for record in point.records(JoinRecord)]
    if records:
        n_late = sum(record.n_late for record in records)
        newest = next(points[-1].records(JoinRecord), records[0])
        held = size(sum(newest.n_bytes))
        late = percent(ratio(n_late, sum(point.n_rows for point in points)))
        tiles.append(Tile("Late rows", n_late, "count", late))
        tiles.append(Tile("Rows in windows", sum(newest.n_kept), "count", held))
        if newest.n_cold:
            tiles.append(
                Tile("Rows that are cold", newest.n_cold, "count", size(newest.cold_bytes))
            )
    tiles += [tile for series in ran for tile in series.tiles()]
    return Section("", tuple(map(Text, sentences)), tuple(tiles), wordings=wordings_of(view))


def summary(view: JoinView) -> list[str]:
    """Return in sentences what is emitted, by which keys, in which grid, and what was found."""
    meaning, word = _EMITS.get(view.emits), view.emits
    if view.kind in _KINDS:
        names = [clipped(source.name, NAME_WIDTH) for source in view.inputs]
        meaning, word = _KINDS[view.kind].format(*names), view.kind
    how = f": {meaning}" if meaning else ""
    return [
        f"Join of {counted(len(view.inputs), 'input')}, {one_line(word).upper()}{how}.",
        f"Keys: {'; '.join(view.keys) or UNKNOWN}.{_declared(view)}",
        _grid(view),
        _combinations_text(view),
    ]


def _declared(view: JoinView) -> str:
    if not view.declared:
        return ""
    return f" Declared, and checked with every row: {', '.join(view.declared)}."


def _grid(view: JoinView) -> str:
    if view.way == BROADCAST:
        return (
            "The tables are small, and each task has all of them (broadcast): rows of the stream "
            "are joined where they are."
        )
    n_buckets = prod(view.grid)
    shape = f"{_shape(view.grid)} = " if len(view.grid) > 1 else ""
    lead = f"Rows lie in {shape}{counted(n_buckets, 'bucket')}"
    if view.splits:
        keys = counted(len(view.splits), "frequent key")
        lead += f", those of {keys} cut by event time, too ({'; '.join(view.splits)})"
    if finite(view.fullest) is None or n_buckets == 1:
        return f"{lead}."
    return (
        f"{lead}; in the newest batch the fullest had {significant(view.fullest)} {TIMES} the mean."
    )


def _combinations_text(view: JoinView) -> str:
    if not any(source.n_arrived or source.n_joined for source in view.inputs):
        return "No row arrived."
    combinations = counted(view.n_results, "combination")
    return f"{combinations} of rows found, before conditions that are no equalities."


def holding_back(view: JoinView) -> list[str]:
    """Name the stream that keeps rows in the windows of the others, if one does.

    A row leaves a window when no row that is still awaited can meet it. So the stream whose
    awaited rows are the earliest decides for the others.
    """
    streams = [source for source in view.inputs if not source.is_table]
    awaited = sorted(
        (source.awaited_from, number)
        for number, source in enumerate(streams)
        if source.awaited_from is not None
    )
    if len(awaited) < max(2, len(streams)) or awaited[0][0] == awaited[1][0]:
        return []
    (first, place), (second, _) = awaited[:2]
    name = clipped(streams[place].name, NAME_WIDTH)
    return [
        f"{name} holds back expiry: its rows are awaited from {instant(first)} UTC on, "
        f"{span(second - first)} before those of any other stream; until it moves on, the windows "
        f"of the others let go of nothing that could meet them."
    ]


def waiting(view: JoinView) -> list[str]:
    """Count the rows that are kept back until event time has passed them, if any are."""
    counts = [
        f"{clipped(source.name, NAME_WIDTH)} {count(source.n_waiting)}"
        for source in view.inputs
        if source.n_waiting
    ]
    later = "earlier one" if view.kind == "inner" else "partner"
    return [f"Rows that wait until no {later} can come: {', '.join(counts)}."] if counts else []


def dropped_by_tables(view: JoinView) -> list[str]:
    """Say of which streams tables drop rows before the shuffle, and whether that was tried.

    Nothing where tables go to the rows: there is no shuffle then.
    """
    sentences: list[str] = []
    for drop in view.drops if view.way == BUCKETS else ():
        name, tables = (
            clipped(text, NAME_WIDTH) for text in (drop.name, " and ".join(drop.tables))
        )
        if drop.is_dropping:
            of_late = "" if finite(drop.share) is None else f", {percent(drop.share)} of late"
            sentences.append(
                f"Rows of {name} whose key {tables} has not are dropped before the shuffle: "
                f"{count(drop.n_dropped)} so far{of_late}."
            )
        elif finite(drop.share) is not None:
            sentences.append(
                f"Rows of {name} are not filtered by the keys of {tables}: that dropped "
                f"{percent(drop.share)} of them, too few."
            )
    return sentences


# -- tables -------------------------------------------------------------------------------------


def _arrived(view: JoinView) -> Table:
    rows = []
    for source in view.inputs:
        name = source.name if source.stream == source.name else f"{source.name} ({source.stream})"
        arrived = (
            source.n_arrived,
            source.n_joined,
            source.n_late,
            source.n_untimed,
        )
        # The rows of a table do not arrive: nothing is known where a zero would stand.
        counts = (None, source.n_joined, None, None) if source.is_table else arrived
        rows.append((clipped(name, NAME_WIDTH), clipped(source.window, NAME_WIDTH), *counts))
    return Table(ARRIVED, tuple(rows), "What arrived.")


def _kept(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(source.name, NAME_WIDTH),
            source.n_kept,
            source.n_bytes,
            source.n_runs,
            source.latest,
        )
        for source in view.inputs
    )
    return Table(KEPT, rows, "What the windows hold.")


def _every_pipeline(view: JoinView) -> list[PipelineView]:
    return [pipeline for _, pipelines in _pipelines_by_query(view) for pipeline in pipelines]


def _pipelines_by_query(view: JoinView) -> list[tuple[str, Sequence[PipelineView]]]:
    """Return the pipelines of each query that shares the join, else those of the one query."""
    if not view.members:
        return [("", view.pipelines)]
    return [(member.name, member.pipelines) for member in view.members if member.is_here]


def _members(view: JoinView) -> list[Section]:
    """Say who shares what, if several queries share the join."""
    if not view.members:
        return []
    rows = []
    for member in view.members:
        windows = ", ".join(
            f"{clipped(source, NAME_WIDTH)} [{window}]" for source, window in member.windows
        )
        wheres = "; ".join(
            f"{clipped(source, NAME_WIDTH)}: {one_line(where)}" for source, where in member.wheres
        )
        work = (member.n_results, member.ns) if member.is_here else (None, None)
        rows.append((clipped(member.name, NAME_WIDTH), windows, wheres or "as the others", *work))
    note = (
        "These queries share the exchange and the windows above: each row comes once and is kept "
        "once, as long as the longest window says. Each query has its own windows and conditions "
        "within these, and its own pipelines."
    )
    tables = [Table(MEMBERS, tuple(rows), note)]
    gone = [query.name for query in view.members if not query.is_here]
    texts = [Text(f"{', '.join(gone)} left; the windows stay as they are.")] if gone else []
    return [Section("queries that share the join", (*tables, *texts))]


def _pipelines(view: JoinView, query: str, pipelines: Sequence[PipelineView]) -> Section:
    state = "orders are learned" if view.is_adaptive else "orders are fixed"
    if all(len(pipeline.probes) < 2 for pipeline in pipelines):
        state = "one window each, nothing to order"
    if view.way == BROADCAST:
        state = "tables come to the rows, which is not counted"
    rows = []
    for pipeline in pipelines:
        written = {name: place for place, name in enumerate(pipeline.written, 1)}
        for position, probe in enumerate(pipeline.probes, 1):
            rows.append(
                (
                    clipped(pipeline.name, NAME_WIDTH),
                    clipped(probe.other, NAME_WIDTH),
                    position,
                    written.get(probe.other),
                    probe.n_in,
                    probe.n_out,
                    probe.drop_frac,
                    ratio(probe.ns, probe.n_in),
                )
            )
    note = (
        "How the new rows of each input meet the windows of the others, in the order in force. "
        "Counted since the run started."
    )
    parts = [Table(PROBES, tuple(rows), note)]
    classes = tuple(
        (
            clipped(pipeline.name, NAME_WIDTH),
            row_class.rows,
            order_text([clipped(name) for name in row_class.order]),
            row_class.share,
        )
        for pipeline in view.pipelines
        for row_class in pipeline.classes
    )
    if classes:
        parts.append(Table(CLASSES, classes, "Classes of rows with orders of their own."))
    title = f"pipelines of {clipped(query, NAME_WIDTH)}" if query else "pipelines"
    return Section(f"{title}: {state}", tuple(parts))


def _caches(view: JoinView) -> list[Section]:
    if not view.caches:
        return []
    note = "Joined rows that are kept, so that they need not be found again."
    table = Table(CACHES, tuple(map(_cache_row, view.caches)), note)
    return [Section("caches of joined rows", (table,))]


def _cache_row(cache: CacheView) -> tuple[Any, ...]:
    windows, partners = (
        " ⋈ ".join(clipped(name, NAME_WIDTH) for name in names)
        for names in (cache.windows, cache.partners)
    )
    return (
        clipped(cache.pipeline, NAME_WIDTH),
        f"({windows}) ⋉ {partners}" if partners else windows,
        cache.n_probes,
        ratio(cache.n_hits, cache.n_probes),
        cache.benefit_ns,
        cache.cost_ns,
        cache.n_bytes,
    )


# -- over the batches ---------------------------------------------------------------------------


def _order(ran: OrderSeries) -> Section:
    title = f"order of {ran.component}: {counted(len(ran.filter_ids), 'window')}"
    drops = "Rows without a partner, of those that reach a window"
    return Section(title, ran.figures("window", drops))


Values = Callable[[JoinRecord], Mapping[str, float | None]]
"""Reads the values of a record, by the lines of a figure."""


def _by_input(name: str, scale: float | None = None) -> Values:
    """Return what reads a value of each input; records of older runs may have none."""

    def values(record: JoinRecord) -> dict[str, float | None]:
        pairs = zip(record.inputs, getattr(record, name), strict=False)
        return {source: n if scale is None or n is None else n / scale for source, n in pairs}

    return values


WINDOWS: tuple[tuple[str, Unit, Values], ...] = (
    ("Rows in the windows", "count", _by_input("n_kept")),
    ("Size of the windows", "bytes", _by_input("n_bytes")),
)
COLD: tuple[tuple[str, Unit, Values], ...] = (
    ("Rows in the cold tiers", "count", _by_input("cold_rows")),
    ("Partners within", "number", _by_input("within_us", 1e6)),
    ("Rows of a key within", "number", _by_input("closes_us", 1e6)),
    ("Pairs found cold so far", "count", lambda record: {"pairs": record.n_found_cold}),
)
MISSING: tuple[tuple[str, Unit, Values], ...] = (
    (
        "Rows kept and dropped",
        "count",
        lambda record: {"kept": sum(record.n_kept), "dropped in the batch": record.n_dropped},
    ),
    (
        "Results missing",
        "count",
        lambda record: {
            "at most": record.n_missing_at_most,
            "about": record.n_missing_about,
            "found": record.n_results,
        },
    ),
)
"""Figures of the state after each batch: title, unit (of numbers: seconds), and values."""


def _series(points: Sequence[Point]) -> list[Figure]:
    """Return the figures of the batches, if there are records of them."""
    is_known = any(True for point in points for _ in point.records(JoinRecord))
    return [*_state(points, WINDOWS), *_outcome(points)] if is_known else []


def _state(points: Sequence[Point], figures: Iterable[tuple[str, Unit, Values]]) -> list[Figure]:
    """Return figures of the state of the inputs after each batch."""
    records = [next(point.records(JoinRecord), None) for point in points]
    inputs = next((record.inputs for record in reversed(records) if record is not None), ())
    # After a restart with other inputs, what came before is of other windows.
    comparable = [
        record if record is not None and record.inputs == inputs else None for record in records
    ]
    return _lines(points, comparable, figures)


def _lines(
    points: Sequence[Point],
    records: Sequence[JoinRecord | None],
    figures: Iterable[tuple[str, Unit, Values]],
) -> list[Figure]:
    """Return figures of the records of some points."""
    shown_figures = []
    for title, unit, values in figures:
        at_points = [{} if record is None else values(record) for record in records]
        names = dict.fromkeys(name for by_name in at_points for name in by_name)
        lines = {name: tuple(by_name.get(name) for by_name in at_points) for name in names}
        shown_figures.append(
            _figure(title, points, lines, unit, axis="s" if unit == "number" else "")
        )
    return shown_figures


def _outcome(points: Sequence[Point]) -> list[Figure]:
    """Return the combinations that each batch found, and its late rows if there were any."""
    records = [list(point.records(JoinRecord)) for point in points]
    combinations, late = (
        tuple(
            ratio(sum(map(counts, batch_records)), point.n_batches) if batch_records else None
            for point, batch_records in zip(points, records, strict=True)
        )
        for counts in (attrgetter("n_results"), attrgetter("n_late"))
    )
    figures = [
        _figure("Combinations found per batch", points, {"combinations": combinations}, "count")
    ]
    return figures + _seen([_figure("Late rows per batch", points, {"late rows": late}, "count")])


def _figure(
    title: str,
    points: Sequence[Point],
    values: Mapping[str, tuple[float | None, ...]],
    unit: Unit,
    *,
    axis: str = "",
) -> Figure:
    drawn = tuple(Line(name, of_line) for name, of_line in values.items())
    ids = tuple(point.batch_id for point in points)
    return Figure(title, ids, drawn, unit, is_half=True, axis=axis)


def _seen(figures: Iterable[Figure]) -> list[Figure]:
    """Return the figures in which there is something to see."""
    return [figure for figure in figures if any(any(line.values) for line in figure.lines)]


# -- decisions of the journal -----------------------------------------------------------------


def _grid_text(plan: Any) -> str:
    """Write the shape of a grid, and which bins are split if some are."""
    if isinstance(plan, dict):
        return clipped(f"{_shape(plan['shape'])} with {'; '.join(plan['splits'])}", VALUE_WIDTH)
    return _shape(plan)


def _shape(parts: Iterable[int]) -> str:
    return f" {TIMES} ".join(map(str, parts))


WORDINGS = {("join", "grid"): Wording(_grid_text)}
"""Words for decisions."""


def wordings_of(view: JoinView) -> dict[tuple[str, str], Wording]:
    """Return the words for decisions, those on the classes of rows of each input included."""
    return WORDINGS | {
        (f"routes {pipeline.name}", "routes"): ROUTING for pipeline in view.pipelines
    }


# -- what constraints keep cold, or drop --------------------------------------------------------

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
WORDS_OF_CONSTRAINTS = (
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


def constraint_words(view: JoinView) -> tuple[tuple[str, str], ...]:
    """Return the meanings of the words of the sections of a join."""
    if view.discards:
        return OF_DISCARDS
    return WORDS_OF_CONSTRAINTS if view.tiers else ()


def constraint_sections(view: JoinView, points: Sequence[Point]) -> list[Section]:
    """Return what is cold, why, and what that brings; nothing without constraints."""
    if view.discards:
        texts = [Text(sentence) for sentence in missing(view)]
        records = [next(point.records(JoinRecord), None) for point in points]
        figures = _seen(_lines(points, records, MISSING))
        return [Section("constraints", (*texts, _discards(view), *figures))]
    if not view.tiers:
        return []
    tables = [_tiers(view)] + ([_done(view)] if view.done else [])
    tables += [_clusters(view)] if view.clusters else []
    texts = [Text(sentence) for sentence in cold_summary(view)]
    return [Section("constraints", (*texts, *tables, *_seen(_state(points, COLD))))]


def cold_summary(view: JoinView) -> list[str]:
    """Return in sentences how much is cold, how often it was asked for, and what it spares."""
    n_cold = sum(source.n_cold for source in view.inputs)
    n_rows = n_cold + sum(source.n_kept for source in view.inputs)
    if not n_cold:
        return ["No row of the windows is cold so far."]
    bytes_cold = sum(source.cold_bytes for source in view.inputs)
    n_found = sum(tier.n_cold for tier in view.tiers)
    n_pairs = sum(tier.learned.n_rows for tier in view.tiers)
    sentences = [
        f"{counted(n_cold, 'row')} of the windows are cold, {percent(ratio(n_cold, n_rows))} of "
        f"them: {size(bytes_cold)} that are read for keys alone that pass their filters, and "
        f"merged no more. {count(n_found)} of {counted(n_pairs, 'pair')} were found there, and "
        f"none is missed."
    ]
    leaving = [rows for rows in view.done.values() if rows.is_leaving]
    if leaving:
        spares, takes = (
            sum(getattr(rows, name) for rows in leaving) * 1e-3 for name in ("saved_ns", "cost_ns")
        )
        sentences.append(
            f"Rows that leave once they are done spare {span(int(spares))} of merges of late, and "
            f"take {span(int(takes))}."
        )
    return sentences


def missing(view: JoinView) -> list[str]:
    """Return in sentences how much was dropped, and what that cost at most."""
    n_dropped, n_most, n_seen = (
        sum(getattr(discard, name) for discard in view.discards.values())
        for name in ("n_dropped", "n_most", "n_seen")
    )
    about = sum(discard.n_about for discard in view.discards.values())
    if not n_dropped:
        return ["No row was dropped so far, and no result is missing."]
    n_bytes = sum(source.dropped_bytes for source in view.inputs)
    sentence = (
        f"Dropped as hardly asked for: {counted(n_dropped, 'row')}; {size(n_bytes)} are kept of "
    )
    sentence += "their keys. "
    if not n_most:
        return [sentence + "No result is missing for that."]
    return [
        f"{sentence}Results missing for that: at most {count(n_most)}, about {count(about)}; "
        f"found: {count(view.n_results)}. Partners known to be missed: {count(n_seen)}."
    ]


def _discards(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(name, NAME_WIDTH),
            "its window" if discard.kept_for is None else span(discard.kept_for),
            span(discard.bound) if discard.n_pairs else UNKNOWN,
            discard.n_dropped,
            discard.n_most,
            discard.n_about,
            discard.n_seen,
        )
        for name, discard in view.discards.items()
    )
    note = (
        "For how long the rows of an input are kept, what was dropped, and the results that are "
        "missing for it, before conditions that are no equalities."
    )
    return Table(DISCARDS, rows, note)


def _tiers(view: JoinView) -> Table:
    inputs = {source.name: source for source in view.inputs}
    rows = tuple(
        (
            clipped(tier.name, NAME_WIDTH),
            "all rows" if tier.hot_for is None else span(tier.hot_for),
            span(tier.learned.bound) if tier.learned.n_rows else UNKNOWN,
            tier.learned.n_rows,
            inputs[tier.name].n_kept,
            inputs[tier.name].n_bytes,
            inputs[tier.name].n_cold,
            inputs[tier.name].cold_bytes,
            tier.n_cold,
            ratio(tier.n_cold, tier.learned.n_rows),
        )
        for tier in view.tiers
    )
    note = "For how long the rows of a window are likely to be asked for, and what is cold."
    return Table(TIERS, rows, note)


def _done(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(name, NAME_WIDTH),
            rule,
            "yes" if done.is_leaving else "no",
            done.share,
            done.n_left,
            done.saved_ns,
            done.cost_ns,
        )
        for (rule, name), done in view.done.items()
    )
    note = (
        "Whether rows leave the hot tier once they were in the one result that they can be in "
        "(matched), once all other streams have passed their key (passed), or once it is over in "
        "all of them (closed); and what merges that spares against what it takes, of late."
    )
    return Table(DONE, rows, note)


def _clusters(view: JoinView) -> Table:
    rows = tuple(
        (
            clipped(cluster.name, NAME_WIDTH),
            clipped(view.keys[cluster.key], NAME_WIDTH),
            span(cluster.learned.bound) if cluster.learned.n_rows else UNKNOWN,
            "yes" if cluster.is_used else "no",
            cluster.learned.n_rows,
            cluster.learned.n_beyond,
        )
        for cluster in view.clusters
    )
    return Table(CLUSTERS, rows, "How long after its first row a key still comes.")
