"""One bucket of a join: the rows of a batch in, the results that are complete with them out.

Results follow the delta rule: the new rows of each input meet the windows of the others, which hold
the new rows of those inputs that had their turn. So each result is found once, by that of its new
rows whose input has its turn last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eddyline.joins.operator.gathering import rows_of_parts
from eddyline.joins.operator.pipeline import Composites, Pipeline
from eddyline.state.rows import result_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.joins.caches.bucket_caches import CachedBatch
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.state.rows import SortedRun

BLOCK_ROWS = 65_536
"""New rows that go through a pipeline together: they and what they find stay in the caches."""


def results(
    graph: JoinGraph,
    orders: Mapping[str, Sequence[str]],
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
    work: JoinWork,
    caches: CachedBatch | None = None,
) -> Iterator[pa.Table]:
    """Join the new rows of a batch with each other and with the windows.

    Args:
        graph: what is joined with what.
        orders: for each input, the order in which its new rows meet the others.
        windows: the runs of each input before the batch.
        news: the new rows of each input that has some.
        work: what pipelines do is added to it.
        caches: what may spare joins; changed.

    Returns:
        Tables whose columns are those of the inputs, named ``input.column``, and the first and the
        last instant of each result, ``_start`` and ``_end`` (µs).
    """
    seen = {name: tuple(windows.get(name, ())) for name in graph.inputs}
    after = {name: (*runs, news[name]) if name in news else runs for name, runs in seen.items()}
    for name in graph.inputs:
        if name not in news:
            continue
        base = sum(map(len, seen[name]))
        pipeline = Pipeline(graph, name, orders[name], seen, work)
        for start in range(0, len(news[name]), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(news[name])))
            first = Composites.of(name, news[name], rows, base)
            found = pipeline.run(first, caches)
            if found is not None:
                yield gathered(found, after)
        seen[name] = after[name]


def gathered(found: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> pa.Table:
    """Return the columns of the rows that were combined, named ``input.column``."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, runs in windows.items():
        if not runs[0].rows.payload.num_columns:
            continue
        taken = rows_of_parts([run.rows.payload for run in runs], found.rows[name])
        columns |= {result_column(name, each): taken[each] for each in taken.column_names}
    return pa.table(columns | {"_start": pa.array(found.starts), "_end": pa.array(found.ends)})
