"""Queries over one stream that run together.

One pass over the rows serves a sink for each query.

In reading order:

1. ``Start`` and ``Checkpoint``: a query that is to be started, and what a checkpoint knows of who
   ran together under it. A list in the checkpoint has them, with the last batch of those that left.
2. ``groups_of``: which queries run together. The checkpoint decides first: who ran together goes
   on so, and who ran alone stays alone, because only its own checkpoint knows how far it is. Of the
   others their kind of scan decides.
3. ``start_together`` starts groups and the queries that run by themselves.
4. ``SharedQueries`` is one ``Run`` of a shared scan with a sink router; ``SharedQueryRun`` is each
   of its queries as a run of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import OptionError, PlanError, StateError
from eddyline.query.identity import differences, in_words
from eddyline.query.steps import tree
from eddyline.registry import folder_name, unknown
from eddyline.report.sections import SOURCES, Node, Section, Text, arranged, notes
from eddyline.runtime.checkpoint import SPARK, newest_batch
from eddyline.spark.run.checkpoint_files import has_started
from eddyline.spark.run.job import Job
from eddyline.spark.run.run import Run
from eddyline.spark.run.running_query import RunFace, stop_runs
from eddyline.spark.shared.joins import SharedJoins
from eddyline.spark.shared.router import SinkRouter, member_of
from eddyline.spark.shared.scans import Listed, SharedAggregates, SharedFilters, SharedModels
from eddyline.spark.sinks.sinks import folder_of, sink_of
from eddyline.sql.parsing import on_one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from eddyline.report.metrics import Metric
    from eddyline.runtime.checkpoint import Changed
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import Backlog, BatchRecord
    from eddyline.spark.query import Query
    from eddyline.spark.shared.router import Member
    from eddyline.spark.shared.scans import SharedScan
    from eddyline.spark.sinks.sinks import BatchWriter

SCANS: tuple[type[SharedScan], ...] = (
    SharedFilters,
    SharedAggregates,
    SharedModels,
    SharedJoins,
)
"""The kinds of shared scans; a query is of the first that takes it."""

ALL = "all"
"""Value of ``shared``: also where sharing was measured to take longer; see ``why_dear``."""

Shared = bool | Literal["all"]

FOLDER = "_shared"
"""Folder of a checkpoint in which queries that run together have one."""

LISTED = Path("eddyline") / "queries.json"
"""File of a checkpoint that lists the queries that run together."""


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
    changed: Changed | None = None
    others: Mapping[str, Any] | None = None
    """Arguments that only some sinks take."""

    def run(self, common: str | Path | None) -> Run:
        """Start it by itself; its checkpoint is its own, or a folder of the common one."""
        checkpoint = self.checkpoint or (common and f"{common}/{folder_name(self.query.name)}")
        run: Run = self.query.start(
            self.sink,
            path=self.path,
            format=self.format,
            options=self.options,
            checkpoint=checkpoint,
            trigger=self.trigger,
            changed=self.changed,
            **(self.others or {}),
        )
        return run


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that run together."""

    starts: tuple[Start, ...]
    folder: Path | None
    """Their common checkpoint; None if nothing is kept."""


class Checkpoint:
    """The folder of queries that are started at once, and who ran together under it.

    Args:
        path: the folder; None if nothing is kept.

    Raises:
        StateError: a list of those that ran together cannot be read.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._root = None if path is None else folder_of("checkpoint", path) / FOLDER
        root = self._root
        folders = sorted(root.iterdir()) if root is not None and root.is_dir() else []
        members = {folder: members_of(folder) for folder in folders}
        self._known = {folder: listed for folder, listed in members.items() if listed is not None}
        self.homes = {name: folder for folder, listed in self._known.items() for name in listed}
        """The folder in which a query ran together with others, by its name."""

    def has_run(self, name: str) -> bool:
        """Return whether a query ran by itself."""
        return self.path is not None and has_started(self.path / folder_name(name))

    def listed(self, name: str) -> Listed | None:
        """Return what is known of a query that ran together with others; None if it did not."""
        home = self.homes.get(name)
        return None if home is None else self._known[home][name]

    def as_before(self, start: Start) -> Start:
        """Return a query with the names and orders in the files of its common checkpoint."""
        listed = self.listed(start.query.name)
        if listed is None or start.checkpoint is not None:
            return start
        return replace(start, query=start.query.as_before(listed.identity))

    def folder(self, name: str) -> Path | None:
        """Return the folder of queries that run together."""
        return None if self._root is None else self._root / folder_name(name)

    def gone(self, group: Group) -> dict[str, Listed]:
        """Return the queries that ran together with some and are not among them, by their names."""
        here = {start.query.name for start in group.starts}
        members = {} if group.folder is None else self._known.get(group.folder, {})
        return {name: listed for name, listed in members.items() if name not in here}

    def is_known(self, folder: Path | None) -> bool:
        """Return whether queries ran together in a folder."""
        return folder in self._known


def groups_of(
    starts: Sequence[Start],
    kind: type[SharedScan],
    checkpoint: Checkpoint,
    notes: dict[str, str],
    shared: Shared = True,
) -> list[Group]:
    """Return the queries of a kind that run together, and note why others do not.

    Those that ran together go on so; the others are together as their kind says.
    """
    able: list[Start] = []
    newest = {
        name: relation for start in starts for name, relation in start.query.relations.items()
    }
    for start in starts:
        why = _why_alone(start, kind, checkpoint)
        if not why and shared != ALL and start.query.name not in checkpoint.homes:
            why = kind.why_dear(start.query)
        if not why and any(
            relation is not newest[name] for name, relation in start.query.relations.items()
        ):
            why = "its stream has been replaced, and others read the new one"
        if why:
            notes[start.query.name] = why
        else:
            able.append(start)
    groups: list[Group] = []
    for (name, _), members in _by_folder(able, kind, checkpoint).items():
        folder = checkpoint.folder(name)
        is_known = checkpoint.is_known(folder)
        if folder is not None and folder in [group.folder for group in groups]:
            continue  # of one folder, the queries of one trigger share a checkpoint
        group = _fitting(members, kind, checkpoint, notes, is_known=is_known)
        if len(group) > 1 or (group and is_known):
            groups.append(Group(tuple(group), folder))
        elif len(members) == 1 and group:
            (lone,) = group
            streams = {*lone.query.streams}
            if any(start is not lone and {*start.query.streams} == streams for start in able):
                notes[lone.query.name] = kind.why_lone(lone.query)
    return groups


def _by_folder(
    starts: Iterable[Start], kind: type[SharedScan], checkpoint: Checkpoint
) -> dict[tuple[str, str | None], list[Start]]:
    """Return queries by the name of their common folder, and by trigger."""
    homes = {name: folder.name for name, folder in checkpoint.homes.items()}
    by_trigger: dict[str | None, list[Start]] = {}
    for start in starts:
        by_trigger.setdefault(start.trigger, []).append(start)
    by_folder: dict[tuple[str, str | None], list[Start]] = {}
    for trigger, same_trigger in by_trigger.items():
        new = [start.query for start in same_trigger if start.query.name not in homes]
        names = homes | kind.folders(new)
        for start in same_trigger:
            by_folder.setdefault((names[start.query.name], trigger), []).append(start)
    return by_folder


def _fitting(
    members: Sequence[Start],
    kind: type[SharedScan],
    checkpoint: Checkpoint,
    notes: dict[str, str],
    *,
    is_known: bool,
) -> list[Start]:
    """Return those that are worth running together, and note why the others are not."""
    group: list[Start] = []
    for start in members:
        name = start.query.name
        if is_known and name not in checkpoint.homes:
            notes[name] = "others ran together under this checkpoint before it was there"
        elif not kind.fit([*(other.query for other in group), start.query]):
            notes[name] = kind.unfit
        else:
            group.append(start)
    return group


def _why_alone(start: Start, kind: type[SharedScan], checkpoint: Checkpoint) -> str:
    """Return the reason why a query runs by itself; "" if it may run with others.

    Raises:
        StateError: one of its name and another text ran with others under the checkpoint.
    """
    query = start.query
    if start.checkpoint is not None:
        return "it has a checkpoint of its own"
    if checkpoint.has_run(query.name):
        return "it ran by itself under this checkpoint, which knows how far it is"
    was = checkpoint.listed(query.name)
    folder = checkpoint.homes.get(query.name)
    if was is not None and start.changed is None and (words := _changes(was, query)):
        msg = (
            f"{folder} is the checkpoint of another query {query.name!r} ({was.text}); this one is "
            f"{plain(query)}: {words}. Give it another name, or the query as it was; or go on with "
            f"the new one where the other one stopped: start_all(…, changed='keep_state'), or "
            f"'reset'"
        )
        raise StateError(msg, query=query.name, path=str(folder))
    if was is not None and was.until is not None and was.until < last_commit(folder):
        return f"it was stopped after batch {was.until}, and others went on without it"
    return kind.why_not(query)


def _changes(was: Listed, query: Query) -> str:
    """Return how a query differs from a listed one, in words; empty if both are the same."""
    if was.identity is None:
        return "" if was.text == plain(query) else "its text is another one"
    return in_words(differences(was.identity, query.identity))


def plain(query: Query) -> str:
    """Return the text of a query, which is the same whatever its white space is."""
    return on_one_line(query.text)


def members_of(folder: Path | None) -> dict[str, Listed] | None:
    """Return the queries that ran together under a checkpoint, None if none did.

    Raises:
        StateError: the list of them cannot be read.
    """
    if folder is None or not has_started(folder):
        return None
    path = folder / LISTED
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Listed])
    except (OSError, ValueError, RecursionError) as error:
        msg = f"cannot read {path}: {error}; restore it, or use another checkpoint"
        raise StateError(msg, path=str(path)) from error


def last_commit(folder: Path | None) -> int:
    """Return the last micro-batch that a checkpoint counts as done, -1 if none is."""
    return -1 if folder is None else newest_batch(folder / SPARK / "commits")


LOOK_EVERY_S = 0.5
"""Time between two looks at a query that others go on without (s)."""

LEAST_WAIT_S = 0.001
"""Spark takes no shorter time to wait (s)."""


def start_together(
    starts: Sequence[Start],
    groups: list[SharedQueries],
    *,
    checkpoint: str | Path | None = None,
    shared: Shared = True,
) -> list[RunFace]:
    """Start queries; those over one stream run together where that is the same to each of them.

    Args:
        starts: the queries.
        groups: those that run together; new ones are added, ended ones go.
        checkpoint: folder with one for each query, and one for those that run together.
        shared: False starts each by itself; ``"all"`` also lets those run together of which that
            was measured to take longer.

    Returns:
        A run for each query, in their order.

    Raises:
        OptionError: ``shared`` is something else.
        StateError: a query ran together with others under this checkpoint and no longer can.
    """
    if shared not in (True, False, ALL):
        msg = f"option 'shared' is True, False or 'all', got {shared!r}"
        raise OptionError(msg, name="shared", value=shared)
    runs: dict[str, RunFace] = {}
    notes: dict[str, str] = {}
    groups[:] = [group for group in groups if group.run.isActive]
    place = Checkpoint(checkpoint)
    starts = [place.as_before(start) for start in starts]
    try:
        for kind in SCANS if shared else ():
            taken = [
                start
                for start in starts
                if kind.takes(start.query) and not start.query.reads_system
            ]
            for group in groups_of(taken, kind, place, notes, shared):
                queries = [start.query for start in group.starts]
                scan = kind(queries, place.gone(group))
                groups.append(SharedQueries(group.starts, scan, group.folder))
                runs |= {run.name: run for run in groups[-1].runs}
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
    if start.query.reads_system or not any(kind.takes(start.query) for kind in SCANS):
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

    def __init__(self, starts: Sequence[Start], scan: SharedScan, folder: Path | None) -> None:
        queries = [start.query for start in starts]
        first = queries[0]
        self.stream = " and ".join(first.streams)
        self._folder = folder
        for query in queries:
            query.check_not_running()
        self.scan = scan
        shape = scan.shape()
        self.router = SinkRouter(
            member_of(
                start.query,
                sink_of(
                    start.sink,
                    start.path,
                    start.format,
                    start.options,
                    start.others,
                    query=start.query.name,
                    member=start.query.name,
                ),
                scan.projections(start.query),
                shape,
                may_be_table=scan.may_give_table,
            )
            for start in starts
        )
        self.router.names = lambda: scan.names
        rest = f" and {len(queries) - 1} more" if len(queries) > 1 else ""
        job = Job(
            name=f"{first.name}{rest} over {self.stream}",
            text="\n".join(f"{query.name}: {query.text}" for query in queries),
            identity=scan.identity,
            source=scan.source,
            settings=scan.settings,
            operators=lambda _: scan.operators(),
            nodes=_nodes(queries, scan),
            rename="engine.query(…, name='…')",
            recalls=all(query.run_options.recall for query in queries),
            watched=tuple(dict(pair for query in queries for pair in query.watched).items()),
        )
        self._listed = dict(members_of(folder) or {})
        self.router.begins = self._save_members
        self.run = Run(
            job,
            self.router,
            None if folder is None else str(folder),
            starts[0].trigger,
            starts[0].changed,
        )
        self.runs = tuple(SharedQueryRun(self, member) for member in self.router.members.values())

    def _save_members(self) -> None:
        """Note whose rows the checkpoint has seen: no other query may go on from it."""
        if self._folder is None:
            return
        done = max(last_commit(self._folder), self.router.last_batch)
        gone = {
            name: msgspec.structs.replace(
                listed, until=done if listed.until is None else listed.until
            )
            for name, listed in self._listed.items()
        }
        here = {
            name: _listed(member.query, self._listed.get(name))
            for name, member in self.router.members.items()
        }
        self._listed = gone | here
        path = self._folder / LISTED
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, msgspec.json.format(msgspec.json.encode(self._listed)))
        except OSError as error:
            msg = f"cannot write {path}: {error}; free space, or give write permission"
            raise StateError(msg, path=str(path)) from error

    @property
    def isActive(self) -> bool:
        """Whether they are still running."""
        return self.run.isActive

    def is_running(self, name: str) -> bool:
        """Return whether a query of that name is among those that run."""
        return name in self.router.members and self.run.isActive

    def stop(self, names: Collection[str], *, why: str | None = None) -> None:
        """Take queries out, once the micro-batch that is written is done; the last stop all.

        Those that stop all stay in the checkpoint as they are, and go on from there.
        """
        with self.router.lock:
            leaving = [name for name in names if name in self.router.members]
            is_all = len(leaving) == len(self.router.members)
            if leaving and not is_all:
                for name in leaving:
                    del self.router.members[name]
                self.scan.remove(*leaving)
                if self.run.isActive:
                    self._save_members()
        if is_all:
            # Not under the lock: Spark waits for the micro-batch, which waits for the lock.
            self.run.stop(why=why)


def _nodes(queries: Sequence[Query], scan: SharedScan) -> tuple[Node, ...]:
    """Return the graph of queries that run together: streams, the shared step, each query."""
    sources = [node for node in queries[0].nodes if node.kind in SOURCES]
    inputs = tuple((node.id, node.name) for node in sources)
    shared = Node("shared", scan.kind, "", f"{scan.kind} {scan.words}", inputs)
    results = (
        Node(query.name, "project", query.name, f"project {query.name}", (("shared", ""),))
        for query in queries
    )
    return (*sources, shared, *results)


def _listed(query: Query, before: Listed | None) -> Listed:
    """Return a query for the list; an unchanged query keeps its entry."""
    identity = None if before is None else before.identity
    if before is not None and identity is not None and not differences(identity, query.identity):
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
        self.settings = shared.run.settings
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
    def nodes(self) -> tuple[Node, ...]:
        """The steps as a graph."""
        return self.query.nodes

    @property
    def _is_in(self) -> bool:
        return self.name in self.shared.router.members

    def describe(self) -> list[Section]:
        """Return the explanation of all the queries that run together."""
        text = f"{self._note()}. What follows is of all of them; {self.shared.scan.words}."
        lead = Section("", (Text(text[0].upper() + text[1:]),))
        return arranged([lead, *self.shared.run.describe(), *notes(self.sink.notes)])

    def _note(self) -> str:
        n_others = len(self.shared.router.members) - self._is_in
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

    def rejected(self, name: str) -> pa.Table:
        """Return the newest values that a stream could not read; see ``RunFace.rejected``."""
        return self.shared.run.rejected(name)

    @property
    def decisions(self) -> tuple[JournalEntry, ...]:
        """Every decision about all the queries that run together."""
        return self.shared.run.decisions

    # -- plans of its own, beside those that it shares -------------------------------------------

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, without those of other queries."""
        return {name: plan for name, plan in super().plan().items() if self._is_own(name)}

    def pin(self, plan: Any = None, *, component: str | None = None) -> None:
        """Keep plans in force; those of other queries are not meant. See ``RunFace.pin``."""
        if not self.shared.scan.has_own_plans:
            super().pin(plan, component=component)
            return
        plans = self.plan()
        if component is not None:
            component = self._called(component, plans)
            plan = plans[component] if plan is None else plan
        elif isinstance(plan, Mapping):
            plan = {self._called(str(name), plans): its_plan for name, its_plan in plan.items()}
        elif plan is None:
            plan = plans
        super().pin(plan, component=component)

    def adapt(self, component: str | None = None) -> None:
        """Let plans follow the evidence again; those of other queries are not meant."""
        if not self.shared.scan.has_own_plans:
            super().adapt(component)
            return
        plans = self.plan()
        names = [*plans] if component is None else [self._called(component, plans)]
        for name in names:
            super().adapt(name)

    def _is_own(self, name: str) -> bool:
        """Return whether a component is that of the query, or of all."""
        owner = name.rpartition(" of ")[2]
        others = {run.name for run in self.shared.runs} - {self.name}
        return not self.shared.scan.has_own_plans or owner not in others

    def _called(self, name: str, plans: Mapping[str, Any]) -> str:
        """Return the name of a component, which may lack that of the query.

        Raises:
            PlanError: there is none.
        """
        component = next(
            (candidate for candidate in (name, f"{name} of {self.name}") if candidate in plans),
            None,
        )
        if component is None:
            raise PlanError(unknown("component", name, [*plans]), component=name)
        return component

    @property
    def isActive(self) -> bool:
        """Whether the query is still running."""
        return self._is_in and self.shared.run.isActive

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends; see ``RunFace.await_termination``."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while self._is_in:
            remaining_s = deadline - time.monotonic()
            if self.shared.run.await_termination(max(LEAST_WAIT_S, min(LOOK_EVERY_S, remaining_s))):
                return True
            if remaining_s <= 0.0:
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
