"""Rows of open runs, which come again with each batch that concerns their entity.

A run of rows that no gap has ended is fitted from the first row on that is in no final segment. All
rows from there on are held, so a batch adds those that are new to files; a record of the entity has
the first and the last one, which say where it is held and until when no gap has ended it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models.kept import AppendedRows, codes_of, instants_of
from eddyline.models.rows import ids_together, is_other_entity, micros_of
from eddyline.models.streaming import NEVER
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Mask
    from eddyline.models.frontiers import RowFronts
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]

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
        self._place, self._keys, self._time = place, keys, time
        self.files = files
        """From ``keep`` on those after the batch."""
        self.held: pa.Table | None = None
        """All rows that are held from now on of the entities that were looked at."""

    def before(self, record: pa.Table) -> pa.Table:
        """Return the rows of entities that were held before the batch.

        Args:
            record: the first one and the last one of each.

        Raises:
            OSError: they cannot be read.
        """
        codes = distinct(codes_of(record))
        rows = AppendedRows(self._place, self.files).of(codes, NEVER)
        assert rows is not None  # those of the record, for a start
        listed, ids = ids_together([record, rows], self._keys)
        first = np.full(int(max(listed.max(), ids.max())) + 1, FOREVER)
        np.minimum.at(first, listed, micros_of(record.column(self._time)))
        return rows.filter(pa.array(micros_of(rows.column(self._time)) >= first[ids]))

    @staticmethod
    def marked(before: pa.Table | None, due: pa.Table | None) -> pa.Table:
        """Return rows that were held and those that have come, as what they are."""
        given = [(each, at == 1) for at, each in enumerate((before, due)) if each is not None]
        marks = [pa.array(np.full(len(each), is_new)) for each, is_new in given]
        return pa.concat_tables(
            each.append_column(_IS_NEW, mark) for (each, _), mark in zip(given, marks, strict=True)
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

        Raises:
            OSError: they cannot be read or written.
        """
        assert self.held is not None
        new = self.held.filter(pa.array(self._is_new))

        def is_needed(rows: pa.Table) -> Mask:
            found: Mask = instants_of(rows) >= fronts.of(rows)
            return found

        self.files = AppendedRows(self._place, self.files).after(
            new if len(new) else None, micros_of(new.column(self._time)), fronts.least - 1,
            is_needed,
        )  # fmt: skip
