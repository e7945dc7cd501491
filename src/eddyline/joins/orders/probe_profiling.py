"""Drop probing of a few sampled rows [Babu05 5.2].

It says in which windows a row has no partner. A pipeline shows the drops of its windows in its own
order only. So a few new rows of a batch are looked up in *all* windows, each along the way that
leads to it, until a partner is found or known not to be there. Orders are learned from that;
results never depend on it.

A sampled row sees the windows as its pipeline does: the runs before the batch, and the new rows of
inputs that had their turn before (see ``operator.pipeline``). New rows of tables are there from the
start. A pipeline with an empty window joins nothing, so its rows are not sampled.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data import outcomes as outcome
from eddyline.data.arrays import distinct
from eddyline.data.jit import compiled
from eddyline.data.outcomes import seed_of
from eddyline.joins.operator.composites import SEED, Composites
from eddyline.lane.scan import values_of
from eddyline.state.run_index import first_alive, hashes_of, shift_of, stacked
from eddyline.stats.costs import CostSums, work_ns
from eddyline.stats.profile import PartnerSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.orders.probe_order import WayFilters
    from eddyline.routing.table import RouteTable
    from eddyline.state.rows import Rows, SortedRun

MOST_PARTNERS = 64
"""Most combinations along a way to which a sampled row is followed; so profiling a row has a bound,
whatever it is joined with."""

N_WARM = 4
"""Rows that are looked up before the clock runs: the first look-ups are slow."""

ROWS_OF_CLASSES, MOST_OF_CLASSES = 100, 1_000
"""Where classes are learned, one of so many new rows is sampled, and so many at most."""

MOST_TOLD = 255
"""Most partners of a row that are told where classes are learned."""

MOST_PAIRS = 4096
"""Most pairs of a sampled row that are counted in the window of a neighbour."""


@dataclass(frozen=True, slots=True)
class DropProbing:
    """The choice of the new rows of a batch that are profiled, and of what they probe."""

    n_rows: int
    """Most sampled rows of each input, per bucket and batch (≥ 1); where classes are learned, a
    share of the rows if that is more."""
    ways: Mapping[str, WayFilters]
    """The filters of each pipeline that is profiled."""
    seed: int = 0
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each input, the others whose pairs with it are counted; none without a cycle."""
    n_parts: tuple[int, ...] = ()
    """The number of parts that each key class is cut in; not cut if omitted."""
    tables: frozenset[str] = frozenset()
    """Inputs whose rows were always there: those that come with the first batch, too."""
    attributes: Mapping[str, tuple[RowAttribute, ...]] = field(default_factory=dict)
    """By input, the columns of sampled rows by which classes are learned; see ``classes``."""


@dataclass(frozen=True, slots=True, eq=False)
class DropSample:
    """Outcomes of the sampled rows of one pipeline, in one bucket and batch."""

    filters: WayFilters
    """The pipeline and its filters."""
    codes: outcome.Codes
    """Outcome code of each sampled row, or of each sampled combination with the head ((R, B))."""
    prob: float
    """Probability of a row to be sampled ((0, 1])."""
    costs: CostSums
    """Time of the look-ups along the way of each filter."""
    n_partners: NDArray[np.int64]
    """Combinations along the way of each filter, as far as rows were followed ((F,))."""
    pairs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For each counted neighbour, the pairs with a sampled row that are joined, and all pairs."""
    ns: int = 0
    """Time that profiling took in all (ns)."""
    classes: PartnerSample | None = None
    """The rows with their attributes, in the order of their event times, where classes are learned;
    a row of the input stands for each combination with the head."""
    labels: Mapping[str, Mapping[float, str]] = field(default_factory=dict)
    """By column of texts, the texts that its values stand for."""

    @property
    def drops(self) -> NDArray[np.bool_]:
        """For each sampled row, the filters that drop it ((R, F))."""
        return outcome.unpack(self.codes, len(self.filters.filters))


def drop_samples(
    probing: DropProbing,
    graph: JoinGraph,
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
    batch_id: int,
    clock: Callable[[], int] = work_ns,
) -> Iterator[DropSample]:
    """Profile some new rows of each input; the batch, their places and the seed choose them.

    The clock (monotonic, ns) times the filters.
    """
    always = {name: (news[name],) for name in probing.tables & news.keys()}
    seen = {name: (*windows.get(name, ()), *always.get(name, ())) for name in graph.inputs}
    for name in graph.inputs:
        if name not in news or name in always:
            continue
        seed = seed_of(probing.seed, batch_id, name)
        others = (runs for other, runs in seen.items() if other != name)
        if name in probing.ways and all(others):
            sample = _Profiler(probing, graph, seen, clock).sample(name, news[name], seed)
            if sample is not None:
                yield sample
        seen[name] = (*seen[name], news[name])


def places(n_rows: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return at most so many sampled places of rows, ascending: one of each of equal stretches.

    Rows are in the order of a key, so no key of many rows is missed. Each row is as likely as any
    other.
    """
    if n_rows <= most:
        return np.arange(n_rows)
    within = np.random.default_rng(seed).random(most)
    chosen = ((np.arange(most) + within) * (n_rows / most)).astype(np.int64)
    return distinct(np.minimum(chosen, n_rows - 1))


@dataclass(frozen=True, slots=True)
class _Profiler:
    probing: DropProbing
    graph: JoinGraph
    windows: Mapping[str, Sequence[SortedRun]]
    clock: Callable[[], int]

    def sample(self, name: str, new: SortedRun, seed: int) -> DropSample | None:
        """Return the outcomes of some rows; None if they have no partner in the head."""
        started, filters = time.perf_counter_ns(), self.probing.ways[name]
        most = self.probing.n_rows
        if self.probing.attributes.get(name):
            most = max(most, min(len(new) // ROWS_OF_CLASSES, MOST_OF_CLASSES))
        rows = places(len(new), most, seed)
        units = np.arange(rows.size)
        codes = {key: codes[rows] for key, codes in new.rows.codes.items()}
        first = Composites({SEED: units}, codes, new.rows.starts[rows], new.ends_of(rows))
        prob, pairs = rows.size / len(new), self._pairs(name, first)
        bound, of_row = (name, *filters.head), rows
        for position, other in enumerate(filters.head):
            first, share, units = self._behind(first, bound[: position + 1], other, seed, most)
            prob, of_row = prob * share, of_row[units]
        if not len(first) and not pairs:
            return None
        partners, costs = self._profiled(first, bound, filters)
        codes_of_drops = outcome.pack(partners == 0)
        classes, labels = self._classes(name, new, of_row, partners, prob)
        ns = time.perf_counter_ns() - started
        totals = partners.sum(axis=0)
        return DropSample(filters, codes_of_drops, prob, costs, totals, pairs, ns, classes, labels)

    def _classes(
        self,
        name: str,
        new: SortedRun,
        of_row: NDArray[np.int64],
        partners: NDArray[np.int64],
        prob: float,
    ) -> tuple[PartnerSample | None, dict[str, dict[float, str]]]:
        """Return the partners of sampled rows beside their attributes, and texts by their values.

        Args:
            name: the input.
            new: its new rows.
            of_row: the row that each sampled row or combination is of ((R,)).
            partners: what it finds along the way of each filter ((R, F)).
            prob: probability of each to be sampled.
        """
        attributes = self.probing.attributes.get(name, ())
        if not attributes or not of_row.size:
            return None, {}
        in_time = np.argsort(new.rows.starts[of_row], kind="stable")
        rows = new.rows.taken(of_row[in_time])
        values = [attribute.values(rows) for attribute in attributes]
        sample = PartnerSample(
            tuple(attribute.name for attribute in attributes),
            np.stack(values, axis=1),
            np.minimum(partners[in_time], MOST_TOLD).astype(np.uint8),
            np.full(of_row.size, 1.0 / prob),
        )
        labels = {attribute.name: attribute.texts(rows) for attribute in attributes}
        return sample, {name: texts for name, texts in labels.items() if texts}

    def _behind(
        self, first: Composites, bound: tuple[str, ...], other: str, seed: int, most: int
    ) -> tuple[Composites, float, NDArray[np.int64]]:
        """Return combinations of the rows with one more input, their share, and whose they are."""
        composites = self._partners(first, bound, other, len(first)).join(self._keys(first, other))
        chosen = places(len(composites), most, seed)
        taken = replace(composites.take(chosen), rows={SEED: np.arange(chosen.size)})
        return taken, chosen.size / max(len(composites), 1), composites.rows[SEED][chosen]

    def _profiled(
        self, first: Composites, bound: tuple[str, ...], filters: WayFilters
    ) -> tuple[NDArray[np.int64], CostSums]:
        """Return the combinations found of each row ((R, F)), and the costs."""
        n_filters = len(filters.filters)
        partners, taken_ns = np.zeros((len(first), n_filters), np.int64), np.zeros(n_filters)
        is_on_a_way = set(filters.parents)
        behind: dict[int | None, Composites] = {None: first}
        for index in filters.outwards[:1]:
            self._warm(first, bound, filters.filters[index].target)
        for index in filters.outwards:
            parent, way = filters.parents[index], filters.filters[index].way
            before = behind[parent]
            joined = (*bound, *way[:-1])
            started = self.clock()
            matches = self._partners(before, joined, way[-1], len(first))
            taken_ns[index] = self.clock() - started + (0 if parent is None else taken_ns[parent])
            partners[:, index] = matches.counts
            if index in is_on_a_way:
                behind[index] = matches.join(self._keys(before, way[-1]))
        asked = np.full(n_filters, float(len(first)))
        return partners, CostSums.of_calls(asked, np.maximum(taken_ns, 1.0))

    def _warm(self, first: Composites, bound: tuple[str, ...], other: str) -> None:
        """Look a few rows up while no clock runs, or the first window would seem to be slow."""
        few = np.arange(min(N_WARM, len(first)))
        self._partners(first.take(few), bound, other, few.size)

    def _pairs(self, name: str, rows: Composites) -> dict[str, tuple[int, int]]:
        """Count the pairs of the rows with rows of their neighbours."""
        pairs = {}
        for other in self.probing.neighbours.get(name, ()):
            if n_rows := sum(map(len, self.windows[other])):
                links = self.graph.links((name,), other)
                look_up = LookUp.from_keys(rows, links)
                counts = look_up.partners(self.windows[other], len(rows), MOST_PAIRS).counts
                # Rows of other buckets are not joined.
                parts = [parts for key, parts in enumerate(self.probing.n_parts) if key in links]
                pairs[other] = int(counts.sum()), n_rows * len(rows) * math.prod(parts)
        return pairs

    def _partners(
        self, before: Composites, bound: Sequence[str], other: str, n_units: int
    ) -> _Partners:
        """Return the partners of sampled rows in a window."""
        look_up = LookUp.from_keys(before, self.graph.links(bound, other))
        return look_up.partners(self.windows[other], n_units, MOST_PARTNERS)

    def _keys(self, before: Composites, other: str) -> set[int]:
        """Return the key classes of combinations with one more input."""
        return {*before.codes, *self.graph.classes_of[other]}


@dataclass(frozen=True, slots=True, eq=False)
class _Partners:
    """The partners of sampled rows in the runs of a window."""

    before: Composites
    """With the sampled row of each."""
    counts: NDArray[np.int64]
    """Partners of each sampled row ((R,))."""
    pieces: list[tuple[SortedRun, NDArray[np.int64], NDArray[np.int64]]]
    """The pairs of a combination and a row in each run that has some."""

    def join(self, keys: Iterable[int]) -> Composites:
        """Return the combinations with their partners, with the codes of some key classes."""
        if not self.pieces:
            nothing = np.empty(0, np.int64)
            return Composites({SEED: nothing}, dict.fromkeys(keys, nothing), nothing, nothing)
        return Composites.concat([self._with(*piece) for piece in self.pieces])

    def _with(
        self, run: SortedRun, probes: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Composites:
        """Return some combinations, each with a row of a run."""
        taken, added = self.before.take(probes), run.rows
        more = {key: codes[rows] for key, codes in added.codes.items() if key not in taken.codes}
        starts = np.maximum(taken.starts, added.starts[rows])
        ends = np.minimum(taken.ends, run.ends_of(rows))
        return Composites(taken.rows, taken.codes | more, starts, ends)


@dataclass(frozen=True, slots=True, eq=False)
class LookUp:
    """Keys to look up in the runs of a window."""

    before: Composites
    """With the place of each in what is counted (SEED)."""
    links: tuple[int, ...]
    """The key classes in which rows have to be equal."""
    hashes: NDArray[np.uint64]
    checks: NDArray[np.int64]

    @classmethod
    def from_keys(cls, before: Composites, links: tuple[int, ...]) -> LookUp:
        """Return the look-up of the keys of combinations by some key classes."""
        checks = stacked([before.codes[key] for key in links[1:]], len(before))
        return cls(before, links, hashes_of(before.codes[links[0]]), checks)

    def partners(self, window: Sequence[SortedRun], n_units: int, most: int) -> _Partners:
        """Return the partners of each sampled row (R) in the runs of a window, at most so many."""
        counts, pieces = np.zeros(n_units, np.int64), []
        for run in self._asked(window):
            before, room = counts.copy(), 64 + 4 * len(self.before)
            probes, rows = np.empty((2, room), np.int64)
            n = self._count(run, most, counts, probes, rows)
            if n > room:
                counts[:] = before
                probes, rows = np.empty((2, n), np.int64)
                self._count(run, most, counts, probes, rows)
            if n:
                pieces.append((run, probes[:n], rows[:n]))
        return _Partners(self.before, counts, pieces)

    def counts(self, window: Sequence[SortedRun], n_units: int, most: int) -> NDArray[np.int64]:
        """Return how many partners each has in the runs of a window, or so many at least ((R,))."""
        counts, none = np.zeros(n_units, np.int64), np.empty(0, np.int64)
        for run in self._asked(window):
            self._count(run, most, counts, none, none)
        return counts

    def _asked(self, window: Sequence[SortedRun]) -> list[SortedRun]:
        """Return the runs that may have a partner: no cold one whose filter lets nothing pass."""
        key = self.links[0]
        codes = self.before.codes[key]
        return [asked.run for part in window for asked in part.asked(key, self.hashes, codes)]

    def _count(
        self,
        run: SortedRun,
        most: int,
        counts: NDArray[np.int64],
        found_probes: NDArray[np.int64],
        found_rows: NDArray[np.int64],
    ) -> int:
        """Find the partners in one run; see ``count_partners``."""
        index = run.index(self.links[0])
        return count_partners(
            self.before.rows[SEED],
            self.hashes,
            self.before.starts,
            self.before.ends,
            self.checks,
            index.entries,
            index.directory,
            index.places,
            index.bounds,
            index.stays,
            index.marks,
            index.bit,
            stacked([run.rows.codes[key] for key in self.links[1:]], len(run)),
            most,
            counts,
            found_probes,
            found_rows,
        )


@compiled
def count_partners(
    units: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    checks: NDArray[np.int64],
    entries: NDArray[np.int64],
    directory: NDArray[np.uint32],
    places: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    stays: int,
    marks: NDArray[np.int64],
    bit: int,
    index_checks: NDArray[np.int64],
    most: int,
    counts: NDArray[np.int64],
    found_probes: NDArray[np.int64],
    found_rows: NDArray[np.int64],
) -> int:
    """Count the partners of each unit in one run, until it has ``most`` of them.

    Each probe is of a unit, a place in ``counts``, to which is added. For the index see
    ``run_index.Index``; pairs are filled in as far as there is room. Returns how many partners
    were found.
    """
    shift = shift_of(directory)
    n = 0
    for probe in range(hashes.size):
        unit, wanted, alive = units[probe], hashes[probe], starts[probe]
        slot = wanted >> shift
        place, stop = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        place = first_alive(wanted, alive, place, stop, entries, bounds, stays)
        while place < stop and np.uint64(entries[place, 0]) == wanted and counts[unit] < most:
            if entries[place, 1] > ends[probe]:
                break
            row = np.int64(places[place]) if places.size else place
            end = min(ends[probe], entries[place, 2])
            if stays >= 0:
                end = min(end, entries[place, 1] + stays)
            is_found = max(alive, entries[place, 1]) <= end
            if marks.size:
                is_found = is_found and (marks[row] & bit) != 0
            for code in range(checks.shape[0]):
                is_found = is_found and checks[code, probe] == index_checks[code, row]
            place += 1
            if not is_found:
                continue
            counts[unit] += 1
            if n < found_rows.size:
                found_probes[n] = probe
                found_rows[n] = row
            n += 1
    return n


# -- orders of classes of rows, in tasks -------------------------------------------------------
# The orders of probes of classes of rows, and the columns that tell classes apart, in tasks.
#
# ``ClassOrders`` is what ``classes.ProbeRoutes`` chose for an input. ``RowAttribute`` reads the
# values of one column of rows as numbers, which ``routing.table`` cuts into bins.


SHOWN_CHARS = 24
"""Characters of a text that people are shown."""


@dataclass(frozen=True, slots=True)
class RowAttribute:
    """A column by which tasks tell classes of rows apart."""

    name: str
    key: int | None = None
    """The key class whose code is its value; None: the payload has it."""

    def values(self, rows: Rows) -> Floats:
        """Return its values as numbers, nan for NULL; of texts, a hash ((N,))."""
        if self.key is not None:
            return rows.codes[self.key].astype(np.float64)
        column = rows.payload[self.name].combine_chunks()
        kind = column.type
        return values_of(column.cast(pa.string()) if _is_text(kind) else column)

    def texts(self, rows: Rows) -> dict[float, str]:
        """Return the start of each distinct text by the number that it has as a value."""
        if self.key is not None or not _is_text(rows.payload.schema.field(self.name).type):
            return {}
        distinct = rows.payload[self.name].combine_chunks().unique().drop_null().cast(pa.string())
        starts = pc.utf8_slice_codeunits(distinct, 0, SHOWN_CHARS)
        return dict(zip(values_of(distinct).tolist(), starts.to_pylist(), strict=True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True, slots=True)
class ClassOrders:
    """The orders of the classes of the new rows of one input."""

    table: RouteTable
    attribute: RowAttribute
    orders: tuple[tuple[str, ...], ...]
    """The order of probes of each group of classes."""

    def groups(self, rows: Rows) -> list[NDArray[np.int64]]:
        """Return the places of the rows of each group, ascending."""
        group = self.table.group_of(self.attribute.values(rows))
        places = np.argsort(group, kind="stable")
        return np.split(places, np.bincount(group, minlength=len(self.orders)).cumsum()[:-1])
