"""The join of a bucket: the new rows of a batch in, the results that they complete out.

Inputs take turns (the delta rule): the new rows of an input probe the windows of the others, which
hold the new rows of all inputs before it. So each result is found once, by the new row in it whose
input is last. While a window is empty, the new rows of the others join nothing, and probe nothing
unless a shortcut has to see them, or rows were dropped that they miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eddyline.joins.operator.composites import Composites
from eddyline.joins.operator.gathering import asked_of, rows_of_parts
from eddyline.joins.operator.pipeline import Pipeline
from eddyline.state.rows import result_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.lost_results import LostResults
    from eddyline.joins.operator.matched_rows import MatchedRows
    from eddyline.joins.operator.partner_ages import PartnerAges
    from eddyline.joins.operator.pipeline import Shortcut
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.state.rows import SortedRun

BLOCK_ROWS = 65_536
"""New rows that go through a pipeline at once: few enough for the caches of the processor."""


def results(
    graph: JoinGraph,
    orders: Mapping[str, Sequence[str]],
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
    work: JoinWork,
    shortcut: Shortcut | None = None,
    ages: PartnerAges | None = None,
    matched: MatchedRows | None = None,
    lost: LostResults | None = None,
) -> Iterator[pa.Table]:
    """Join the new rows of a batch with each other and with the windows (runs, the oldest first).

    The counts of all probes are added to ``work``, ages of what is found to ``ages``, the rows of
    results to ``matched``, what is missed to ``lost``; a shortcut spares probes.

    Returns:
        Tables with the columns of the inputs, named ``input.column``, and the first and the last
        instant of each result, ``_start`` and ``_end`` (µs).
    """
    seen = {name: tuple(windows.get(name, ())) for name in graph.inputs}
    gone = lost if lost is not None and lost.may_be else None
    sees_all = shortcut is not None or gone is not None
    after = {name: (*runs, news[name]) if name in news else runs for name, runs in seen.items()}
    for name in graph.inputs:
        if name not in news:
            continue
        if not sees_all and not all(runs for other, runs in seen.items() if other != name):
            seen[name] = after[name]
            continue
        base = sum(map(len, seen[name]))
        pipeline = Pipeline(graph, name, orders[name], seen, work, ages, gone)
        for start in range(0, len(news[name]), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(news[name])))
            first = Composites.from_rows(name, news[name], rows, base)
            found = pipeline.run(first, shortcut)
            if found is not None:
                if matched is not None:
                    matched.found(found)
                if lost is not None and len(found):
                    lost.found(found, after)
                yield gather(found, after)
        seen[name] = after[name]


def gather(found: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> pa.Table:
    """Return the columns of combined rows, named ``input.column``."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, every in windows.items():
        runs, rows = asked_of(every, found.rows[name])
        if not runs[0].rows.payload.num_columns:
            continue
        taken = rows_of_parts([run.rows.payload for run in runs], rows)
        columns |= {result_column(name, each): taken[each] for each in taken.column_names}
    return pa.table(columns | {"_start": pa.array(found.starts), "_end": pa.array(found.ends)})
