"""Which queries run together, and where: what is known of a checkpoint decides, then their kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.errors import StateError
from eddyline.query.identity import differences, in_words
from eddyline.registry import folder_name
from eddyline.runtime.checkpoint import SPARK, newest_batch
from eddyline.spark.run.checkpoint_files import has_started
from eddyline.spark.shared.evaluation import Listed
from eddyline.spark.sinks.sinks import folder_of, sink_of
from eddyline.sql.parsing import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.runtime.checkpoint import Changed
    from eddyline.spark.query import Query
    from eddyline.spark.relation import Relation
    from eddyline.spark.run.run import Run
    from eddyline.spark.shared.kinds import Kind
    from eddyline.spark.sinks.sinks import BatchWriter, Sink

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

    def run(self, common: str | Path | None) -> Run:
        """Start it by itself; its checkpoint is its own, or a folder of the common one."""
        own = self.checkpoint or (common and f"{common}/{folder_name(self.query.name)}")
        run: Run = self.query.start(
            self.sink,
            path=self.path,
            format=self.format,
            options=self.options,
            checkpoint=own,
            trigger=self.trigger,
            changed=self.changed,
        )
        return run

    def made_sink(self) -> Sink:
        """Return its sink."""
        return sink_of(self.sink, self.path, self.format, self.options)


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
        self.homes: dict[str, Path] = {}
        """The folder in which a query ran together with others, by its name."""
        self._known: dict[Path, Mapping[str, Listed]] = {}
        for folder in folders:
            known = members_of(folder)
            if known is not None:
                self._known[folder] = known
                self.homes |= dict.fromkeys(known, folder)

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
        here = {each.query.name for each in group.starts}
        known = {} if group.folder is None else self._known.get(group.folder, {})
        return {name: each for name, each in known.items() if name not in here}

    def is_known(self, folder: Path | None) -> bool:
        """Return whether queries ran together in a folder."""
        return folder in self._known


def groups_of(
    starts: Sequence[Start], kind: Kind, checkpoint: Checkpoint, notes: dict[str, str]
) -> list[Group]:
    """Return the queries of a kind that run together, and note why others do not.

    Those that ran together go on so; the others are together as their kind says.
    """
    able: list[Start] = []
    newest = {each.query.streams[0]: _stream_of(each) for each in starts}
    for start in starts:
        why = _why_alone(start, kind, checkpoint)
        if not why and _stream_of(start) is not newest[start.query.streams[0]]:
            why = "its stream has been replaced, and others read the new one"
        if why:
            notes[start.query.name] = why
        else:
            able.append(start)
    groups: list[Group] = []
    for (name, _), members in _by_folder(able, kind, checkpoint).items():
        folder = checkpoint.folder(name)
        is_known = checkpoint.is_known(folder)
        if folder is not None and folder in [each.folder for each in groups]:
            continue  # of one folder, the queries of one trigger share a checkpoint
        group = _fitting(members, kind, checkpoint, notes, is_known=is_known)
        if len(group) > 1 or (group and is_known):
            groups.append(Group(tuple(group), folder))
        elif len(members) == 1 and group and _has_others(group[0], able):
            notes[group[0].query.name] = kind.why_lone(group[0].query)
    return groups


def _by_folder(
    starts: Iterable[Start], kind: Kind, checkpoint: Checkpoint
) -> dict[tuple[str, str | None], list[Start]]:
    """Return queries by the name of their common folder, and by trigger."""
    homes = {name: folder.name for name, folder in checkpoint.homes.items()}
    by_trigger: dict[str | None, list[Start]] = {}
    for start in starts:
        by_trigger.setdefault(start.trigger, []).append(start)
    found: dict[tuple[str, str | None], list[Start]] = {}
    for trigger, own in by_trigger.items():
        new = [each.query for each in own if each.query.name not in homes]
        names = homes | kind.together(new)
        for start in own:
            found.setdefault((names[start.query.name], trigger), []).append(start)
    return found


def _fitting(
    members: Sequence[Start],
    kind: Kind,
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
        elif not kind.fit([*(each.query for each in group), start.query]):
            notes[name] = "its windows end where those of others do not"
        else:
            group.append(start)
    return group


def _stream_of(start: Start) -> Relation:
    """Return the stream of a query."""
    found: Relation = start.query.relations[start.query.streams[0]]
    return found


def _has_others(start: Start, starts: Iterable[Start]) -> bool:
    """Return whether there are other queries over the stream of one."""
    return any(
        each is not start and each.query.streams[0] == start.query.streams[0] for each in starts
    )


def _why_alone(start: Start, kind: Kind, checkpoint: Checkpoint) -> str:
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
