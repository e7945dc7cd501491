"""A lock on a folder: only one run writes it, over all processes.

The kernel holds the lock (``flock``) until the process that took it ends. So a crashed or killed
process never blocks the next one, and nobody has to remove a lock by hand. The file names the
owner, for the error of a second run.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from eddyline.errors import QueryError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
            msg = f"cannot lock the {what} {folder} by {path}: {error}; make room or rights"
            raise StateError(msg, path=str(path)) from error

    def _take(self, what: str, folder: str) -> None:
        # Child programs do not inherit the handle: Python opens files with O_CLOEXEC.
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                _flock(handle)
            except OSError as error:
                if error.errno in _TAKEN:
                    owner = _read(handle)
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


def _read(handle: int) -> Owner | None:
    """Return the owner of a lock; None if the file does not name it (yet)."""
    try:
        return msgspec.json.decode(os.pread(handle, 4096, 0), type=Owner)
    except (OSError, ValueError):
        return None
