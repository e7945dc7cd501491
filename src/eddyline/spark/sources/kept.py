"""What Spark keeps of a source: reader options and offsets.

``data_source`` writes them. Whoever looks at the plan of a stream, or at Spark's log of offsets,
reads them here.
"""

from __future__ import annotations

import pickle
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from eddyline.sources import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.sources.source import Offset, Source

PREFIX = "eddyline_"
"""Start of the names of data sources."""

VERSION = "__version"
"""The option with the version of a table, as JSON."""

STREAM = "__stream"
"""The option with the name of the stream in its engine."""

HIDDEN = "__hidden"
"""The option with what no plan shows, pickled: settings with secrets, and the user's function."""


FIRST = "__first"
"""The key in the end of the first batch that has its start."""


def plain_offset(offset: Offset) -> Offset:
    """Return an offset as the source knows it."""
    return {name: value for name, value in offset.items() if name != FIRST}


def offsets_of_batch(start: Offset, end: Offset) -> tuple[Offset, Offset]:
    """Return the two offsets of a batch as the source knows them."""
    return plain_offset(end.get(FIRST, start)), plain_offset(end)


def read_options(kind: str, options: Mapping[str, str]) -> Source:
    """Return the source that options of Spark's reader say."""
    texts = {name.lower(): text for name, text in options.items()}
    hidden = texts.pop(HIDDEN, None)
    settings, function = ({}, None) if hidden is None else pickle.loads(b64decode(hidden))
    for name in (VERSION, STREAM):
        texts.pop(name, None)
    return source_of(kind, {**texts, **settings}, function)


def source_in(relation: Any) -> Source | None:
    """Return the source of eddyline that a relation of Spark's streams; None for another one."""
    if not str(relation.sourceName()).startswith(PREFIX):
        return None
    entries = relation.extraOptions().asCaseSensitiveMap().entrySet()
    texts = {str(entry.getKey()): str(entry.getValue()) for entry in entries}
    return read_options(str(relation.sourceName()).removeprefix(PREFIX), texts)
