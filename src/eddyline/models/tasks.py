"""What a task does with tables of segments: it runs a graph, a step, or the pairs of a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models import graph, timeline, updates
from eddyline.models.pairs import CELL
from eddyline.models.rows import Keyed, Layout, entity_ids, keyed, micros_of
from eddyline.models.steps import Rows, result_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eddyline.models.pairs import DifferentEntities
    from eddyline.models.steps import Shape

SIDE = "__side"
"""The column that says which input a segment is of."""


def solved(
    tables: Iterable[pa.Table], node: graph.Node, layouts: Sequence[Layout]
) -> Iterator[pa.RecordBatch]:
    """Run a graph over tables of segments.

    Args:
        tables: with all segments of an entity in one where a step needs that; if there are several
            inputs, ``SIDE`` says which a segment is of.
        node: what is done.
        layouts: the columns of each input.
    """
    for table in tables:
        if isinstance(node, graph.Input):
            yield from table.to_batches()
        else:
            yield from _batches(graph.run(node, _inputs(table, layouts)), table)


def newest(tables: Iterable[pa.Table], layout: Layout, version: str) -> Iterator[pa.RecordBatch]:
    """Return what segments say that were written one after the other.

    Args:
        tables: with all segments of an entity in one.
        layout: their columns, and beside them
        version: the one that says which was written later.
    """
    for table in tables:
        given = keyed(table, layout)
        found = updates.newest(given.segments, table.column(version).to_numpy())
        yield from _batches(Keyed(found, given.entities), table)


def spans(
    tables: Iterable[pa.Table], keys: Sequence[str], ends: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return from where to where each entity has segments in a table, a row each.

    Where two overlap, the table is returned as it is.

    Args:
        tables: of ``keys`` and ``lo``, in any order, and
        ends: columns of where segments end, the last one that of points, too.
        keys: the columns that say the entity.
    """
    for table in tables:
        ids, _ = entity_ids(table, keys)
        lo, last = (micros_of(table.column(each)) for each in ("lo", ends[-1]))
        if updates.overlap(ids, lo, last):
            yield from table.to_batches()
            continue
        order = np.lexsort((lo, ids))
        lasts = order[timeline.is_last(ids[order])]
        found = table.take(pa.array(order[timeline.is_first(ids[order])]))
        for each in ends:
            values = table.column(each).take(pa.array(lasts))
            found = found.set_column(found.schema.get_field_index(each), each, values)
        yield from found.combine_chunks().to_batches()


def stepped(
    tables: Iterable[pa.Table], step: Callable[[Keyed], Keyed], layout: Layout
) -> Iterator[pa.RecordBatch]:
    """Run one step over tables of segments."""
    for table in tables:
        yield from _batches(step(keyed(table, layout)), table)


def paired(
    table: pa.Table, step: DifferentEntities, shapes: tuple[Shape, Shape], n_groups: int
) -> pa.Table:
    """Return the pairs of a cell, whose segments say in ``CELL`` and ``SIDE`` where they are."""
    every = _of_all(table, [each.layout for each in shapes])
    cell = table.column(CELL)[0].as_py()
    is_alone = step.is_self and cell // n_groups == cell % n_groups
    sides = None if is_alone else table.column(SIDE).to_numpy()
    return result_table(step.run(every, sides, *shapes), _zone(table))


def _zone(table: pa.Table) -> str | None:
    """Return the time zone of results: that of Spark, whatever its session shows times in."""
    return None if table.column("lo").type.tz is None else "UTC"


def _batches(found: Keyed | Rows, table: pa.Table) -> list[pa.RecordBatch]:
    """Return results as batches, with timestamps like those of what they come from."""
    made: list[pa.RecordBatch] = result_table(found, _zone(table)).combine_chunks().to_batches()
    return made


def _inputs(table: pa.Table, layouts: Sequence[Layout]) -> list[Keyed]:
    if len(layouts) == 1:
        return [keyed(table, layouts[0])]
    every, side = _of_all(table, layouts), table.column(SIDE).to_numpy()
    return [every.of(np.flatnonzero(side == at), each) for at, each in enumerate(layouts)]


def _of_all(table: pa.Table, layouts: Sequence[Layout]) -> Keyed:
    """Return the segments of several inputs, with the attributes of all."""
    attributes = tuple(dict.fromkeys(name for each in layouts for name in each.attributes))
    return keyed(table, Layout(layouts[0].keys, attributes))
