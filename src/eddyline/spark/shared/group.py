"""Queries over one stream that run together: one pass over its rows, a sink for each query."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import StateError
from eddyline.query.identity import differences
from eddyline.query.steps import tree
from eddyline.report.sections import Section, Text, arranged, notes
from eddyline.spark.run.job import Job
from eddyline.spark.run.run import Run
from eddyline.spark.run.running_query import RunFace, stop_runs
from eddyline.spark.shared.companions import (
    LISTED,
    Checkpoint,
    groups_of,
    last_commit,
    members_of,
    plain,
)
from eddyline.spark.shared.evaluation import Listed
from eddyline.spark.shared.kinds import KINDS
from eddyline.spark.shared.outlet import SharedOutlet, member_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from eddyline.report.metrics import Metric
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import Backlog, BatchRecord
    from eddyline.spark.query import Query
    from eddyline.spark.shared.companions import Start
    from eddyline.spark.shared.evaluation import Evaluation
    from eddyline.spark.shared.outlet import Member

LOOK_EVERY_S = 0.5
"""Time between two looks at a query that others go on without (s)."""

LEAST_WAIT_S = 0.001
"""Spark takes no shorter time to wait (s)."""


def start_together(
    starts: Sequence[Start],
    groups: list[SharedQueries],
    *,
    checkpoint: str | Path | None = None,
    shared: bool = True,
) -> list[RunFace]:
    """Start queries; those over one stream run together where that is the same to each of them.

    Args:
        starts: the queries.
        groups: those that run together; new ones are added, ended ones go.
        checkpoint: folder with one for each query, and one for those that run together.
        shared: False starts each by itself.

    Returns:
        A run for each query, in their order.

    Raises:
        StateError: a query ran together with others under this checkpoint and no longer can.
    """
    runs: dict[str, RunFace] = {}
    notes: dict[str, str] = {}
    groups[:] = [each for each in groups if each.run.isActive]
    place = Checkpoint(checkpoint)
    starts = [place.as_before(start) for start in starts]
    try:
        for kind in KINDS if shared else ():
            own = [start for start in starts if kind.takes(start.query)]
            for group in groups_of(own, kind, place, notes):
                queries = [start.query for start in group.starts]
                evaluation = kind.evaluation(queries, place.gone(group))
                groups.append(SharedQueries(group.starts, evaluation, group.folder))
                runs |= {each.name: each for each in groups[-1].runs}
        for start in starts:
            if start.query.name not in runs:
                runs[start.query.name] = _alone(start, checkpoint, place, notes)
    except BaseException:
        stop_runs(runs.values(), why="a query that was to start with it did not")
        raise
    return [runs[start.query.name] for start in starts]


def _alone(
    start: Start, common: str | Path | None, place: Checkpoint, notes: Mapping[str, str]
) -> Run:
    name = start.query.name
    home = place.homes.get(name)
    if not any(each.takes(start.query) for each in KINDS):
        return start.run(common)
    if start.checkpoint is None and home is not None:
        why = f" (it cannot: {notes[name]})" if name in notes else ""
        msg = (
            f"query {name!r} ran together with others under the checkpoint {home}, which knows "
            f"how far it is; start it with start_all again{why}, or give another checkpoint and "
            f"path to read the stream from its start"
        )
        raise StateError(msg, query=name, path=str(home))
    run = start.run(common)
    if name in notes:
        run.notes += (f"it runs by itself: {notes[name]}",)
    return run


class SharedQueries:
    """Queries over one stream, with one trigger, that run together.

    Raises:
        QueryError: a query of one of the names is running.
    """

    def __init__(
        self, starts: Sequence[Start], evaluation: Evaluation, folder: Path | None
    ) -> None:
        queries = [start.query for start in starts]
        first = queries[0]
        self.stream = first.streams[0]
        self._folder = folder
        for query in queries:
            query.check_not_running()
        self.evaluation = evaluation
        shape = evaluation.shape()
        self.outlet = SharedOutlet(
            member_of(each.query, each.made_sink(), evaluation.projections(each.query), shape)
            for each in starts
        )
        self.outlet.names = lambda: evaluation.names
        rest = f" and {len(queries) - 1} more" if len(queries) > 1 else ""
        job = Job(
            name=f"{first.name}{rest} over {self.stream}",
            text="\n".join(f"{each.name}: {each.text}" for each in queries),
            identity=evaluation.identity,
            source=evaluation.source,
            settings=evaluation.settings,
            operators=lambda _: evaluation.operators(),
            rename="engine.query(…, name='…')",
            recalls=all(each.run_options.recall for each in queries),
        )
        self._listed = dict(members_of(folder) or {})
        self.outlet.begins = self._save_members
        self.run = Run(
            job,
            self.outlet,
            None if folder is None else str(folder),
            starts[0].trigger,
            starts[0].changed,
        )
        self.runs = tuple(SharedQueryRun(self, member) for member in self.outlet.members.values())

    def _save_members(self) -> None:
        """Note whose rows the checkpoint has seen: no other query may go on from it."""
        if self._folder is None:
            return
        done = max(last_commit(self._folder), self.outlet.last_batch)
        gone = {
            name: msgspec.structs.replace(each, until=done if each.until is None else each.until)
            for name, each in self._listed.items()
        }
        here = {
            name: _listed(each.query, self._listed.get(name))
            for name, each in self.outlet.members.items()
        }
        self._listed = gone | here
        path = self._folder / LISTED
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, msgspec.json.format(msgspec.json.encode(self._listed)))
        except OSError as error:
            msg = f"cannot write {path}: {error}; make room or rights"
            raise StateError(msg, path=str(path)) from error

    @property
    def isActive(self) -> bool:
        """Whether they are still running."""
        return self.run.isActive

    def is_running(self, name: str) -> bool:
        """Return whether a query of that name is among those that run."""
        return name in self.outlet.members and self.run.isActive

    def stop(self, names: Collection[str], *, why: str | None = None) -> None:
        """Take queries out, once the micro-batch that is written is done; the last stop all.

        Those that stop all stay in the checkpoint as they are, and go on from there.
        """
        with self.outlet.lock:
            leaving = [name for name in names if name in self.outlet.members]
            is_all = len(leaving) == len(self.outlet.members)
            if leaving and not is_all:
                for name in leaving:
                    del self.outlet.members[name]
                self.evaluation.remove(*leaving)
                if self.run.isActive:
                    self._save_members()
        if is_all:
            # Not under the lock: Spark waits for the micro-batch, which waits for the lock.
            self.run.stop(why=why)


def _listed(query: Query, before: Listed | None) -> Listed:
    """Return a query for the list; an unchanged query keeps its entry."""
    known = None if before is None else before.identity
    if before is not None and known is not None and not differences(known, query.identity):
        return msgspec.structs.replace(before, until=None)
    return Listed(plain(query), written=query.text, identity=query.identity)


class SharedQueryRun(RunFace):
    """One of several queries that run together; behaves like Spark's StreamingQuery."""

    def __init__(self, shared: SharedQueries, member: Member) -> None:
        self.shared = self.group = shared
        self.query = member.query
        self.name = member.name
        self.source = member.query.source
        self.columns = member.query.columns
        self.sink = member.sink
        self.streaming_query = shared.run.streaming_query
        self.steering = shared.run.steering
        self._member = member

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self.query.text

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the query as lines of a tree."""
        return tree(self.query.steps)

    @property
    def _is_in(self) -> bool:
        return self.name in self.shared.outlet.members

    def describe(self) -> list[Section]:
        """Return the explanation of all the queries that run together."""
        said = f"{self._note()}. What follows is of all of them; {self.shared.evaluation.words}."
        lead = Section("", (Text(said[0].upper() + said[1:]),))
        return arranged([lead, *self.shared.run.describe(), *notes(self.sink.notes)])

    def _note(self) -> str:
        n_others = len(self.shared.outlet.members) - self._is_in
        others = "1 other" if n_others == 1 else f"{n_others} others"
        note = f"query {self.name!r} runs together with {others} over {self.shared.stream}"
        if not self._is_in:
            note = f"query {self.name!r} was stopped; {others} run on without it"
        return note

    @property
    def records(self) -> list[BatchRecord]:
        """Records of the micro-batches that the query was there for; see ``RunFace.records``."""
        return self._own(self.shared.run.records)

    def records_after(self, batch_id: int) -> list[BatchRecord]:
        """Return the records of the micro-batches after one, the oldest first."""
        return self._own(self.shared.run.records_after(batch_id))

    def _own(self, records: Sequence[BatchRecord]) -> list[BatchRecord]:
        """Return the records of batches that the query was there for, with its own rows out."""
        return [
            replace(record, n_kept=record.kept_by[self.name])
            for record in records
            if self.name in record.kept_by
        ]

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of all the queries that run together."""
        return self.shared.run.metrics()

    def backlog(self) -> Backlog:
        """Return the input that waits for all the queries that run together."""
        return self.shared.run.backlog()

    def _entries(self) -> tuple[JournalEntry, ...]:
        return self.shared.run._entries()

    def _settings(self) -> Mapping[str, str]:
        return self.shared.run.job.settings

    @property
    def isActive(self) -> bool:
        """Whether the query is still running."""
        return self._is_in and self.shared.run.isActive

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends; see ``RunFace.await_termination``."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while self._is_in:
            left = deadline - time.monotonic()
            if self.shared.run.await_termination(max(LEAST_WAIT_S, min(LOOK_EVERY_S, left))):
                return True
            if left <= 0.0:
                return False
        return True

    def process_all_available(self) -> None:
        """Wait until everything that has arrived is processed; for tests."""
        self.shared.run.process_all_available()

    def _reworded(self, error: BaseException) -> BaseException:
        return self.shared.run._reworded(error)

    def stop(self, *, why: str | None = None) -> None:
        """Stop the query; the others go on. What is written already is finished first."""
        self.shared.stop([self.name], why=why)
