"""What a task does with Arrow batches: rows become segments, and segments go through a graph.

Rows of a task come by entity and time. Blocks are large enough for arrays to pay, and an entity of
any number of rows goes through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models import graph
from eddyline.models.fitting import Carried, FitReport, fit_block
from eddyline.models.pairs import CELL
from eddyline.models.rows import (
    Keyed,
    Layout,
    is_other_entity,
    keyed,
    micros_of,
    table_of,
    values_of,
)
from eddyline.models.steps import Rows, result_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eddyline.models.bounds import Bound, FitOptions
    from eddyline.models.pairs import DifferentEntities
    from eddyline.models.steps import Shape

BLOCK_ROWS = 1 << 18
"""Rows that are fitted, or segments that are solved, at once."""
SIDE = "__side"
"""The column that says which input a segment is of."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How rows become segments."""

    keys: tuple[str, ...]
    time: str
    within: Mapping[str, Bound]
    options: FitOptions

    def __str__(self) -> str:
        bounds = ", ".join(f"{name} within {bound}" for name, bound in self.within.items())
        return f"fit {bounds}; method {self.options.method}"


def fitted(
    batches: Iterable[pa.RecordBatch], how: Fit, *, block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[Keyed, str | None, FitReport]]:
    """Fit the rows of a task, which come by entity and time.

    Yields:
        Segments by entity and time, the time zone of the rows, and what the fit did, block by
        block; segments of one entity may be in several.
    """
    fitting = _Fitting(how)
    pending: list[pa.RecordBatch] = []
    n = 0
    for each in batches:
        # What is read again does not grow faster than what is read.
        if n and n >= max(block_rows, fitting.n_held):
            yield fitting.take(pa.Table.from_batches(pending), is_last=False)
            pending, n = [], 0
        pending.append(each)
        n += len(each)
    if n:
        yield fitting.take(pa.Table.from_batches(pending), is_last=True)


class _Fitting:
    """A fit of rows that come in blocks; the rows of the open segment stay for the next one."""

    def __init__(self, how: Fit) -> None:
        self._how = how
        self._held: pa.Table | None = None
        self._carried: Carried | None = None

    @property
    def n_held(self) -> int:
        """Rows that stayed."""
        return 0 if self._held is None else len(self._held)

    def take(self, table: pa.Table, *, is_last: bool) -> tuple[Keyed, str | None, FitReport]:
        """Return the segments that no later row changes."""
        how = self._how
        rows = table if self._held is None else pa.concat_tables([self._held, table])
        other = is_other_entity(rows, how.keys)
        found = fit_block(
            np.cumsum(other) - 1,
            micros_of(rows.column(how.time)),
            values_of(rows, how.within),
            how.within,
            how.options,
            carried=self._carried,
            is_last=is_last,
        )
        self._held, self._carried = rows.slice(found.n_done), found.carried
        entities = rows.select(list(how.keys)).take(pa.array(np.flatnonzero(other)))
        return Keyed(found.segments, entities), rows.column(how.time).type.tz, found.report


def fitted_tables(batches: Iterable[pa.RecordBatch], how: Fit) -> Iterator[pa.Table]:
    """Yield the segments of the rows of a task as tables."""
    for found, zone, _ in fitted(batches, how):
        yield table_of(found, zone)


def tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches of a task in tables of a size that pays."""
    pending: list[pa.RecordBatch] = []
    for each in batches:
        pending.append(each)
        if sum(map(len, pending)) >= BLOCK_ROWS:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def entity_blocks(
    tables: Iterable[pa.Table], keys: Sequence[str], *, block_rows: int = BLOCK_ROWS
) -> Iterator[pa.Table]:
    """Yield tables that have all rows of each entity in them, of rows that come by entity."""
    held: list[pa.Table] = []
    n, least = 0, block_rows
    for each in tables:
        held.append(each)
        n += len(each)
        if n < least:
            continue
        table = pa.concat_tables(held)
        last = int(np.flatnonzero(is_other_entity(table, keys))[-1])
        if last:
            yield table.slice(0, last)
            table, n = table.slice(last), n - last
        held, least = [table], max(block_rows, 2 * n)
    if n:
        yield pa.concat_tables(held)


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
