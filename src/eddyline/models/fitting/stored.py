"""Stored segments of a stream, read as rows.

``Segments.to_df`` and queries of segments write such rows. Their event time is ``lo``, so all
segments that begin before the watermark are there. A segment is final when the watermark has passed
its begin. Segments of an entity must not overlap. The check keeps for each entity the end of its
latest segment between batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import ModelError, OptionError
from eddyline.models.fitting.fit import FitReport, Part
from eddyline.models.segments import COEF, ERR, TOMB, Layout, ids_together, keyed, micros_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints
    from eddyline.models.fitting.bounds import Bound
    from eddyline.models.segments import Keyed
    from eddyline.models.solving.expressions import Range, Ranges

LO, HI = "lo", "hi"


@dataclass(frozen=True)
class Stored:
    """How the rows of a stream of segments become segments."""

    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    time: str = LO
    within: Mapping[str, Bound] = field(default_factory=dict)
    """None: how near segments are to rows was said where they were made."""
    assumed: Mapping[str, Range] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are read, as SQL, besides keys and time."""
        columns = {"origin": f"coalesce(origin, {LO})", HI: HI, "is_point": "is_point", TOMB: TOMB}
        for attribute in self.attributes:
            columns |= {
                name: f"`{name.replace('`', '``')}`" for name in (COEF + attribute, ERR + attribute)
            }
        return columns

    @property
    def wait_us(self) -> int:
        """How long after a row it is certain that no later one is needed for its segment (µs)."""
        return 0

    def near_enough(self, asked: Mapping[str, Bound], read: set[str], ranges: Ranges) -> Stored:  # noqa: ARG002
        """Return it as it is.

        Raises:
            OptionError: bounds are asked.
        """
        for name, bound in asked.items():
            msg = (
                f"{name!r} would have to be within {bound}, but segments of a stream keep the "
                "bounds of their fit; call within on el.models.fit(df, …), which makes them"
            )
            raise OptionError(msg, attribute=name, bound=str(bound))
        return self

    def part(self, rows: pa.Table, until: int, carried_rows: pa.Table | None) -> Part:
        """Return the segments of rows; as of ``Fit``.

        Raises:
            ModelError: two of an entity overlap.
        """
        there = rows.filter(pc.invert(rows.column(TOMB)))
        pieces = keyed(there, Layout(self.keys, self.attributes))
        segments = pieces.segments
        ids = segments.keys
        ends = np.full(len(pieces.entities), np.iinfo(np.int64).min)
        if carried_rows is not None and len(carried_rows) and len(there):
            ids, before = ids_together([there, carried_rows], self.keys)
            ends = np.full(int(max(ids.max(), before.max())) + 1, np.iinfo(np.int64).min)
            ends[before] = micros_of(carried_rows.column(HI))
        self._check(pieces, ids, ends)
        np.maximum.at(ends, ids, segments.ends)
        goes_on = np.flatnonzero((segments.ends == ends[ids]) & (segments.ends > until))
        last = there.take(pa.array(goes_on)).select([*self.keys, HI])
        kept = [last]
        if carried_rows is not None and len(carried_rows):
            later = micros_of(carried_rows.column(HI)) > until
            replaced = (
                np.isin(before, ids[goes_on]) if len(there) else np.zeros(len(carried_rows), bool)
            )
            kept.append(carried_rows.select([*self.keys, HI]).filter(pa.array(later & ~replaced)))
        report = FitReport(len(there), len(there), n_without=len(rows) - len(there))
        return Part(pieces, rows.slice(0, 0), pa.concat_tables(kept), report)

    @staticmethod
    def _check(pieces: Keyed, ids: Ints, ends: Ints) -> None:
        """Raise ModelError if a segment begins before an earlier one of its entity ends."""
        segments = pieces.segments
        order = np.lexsort((segments.lo, ids))
        owners, lo = ids[order], segments.lo[order]
        is_same = np.append(np.False_, owners[1:] == owners[:-1])[: len(owners)]
        before = np.where(
            is_same, np.append(0, segments.ends[order][:-1])[: len(owners)], ends[owners]
        )
        wrong = np.flatnonzero(before > lo)
        if not wrong.size:
            return
        place = order[wrong[0]]
        entity = pieces.entities.slice(int(segments.keys[place]), 1).to_pylist()[:1]
        keys = {
            name: value for name, value in (entity or [{}])[0].items() if not name.startswith("__")
        }
        begin, end = (
            np.datetime64(int(instant), "us") for instant in (segments.lo[place], before[wrong[0]])
        )
        msg = (
            f"segments of a stream overlap: of {keys or 'the one entity'} one begins at {begin}, "
            f"and an earlier one goes to {end}; a stream has each stretch of time once, as "
            "results='final' gives it"
        )
        raise ModelError(msg)

    def __str__(self) -> str:
        return f"segments of {', '.join(self.attributes)} as they come"
