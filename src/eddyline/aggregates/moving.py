"""The state that a bucket starts from, also where there were other buckets before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.aggregates.cells import of_bucket
from eddyline.aggregates.history import Span
from eddyline.aggregates.open_sessions import BY_END
from eddyline.aggregates.plan import BucketState
from eddyline.state.rows import Rows
from eddyline.state.run_files import open_rows, write_rows

if TYPE_CHECKING:
    from eddyline.aggregates.plan import AggregatePart
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile


def state_of(
    part: AggregatePart, bucket: int, n_buckets: int, place: StatePlace | None
) -> BucketState:
    """Return the files that a bucket starts from.

    Where the number of buckets is another one than before, its cells are taken from the files of
    all of them and written as files of its own, once.

    Raises:
        OSError: files cannot be read or written.
    """
    if place is None or part.n_buckets == n_buckets or not part.buckets:
        return part.buckets.get(bucket, BucketState())
    move = _Move(place, bucket, n_buckets)
    waiting = [move.file(each) for state in part.buckets.values() for each in state.waiting]
    kinds = {kind for state in part.buckets.values() for kind in state.history}
    history = {}
    for kind in sorted(kinds):
        spans = [each for state in part.buckets.values() for each in state.history.get(kind, ())]
        spans.sort(key=lambda each: each.file.first_start)
        moved = [move.span(each) for each in spans]
        history[kind] = tuple(each for each in moved if each is not None)
    return BucketState(tuple(each for each in waiting if each is not None), history)


class _Move:
    def __init__(self, place: StatePlace, bucket: int, n_buckets: int) -> None:
        self.place = place
        self.bucket = bucket
        self.n_buckets = n_buckets

    def file(self, file: RunFile | None) -> RunFile | None:
        """Return a file of the cells of another one that are in the bucket, if there is any."""
        if file is None:
            return None
        cells = open_rows(self.place.files, self.place.runs, file)
        mine = of_bucket(cells, self.bucket, self.n_buckets)
        if not len(mine):
            return None
        if BY_END in mine.payload.column_names:  # the places of cells are other ones now
            payload = mine.payload.drop_columns([BY_END])
            mine = Rows(mine.codes, mine.starts, mine.ends, payload)
        return write_rows(self.place.files, self.place.runs, mine, is_sorted=True)

    def span(self, span: Span) -> Span | None:
        """Return the same of cells with their summary."""
        cells, summary = self.file(span.cells), self.file(span.summary)
        return None if cells is None and summary is None else Span(cells, summary)
