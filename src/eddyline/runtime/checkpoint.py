"""Folder of a checkpoint: eddyline's files beside those of Spark.

``CHECKPOINT/spark`` is Spark's, ``CHECKPOINT/eddyline`` is ours. Several queries that start
together have a checkpoint each, in folders of a common one; see ``find_runs``. Read this file in
its order:

1. **Layout.** The names of files and folders. ``Format`` numbers the layout. A run refuses the
   checkpoint of a later version.
2. **Query.** ``resumed`` says how a query goes on from a checkpoint: whether it is the stored
   query, and what a changed query does with the state.
3. **Learned state.** ``SnapshotFile`` saves it with each batch. Learned state belongs to one query;
   the state of another query is dropped. The state may be one batch older than the stream. That
   changes the work of a batch, never an answer.
4. **Lock.** ``FolderLock`` lets one run write, over all processes. The kernel holds the lock
   (``flock``) until the process that took it ends. So a crashed or killed process never blocks the
   next one, and nobody has to remove a lock by hand. The file names the owner, for the error of a
   second run.

Invariant: every file is replaced atomically, and an unreadable one is an error that names the file.
Only learned state that cannot be read is dropped.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import OptionError, QueryError, StateError
from eddyline.query.identity import Identity, differences, hash_of, in_words
from eddyline.registry import unknown
from eddyline.runtime.records import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

StructT = TypeVar("StructT")

SPARK, OWN = "spark", "eddyline"
"""The two folders of a checkpoint."""

JOURNAL, PROGRESS, VIEW = "journal.jsonl", "progress.jsonl", "view.json"
"""For people: decisions, batches, and how the run stood last."""

LEARNED, STATE = "state.json", "state"
"""What was learned, and the folder of durable state."""

QUERY = "query.json"
"""The query that the checkpoint belongs to; see ``QueryFile``."""

PINS = "pins.json"
"""Plans that a person has pinned; no file before the first."""

LOCK = "lock"
"""The file that locks the folder; it names the run that has the lock."""

FORMAT_FILE = "format.json"
"""The version of the format of a checkpoint, and who wrote it."""

FORMAT = 1
"""Number of the layout of this folder. It grows when a file changes in a way that versions before
cannot read. State has numbers of its own as well: learned state of another number is dropped,
durable state of another number is refused (``LEARNED_FORMAT``, ``state.manifest``)."""

MAX_DEPTH = 4
"""Folders below a common one in which checkpoints are looked for."""


def own_folder(checkpoint: str | Path) -> Path:
    """Return the folder of what eddyline keeps.

    Raises:
        StateError: the folder is no checkpoint.
    """
    run_folder = Path(checkpoint) / OWN
    if not run_folder.is_dir():
        msg = (
            f"{checkpoint} is no checkpoint of eddyline: it has no folder {OWN}/; give the folder "
            f"that a query was started with"
        )
        raise StateError(msg, path=str(checkpoint))
    return run_folder


class Format(msgspec.Struct, frozen=True):
    """The content of the file; the fields that every version has."""

    format: int
    eddyline: str
    """Version that wrote it."""


def read_format(folder: Path) -> Format | None:
    """Return the format of a checkpoint; None before the first version that wrote one.

    Args:
        folder: the folder that eddyline keeps.

    Raises:
        StateError: it is of a later version, or cannot be read.
    """
    path = folder / FORMAT_FILE
    stored = read_struct(
        path,
        Format,
        f"restore it from a backup, or remove it if the checkpoint is of eddyline "
        f"{version('eddyline')} or older",
    )
    if stored is not None and stored.format > FORMAT:
        msg = (
            f"the checkpoint {folder.parent} is of format {stored.format}, written by eddyline "
            f"{stored.eddyline}; this is eddyline {version('eddyline')}, which reads formats up to "
            f"{FORMAT}: install eddyline {stored.eddyline} or newer, or start the query with an "
            f"empty checkpoint"
        )
        raise StateError(msg, path=str(path), format=stored.format)
    return stored


def read_struct(path: Path, kind: type[StructT], advice: str, what: str = "") -> StructT | None:
    """Return the contents of a JSON file; None if there is no such file.

    Args:
        path: of the file.
        kind: the type of its contents.
        advice: what to do if it cannot be read.
        what: stands before the path in the error, such as "the view ".

    Raises:
        StateError: it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        msg = f"cannot read {what}{path}: {error}; {advice}"
        raise StateError(msg, path=str(path)) from error


def write_format(folder: Path) -> None:
    """Note the format of a checkpoint that this version goes on with.

    Raises:
        StateError: the checkpoint is of a later version, or cannot be written.
    """
    new = Format(FORMAT, version("eddyline"))
    if read_format(folder) == new:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / FORMAT_FILE, msgspec.json.encode(new))
    except OSError as error:
        msg = (
            f"cannot write to the checkpoint {folder}: {error}; free space, or give write "
            f"permission"
        )
        raise StateError(msg, path=str(folder)) from error


def newest_batch(log: Path) -> int:
    """Return the newest micro-batch in a folder of Spark's log; -1 if there is none.

    Args:
        log: ``offsets``, of batches that began, or ``commits``, of those that are done.
    """
    names = (path.name for path in log.glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def find_runs(folder: str | Path) -> list[Path]:
    """Return the checkpoints of runs in a folder, by name: itself, or those of queries below it.

    Raises:
        StateError: there is none.
    """
    root, checkpoints = Path(folder), []
    for name, inner, _ in os.walk(root):
        here = Path(name)
        if (here / OWN / JOURNAL).is_file():
            checkpoints.append(here)
            inner.clear()
        elif len(here.relative_to(root).parts) >= MAX_DEPTH:
            inner.clear()
    if not checkpoints:
        msg = (
            f"{folder} holds no checkpoint of eddyline; give the folder that queries were started "
            f"with"
        )
        raise StateError(msg, path=str(folder))
    return sorted(checkpoints)


# -- the query ---------------------------------------------------------------------------------

Changed = Literal["keep_state", "reset"]
"""What a changed query does with a checkpoint.

``keep_state`` keeps the state. ``reset`` empties the state and forgets what was learned. Both go on
after the last batch; no row is read again."""


class QueryFile(msgspec.Struct):
    """Contents of the file."""

    query: Identity
    """The query that goes on from the checkpoint."""
    before: tuple[str, ...] = ()
    """Hashes of the earlier queries whose state it keeps; see ``hash_of``."""
    empty_until: int = -1
    """The last batch before the reset of state; -1 without a reset."""


class Resumed(msgspec.Struct, frozen=True):
    """How a query goes on from a checkpoint."""

    file: QueryFile
    """Contents that the file gets."""
    stored: Identity | None
    """The query that the file had; None if there was none."""
    changes: str = ""
    """How the query differs from the stored one, in words; empty if both mean the same."""
    functions: tuple[str, ...] = ()
    """Python functions whose code has changed."""
    resets: bool = False
    """Whether the state must be removed."""


def checked_changed(changed: str | None) -> Changed | None:
    """Return a valid value of the option ``changed``.

    Raises:
        OptionError: the value is unknown.
    """
    if changed is None or changed in get_args(Changed):
        return changed  # type: ignore[return-value]
    msg = unknown("way to go on with a changed query", str(changed), get_args(Changed))
    raise OptionError(msg, changed=changed)


def resumed(folder: Path, query: Identity, changed: Changed | None, *, last_batch: int) -> Resumed:
    """Return how a query goes on from a checkpoint; write nothing.

    Args:
        folder: the folder that eddyline keeps in the checkpoint.
        query: the query that starts.
        changed: what a changed query does with the checkpoint.
        last_batch: the last finished batch.

    Raises:
        StateError: the query has changed and ``changed`` is None, its state does not fit, or a file
            cannot be read.
    """
    path = folder / QUERY
    file = _read_query(path)
    if file is None:
        return _of_text(folder, query, changed, last_batch)
    changes, now = differences(file.query, query), query
    before = tuple(dict.fromkeys([*file.before, hash_of(file.query.mark)]))
    functions = tuple(
        name
        for name, code in query.functions.items()
        if name in file.query.functions and code.differs(file.query.functions[name])
    )
    words = in_words(changes)
    if changes and changed is None:
        raise _of_another(folder, file.query.text, query, words)
    # State has event times as an earlier version read wall clocks.
    new_clocks = {*query.wall_clocks} - {*file.query.wall_clocks}
    is_shifted = query.is_stateful and bool(new_clocks)
    if is_shifted and changed != "reset":
        raise _of_another_clock(folder, query)
    words = words or _WALL_CLOCKS * is_shifted
    if not changes and file.query.parser == query.parser:
        # Files keep the names and orders of the text that began the checkpoint.
        query = msgspec.structs.replace(
            file.query,
            facts=query.facts,
            functions=query.functions,
            wall_clocks=query.wall_clocks,
        )
    if changed == "reset" and (changes or functions or is_shifted):
        return Resumed(QueryFile(query, (), last_batch), file.query, words, functions, True)
    kept = [change for change in changes if change.is_kept]
    if kept and (query.is_stateful or file.query.is_stateful):
        msg = (
            f"{folder.parent} has state that does not fit the changed query: {in_words(kept)}. "
            f"Start it with changed='reset', which empties the state, or with another checkpoint "
            f"and path"
        )
        raise StateError(msg, path=str(path), query=file.query.text)
    _check_layout(folder, file.query, now)
    return Resumed(QueryFile(query, before, file.empty_until), file.query, words, functions)


_WALL_CLOCKS = "event times of type TIMESTAMP_NTZ are wall clocks"


def _of_another_clock(folder: Path, query: Identity) -> StateError:
    msg = (
        f"{folder.parent} has state of an earlier version, which read the event times of "
        f"{', '.join(query.wall_clocks)} (TIMESTAMP_NTZ) in the time zone of the session; they are "
        f"wall clocks now. Start the query with another checkpoint and path, or with "
        f"changed='reset', which empties the state"
    )
    return StateError(msg, path=str(folder / QUERY), streams=query.wall_clocks)


def _check_layout(folder: Path, before: Identity, now: Identity) -> None:
    """Check that files of durable state have the names and orders of a query.

    Raises:
        StateError: they have other names or orders.
    """
    is_known = before.parser == now.parser or before.text != now.text
    if now.is_stateful and is_known and before.layout != now.layout:
        msg = (
            f"{folder.parent} has state of a query that calls its inputs otherwise, or names "
            f"columns, keys or aggregates in another order ({before.text}); this one is "
            f"{now.text}. Write what has not changed as it was, or start it with changed='reset', "
            f"which empties the state"
        )
        raise StateError(msg, path=str(folder / QUERY), query=before.text)


def stored_query(checkpoint: str | Path) -> Identity | None:
    """Return the query that a checkpoint belongs to; None if it belongs to none yet.

    Raises:
        StateError: the file cannot be read.
    """
    file = _read_query(Path(checkpoint) / OWN / QUERY)
    return None if file is None else file.query


def write_query(folder: Path, file: QueryFile) -> None:
    """Write the file, unless it has these contents.

    Raises:
        StateError: the file cannot be written.
    """
    path, content = folder / QUERY, msgspec.json.encode(file)
    try:
        if not path.exists() or path.read_bytes() != content:
            replace_file(path, content)
    except OSError as error:
        msg = f"cannot write {path}: {error}; free space, or give write permission"
        raise StateError(msg, path=str(path)) from error


def _read_query(path: Path) -> QueryFile | None:
    return read_struct(path, QueryFile, "restore it from a backup, or give another checkpoint")


def _of_text(folder: Path, query: Identity, changed: Changed | None, last_batch: int) -> Resumed:
    """Return how a query goes on from a checkpoint of a version that stored only its text."""
    theirs = identity_in(folder / LEARNED)
    file = QueryFile(query, (hash_of(query.legacy),) if query.legacy else ())
    if query.wall_clocks and changed != "reset":
        raise _of_another_clock(folder, query)
    if query.wall_clocks:
        return Resumed(QueryFile(query, (), last_batch), None, _WALL_CLOCKS, (), True)
    if theirs is None or theirs.rsplit(" #", 1)[0] == query.legacy.rsplit(" #", 1)[0]:
        return Resumed(file, None)
    words = f"the text was {theirs.rsplit(' #', 1)[0]} and is {query.text}"
    if changed is None:
        raise _of_another(folder, theirs, query, "its text is another one")
    if changed == "reset":
        return Resumed(QueryFile(query, (), last_batch), None, words, (), True)
    if query.is_stateful:
        msg = (
            f"{folder.parent} was written by an earlier version of eddyline, which did not note "
            f"what its state is of; start the query once as it was, and then the changed one with "
            f"changed='keep_state'"
        )
        raise StateError(msg, path=str(folder), query=theirs)
    return Resumed(file, None, words)


def _of_another(folder: Path, theirs: str, query: Identity, words: str) -> StateError:
    msg = (
        f"{folder.parent} is the checkpoint of another query ({theirs}); this one is {query.text}: "
        f"{words}. Give another checkpoint and path, or the query as it was; to go on with the new "
        f"one where the other one stopped, start it with changed='keep_state' (its state is kept), "
        f"or changed='reset' (its state is emptied)"
    )
    return StateError(msg, path=str(folder / QUERY), query=theirs, changes=words)


# -- learned state -----------------------------------------------------------------------------

LEARNED_FORMAT = 4
"""Version of the file of learned state; another one is not read."""


class Head(msgspec.Struct):
    """The part of a file that every format has."""

    format: int
    batch_id: int = -1
    """The last batch of which it knows."""


class _Named(Head):
    """The part that names the query."""

    identity: str = ""


def identity_in(path: Path) -> str | None:
    """Return the mark of the query that a file belongs to; None without a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Named).identity or None
    except (OSError, ValueError, RecursionError):
        return None


class Saved(msgspec.Struct):
    """Contents of the file."""

    format: int
    identity: str
    batch_id: int
    state: dict[str, Any]
    """By operator: what its ``snapshot`` returned."""
    counters: Counters = msgspec.field(default_factory=Counters)
    """Counts over the whole life of the query."""


class SnapshotFile:
    """The learned state of one run as a JSON file, replaced atomically.

    Args:
        path: of the file.
        identity: the mark of the query; see ``query.identity``.
        accepts: hashes of the marks of earlier queries whose state is also valid.
    """

    def __init__(self, path: Path, identity: str, accepts: Collection[str] = ()) -> None:
        self.path = path
        self.identity = identity
        self._accepts = {hash_of(identity), *accepts}
        self.counters = Counters()
        """Counts over the whole life of the query, which are saved with the state."""
        self._saved = Saved(LEARNED_FORMAT, identity, -1, {})

    def save(self, state: dict[str, Any], batch_id: int) -> None:
        """Replace the saved state.

        Raises:
            StateError: it cannot be written.
        """
        self._saved = Saved(LEARNED_FORMAT, self.identity, batch_id, state)
        self.save_counters()

    def count_failure(self) -> None:
        """Count a batch that failed; that the count cannot be saved is no news beside it."""
        self.counters.n_failures += 1
        with suppress(StateError):
            self.save_counters()

    def save_counters(self) -> None:
        """Save the counters with the state that was saved last.

        Raises:
            StateError: they cannot be written.
        """
        saved = self._saved
        saved.counters = self.counters
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, msgspec.json.encode(saved))
        except OSError as error:
            msg = (
                f"cannot save the learned state to {self.path}: {error}; free space, or give write "
                f"permission"
            )
            raise StateError(msg, path=str(self.path)) from error

    def load(self) -> tuple[dict[str, Any], int] | str | None:
        """Return the saved state and its last batch, None if there is none, or why not."""
        if not self.path.exists():
            return None
        try:
            content = self.path.read_bytes()
            file_format = msgspec.json.decode(content, type=Head).format
            if file_format != LEARNED_FORMAT:
                return f"format {file_format}, expected {LEARNED_FORMAT}"
            saved = msgspec.json.decode(content, type=Saved)
        except (OSError, ValueError, RecursionError) as error:
            return f"the file cannot be read: {error}"
        self.counters = saved.counters
        if hash_of(saved.identity) not in self._accepts:
            return "it is of another query: the columns of its streams, or its steps, have changed"
        self._saved = saved
        return (saved.state, saved.batch_id) if saved.batch_id >= 0 else None


# -- the lock ----------------------------------------------------------------------------------

try:
    import fcntl
except ImportError:  # Windows has no flock: folders are not locked there
    fcntl = None  # type: ignore[assignment]

PATIENCE_S = 1.0
"""How long to retry (s): a process that was killed just now may still hold its files."""

_TAKEN = errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES
"""Errors of ``flock`` when another process, or another run of this process, has the lock."""


class Owner(msgspec.Struct, frozen=True):
    """The run that took a lock."""

    query: str
    host: str
    process: int
    """Its number on the host, or in its container."""
    since: str
    """When the run started, in the time of its host (``2026-03-01 12:00:00 +0100``)."""

    def __str__(self) -> str:
        return f"query {self.query!r} in process {self.process} on {self.host} since {self.since}"


class FolderLock:
    """The lock of one folder, held until ``release`` or until the process ends.

    Args:
        path: the file of the lock, in a folder that is there.
        query: name of the query that runs.
        what: what the folder is to the run: ``checkpoint`` or ``state``.
        folder: the folder, for errors.

    Raises:
        QueryError: another run of this process has the lock.
        StateError: another process has the lock, or the file cannot be written.
    """

    def __init__(self, path: Path, query: str, what: str, folder: str) -> None:
        self.path = path.resolve()
        self.query = query
        self.has_ended: Callable[[], bool] = lambda: False
        """Returns whether the run that holds the lock has ended without a release."""
        self._handle: int | None = None
        self._releasing = threading.Lock()
        if fcntl is None:
            return
        held = next((lock for lock in held_locks() if lock.path == self.path), None)
        if held is not None:
            if not held.has_ended():
                msg = (
                    f"run {held.query!r} writes to the {what} {folder}; stop it first, or give "
                    f"another folder"
                )
                raise QueryError(msg, run=held.query, **{what: folder})
            held.release()
        try:
            self._take(what, folder)
        except OSError as error:
            msg = (
                f"cannot lock the {what} {folder} by {path}: {error}; free space, or give write "
                f"permission"
            )
            raise StateError(msg, path=str(path)) from error

    def _take(self, what: str, folder: str) -> None:
        # Child programs do not inherit the handle: Python opens files with O_CLOEXEC.
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                _flock(handle)
            except OSError as error:
                if error.errno in _TAKEN:
                    owner = _read_owner(handle)
                    by = "another process" if owner is None else str(owner)
                    msg = (
                        f"the {what} {folder} is in use by {by}; stop that run first, or give "
                        f"another folder"
                    )
                    facts = {} if owner is None else msgspec.structs.asdict(owner)
                    raise StateError(msg, path=str(self.path), owner=facts) from None
                # A file system without locks: the run goes on, as it did before there were any.
                os.close(handle)
                return
            now = time.strftime("%Y-%m-%d %H:%M:%S %z")
            owner = Owner(self.query, socket.gethostname(), os.getpid(), now)
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(owner), 0)
        except BaseException:
            with suppress(OSError):
                os.close(handle)
            raise
        self._handle = handle
        _held.add(self)

    def release(self) -> None:
        """Let others have the folder; a second call does nothing."""
        with self._releasing:
            handle, self._handle = self._handle, None
            _held.discard(self)
            if handle is not None:
                with suppress(OSError):  # the disk may be full
                    os.ftruncate(handle, 0)
                os.close(handle)

    def _forget(self) -> None:
        """Close the file in a forked process, which would otherwise hold the lock, too."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                os.close(handle)


_held: set[FolderLock] = set()


def held_locks() -> list[FolderLock]:
    """Return the locks that runs of this process hold."""
    return list(_held)


def _forget_all() -> None:
    for lock in held_locks():
        lock._forget()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _flock(handle: int) -> None:
    """Lock an open file; retry for ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _TAKEN or time.monotonic() >= deadline:
                raise
        time.sleep(PATIENCE_S / 20)


def _read_owner(handle: int) -> Owner | None:
    """Return the owner of a lock; None if the file does not name it (yet)."""
    try:
        return msgspec.json.decode(os.pread(handle, 4096, 0), type=Owner)
    except (OSError, ValueError):
        return None
