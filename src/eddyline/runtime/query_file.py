"""The query that a checkpoint belongs to, and whether another one may go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import OptionError, StateError
from eddyline.query.identity import Identity, differences, hash_of, in_words
from eddyline.registry import unknown
from eddyline.runtime.checkpoint import LEARNED, OWN, QUERY
from eddyline.runtime.snapshot import identity_in

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


def resumed(own: Path, query: Identity, changed: Changed | None, *, last_batch: int) -> Resumed:
    """Return how a query goes on from a checkpoint; write nothing.

    Args:
        own: the folder that eddyline keeps in the checkpoint.
        query: the query that starts.
        changed: what a changed query does with the checkpoint.
        last_batch: the last finished batch.

    Raises:
        StateError: the query has changed and ``changed`` is None, its state does not fit, or a file
            cannot be read.
    """
    path = own / QUERY
    file = _read(path)
    if file is None:
        return _of_text(own, query, changed, last_batch)
    changes, now = differences(file.query, query), query
    before = tuple(dict.fromkeys([*file.before, hash_of(file.query.mark)]))
    functions = tuple(
        name
        for name, code in query.functions.items()
        if name in file.query.functions and code.differs(file.query.functions[name])
    )
    words = in_words(changes)
    if changes and changed is None:
        raise _of_another(own, file.query.text, query, words)
    is_shifted = _is_shifted(file.query, query)
    if is_shifted and changed != "reset":
        raise _of_another_clock(own, query)
    words = words or _WALL_CLOCKS * is_shifted
    if not changes and file.query.parser == query.parser:
        # Files keep the names and orders of the text that began the checkpoint.
        query = msgspec.structs.replace(
            file.query, functions=query.functions, wall_clocks=query.wall_clocks
        )
    if changed == "reset" and (changes or functions or is_shifted):
        return Resumed(QueryFile(query, (), last_batch), file.query, words, functions, True)
    kept = [change for change in changes if change.is_kept]
    if kept and (query.is_stateful or file.query.is_stateful):
        msg = (
            f"{own.parent} has state that does not fit the changed query: {in_words(kept)}. Start "
            f"it with changed='reset', which empties the state, or with another checkpoint and path"
        )
        raise StateError(msg, path=str(path), query=file.query.text)
    _check_layout(own, file.query, now)
    return Resumed(QueryFile(query, before, file.empty_until), file.query, words, functions)


_WALL_CLOCKS = "event times of type TIMESTAMP_NTZ are wall clocks"


def _is_shifted(before: Identity, now: Identity) -> bool:
    """Return whether state has event times as an earlier version read wall clocks."""
    return now.is_stateful and bool({*now.wall_clocks} - {*before.wall_clocks})


def _of_another_clock(own: Path, query: Identity) -> StateError:
    msg = (
        f"{own.parent} has state of an earlier version, which read the event times of "
        f"{', '.join(query.wall_clocks)} (TIMESTAMP_NTZ) in the time zone of the session; they are "
        f"wall clocks now. Start the query with another checkpoint and path, or with "
        f"changed='reset', which empties the state"
    )
    return StateError(msg, path=str(own / QUERY), streams=query.wall_clocks)


def _check_layout(own: Path, before: Identity, now: Identity) -> None:
    """Check that files of durable state have the names and orders of a query.

    Raises:
        StateError: they have other names or orders.
    """
    is_known = before.parser == now.parser or before.text != now.text
    if now.is_stateful and is_known and before.layout != now.layout:
        msg = (
            f"{own.parent} has state of a query that calls its inputs otherwise, or names columns, "
            f"keys or aggregates in another order ({before.text}); this one is {now.text}. Write "
            f"what has not changed as it was, or start it with changed='reset', which empties the "
            f"state"
        )
        raise StateError(msg, path=str(own / QUERY), query=before.text)


def stored_query(checkpoint: str | Path) -> Identity | None:
    """Return the query that a checkpoint belongs to; None if it belongs to none yet.

    Raises:
        StateError: the file cannot be read.
    """
    file = _read(Path(checkpoint) / OWN / QUERY)
    return None if file is None else file.query


def write(own: Path, file: QueryFile) -> None:
    """Write the file, unless it has these contents.

    Raises:
        StateError: the file cannot be written.
    """
    path, content = own / QUERY, msgspec.json.encode(file)
    try:
        if not path.exists() or path.read_bytes() != content:
            replace_file(path, content)
    except OSError as error:
        msg = f"cannot write {path}: {error}; make room or rights"
        raise StateError(msg, path=str(path)) from error


def _read(path: Path) -> QueryFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=QueryFile)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        msg = f"cannot read {path}: {error}; restore it from a backup, or give another checkpoint"
        raise StateError(msg, path=str(path)) from error


def _of_text(own: Path, query: Identity, changed: Changed | None, last_batch: int) -> Resumed:
    """Return how a query goes on from a checkpoint of a version that stored only its text."""
    theirs = identity_in(own / LEARNED)
    file = QueryFile(query, (hash_of(query.legacy),) if query.legacy else ())
    if query.wall_clocks and changed != "reset":
        raise _of_another_clock(own, query)
    if query.wall_clocks:
        return Resumed(QueryFile(query, (), last_batch), None, _WALL_CLOCKS, (), True)
    if theirs is None or theirs.rsplit(" #", 1)[0] == query.legacy.rsplit(" #", 1)[0]:
        return Resumed(file, None)
    words = f"the text was {theirs.rsplit(' #', 1)[0]} and is {query.text}"
    if changed is None:
        raise _of_another(own, theirs, query, "its text is another one")
    if changed == "reset":
        return Resumed(QueryFile(query, (), last_batch), None, words, (), True)
    if query.is_stateful:
        msg = (
            f"{own.parent} was written by an earlier version of eddyline, which did not note what "
            f"its state is of; start the query once as it was, and then the changed one with "
            f"changed='keep_state'"
        )
        raise StateError(msg, path=str(own), query=theirs)
    return Resumed(file, None, words)


def _of_another(own: Path, theirs: str, query: Identity, words: str) -> StateError:
    msg = (
        f"{own.parent} is the checkpoint of another query ({theirs}); this one is {query.text}: "
        f"{words}. Give another checkpoint and path, or the query as it was; to go on with the new "
        f"one where the other one stopped, start it with changed='keep_state' (its state is kept), "
        f"or changed='reset' (its state is emptied)"
    )
    return StateError(msg, path=str(own / QUERY), query=theirs, changes=words)
