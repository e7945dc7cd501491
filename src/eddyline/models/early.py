"""Early results: what the rows that have come give as if no other one came, and what is taken back.

After each batch there is one answer for all rows so far: the final results, and behind them those
of a stream that ends here (``_Ended``), of open segments and of rows that event time has not passed
yet. What was given before and is not in it any more is taken back (``revised``), so that the newest
word of all batches together is that answer, whatever the batches are. Once event time has passed
all rows these are the results that are given without early ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.bucket import BucketBatch
from eddyline.models.frontiers import KnownFronts
from eddyline.models.kept import codes_of
from eddyline.models.looking import Flow, Looking
from eddyline.models.revisions import REVISIONS, VALIDATED, VERSION, ends_of, revised
from eddyline.models.rows import ids_together, micros_of
from eddyline.models.streaming import BucketState
from eddyline.models.window_steps import OverEntities
from eddyline.state.event_time import HeldRows
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.books import Books
    from eddyline.models.bucket import Files
    from eddyline.models.rows import Keyed
    from eddyline.models.steps import Rows
    from eddyline.models.streaming import StreamPlan

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
        is_over = isinstance(each, graph.Unary) and isinstance(each.step, OverEntities)
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
        *given: as of ``BucketBatch``.
        version: the number of the batch, more than those before it.
    """

    def __init__(self, *given: Any, version: int) -> None:
        super().__init__(*given)
        self._version = version
        self._arrived: list[Ints] = []
        self._waiting: dict[int, Files] = {}
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

    def _looked_at(self, due: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the codes of the entities to look at; of rows that wait, too, when they come."""
        return [*super()._looked_at(due), *self._arrived]

    def _in_one(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[int, Files], int]:
        final, segments, low = super()._in_one(inputs)
        return self._told(final) if self._books.codes.size else None, segments, low

    def _looking(self, *given: Any) -> Looking:
        self._looked = _Remembering(*given, self.place, self.zone, self._watch)
        return self._looked

    def _told(self, final: pa.Table | None) -> pa.Table | None:
        """Return what is new and what is taken back, and keep results that are not final."""
        books, shape = self._books, self.plan.node.shape
        waiting = [self._rows_that_wait(at) for at, _ in enumerate(self.plan.inputs)]
        ended = _Ended(self, self._looked).results(waiting)
        now = [
            self._labelled(each, waiting)
            for each in (final, ended)
            if each is not None and len(each)
        ]
        if not now and EARLY not in books.kept:
            return None
        n_final = 0 if final is None else len(final)
        every = pa.concat_tables(now).combine_chunks() if now else None
        found = revised(books.kept.get(EARLY), every, shape, self.keys)
        if every is not None and len(every) > n_final:
            self._keep(every.slice(n_final))
        self._n_early = int((found.places >= n_final).sum())
        self._n_taken_back = len(found.rows) - len(found.places)
        return self._with_version(self._labelled(found.rows, waiting))

    def _keep(self, early: pa.Table) -> None:
        """Keep results that are not final.

        What no row has come up to is labelled anew when event time has passed it.
        """
        ends = ends_of(early, self.plan.node.shape)
        self._books.after[EARLY] = early, ends
        waits = ~early.column(VALIDATED).to_numpy()
        self._books.look_again(early.filter(pa.array(waits)), ends[waits] - 1)

    def _rows_that_wait(self, at: int) -> pa.Table | None:
        """Return the rows of the entities looked at that event time has not passed yet."""
        codes = self._books.codes
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


class _Remembering(Looking):
    """Keeps at hand the segments that it has looked at."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: dict[int, list[pa.Table]] = {}
        """Those of each input, kept ones first."""

    def _kept_before(self, at: int, now: pa.Table | None, flows: Sequence[Flow]) -> pa.Table | None:
        before = super()._kept_before(at, now, flows)
        self.seen[at] = [each for each in (before, now) if each is not None and len(each)]
        return before


class _AtTheEnd(Looking):
    """Looks at the same segments once more, and at those behind them; all is final."""

    def __init__(self, of: _Remembering, books: Books) -> None:
        super().__init__(of.stage, of.keys, books, BucketState(), of.place, of.zone, of.watch)
        self._seen = of.seen

    def _kept_before(
        self,
        at: int,
        now: pa.Table | None,  # noqa: ARG002 - as of all
        flows: Sequence[Flow],  # noqa: ARG002
    ) -> pa.Table | None:
        seen = self._seen.get(at)
        return pa.concat_tables(seen) if seen else None

    def _front(
        self,
        fronts: Sequence[Ints],
        every: Mapping[int, Keyed | Rows],  # noqa: ARG002 - as of all
    ) -> tuple[Ints, Ints]:
        return np.full_like(fronts[0], FOREVER), np.full_like(fronts[0], FOREVER)


class _Ended(BucketBatch):
    """What a bucket would give if no row came any more, behind what is final; keeps nothing."""

    def __init__(self, of: EarlyBatch, looking: _Remembering) -> None:
        super().__init__(of.plan, of.place, BucketState(), of.report.bucket, ENDED, 0, of.zone)
        self._watch, self._of = of._watch, of
        self._books.codes = looking.books.codes
        self._books.kept = {kind: table for kind, (table, _) in looking.books.after.items()}
        self._at_end = _AtTheEnd(looking, self._books)

    def results(self, waiting: Sequence[pa.Table | None]) -> pa.Table | None:
        """Return what the rows that wait give, and those that are held."""
        parts = [self._part(at, rows) for at, rows in enumerate(waiting)]
        flows = [
            Flow(None if part is None else part.segments, KnownFronts(FOREVER)) for part in parts
        ]
        return self._at_end.results([flows[each] for each in self.plan.stages[0].inputs])

    def _held(self, at: int) -> pa.Table | None:
        runs = self._of._runs.get(at)
        return super()._held(at) if runs is None else runs.held
