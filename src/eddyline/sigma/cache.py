"""Rules that were read before, kept in the user's cache folder.

A cache is never needed: what cannot be read is read anew from the rules, and what cannot be
written is not kept.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.data.gc_pause import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.sigma.documents import Content

FORMAT = 1
"""Counts changes of what is kept."""


def folder() -> Path:
    """Return where caches are: ``XDG_CACHE_HOME`` or ``~/.cache``, in ``eddyline/sigma``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "eddyline" / "sigma"


def key_of(contents: Iterable[Content], versions: Iterable[str]) -> str:
    """Return the name of what is kept of these files.

    Args:
        contents: the files with their paths, which errors and ``info`` show.
        versions: of everything that takes part in reading them.
    """
    digest = hashlib.sha256(repr((FORMAT, sys.version_info[:3], *versions)).encode())
    for each in contents:
        path = each.path.encode("utf-8", "surrogateescape")
        for part in (path, each.data):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def recall(key: str, kind: type[Any]) -> Any:
    """Return what was kept under a key, or None if there is nothing of this kind."""
    # A file that is cut off or of another version can raise anything when it is unpickled.
    try:
        with collector_paused():
            kept = pickle.loads((folder() / f"{key}.pickle").read_bytes())
    except Exception:  # noqa: BLE001
        return None
    return kept if isinstance(kept, kind) else None


def keep(key: str, value: Any) -> None:
    """Keep a value, in one step: a reader finds all of it or nothing."""
    with suppress(OSError, RuntimeError):  # also without a home
        into = folder()
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=into, prefix="writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
            Path(name).replace(into / f"{key}.pickle")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
