"""Files of lines that one process appends to while others read them.

A process that is killed may leave half a last line. Whoever reads leaves it out; whoever goes on
with the file cuts it off first.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file without their ends, and without half a last one.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1].splitlines()


def go_on_with(path: Path) -> int:
    """Get ready to append to a file: it and its folder are made, half a last line is cut off.

    Returns:
        Its size (bytes).

    Raises:
        OSError: it can neither be read nor made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        size = file.tell()
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
    if whole < size:
        os.truncate(path, whole)
    return whole


def joined(lines: Iterable[bytes]) -> bytes:
    """Return lines as the content of a file."""
    return b"".join(line + b"\n" for line in lines)


def append(path: Path, lines: Iterable[bytes]) -> int:
    """Append lines, in one go.

    Returns:
        Their size (bytes).

    Raises:
        OSError: they cannot be written; half a line is taken back, as others may follow it.
    """
    content, size = joined(lines), None
    try:
        with path.open("ab") as file:
            size = file.tell()
            file.write(content)
    except OSError:
        if size is not None:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
        raise
    return len(content)
