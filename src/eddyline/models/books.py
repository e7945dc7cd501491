"""What a bucket knows of entities, and when it looks at them although nothing of them comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models.kept import CODE, EntityRecords, codes_of
from eddyline.models.streaming import NEVER
from eddyline.state.event_time import HeldRows
from eddyline.state.rows import Rows as Kept

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.kept import EntityRun
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]


HELD = "held"
"""How kinds of records begin that are rows in no segment yet; the number of an input follows."""


class Books:
    """The records of entities in one batch.

    Args:
        place: where files are.
        since: the instant before which the batches before have looked at everything (µs).
        until: the same of this one.
        wakes: when which entities are looked at.
        entities: what is known of entities.
    """

    def __init__(
        self,
        place: StatePlace,
        since: int,
        until: int,
        wakes: Files,
        entities: tuple[EntityRun, ...],
    ) -> None:
        self.until = until
        self.records = EntityRecords(place, entities)
        """As the batches before left them."""
        self.codes: Ints = np.zeros(0, np.int64)
        """Of the entities that the batch looks at."""
        self.kept: dict[str, pa.Table] = {}
        """Their records by kind."""
        self.after: dict[str, tuple[pa.Table, Ints | None]] = {}
        """Their records from now on, and an instant of each; see ``EntityRecords.after``."""
        self._again: list[tuple[Ints, Ints]] = []
        self._wakes = HeldRows(place.files, place.runs, wakes, since)

    @property
    def woken(self) -> list[Ints]:
        """The codes of the entities whose time has come."""
        return [codes_of(each.payload) for each in self._wakes.before(self.until)]

    def open(self, codes: list[Ints]) -> Ints:
        """Look up entities; return their codes, sorted, each once."""
        self.codes = distinct(np.concatenate(codes)) if codes else self.codes
        self.kept = self.records.given(self.codes)
        return self.codes

    def has_held(self, names: pa.Table) -> Mask:
        """Return which entities have rows that are in no segment yet."""
        held = [codes_of(each) for kind, (each, _) in self.after.items() if kind.startswith(HELD)]
        found: Mask = np.isin(codes_of(names), np.concatenate([*held, np.zeros(0, np.int64)]))
        return found

    def look_again(self, names: pa.Table, at: Ints) -> None:
        """Look at entities once time has passed an instant of each (µs)."""
        self._again.append((codes_of(names), np.maximum(at, self.until)))

    def close(
        self, waits: Mapping[str, int], lows: Mapping[str, int]
    ) -> tuple[Files, tuple[EntityRun, ...]]:
        """Return the files of wakes and of records after the batch.

        Args:
            waits: how long after their instant records concern their entity again (µs), by kind:
                when a gap or a horizon is over, or a range.
            lows: at or before which instant records are not needed any more (µs), by kind.
        """
        return self._wakes_after(waits), self.records.after(self.codes, self.after, lows)

    def _wakes_after(self, waits: Mapping[str, int]) -> Files:
        parts = self._again
        for kind, (table, instants) in self.after.items():
            wait = waits.get(kind)
            if wait is not None and len(table) and instants is not None:
                at = np.full(len(self.codes), NEVER)
                places = np.searchsorted(self.codes, codes_of(table))
                np.maximum.at(at, places, instants + wait)
                parts.append((self.codes[at >= self.until], at[at >= self.until]))
        new: Kept | None = None
        if parts:
            who, when = (np.concatenate(each) for each in zip(*parts, strict=True))
            new = Kept({}, when, when, pa.table({CODE: pa.array(who)}))
        return self._wakes.after(self.until, new)
