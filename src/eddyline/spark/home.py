"""Home of Spark with pyspark as a folder.

Its Python processes import the package and not the archive. Spark puts ``pyspark.zip`` of its home
before everything else on the module path of its Python processes. Python keeps no bytecode of what
it imports from an archive: each process compiles a second long. Spark waits ten seconds for a
process that plans a source in Python, which is not enough on a busy machine. In the home that is
made here, ``pyspark.zip`` is a folder with a link to the package, and all else links to the
installed Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = "SPARK_HOME"
_ARCHIVES = {"pyspark.zip": "pyspark", "py4j-": "py4j"}
"""Packages by the beginning of the names of their archives."""


@contextlib.contextmanager
def unpacked_home() -> Iterator[None]:
    """Let Spark start in such a home, unless the environment names another one."""
    home = None if _HOME in os.environ else _home()
    if home is None:
        yield
        return
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        del os.environ[_HOME]  # other processes that this one starts find Spark by themselves


def _home() -> Path | None:
    """Return the home for the installed Spark; None if it cannot be made."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eddyline"
    facts = f"{package} {version('pyspark')}"
    digest = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
    home = cache / f"spark-{digest}"
    archive = home / "python" / "lib" / "pyspark.zip" / "pyspark"
    with contextlib.suppress(OSError):
        if not (archive / "worker.py").is_file() or archive.resolve() != package:
            _make(package, home)
        return home
    return None


def _make(package: Path, home: Path) -> None:
    """Make the home in one step, so that no process sees a part of it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=home.parent))
    try:
        (draft / "python" / "lib").mkdir(parents=True)
        _link_all(package, draft, but="python")
        _link_all(package / "python", draft / "python", but="lib")
        for file in (package / "python" / "lib").iterdir():
            names = [name for start, name in _ARCHIVES.items() if file.name.startswith(start)]
            spec = find_spec(names[0]) if names else None
            if spec is None or spec.origin is None:
                (draft / "python" / "lib" / file.name).symlink_to(file)
            else:
                folder = draft / "python" / "lib" / file.name
                folder.mkdir()
                (folder / names[0]).symlink_to(Path(spec.origin).resolve().parent)
        shutil.rmtree(home, ignore_errors=True)
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _link_all(source: Path, target: Path, *, but: str) -> None:
    for entry in source.iterdir():
        if entry.name not in (but, "__pycache__"):
            (target / entry.name).symlink_to(entry)
