"""Rules that were read before, kept in the user's cache folder.

A cache is never needed: what cannot be read is read anew from the rules, and what cannot be
written is not kept. Its files hold values alone, no code: another program can write to the folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from eddyline.data.files import replace_file
from eddyline.data.gc_pause import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.sigma.documents import Content

KeptT = TypeVar("KeptT")

FORMAT = 3
"""Counts changes of what is kept."""


def folder() -> Path:
    """Return the folder of caches: ``XDG_CACHE_HOME`` or ``~/.cache``, in ``eddyline/sigma``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "eddyline" / "sigma"


def key_of(contents: Iterable[Content], versions: Iterable[str]) -> str:
    """Return the name of what is kept of these files.

    Paths count, as errors and ``info`` show them; versions are those of all that reads rules.
    """
    digest = hashlib.sha256(repr((FORMAT, sys.version_info[:3], *versions)).encode())
    for each in contents:
        path = each.path.encode("utf-8", "surrogateescape")
        for part in (path, each.data):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def recall(key: str, kind: type[KeptT]) -> KeptT | None:
    """Return the value that was kept under a key, or None if there is none of this kind."""
    # Also without a home. A file that is cut off or was written by others does not decode.
    with suppress(OSError, RuntimeError, msgspec.MsgspecError), collector_paused():
        return msgspec.msgpack.decode(_file_of(key).read_bytes(), type=kind)
    return None


def keep(key: str, value: Any) -> None:
    """Keep a value; a reader finds all of it or nothing."""
    # A path or rule may hold what is not UTF-8, a rule a number of more than 64 bits.
    with suppress(OSError, RuntimeError, UnicodeError, OverflowError):
        packed = msgspec.msgpack.encode(value)
        file = _file_of(key)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, packed)


def _file_of(key: str) -> Path:
    return folder() / f"{key}.msgpack"
