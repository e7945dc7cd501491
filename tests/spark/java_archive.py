"""An archive of Java's classes, from which a JVM with Spark starts in less than half the time.

Most of what a process that lives for seconds does is to load and to check the same classes again.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.spark.processes import QUICK, Process
from tests.spark.run import killed, lives

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 600.0


@contextmanager
def archived(place: Path) -> Iterator[str]:
    """Give options for JVMs that start soon, and remove the archive at the end.

    The first process that asks makes it, by a query that loads what others will need; the others of
    this run wait until it is there. A JVM that does not find it any more starts without.

    Args:
        place: a folder of this run of the tests.
    """
    own, archive = place / "java", place / "java" / "classes.jsa"
    try:
        own.mkdir()
    except FileExistsError:
        is_maker, until = False, time.monotonic() + WAIT_S
        while not archive.exists():
            assert time.monotonic() < until, f"nobody made {archive}"
            time.sleep(0.1)
    else:
        is_maker, draft = True, own / "draft.jsa"
        lives.write(own, 1)
        java = f"{QUICK} -XX:ArchiveClassesAtExit={draft}"
        Process("-m", killed.__name__, own, java=java).finish(WAIT_S)
        os.replace(draft, archive)
    yield f"{QUICK} -XX:SharedArchiveFile={archive}"
    if is_maker:
        archive.unlink()
