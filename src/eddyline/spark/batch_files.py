"""The files of a micro-batch, which say how many rows it has, and between which instants.

To count rows and to look at their event times, Spark would pass each of them through one more piece
of code, or run a job. Where a stream is of Parquet files on this machine, their footers say both.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from eddyline.data.parquet_spans import ParquetFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from eddyline.data.parquet_spans import Span

MOST_FILES = 64
"""Most files of a batch that are opened here: each takes half a millisecond or more."""

MOST_SPLITS = 128
"""Most parts of files: of a large one Spark makes several, and each is asked for by calls."""

_UNREADABLE = (OSError, pa.ArrowException, ValueError)
"""What is raised of a file that is gone, or is not what it was taken for."""

_KEEP_ROWS = {"Project", "SubqueryAlias", "EventTimeWatermark", "Union"}
"""Steps of Spark's that have a row for each row of what they read."""

_SCAN = "FileScanRDD"

_MUST_BE_OFF = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.int96TimestampConversion",
)
"""Settings with which Spark reads other rows or instants than there are in the files."""


@dataclass(frozen=True)
class BatchFiles:
    """The files of a micro-batch, by the streams that its rows are of."""

    streams: tuple[ParquetFiles, ...]
    """In the order in which their rows were united."""

    @cached_property
    def n_rows(self) -> int | None:
        """The rows of the batch; None if they cannot be told."""
        try:
            return sum(each.n_rows for each in self.streams)
        except _UNREADABLE:
            return None  # Spark will say what is wrong with a file, if it comes to that

    def span(self, stream: int, column: str) -> Span | None:
        """Return the instants of a column of a stream's files; None if they cannot be told."""
        try:
            return self.streams[stream].span(column)
        except _UNREADABLE:
            return None


class FileStream:
    """A stream whose rows are those of Parquet files, one for one."""

    def __init__(self, n_streams: int) -> None:
        self.n_streams = n_streams
        self._ways: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, stream: DataFrame) -> Self | None:
        """Return a streaming DataFrame as such a stream; None if it is another one."""
        with suppress(Exception):  # what is asked of Spark here may be otherwise in another one
            conf = stream.sparkSession.conf
            is_off = all(conf.get(each, "false") == "false" for each in _MUST_BE_OFF)
            leaves = _leaves(stream) if is_off else None
            return None if leaves is None else cls(len(leaves))
        return None

    def files(self, df: DataFrame) -> BatchFiles | None:
        """Return the files of a micro-batch; None if they are many, or not on this machine."""
        with suppress(Exception):  # see above
            return self._files(df)
        return None

    def _files(self, df: DataFrame) -> BatchFiles | None:
        scans = self._scans(df)
        if len(scans) != self.n_streams:  # Spark leaves streams out that have nothing new
            return None
        streams, n_left = [], MOST_FILES
        for each in scans:
            paths = _paths(each, n_left)
            if paths is None:
                return None
            n_left -= len(paths)
            streams.append(ParquetFiles(paths))
        return BatchFiles(tuple(streams))

    def _scans(self, df: DataFrame) -> list[Any]:
        """Return what reads the files of each stream, along the ways of the batch before.

        Each question to the JVM takes some 0.2 ms.
        """
        java: Any = df._jdf
        rdd = java.logicalPlan().rdd()
        with suppress(Exception):  # no such ways, where a stream has nothing new
            found = [reduce(_parent, way, rdd) for way in self._ways]
            if found and all(_kind(each) == _SCAN for each in found):
                return found
        by_way = dict(_ways(rdd))
        self._ways = tuple(by_way)
        return [*by_way.values()]


def file_column(df: DataFrame, name: str) -> str | None:
    """Return the column of a stream's Parquet files that a column is, unchanged.

    None if it is made of something, or the rows are those of several streams or of other sources.
    """
    with suppress(Exception):  # see above
        leaves = _leaves(df)
        if leaves is not None and len(leaves) == 1 and dict(df.dtypes).get(name) == "timestamp":
            return _column_of(df, name)
    return None


def stream_options(stream: DataFrame) -> set[str]:
    """Return the names of the options of all streams that a DataFrame reads, in small letters."""
    plan: Any = getattr(stream, "_jdf", None)  # Spark Connect has none
    found: set[str] = set()
    todo = [] if plan is None else [plan.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        todo.extend(_each(node.children()))
        if _kind(node) == "StreamingRelation":
            names = _each(node.dataSource().options().keys().toSeq())
            found.update(str(each).lower() for each in names)
    return found


def _column_of(df: DataFrame, name: str) -> str | None:
    """Return the column of the only stream that a column is, unchanged."""
    node: Any = df._jdf.queryExecution().analyzed()
    wanted = [each.exprId().id() for each in _each(node.output()) if each.name() == name]
    if len(wanted) != 1:
        return None
    at = wanted[0]
    while node.children().size():
        if node.nodeName() == "Project":
            at = _renamed(node).get(at, at)
        node = node.children().apply(0)
    return next((str(n.name()) for n in _each(node.output()) if n.exprId().id() == at), None)


def _renamed(project: Any) -> dict[int, int]:
    """Return what columns of a projection are renamed from, by their numbers."""
    return {
        each.exprId().id(): each.child().exprId().id()
        for each in _each(project.projectList())
        if _kind(each) == "Alias" and _kind(each.child()) == "AttributeReference"
    }


def _leaves(stream: DataFrame) -> list[Any] | None:
    """Return the streams of Parquet files that a DataFrame has one row each for every row of.

    In the order in which they are united; None if it has other rows.
    """
    plan: Any = getattr(stream, "_jdf", None)  # Spark Connect has none
    if plan is None or not stream.isStreaming:
        return None
    found: list[Any] = []
    todo = [plan.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        name = node.nodeName()
        if name in _KEEP_ROWS:
            todo.extend(reversed([*_each(node.children())]))
        elif _kind(node) == "StreamingRelation" and _is_plain_parquet(node):
            found.append(node)
        else:
            return None
    return found


def _is_plain_parquet(relation: Any) -> bool:
    """Return whether a stream reads all rows of Parquet files."""
    source = relation.dataSource()
    if str(source.className()).lower() != "parquet":
        return False
    names = {str(each).lower() for each in _each(source.options().keys().toSeq())}
    return not names & {"ignorecorruptfiles", "ignoremissingfiles"}


def _ways(rdd: Any, way: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield what reads the files of a micro-batch, in the order in which their rows are united.

    Each with the way to it: which of those that an RDD is made of comes next.
    """
    if _kind(rdd) == _SCAN:
        yield way, rdd
        return
    for number in range(rdd.dependencies().size()):
        yield from _ways(_parent(rdd, number), (*way, number))


def _parent(rdd: Any, number: int) -> Any:
    """Return one of the RDDs that an RDD is made of."""
    return rdd.parent(number, None)


def _paths(scan: Any, most: int) -> tuple[str, ...] | None:
    """Return the files that are read; None if they are more, or not on this machine."""
    found: dict[str, None] = {}
    n_splits = 0
    for partition in _each(scan.filePartitions()):
        files = partition.files()
        n_splits += len(files)
        if n_splits > MOST_SPLITS:
            return None
        for file in files:
            parts = urlsplit(str(file.urlEncodedPath()))
            if parts.scheme != "file" or parts.netloc:
                return None
            found[unquote(parts.path)] = None
            if len(found) > most:
                return None
    return tuple(found)


def _kind(node: Any) -> str:
    """Return the class of an object of the JVM, without its package."""
    return str(node.getClass().getSimpleName())


def _each(seq: Any) -> Iterator[Any]:
    """Yield the members of a sequence of Scala's."""
    for at in range(seq.size()):
        yield seq.apply(at)
