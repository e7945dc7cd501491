"""What a process has read of files that never change, as long as there is room for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

ContentT = TypeVar("ContentT")

Which = tuple[str, int]
"""The path of a file, and its checksum; a name is never used twice."""


class ReadFiles(Generic[ContentT]):
    """The contents of files, those that were used last at the end.

    Args:
        most_bytes: size of the files that are kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._read: OrderedDict[Which, tuple[int, ContentT]] = OrderedDict()
        """With the size of each file."""
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, which: Which) -> ContentT | None:
        """Return the content of a file; None if it is not kept."""
        with self._lock:
            if which not in self._read:
                return None
            self._read.move_to_end(which)
            return self._read[which][1]

    def keep(self, which: Which, n_bytes: int, content: ContentT) -> None:
        """Keep the content of a file of a size, and let go of those used longest ago."""
        with self._lock:
            if which in self._read:
                return
            self._read[which] = n_bytes, content
            self._n_bytes += n_bytes
            while self._n_bytes > self._most_bytes and len(self._read) > 1:
                self._n_bytes -= self._read.popitem(last=False)[1][0]
