"""Products: one result for all combinations of some rows between two instants.

Inputs take turns as in ``pipeline``: the new rows of an input meet the windows of the others, which
hold the new rows of all inputs before it. Here the rows of one key, and of one group of it, are a
*cell*. The instants at which its rows come and leave cut time into pieces. In a piece each input
has a number of rows and sums of their columns, which multiply. So a cell with ``a`` and ``b`` rows
has at most ``2 (a + b)`` products, where it may have ``a b`` combinations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import starts_of
from eddyline.data.jit import compiled
from eddyline.joins.operator.composites import rows_of_parts
from eddyline.query.query import LAST, PRODUCT, N
from eddyline.state.row_windows import group_codes
from eddyline.state.rows import FOREVER, result_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import ProductCounts, ProductPlan
    from eddyline.state.rows import SortedRun

    Ints = NDArray[np.int64]

KEY = 0
"""The only key class."""

TOO_GREAT = 2.0**62
"""Sums of products stay below it."""

PAYS = 2
"""Combinations for each new row from which on a bucket counts the products that there could be."""


def results_as_products(
    plan: ProductPlan,
    graph: JoinGraph,
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
    combinations: Iterable[pa.Table],
    counts: ProductCounts,
) -> Iterator[pa.Table]:
    """Yield the results of a batch as products, or its combinations as products of one.

    Args:
        plan: what products say, and whether they are wanted.
        graph: the join.
        windows: the rows of before (runs, the oldest first).
        news: the new rows.
        combinations: see ``pipeline.results``; asked for only where they are given.
        counts: of combinations and products; added to.
    """
    if plan.is_on:
        terms = list(_terms(plan, graph, windows, news))
        if (tables := _products(plan, terms)) is not None:
            for table, n_combinations in tables:
                counts.n_combinations += n_combinations
                counts.n_products += table.num_rows
                yield table
            return
    n_rows = 0
    for table in combinations:
        n_rows += table.num_rows
        yield _of_combinations(plan, table)
    counts.n_combinations += n_rows
    if plan.may_be and n_rows >= PAYS * sum(map(len, news.values())):
        terms = list(_terms(plan, graph, windows, news))
        counts.n_products += sum(term.n_events for term in terms)
    else:
        counts.n_products += n_rows


def _products(plan: ProductPlan, terms: Sequence[Term]) -> list[tuple[pa.Table, int]] | None:
    """Return the products of terms; None if keys have to be compared, or a sum is too great."""
    if any(not term.has_equal_keys(plan) for term in terms):
        return None
    tables = []
    for term in terms:
        products = term.products(plan)
        if products is None:
            return None
        tables.append(products)
    return tables


def _of_combinations(plan: ProductPlan, table: pa.Table) -> pa.Table:
    """Return combinations as products of one."""
    columns = {N: pa.array(np.ones(table.num_rows, np.int64)), LAST: table["_end"]}
    for summed in plan.asked.sums:
        values = table[result_column(summed.input, summed.column)]
        counted = pc.is_valid(values) if summed.is_count else values
        columns[summed.field] = counted.cast(pa.int64())
    return _with(table, columns)


def _with(table: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    for name, values in columns.items():
        kept = values.cast(pa.timestamp("us", "UTC")) if name == LAST else values
        table = table.append_column(result_column(PRODUCT, name), kept)
    return table


# -- rows that meet --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Rows of one input, by the cells that they are in."""

    name: str
    parts: Sequence[pa.Table]
    rows: Ints
    """Their places in the parts, counted through."""
    cells: Ints
    starts: Ints
    ends: Ints
    """The last instant of each (µs)."""

    def taken(self, chosen: Ints, cells: Ints) -> Side:
        """Return some rows, which are in other cells."""
        return replace(
            self,
            rows=self.rows[chosen],
            cells=cells,
            starts=self.starts[chosen],
            ends=self.ends[chosen],
        )

    def columns(self, names: Sequence[str], rows: Ints | None = None) -> pa.Table:
        """Return some columns of the rows, or of others."""
        parts = [part.select(list(names)) for part in self.parts]
        return rows_of_parts(parts, self.rows if rows is None else rows)

    def shown(self, cells: Ints, n_cells: int) -> pa.Table:
        """Return all columns of one row of each of some cells."""
        first = np.empty(n_cells, np.int64)
        first[self.cells] = self.rows
        return self.columns(self.parts[0].column_names, first[cells])


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """The new rows of one input, and the rows of the others that they may meet."""

    sides: tuple[Side, ...]
    n_cells: int

    @property
    def n_events(self) -> int:
        """How often a row comes or leaves: there are no more products."""
        return 2 * sum(side.cells.size for side in self.sides)

    def has_equal_keys(self, plan: ProductPlan) -> bool:
        """Return whether rows of one code have one key."""
        if not plan.keys:
            return True
        chunks = [
            chunk for side in self.sides for chunk in side.columns([plan.keys[side.name]])[0].chunks
        ]
        numbers = group_codes([pa.chunked_array(chunks)], sum(s.rows.size for s in self.sides))
        cells = np.concatenate([side.cells for side in self.sides])
        number_of_cell = np.zeros(self.n_cells, np.int64)
        number_of_cell[cells] = numbers
        return bool((number_of_cell[cells] == numbers).all())

    def products(self, plan: ProductPlan) -> tuple[pa.Table, int] | None:
        """Return the products, and the number of combinations that they stand for.

        Returns:
            None if a sum may be too great.
        """
        names = [side.name for side in self.sides]
        measured = list(dict.fromkeys((of_sum.input, of_sum.column) for of_sum in plan.asked.sums))
        whole = {(column.input, column.column) for column in plan.asked.sums if not column.is_count}
        sizes = [2 * side.cells.size for side in self.sides]
        cells = np.concatenate([np.tile(side.cells, 2) for side in self.sides])
        when = np.concatenate([np.concatenate([s.starts, _after(s.ends)]) for s in self.sides])
        comes = np.concatenate([np.repeat([1, -1], side.cells.size) for side in self.sides])
        input_of = np.repeat(np.arange(len(names)), sizes)
        values = np.zeros((2 * len(measured), when.size), np.int64)
        for place, (name, column) in enumerate(measured):
            number = names.index(name)
            column_values = self.sides[number].columns([column])[column]
            is_there = column_values.is_valid().to_numpy().astype(np.int64)
            mine = slice(sum(sizes[:number]), sum(sizes[: number + 1]))
            values[2 * place, mine] = np.tile(is_there, 2)
            if (name, column) in whole:
                added = pc.fill_null(column_values.cast(pa.int64()), 0).to_numpy()
                values[2 * place + 1, mine] = np.tile(added, 2)
        # Of one instant rows leave before others come: those that left are there no more.
        order = np.lexsort((comes, when, cells))
        owners = np.repeat([names.index(name) for name, _ in measured], 2).astype(np.int64)
        events = cells[order], when[order], input_of[order], comes[order], values[:, order]
        room = np.empty((4 + values.shape[0], when.size), np.int64)
        n_products, n_combinations, largest = pieces(*events, owners, len(names), room)
        if largest >= TOO_GREAT:
            return None
        cell, first, last, number_of = room[:4, :n_products]
        columns = {"_start": pa.array(first)}
        for side in self.sides:
            shown = side.shown(cell, self.n_cells)
            for name in shown.column_names:
                is_time = name == plan.asked.times[side.name]
                kept = pa.array(first).cast(shown[name].type) if is_time else shown[name]
                columns[result_column(side.name, name)] = kept
        of_product = {N: pa.array(number_of), LAST: pa.array(last)}
        for summed in plan.asked.sums:
            place = 4 + 2 * measured.index((summed.input, summed.column))
            counted, added = room[place, :n_products], room[place + 1, :n_products]
            of_product[summed.field] = (
                pa.array(counted) if summed.is_count else pa.array(added, mask=counted == 0)
            )
        return _with(pa.table(columns), of_product), n_combinations


def _after(ends: Ints) -> Ints:
    """Return the instants from which on rows are not there any more (µs)."""
    return np.where(ends == FOREVER, FOREVER, ends + 1)


def _terms(
    plan: ProductPlan,
    graph: JoinGraph,
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
) -> Iterator[Term]:
    """Yield the rows that the new rows of each input meet; see ``pipeline.results``."""
    seen = {name: tuple(windows.get(name, ())) for name in graph.inputs}
    for name in graph.inputs:
        if name not in news:
            continue
        term = _term(plan, {**seen, name: (news[name],)}, news[name])
        if term is not None:
            yield term
        seen[name] = (*seen[name], news[name])


def _term(
    plan: ProductPlan, runs: Mapping[str, Sequence[SortedRun]], new: SortedRun
) -> Term | None:
    """Return the rows of all inputs with keys that all have; None if there is no such key."""
    hashes = new.index(KEY).hashes
    keys = hashes[np.append(True, hashes[1:] != hashes[:-1])]
    bounds = {name: [_bounds(run, keys) for run in of_input] for name, of_input in runs.items()}
    has_all = np.ones(keys.size, np.bool_)
    for of_input in bounds.values():
        sizes = [high - low for low, high in of_input]
        has_all &= np.sum(sizes, axis=0, dtype=np.int64) > 0 if sizes else False
    if not has_all.any():
        return None
    since = int(new.rows.starts.min())
    sides = tuple(
        _side(name, of_input, [(low[has_all], high[has_all]) for low, high in bounds[name]], since)
        for name, of_input in runs.items()
    )
    term = Term(sides, int(has_all.sum()))
    return _by_group(plan, term) if plan.asked.groups else term


def _bounds(run: SortedRun, keys: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return the first entry of each key in the index of a run, and that behind the last."""
    hashes = run.index(KEY).hashes
    return np.searchsorted(hashes, keys, "left"), np.searchsorted(hashes, keys, "right")


def _side(
    name: str, runs: Sequence[SortedRun], bounds: Sequence[tuple[Ints, Ints]], since: int
) -> Side:
    """Return an input's rows by key, without rows that left before an instant (µs)."""
    rows, cells, starts, ends = [], [], [], []
    base = 0
    for run, (low, high) in zip(runs, bounds, strict=True):
        index, sizes = run.index(KEY), high - low
        entries = np.arange(int(sizes.sum())) + np.repeat(low - starts_of(sizes)[:-1], sizes)
        is_there = index.ends[entries] >= since
        chosen = entries[is_there]
        rows.append(index.rows[chosen].astype(np.int64) + base)
        cells.append(np.repeat(np.arange(low.size), sizes)[is_there])
        starts.append(index.starts[chosen])
        ends.append(index.ends[chosen])
        base += len(run)
    parts = [run.rows.payload for run in runs]
    return Side(name, parts, *map(np.concatenate, (rows, cells, starts, ends)))


def _by_group(plan: ProductPlan, term: Term) -> Term:
    """Return a term whose cells are the groups of each key; other inputs are in all of these."""
    (grouped,) = (side for side in term.sides if side.name == plan.asked.grouped)
    columns = grouped.columns(plan.asked.groups).columns
    numbers = group_codes(columns, grouped.rows.size)
    n_groups = int(numbers.max(initial=0)) + 1
    pairs, cell_of_row = np.unique(grouped.cells * n_groups + numbers, return_inverse=True)
    n_of_key = np.bincount(pairs // n_groups, minlength=term.n_cells)
    first_of_key = starts_of(n_of_key)[:-1]
    sides = []
    for side in term.sides:
        if side is grouped:
            sides.append(replace(side, cells=cell_of_row))
            continue
        copies = n_of_key[side.cells]
        chosen = np.repeat(np.arange(side.cells.size), copies)
        nth = np.arange(chosen.size) - np.repeat(starts_of(copies)[:-1], copies)
        sides.append(side.taken(chosen, first_of_key[side.cells[chosen]] + nth))
    return Term(tuple(sides), pairs.size)


@compiled
def pieces(  # noqa: C901 - one pass over the events
    cells: NDArray[np.int64],
    when: NDArray[np.int64],
    input_of: NDArray[np.int64],
    comes: NDArray[np.int64],
    values: NDArray[np.int64],
    owners: NDArray[np.int64],
    n_inputs: int,
    room: NDArray[np.int64],
) -> tuple[int, int, float]:
    """Find the pieces of time in which each input has a row in a cell.

    Events are in the order of cells, instants (µs) and ``comes``: -1 where a row leaves, 1 where it
    comes. ``values`` are added up over the rows that are there ((values, events)); ``owners`` say
    of which input each is. ``room`` gets the cell, the first and the last instant, the number of
    combinations, and each sum over these ((4 + values, events)).

    Returns:
        The number of pieces, that of combinations, and a bound of all numbers.
    """
    counts, sums = np.zeros(n_inputs, np.int64), np.zeros(owners.size, np.int64)
    sizes = np.zeros(owners.size, np.float64)
    n_pieces, n_combinations, largest = 0, 0, 0.0
    event = 0
    while event < cells.size:
        cell, instant = cells[event], when[event]
        if event == 0 or cells[event - 1] != cell:
            counts[:], sums[:], sizes[:] = 0, 0, 0.0
        while event < cells.size and cells[event] == cell and when[event] == instant:
            source = input_of[event]
            if comes[event] > 0:
                others = 1
                for number in range(n_inputs):
                    if number != source:
                        others *= counts[number]
                n_combinations += others
            counts[source] += comes[event]
            for number in range(owners.size):
                if owners[number] == source:
                    sums[number] += comes[event] * values[number, event]
                    sizes[number] += comes[event] * abs(np.float64(values[number, event]))
            event += 1
        if event == cells.size or cells[event] != cell:
            continue
        product, bound = 1, 1.0
        for number in range(n_inputs):
            product *= counts[number]
            bound *= counts[number]
        if bound == 0.0:
            continue
        largest = max(largest, bound)
        room[0, n_pieces], room[1, n_pieces] = cell, instant
        room[2, n_pieces], room[3, n_pieces] = when[event] - 1, product
        for number in range(owners.size):
            others = product // counts[owners[number]]
            largest = max(largest, sizes[number] * (bound / counts[owners[number]]))
            room[4 + number, n_pieces] = sums[number] * others
        n_pieces += 1
    return n_pieces, n_combinations, largest
