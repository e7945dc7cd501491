"""Early results: what the rows that have come give as if no other one came, and what is taken back.

After each batch there is one answer for all rows so far: the final results, and behind them those
of a stream that ends here (``_Ended``), of open segments and of rows that event time has not passed
yet. What was given before and is not in it any more is taken back (``revised``), so that the newest
word of all batches together is that answer, whatever the batches are. Once event time has passed
all rows these are the results that are given without early ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.bucket import BucketBatch
from eddyline.models.kept import codes_of
from eddyline.models.revisions import REVISIONS, VALIDATED, VERSION, ends_of, revised
from eddyline.models.rows import ids_together, micros_of
from eddyline.models.window_steps import Envelope
from eddyline.state.reorder_buffer import HeldRows
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.bucket import Files
    from eddyline.models.fitted import Part
    from eddyline.models.rows import Keyed
    from eddyline.models.steps import Rows
    from eddyline.models.streaming import BucketState, StreamPlan
    from eddyline.state.place import StatePlace

EARLY = "early"
"""The kind of records of results that were given and are not final."""
ENDED = 2**62
"""An instant behind all rows (µs)."""


def check_early(plan: StreamPlan) -> None:
    """Check that results of a plan may be given early, if they are asked for.

    Raises:
        NotSupportedError: results over several entities.
        OptionError: results have a column of the name of one that early ones have beside them.
    """
    if not plan.is_early:
        return
    for each in graph.parts(plan.node):
        is_over = isinstance(each, graph.Unary) and isinstance(each.step, Envelope)
        if is_over or isinstance(each, graph.OtherEntities):
            msg = (
                f"early results are of entities by themselves, not of {each}: leave out "
                "results='early', which gives them once they are final"
            )
            raise NotSupportedError(msg, step=str(each))
    shape = plan.node.shape
    names = (*shape.keys, *(shape.attributes if shape.kind != "segments" else ()))
    for name in names:
        if name.lower() in REVISIONS:
            msg = f"early results have a column {name.lower()!r} themselves; rename {name!r}"
            raise OptionError(msg, name=name)


class EarlyBatch(BucketBatch):
    """The work of one bucket in one batch, of which results are given before they are final.

    Args:
        plan: as of ``BucketBatch``, as all others.
        place: see there.
        state: see there.
        bucket: see there.
        until: see there.
        offset: see there.
        zone: see there.
        version: the number of the batch, more than those before it.
    """

    def __init__(
        self,
        plan: StreamPlan,
        place: StatePlace,
        state: BucketState,
        bucket: int,
        until: int,
        offset: int = 0,
        zone: str | None = "UTC",
        *,
        version: int,
    ) -> None:
        super().__init__(plan, place, state, bucket, until, offset, zone)
        self._version = version
        self._arrived: list[Ints] = []
        self._waiting: dict[int, Files] = {}
        self._segments: dict[int, list[pa.Table]] = {}
        self._n_early = self._n_taken_back = 0

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield what is new and what is taken back; as of ``BucketBatch``."""
        yield from super().run(arrived)
        self.report = replace(self.report, n_early=self._n_early, n_taken_back=self._n_taken_back)

    def _due(self, at: int, arrived: pa.Table | None, waiting: dict[int, Files]) -> pa.Table | None:
        found = super()._due(at, arrived, waiting)
        if self.plan.inputs[at].maker is not None:
            self._waiting[at] = waiting[at]
            self._arrived += [] if arrived is None else [codes_of(arrived)]
        return found

    def _active(self, due: Sequence[pa.Table | None]) -> Ints:
        """Return the codes of the entities to look at; of rows that wait, too, when they come."""
        return np.unique(np.concatenate([super()._active(due), *self._arrived]))

    def _kept_segments(
        self, at: int, now: pa.Table | None, codes: Ints, segments: dict[int, Files]
    ) -> pa.Table | None:
        before = super()._kept_segments(at, now, codes, segments)
        self._segments[at] = [each for each in (before, now) if each is not None]
        return before

    def _given(
        self,
        parts: Sequence[Part | None],
        arrived: Sequence[pa.Table | None],
        codes: Ints,
        segments: dict[int, Files],
    ) -> pa.Table | None:
        final = super()._given(parts, arrived, codes, segments)
        waiting = [self._rows_that_wait(at, codes) for at, _ in enumerate(self.plan.inputs)]
        ended = _Ended(self, self._segments).results(waiting, codes)
        now = [
            self._labelled(each, waiting)
            for each in (final, ended)
            if each is not None and len(each)
        ]
        if not now and EARLY not in self._kept:
            return None
        n_final = 0 if final is None else len(final)
        every = pa.concat_tables(now).combine_chunks() if now else None
        found = revised(self._kept.get(EARLY), every, self.plan.node.shape, self.keys)
        if every is not None and len(every) > n_final:
            early = every.slice(n_final)
            self._after[EARLY] = early, ends_of(early, self.plan.node.shape)
        self._n_early = int((found.places >= n_final).sum())
        self._n_taken_back = len(found.rows) - len(found.places)
        return self._with_version(self._labelled(found.rows, waiting))

    def _wake_ups(self, codes: Ints) -> list[tuple[Ints, Ints]]:
        found = super()._wake_ups(codes)
        if EARLY in self._after:
            # What no row has come up to is labelled anew when event time has passed it.
            table, ends = self._after[EARLY]
            assert ends is not None
            waits = ~table.column(VALIDATED).to_numpy()
            found.append((codes_of(table)[waits], ends[waits] - 1))
        return found

    def _rows_that_wait(self, at: int, codes: Ints) -> pa.Table | None:
        """Return the rows of some entities that event time has not passed yet."""
        files = self._waiting.get(at, ())
        held = HeldRows(self.place.files, self.place.runs, files, self.until)
        parts = [each.payload for each in held.before(FOREVER)]
        taken = [each.filter(pa.array(np.isin(codes_of(each), codes))) for each in parts]
        filled = [each for each in taken if len(each)]
        return pa.concat_tables(filled) if filled else None

    def _labelled(self, found: pa.Table, waiting: Sequence[pa.Table | None]) -> pa.Table:
        """Return results with whether event time or rows of their entity have come to their end.

        Where they have not, a result is what a model says of a time of which no row is there yet.
        """
        checked = np.full(len(found), FOREVER)
        for each, rows in zip(self.plan.inputs, waiting, strict=True):
            if each.maker is None:
                continue
            last = np.full(len(found), self.until)
            if rows is not None and len(found):
                ids, others = ids_together([found, rows], self.keys)
                latest = np.full(max(ids.max(), others.max()) + 1, self.until)
                np.maximum.at(latest, others, micros_of(rows.column(each.maker.time)))
                last = latest[ids]
            checked = np.minimum(checked, last)
        is_checked = ends_of(found, self.plan.node.shape) <= checked
        if VALIDATED in found.column_names:
            found = found.drop_columns([VALIDATED])
        return found.append_column(VALIDATED, pa.array(is_checked))

    def _with_version(self, found: pa.Table) -> pa.Table:
        version = np.full(len(found), self._version, np.int64)
        return found.append_column(VERSION, pa.array(version))


class _Ended(BucketBatch):
    """What a bucket would give if no row came any more, behind what is final; keeps nothing."""

    def __init__(self, of: EarlyBatch, segments: Mapping[int, list[pa.Table]]) -> None:
        super().__init__(of.plan, of.place, of.state, of.report.bucket, ENDED, 0, of.zone)
        self._kept = {kind: table for kind, (table, _) in of._after.items()}
        self._segments = segments

    def results(self, waiting: Sequence[pa.Table | None], codes: Ints) -> pa.Table | None:
        """Return what the rows that wait give, and those that are held."""
        parts = [self._part(at, rows) for at, rows in enumerate(waiting)]
        return self._given(parts, [None] * len(parts), codes, {})

    def _kept_segments(
        self,
        at: int,
        now: pa.Table | None,  # noqa: ARG002 - as of all batches
        codes: Ints,  # noqa: ARG002
        segments: dict[int, Files],  # noqa: ARG002
    ) -> pa.Table | None:
        filled = [each for each in self._segments.get(at, []) if len(each)]
        return pa.concat_tables(filled) if filled else None

    def _front(self, names: pa.Table, every: Mapping[int, Keyed | Rows]) -> Ints:  # noqa: ARG002
        return np.full(len(names), FOREVER)
