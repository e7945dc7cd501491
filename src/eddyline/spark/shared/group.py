"""Queries over one stream that run together: one pass over its rows, a sink for each query."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.durable_files import replace_file
from eddyline.errors import StateError
from eddyline.query.steps import tree
from eddyline.spark.run.run import Job, Run, has_started
from eddyline.spark.run.running_query import RunFace, stop_runs
from eddyline.spark.shared.kinds import KINDS
from eddyline.spark.shared.outlet import SharedOutlet, member_of
from eddyline.spark.sinks.sinks import folder_of, sink_of
from eddyline.sql.parsing import on_one_line
from eddyline.watch.sections import Section, Text, arranged, notes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.rules.view import RuleView
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.spark.query import Query
    from eddyline.spark.shared.evaluation import Evaluation
    from eddyline.spark.shared.kinds import Kind
    from eddyline.spark.shared.outlet import Member
    from eddyline.spark.sinks.sinks import BatchWriter, Sink

FOLDER = "_shared"
"""Folder of a checkpoint in which queries that run together have one for each stream."""

LISTED = Path("eddyline") / "queries.json"
"""File of a checkpoint that lists the queries that run together."""

LOOK_EVERY_S = 0.5
"""Time between two looks at a query that others go on without (s)."""

LEAST_WAIT_S = 0.001
"""Spark takes no shorter time to wait (s)."""


class Listed(msgspec.Struct, frozen=True):
    """A query in the list of those that run together."""

    text: str
    until: int | None = None
    """The last micro-batch that it has seen, of one that left while others went on."""


@dataclass(frozen=True, slots=True)
class Start:
    """A query that is to be started, and how."""

    query: Any
    sink: str | BatchWriter = "memory"
    path: str | Path | None = None
    format: str | None = None
    options: Mapping[str, Any] | None = None
    checkpoint: str | Path | None = None
    """Its own; without one, the common checkpoint's folder of its name, if there is a common."""
    trigger: str | None = None

    def run(self, common: str | Path | None) -> Run:
        """Start it by itself; its checkpoint is its own, or a folder of the common one."""
        own = self.checkpoint or (common and f"{common}/{self.query.name}")
        run: Run = self.query.start(
            self.sink,
            path=self.path,
            format=self.format,
            options=self.options,
            checkpoint=own,
            trigger=self.trigger,
        )
        return run

    def made_sink(self) -> Sink:
        """Return its sink."""
        return sink_of(self.sink, self.path, self.format, self.options)


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
    try:
        for kind in KINDS if shared else ():
            own = [start for start in starts if kind.takes(start.query)]
            for group in _groups(own, kind, checkpoint, notes):
                folder = _folder(checkpoint, kind.of(group[0].query))
                evaluation = kind.evaluation([start.query for start in group])
                groups.append(SharedQueries(group, evaluation, folder))
                runs |= {each.name: each for each in groups[-1].runs}
        for start in starts:
            if start.query.name not in runs:
                runs[start.query.name] = _alone(start, checkpoint, notes)
    except BaseException:
        stop_runs(runs.values())
        raise
    return [runs[start.query.name] for start in starts]


def _alone(start: Start, checkpoint: str | Path | None, notes: Mapping[str, str]) -> Run:
    name = start.query.name
    kind = next((each for each in KINDS if each.takes(start.query)), None)
    if kind is None:
        return start.run(checkpoint)
    folder = _folder(checkpoint, kind.of(start.query))
    if start.checkpoint is None and name in (_members(folder) or {}):
        why = f" (it cannot: {notes[name]})" if name in notes else ""
        msg = (
            f"query {name!r} ran together with others under the checkpoint {folder}, which knows "
            f"how far it is; start it with start_all again{why}, or give another checkpoint and "
            f"path to read the stream from its start"
        )
        raise StateError(msg, query=name, path=str(folder))
    run = start.run(checkpoint)
    if name in notes:
        run.notes += (f"it runs by itself: {notes[name]}",)
    return run


def _folder(checkpoint: str | Path | None, stream: str) -> Path | None:
    return None if checkpoint is None else folder_of("checkpoint", checkpoint) / FOLDER / stream


def _members(folder: Path | None) -> dict[str, Listed] | None:
    """Return the queries that ran together under a checkpoint, None if none did.

    Raises:
        StateError: the list of them cannot be read.
    """
    if folder is None or not has_started(folder):
        return None
    path = folder / LISTED
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Listed])
    except (OSError, ValueError) as error:
        msg = f"cannot read {path}: {error}; restore it, or use another checkpoint"
        raise StateError(msg, path=str(path)) from error


def _last_commit(folder: Path | None) -> int:
    """Return the last micro-batch that a checkpoint counts as done, -1 if none is."""
    commits = None if folder is None else folder / "spark" / "commits"
    if commits is None or not commits.exists():
        return -1
    return max((int(path.name) for path in commits.iterdir() if path.name.isdigit()), default=-1)


def _groups(
    starts: Sequence[Start], kind: Kind, checkpoint: str | Path | None, notes: dict[str, str]
) -> list[list[Start]]:
    """Return the queries of a kind that run together, and note why others do not."""
    by_stream: dict[tuple[str, str | None], list[Start]] = {}
    for start in starts:
        by_stream.setdefault((kind.of(start.query), start.trigger), []).append(start)
    groups = []
    taken: set[str] = set()
    for (stream, _), members in by_stream.items():
        known = _members(_folder(checkpoint, stream))
        if (len(members) == 1 and known is None) or stream in taken:
            continue
        group: list[Start] = []
        for start in members:
            why = _why_alone(start, kind, checkpoint, known)
            if not why and not kind.fit([*(each.query for each in group), start.query]):
                why = "its windows end where those of others do not"
            if why:
                notes[start.query.name] = why
            else:
                group.append(start)
        if len(group) > 1 or (group and known is not None):
            groups.append(group)
            # Of one stream, the queries of one trigger share a checkpoint.
            taken |= {stream} if checkpoint is not None else set()
    return groups


def _why_alone(
    start: Start, kind: Kind, checkpoint: str | Path | None, known: dict[str, Listed] | None
) -> str:
    """Return the reason why a query runs by itself; "" if it may run with others.

    Raises:
        StateError: one of its name and another text ran with others under the checkpoint.
    """
    query = start.query
    if start.checkpoint is not None:
        return "it has a checkpoint of its own"
    if checkpoint is not None and has_started(Path(checkpoint).absolute() / query.name):
        return "it ran by itself under this checkpoint, which knows how far it is"
    if known is not None and query.name not in known:
        return "others ran together under this checkpoint before it was there"
    was, folder = (known or {}).get(query.name), _folder(checkpoint, kind.of(query))
    if was is not None and was.text != _plain(query):
        msg = (
            f"{folder} is the checkpoint of another query {query.name!r} ({was.text}); this one is "
            f"{_plain(query)}. Give it another name, or the query as it was"
        )
        raise StateError(msg, query=query.name, path=str(folder))
    if was is not None and was.until is not None and was.until < _last_commit(folder):
        return f"it was stopped after batch {was.until}, and others went on without it"
    return kind.why_not(query)


def _plain(query: Query) -> str:
    """Return the text of a query, which is the same whatever its white space is."""
    return on_one_line(query.text)


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
        )
        self._listed = dict(_members(folder) or {})
        self._save_members()
        self.run = Run(
            job,
            self.outlet,
            None if folder is None else str(folder),
            starts[0].trigger,
        )
        self.runs = tuple(SharedQueryRun(self, member) for member in self.outlet.members.values())

    def _save_members(self) -> None:
        """Note whose rows the checkpoint has seen: no other query may go on from it."""
        if self._folder is None:
            return
        done = max(_last_commit(self._folder), self.outlet.last_batch)
        gone = {
            name: Listed(each.text, done if each.until is None else each.until)
            for name, each in self._listed.items()
        }
        here = {name: Listed(_plain(each.query)) for name, each in self.outlet.members.items()}
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

    def stop(self, names: Collection[str]) -> None:
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
            self.run.stop()


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

    def view(self) -> RuleView:
        """Return the evaluation of all the queries that run together, as values."""
        view: RuleView = self.shared.run.view()
        return replace(view, notes=(*view.notes, self._note(), *self.sink.notes))

    def sections(self) -> list[Section]:
        """Return the explanation of all the queries that run together."""
        said = f"{self._note()}. What follows is of all of them; {self.shared.evaluation.words}."
        lead = Section("", (Text(said[0].upper() + said[1:]),))
        return arranged([lead, *self.shared.run.sections(), *notes(self.sink.notes)])

    def _note(self) -> str:
        n_others = len(self.shared.outlet.members) - self._is_in
        others = "1 other" if n_others == 1 else f"{n_others} others"
        note = f"query {self.name!r} runs together with {others} over {self.shared.stream}"
        if not self._is_in:
            note = f"query {self.name!r} was stopped; {others} run on without it"
        return note

    @property
    def records(self) -> list[BatchRecord]:
        """Records of the micro-batches that the query was there for."""
        kept = self._member.kept
        return [
            replace(record, n_kept=kept[record.batch_id])
            for record in self.shared.run.records
            if record.batch_id in kept
        ]

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

    def stop(self) -> None:
        """Stop the query; the others go on. What is written already is finished first."""
        self.shared.stop([self.name])
