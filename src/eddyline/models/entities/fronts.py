"""Fronts of entities: the instants up to which results are final.

No later segment changes a result before the front of its entity. An open run holds an entity back:
rows of which no segment is final yet, until a gap or a horizon is over. Where nothing holds it, the
watermark says how far it is, whether rows of it come or not. An entity that nobody has seen can
begin there at the earliest. So entities without rows hold nothing for longer than a gap.

Of several entities:

- a pair is final up to the lesser of the two fronts of its entities. Its segments are the overlaps
  of theirs, so each is final as soon as both are. A batch gives it when the later one of the two
  comes, and earlier ones are kept as far as another entity may still overlap them;
- the value of a group is final up to the least front of all entities of the group, unknown ones
  included. A piece is given when it is over before that front: another entity may cut it until
  then.

Windows that may close in a gap have pieces that are over where the next segment begins. Results of
these are final a width before the front of their entity, or as far as is known of each.

Fronts never go back. No final segment of rows ends behind the front of its entity; a result of a
stage may.

``EntityIndex`` has what a bucket knows of its entities, and which of them it has to look at
although no row of them has come. ``OpenRuns`` has the rows of open runs, which come again with each
batch that concerns their entity. A run is fitted from the first row on that is in no final segment.
Each batch appends the new rows to files. A record of the entity has the first and the last row:
where the run is held, and until when no gap has ended it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models import graph, timeline
from eddyline.models.entities.kept import CODE, EntityRecords, EntityRows, codes_of, instants_of
from eddyline.models.fitting.declared import ENDLESS_US
from eddyline.models.segments import Keyed, ids_together, is_other_entity, micros_of
from eddyline.models.steps import Extremum, Integral
from eddyline.models.streams.plan import NEVER
from eddyline.state.event_time import HeldRows
from eddyline.state.rows import FOREVER
from eddyline.state.rows import Rows as Kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.entities.kept import EntityRuns, Files
    from eddyline.models.segments import Segments
    from eddyline.models.steps import DifferentEntities, Rows
    from eddyline.models.streams.plan import StageState
    from eddyline.state.manifest import StatePlace


class Fronts(ABC):
    """Before which instant all segments of each entity are there (µs)."""

    @property
    @abstractmethod
    def least(self) -> int:
        """No front is before that."""

    @abstractmethod
    def of(self, names: pa.Table) -> Ints:
        """Return the fronts of some entities, ``[n]``; of several that share keys the least."""

    @property
    def by_keys(self) -> Fronts:
        """The same fronts of entities that have other codes."""
        return self

    @abstractmethod
    def known(self) -> KnownFronts:
        """Return all of them, or instants that none of them is before."""


@dataclass(frozen=True)
class KnownFronts(Fronts):
    """Fronts of which the exceptions are listed."""

    default: int
    """That of entities which are not listed (µs)."""
    keys: tuple[str, ...] = ()
    """The columns that say the entity."""
    names: pa.Table | None = None
    """The keys of entities that are held back, some of them several times."""
    at: Ints | None = None
    """Where each is held (µs)."""

    @property
    def least(self) -> int:
        """The least of all."""
        return self.default if self.at is None else int(self.at.min(initial=self.default))

    def of(self, names: pa.Table) -> Ints:
        """Return the fronts of some entities."""
        fronts = np.full(len(names), self.default)
        if self.names is None or self.at is None or not len(self.at) or not len(names):
            return fronts
        mine, listed = ids_together([names, self.names], self.keys)
        first = np.full(int(max(mine.max(), listed.max())) + 1, FOREVER)
        np.minimum.at(first, listed, self.at)
        least: Ints = np.minimum(fronts, first[mine])
        return least

    def known(self) -> KnownFronts:
        """Return them."""
        return self

    def by(self, keys: Sequence[str]) -> KnownFronts:
        """Return those of groups of entities."""
        return replace(self, keys=tuple(keys))


class RowFronts(Fronts):
    """Fronts of entities whose rows become segments: open runs hold them.

    Args:
        until: the instant before which all rows are there (µs).
        keys: the columns that say the entity, with ``CODE``.
        codes: the codes of the entities that the batch has looked at, sorted.
        held: their rows that are in no segment yet, and the time of each (µs); None if there are
            none.
        before: the records before the batch, which still hold of all other entities.
        kind: the kind of records that has such rows.
        wait: how long after its last row an entity is looked at again, if no other one comes (µs).
    """

    def __init__(
        self,
        until: int,
        keys: tuple[str, ...],
        codes: Ints,
        held: tuple[pa.Table, Ints] | None,
        before: EntityRecords,
        kind: str,
        wait: int,
    ) -> None:
        self._until, self._keys, self._codes, self._wait = until, keys, codes, wait
        self._held, self._before, self._kind = held, before, kind

    @property
    def least(self) -> int:
        """No front is before that."""
        before = self._before.first_of(self._kind, self._until - self._wait)
        first = min(self._until, before)
        return first if self._held is None else int(self._held[1].min(initial=first))

    def of(self, names: pa.Table) -> Ints:
        """Return the fronts of some entities."""
        others = np.setdiff1d(codes_of(names), self._codes)
        kept = self._before.of(others, [self._kind]).get(self._kind) if others.size else None
        return self._listed(kept).of(names)

    @property
    def by_keys(self) -> KnownFronts:
        """The same fronts of entities that have other codes."""
        return self.known()

    def known(self) -> KnownFronts:
        """Return all of them, by keys."""
        kept = self._before.every(self._kind, self._until - self._wait)
        if kept is not None:
            kept = kept.filter(pa.array(~np.isin(codes_of(kept), self._codes)))
        return self._listed(kept).by(self._keys[1:])

    def _listed(self, kept: pa.Table | None) -> KnownFronts:
        """Return the fronts of entities that were looked at, and of those with some records."""
        parts = [] if self._held is None else [self._held]
        if kept is not None and len(kept):
            parts.append((kept, instants_of(kept)))
        if not parts:
            return KnownFronts(self._until, self._keys)
        names = pa.concat_tables(table.select(list(self._keys)) for table, _ in parts)
        instants = np.concatenate([instants for _, instants in parts])
        return KnownFronts(self._until, self._keys, names, instants)


@dataclass(frozen=True)
class StageFronts(Fronts):
    """Fronts of the results of a stage: the least of its inputs, and a lag before that."""

    inputs: tuple[Fronts, ...]
    lag: int = 0
    """How long before the front of inputs a result may begin that is not over there (µs)."""

    @property
    def least(self) -> int:
        """No front is before that."""
        return timeline.earlier(min(front.least for front in self.inputs), self.lag)

    def of(self, names: pa.Table) -> Ints:
        """Return the fronts of some entities."""
        fronts: Ints = np.min([front.of(names) for front in self.inputs], axis=0)
        return timeline.earlier(fronts, self.lag)

    @property
    def by_keys(self) -> StageFronts:
        """The same fronts of entities that have other codes."""
        return StageFronts(tuple(front.by_keys for front in self.inputs), self.lag)

    def known(self) -> KnownFronts:
        """Return all of them."""
        every = [front.known() for front in self.inputs]
        keys = every[0].keys
        if not keys:  # all are one, and a table without columns has no rows
            # Of known fronts: records that newer ones override hold back only ``self.least``.
            return KnownFronts(timeline.earlier(min(front.least for front in every), self.lag))
        names = [front.names.select(list(keys)) for front in every if front.names is not None]
        instants = [front.at for front in every if front.at is not None]
        return KnownFronts(
            timeline.earlier(min(front.default for front in every), self.lag),
            keys,
            pa.concat_tables(names) if names else None,
            timeline.earlier(np.concatenate(instants), self.lag) if instants else None,
        )


@dataclass(frozen=True)
class PairFronts(Fronts):
    """Fronts of pairs: the lesser one of both entities."""

    step: DifferentEntities
    sides: tuple[KnownFronts, KnownFronts]

    @property
    def least(self) -> int:
        """No front is before that."""
        return min(side.least for side in self.sides)

    def of(self, names: pa.Table) -> Ints:
        """Return the fronts of some pairs."""
        fronts = []
        for name, side in zip(self.step.names, self.sides, strict=True):
            if side.names is None:
                fronts.append(np.full(len(names), side.default))
                continue
            entities = names.select([f"{name}_{key}" for key in side.keys])
            fronts.append(side.of(entities.rename_columns(list(side.keys))))
        least: Ints = np.minimum(*fronts)
        return least

    def known(self) -> KnownFronts:
        """Return one instant for all: a pair may be of any two entities."""
        return KnownFronts(self.least)


def known_until(segments: Segments, front: Ints) -> Ints:
    """Return fronts moved on to the end of the segment that is there, if it is known already.

    Args:
        segments: final ones; those of one entity do not overlap.
        front: before which instant all segments of each entity are there (µs), ``[entities]``.
    """
    instants = front[segments.keys]
    rows = (segments.lo <= instants) & (segments.hi > instants)
    fronts = front.copy()
    np.maximum.at(fronts, segments.keys[rows], segments.hi[rows])
    return fronts


def frontier_of(
    node: graph.Node, inputs: Sequence[Ints], outputs: Mapping[int, Keyed | Rows]
) -> tuple[Ints, Ints]:
    """Return the instant before which the results of each entity are final (µs).

    A piece of windows that may close in a gap is over where the next segment begins, so what is
    made of it waits until the front has come to its end.

    Args:
        node: the graph.
        inputs: the instant before which all segments of each entity are there, by input, ``[n]``;
            no segment is there at it that begins before.
        outputs: what came out of each part, by its id; see ``graph.every``.

    Returns:
        That instant, and the one that time has to pass until more is final, ``FOREVER`` if nothing
        waits for such a piece, ``[n]`` each.
    """
    fronts: dict[int, Ints] = {}
    again = np.full_like(inputs[0], FOREVER)
    for part in graph.parts(node):
        match part:
            case graph.Input(at):
                front = inputs[at]
            case graph.Unary(step, of):
                front, output = fronts[id(of)], outputs[id(part)]
                if isinstance(step, Integral | Extremum) and step.lag_us:
                    assert isinstance(output, Keyed)  # at ticks nothing lasts
                    goes_on = isinstance(step, Extremum) or graph.lag(of) > 0
                    most = step.width_us if goes_on else 0
                    front = _before_open(output.segments, front, again, most)
            case graph.SameEntity(left, right):
                front = np.minimum(fronts[id(left)], fronts[id(right)])
        fronts[id(part)] = front
    return fronts[id(node)], again


def _before_open(pieces: Segments, front: Ints, again: Ints, most: int) -> Ints:
    """Return fronts moved back to the start of pieces of which the end may become another one.

    A piece of a moving extreme that ends there goes on if another segment begins at once, and so
    does one of windows over windows if what begins there is not what comes.

    Args:
        pieces: pieces of windows.
        front: before which instant all that they see is there, of each entity (µs).
        again: set to the instant that time has to pass until pieces are over (µs).
        most: how long pieces are that may go on where they end there (µs).
    """
    instants, ends = front[pieces.keys], pieces.ends
    is_open = (ends > instants) | ((ends == instants) & (ends - pieces.lo <= most))
    rows = np.flatnonzero(is_open & (pieces.lo < instants))
    keys, over = pieces.keys[rows], ends[rows]
    fronts = front.copy()
    np.minimum.at(fronts, keys, pieces.lo[rows])
    np.minimum.at(again, keys, over - (over > instants[rows]))
    return fronts


def last_ends(segments: Segments, n: int) -> Ints:
    """Return where the last segment of each entity ends, ``NEVER`` if it has none, ``[n]``."""
    ends = np.full(n, NEVER)
    np.maximum.at(ends, segments.keys, segments.hi)
    return ends


def whole_until(segments: Segments, front: Ints) -> Ints:
    """Return instants moved back to the start of the segment that is not over there.

    Args:
        segments: those of one entity do not overlap.
        front: an instant of each entity (µs), ``[entities]``.
    """
    rows = segments.ends > front[segments.keys]
    fronts = front.copy()
    np.minimum.at(fronts, segments.keys[rows], segments.lo[rows])
    return fronts


# -- the entities of a bucket ---------------------------------------------------------------------


HELD, GIVEN = "held", "told"
"""Kinds of records, as they are named in files: rows in no segment yet, with the number of their
input behind; and until when results were given."""


class EntityIndex:
    """The records of entities in one batch.

    Args:
        place: where files are.
        since: the instant before which the batches before have looked at everything (µs).
        until: the same of this one.
        before: the state before the batch.
    """

    def __init__(self, place: StatePlace, since: int, until: int, before: StageState) -> None:
        self.until = until
        self.records = EntityRecords(place, before.entities)
        """As the batches before left them."""
        self.codes: Ints = np.zeros(0, np.int64)
        """Of the entities that the batch looks at."""
        self.kept: dict[str, pa.Table] = {}
        """Their records by kind."""
        self.after: dict[str, tuple[pa.Table, Ints]] = {}
        """Their records from now on, and an instant of each; see ``EntityRecords.after``."""
        self._again: list[tuple[Ints, Ints]] = []
        self._wakes = HeldRows(place.files, place.runs, before.wakes, since)

    @property
    def woken(self) -> list[Ints]:
        """The codes of the entities whose time has come."""
        return [codes_of(wake.payload) for wake in self._wakes.before(self.until)]

    def open(self, codes: list[Ints]) -> None:
        """Look up the entities of some codes."""
        self.codes = distinct(np.concatenate(codes)) if codes else self.codes
        self.kept = self.records.given(self.codes)

    def has_held(self, names: pa.Table) -> Mask:
        """Return which entities have rows that are in no segment yet."""
        held = [codes_of(table) for kind, (table, _) in self.after.items() if kind.startswith(HELD)]
        is_held: Mask = np.isin(codes_of(names), np.concatenate([*held, np.zeros(0, np.int64)]))
        return is_held

    def look_again(self, names: pa.Table, instants: Ints) -> None:
        """Look at entities once time has passed an instant of each (µs)."""
        self._again.append((codes_of(names), np.maximum(instants, self.until)))

    def close(self, waits: Mapping[str, int], low: int) -> tuple[Files, EntityRuns]:
        """Return the files of wakes and of records after the batch.

        Args:
            waits: how long after their instant records concern their entity again (µs), by kind:
                when a gap or a horizon is over, or a range; no time ends what is endless.
            low: at or before which instant results were given that nothing looks at any more (µs).
        """
        parts = self._again
        for kind, wait in waits.items():
            if kind in self.after and wait < ENDLESS_US - 1:
                table, instants = self.after[kind]
                due = np.full(len(self.codes), NEVER)
                places = np.searchsorted(self.codes, codes_of(table))
                np.maximum.at(due, places, instants + wait)
                parts.append((self.codes[due >= self.until], due[due >= self.until]))
        new: Kept | None = None
        if parts:
            who, when = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            new = Kept({}, when, when, pa.table({CODE: pa.array(who)}))
        records = self.records.after(self.codes, self.after, {GIVEN: low})
        return self._wakes.after(self.until, new), records


# -- rows of open runs ----------------------------------------------------------------------------


_IS_NEW = "__is_new"
"""The column that says which rows are in no file yet."""


class OpenRuns:
    """The rows of the open runs of one input in one batch.

    Args:
        place: where files are.
        files: of rows, before the batch.
        keys: the columns that say the entity, with ``CODE``.
        time: the column of the time of rows.
    """

    def __init__(self, place: StatePlace, files: Files, keys: Sequence[str], time: str) -> None:
        self._keys, self._time = keys, time
        self._rows = EntityRows(place, files, self._times, self._times)
        self.files = files
        """From ``keep`` on those after the batch."""
        self.held: pa.Table | None = None
        """All rows that are held from now on of the entities that were looked at."""

    def before(self, record: pa.Table) -> pa.Table:
        """Return the rows of entities that were held before the batch.

        Args:
            record: the first one and the last one of each.
        """
        rows = self._rows.of(distinct(codes_of(record)))
        assert rows is not None  # those of the record, for a start
        listed, ids = ids_together([record, rows], self._keys)
        first = np.full(int(max(listed.max(), ids.max())) + 1, FOREVER)
        np.minimum.at(first, listed, self._times(record))
        return rows.filter(pa.array(self._times(rows) >= first[ids]))

    @staticmethod
    def marked(before: pa.Table | None, due: pa.Table | None) -> pa.Table:
        """Return rows that were held and those that have come, as what they are."""
        return pa.concat_tables(
            table.append_column(_IS_NEW, pa.array(np.full(len(table), is_new)))
            for table, is_new in ((before, False), (due, True))
            if table is not None
        )

    def taken(self, held: pa.Table) -> pa.Table:
        """Take the rows that are held from now on; return the first and the last of each entity.

        Args:
            held: of marked rows, by entity and time.
        """
        begins: Mask = is_other_entity(held, self._keys)
        is_end = begins | np.append(begins[1:], np.True_)[: len(held)]
        self._is_new = held.column(_IS_NEW).to_numpy()
        self.held = held.drop_columns([_IS_NEW])
        return self.held.filter(pa.array(is_end))

    def keep(self, fronts: RowFronts) -> None:
        """Add the rows that are new to the files.

        Args:
            fronts: from which instant on rows of each entity are held.
        """
        assert self.held is not None

        def needed(rows: pa.Table) -> pa.Table:
            return rows.filter(pa.array(self._times(rows) >= fronts.of(rows)))

        new = self.held.filter(pa.array(self._is_new))
        self.files = self._rows.after(new, fronts.least - 1, needed)

    def _times(self, rows: pa.Table) -> Ints:
        return micros_of(rows.column(self._time))
