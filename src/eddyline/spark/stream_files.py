"""Files of streams: rows, instants and backlog of a micro-batch.

1. ``FileStream`` and ``BatchFiles``: to count rows and to look at their event times, Spark would
   pass each of them through one more piece of code, or run a job. If a stream is of Parquet files
   on this machine, Spark's checkpoint says which a batch has, and their footers say both.
2. ``backlog_of``: the input that waits, by the progress that Spark tells and by the files of a
   folder. It is never part of a batch: whoever looks at the query asks. Each look is bounded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.types import StructType

from eddyline.data.parquet_spans import ParquetFiles
from eddyline.errors import EddylineError
from eddyline.runtime.records import Backlog, whole
from eddyline.sources.rejected import file_name
from eddyline.sources.source import Source
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.sources.kept import STREAM, offsets_of_batch, source_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.data.parquet_spans import Span

MOST_OPENED = 64
"""Most files of a batch that are opened here: each takes half a millisecond or more."""

TAIL_BYTES = 1 << 20
"""Bytes read from the end of a compacted log of a source."""

_UNREADABLE = (OSError, pa.ArrowException, ValueError)
"""Errors of a file that is missing or malformed."""

_KEEP_ROWS = {"Project", "SubqueryAlias", "EventTimeWatermark", "Union"}
"""Steps of Spark's that have a row for each row of what they read."""

MUST_BE_OFF = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.int96TimestampConversion",
)
"""Settings with which Spark reads other rows or instants than there are in the files."""


LEAVING_OUT = {"ignorecorruptfiles", "ignoremissingfiles"}
"""Options of a reader with which Spark reads other rows, in small letters."""


class _Unknown(Exception):
    """Says why files are not known, or a backlog."""


@dataclass(frozen=True)
class BatchFiles:
    """The files of a micro-batch, by the streams that its rows are of."""

    streams: tuple[ParquetFiles, ...]
    """In the order in which their rows were united."""
    read_ns: int = 0
    """Time in which the driver has read rows of a source into files."""

    @cached_property
    def n_rows(self) -> int | None:
        """The rows of the batch; None if they cannot be told."""
        try:
            return sum(stream.n_rows for stream in self.streams)
        except _UNREADABLE:
            return None  # Spark will say what is wrong with a file, if it comes to that

    def span(self, stream: int, column: str) -> Span | None:
        """Return the instants of a column of a stream's files; None if they cannot be told."""
        try:
            return self.streams[stream].span(column)
        except _UNREADABLE:
            return None


class FileStream:
    """A stream whose rows are those of Parquet files, one for one.

    Spark writes into its checkpoint, before a batch runs, how far the batch reads each source
    (``offsets``), and which files a source found at each step (``sources``).
    """

    def __init__(
        self,
        sources: tuple[int, ...],
        checkpoint: Path,
        eddylines: Mapping[int, Source] | None = None,
    ) -> None:
        self.sources = sources
        """The number of each stream's source: a stream that is read twice is one source."""
        self._checkpoint = checkpoint
        self._own = eddylines or {}
        """By number, the sources that eddyline reads by itself."""
        self._own_schemas: dict[int, pa.Schema] = {}
        self.here = Here()
        """Where the driver puts rows that it reads itself."""

    @classmethod
    def from_stream(cls, stream: DataFrame, checkpoint: Path) -> Self | None:
        """Return a streaming DataFrame as such a stream; None if it is another one.

        Args:
            stream: what a query reads.
            checkpoint: Spark's own.
        """
        with suppress(Exception):  # what is asked of Spark here may be otherwise in another one
            conf = stream.sparkSession.conf
            is_off = all(conf.get(setting, "false") == "false" for setting in MUST_BE_OFF)
            leaves = _leaves(stream) if is_off else None
            if leaves:
                numbers = _numbered(leaves)
                sources = {
                    number: source
                    for number, leaf in zip(numbers, leaves, strict=True)
                    if kind_of(leaf) == OWN and (source := source_in(leaf)) is not None
                }
                files = cls(numbers, checkpoint, sources)
                relations = {
                    n: leaf for n, leaf in zip(numbers, leaves, strict=True) if n in sources
                }
                files._own_schemas = {
                    number: _schema_of(leaf) for number, leaf in relations.items()
                }
                names = {
                    number: leaf.extraOptions().get(STREAM) for number, leaf in relations.items()
                }
                streams = {number: str(name) for number, name in names.items() if name is not None}
                files.here = Here(streams=streams)
                return files
        return None

    def files(self, batch_id: int, *, reads_here: bool = False) -> BatchFiles | None:
        """Return the files of a micro-batch.

        None if they are many, or not on this machine, or if Spark's logs do not name them.

        Args:
            batch_id: the micro-batch.
            reads_here: whether the driver reads few rows of a source without files into files.
        """
        started = time.perf_counter_ns()
        try:
            ends = self._offsets(batch_id)
            starts = self._offsets(batch_id - 1) if batch_id else [NO_OFFSET] * len(ends)
            files: dict[int, ParquetFiles] = {}
            n_left = MOST_OPENED
            here = replace(self.here, batch_id=batch_id if reads_here else None)
            for number, start, end in zip(self.sources, starts, ends, strict=True):
                if number not in files:
                    paths = self._paths(number, start, end, n_left, here)
                    n_left -= len(paths)
                    files[number] = ParquetFiles(paths)
            took_ns = time.perf_counter_ns() - started if self._own else 0
            return BatchFiles(tuple(files[number] for number in self.sources), took_ns)
        except (_Unknown, EddylineError, *_UNREADABLE, msgspec.MsgspecError):
            return None  # another version of Spark may write its logs in another way

    def _paths(self, number: int, start: str, end: str, most: int, here: Here) -> tuple[str, ...]:
        """Return the files of a source in a batch.

        Raises:
            _Unknown: they are more, or not on this machine, or it is not known.
        """
        if (source := self._own.get(number)) is not None:
            return _own_paths(source, start, end, most, here, (number, self._own_schemas[number]))
        log = self._checkpoint / "sources" / str(number)
        first, last = (_step(start), _step(end))
        return tuple(
            path for step in range(first + 1, last + 1) for path in _paths(log, step, most)
        )

    def _offsets(self, batch_id: int) -> list[str]:
        """Return the offset of each stream after a batch, as Spark writes it."""
        text = (self._checkpoint / "offsets" / str(batch_id)).read_text("utf-8")
        version, _, *offsets = text.splitlines()
        if version != _VERSION or len(offsets) != len(self.sources):
            raise _Unknown("Spark writes its offsets in another way")
        return offsets


def _step(offset: str) -> int:
    """Return the last step of a source of files (-1: none yet)."""
    return -1 if offset == NO_OFFSET else _OFFSETS.decode(offset).logOffset


@dataclass(frozen=True, slots=True)
class Here:
    """Place for the rows of a batch that the driver reads itself."""

    folder: Path | None = None
    """None: it reads nothing."""
    rejected: Path | None = None
    """The folder of rejected values of the run."""
    batch_id: int | None = None
    """The micro-batch; None: the driver reads nothing of it."""
    streams: Mapping[int, str] = field(default_factory=dict)
    """The names of streams that reject values, by the number of their source."""
    large: set[int] = field(default_factory=set)
    """The numbers of sources whose few rows had too many bytes once; tasks read them from then."""

    def read(
        self, source: Source, number: int, schema: pa.Schema, first: Any, last: Any
    ) -> list[str] | None:
        """Read the rows between two offsets into Parquet files; None: they are not few.

        Raises:
            SourceError: they cannot be read.
            OSError: they cannot be written.
        """
        if self.folder is None or self.batch_id is None or number in self.large:
            return None
        if not source.are_few(first, last):
            return None
        if (name := self.streams.get(number)) is not None and self.rejected is not None:
            source.rejected_to = str(self.rejected / file_name(name) / str(self.batch_id))
        folder = self.folder / str(self.batch_id)
        folder.mkdir(parents=True, exist_ok=True)
        paths, n_bytes = [], 0
        for part, split in enumerate(source.splits(first, last)):
            path, n_rows = folder / f"{number}-{part}.parquet", 0
            with parquet.ParquetWriter(
                path, schema, compression="none", store_schema=False
            ) as file:
                for batch in source.read(split, schema):
                    n_rows += batch.num_rows
                    n_bytes += batch.nbytes
                    if n_bytes > MOST_BYTES_HERE:
                        self.large.add(number)
                        return None
                    file.write_batch(batch)
            if n_rows:
                paths.append(str(path))
        return paths

    def let_go(self, *, but: int | None = None) -> None:
        """Remove the rows of batches, but for those of one."""
        for folder in self.folder.iterdir() if self.folder and self.folder.is_dir() else ():
            if folder.name != str(but):
                shutil.rmtree(folder, ignore_errors=True)


def _schema_of(relation: Any) -> pa.Schema:
    """Return the columns of a stream as Arrow types."""
    schema = StructType.fromJson(json.loads(str(relation.schema().json())))
    return to_arrow_schema(schema, timezone="UTC")


def _own_paths(
    source: Source,
    start: str,
    end: str,
    most: int,
    here: Here,
    place: tuple[int, pa.Schema],
) -> tuple[str, ...]:
    """Return the files of a source of eddyline in a batch.

    Raises:
        _Unknown: it has none of its own, or they are more.
    """
    before = {} if start == NO_OFFSET else msgspec.json.decode(start)
    first, last = offsets_of_batch(before, msgspec.json.decode(end))
    paths = source.plain_files(first, last) if first else None
    if paths is None and first:
        number, schema = place
        paths = here.read(source, number, schema, first, last)
    if paths is None or len(paths) > most:
        raise _Unknown("the rows are not those of a few files of this machine")
    return tuple(paths)


MOST_BYTES_HERE = 256 << 20
"""Most bytes of rows that the driver reads of a source in a batch."""

NO_OFFSET = "-"
"""How Spark writes that a source has no offset yet."""


def _numbered(relations: Sequence[Any]) -> tuple[int, ...]:
    """Return the number of the source of each stream, as Spark gives them: equal ones share one."""
    distinct: list[Any] = []
    numbers = []
    for relation in relations:
        same = (number for number, other in enumerate(distinct) if relation.equals(other))
        numbers.append(next(same, len(distinct)))
        if numbers[-1] == len(distinct):
            distinct.append(relation)
    return tuple(numbers)


class _Offset(msgspec.Struct):
    """The offset of a source of files."""

    logOffset: int


class _Entry(msgspec.Struct):
    """A line of Spark's list of files that were found."""

    path: str
    batchId: int
    """The step."""


_OFFSETS, _ENTRIES = msgspec.json.Decoder(_Offset), msgspec.json.Decoder(_Entry)

_VERSION = "v1"
"""The first line of Spark's logs, of the version that is read here."""


def _paths(log: Path, step: int, most: int) -> list[str]:
    """Return the files that a source found at a step.

    Raises:
        _Unknown: they are more, or not on this machine, or the list does not tell.
        OSError: there is no such list.
    """
    entries = _entries(log, step)
    if len(entries) > most:
        raise _Unknown("a batch has many files")
    paths = [path_of(entry.path) for entry in entries]
    if None in paths:
        raise _Unknown("files are not on this machine")
    files = [path for path in paths if path is not None]
    # Spark takes the names of the files of a batch for patterns, which other files may match.
    if any(char in path for path in files for char in "*?[]{}\\"):
        raise _Unknown("a name has characters of patterns")
    return files


def _entries(log: Path, step: int) -> list[_Entry]:
    """Return the log entries of a step, from its own file or the end of a compacted one.

    Raises:
        _Unknown: they are more than are read, or the log is not as Spark writes it.
        OSError: there is no such log.
    """
    file = log / str(step)
    is_compacted = not file.exists()
    if is_compacted:
        file = log / f"{step}.compact"
    is_cut = is_compacted and file.stat().st_size > TAIL_BYTES
    with file.open("rb") as opened:
        if is_cut:
            opened.seek(-TAIL_BYTES, os.SEEK_END)
        first, *lines = opened.read().splitlines() or [b""]
    if not is_cut and first.decode() != _VERSION:
        raise _Unknown("Spark writes its log in another way")
    entries = [*map(_ENTRIES.decode, lines)]
    of_step = [entry for entry in entries if entry.batchId == step]
    is_all = len(of_step) < len(entries) if is_cut else is_compacted or len(of_step) == len(entries)
    if not of_step or not is_all:
        raise _Unknown("the log does not have all files of the step")
    return of_step


def rejecting_streams(stream: DataFrame) -> list[str]:
    """Return the names of streams of an engine, read by a DataFrame, that can reject values."""
    options = [node.extraOptions() for node in nodes_of(stream, OWN)]
    return sorted({str(texts.get(STREAM)) for texts in options if texts.containsKey(STREAM)})


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
    return {name for reader in _readers(stream) for name in option_names(reader.options())}


def paths_of(stream: DataFrame) -> list[str]:
    """Return the paths of all streams of files that a DataFrame reads, as they were given."""
    options = [reader.options() for reader in _readers(stream)]
    return [
        str(reader_options.apply("path"))
        for reader_options in options
        if reader_options.contains("path")
    ]


def _readers(stream: DataFrame) -> Iterator[Any]:
    """Yield the readers of all streams that a DataFrame reads."""
    return (node.dataSource() for node in nodes_of(stream, "StreamingRelation"))


def nodes_of(stream: DataFrame, kind: str) -> Iterator[Any]:
    """Yield the steps of a kind in the plan of a DataFrame."""
    plan: Any = getattr(stream, "_jdf", None)  # Spark Connect has none
    todo = [] if plan is None else [plan.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        todo.extend(each_of(node.children()))
        if kind_of(node) == kind:
            yield node


def option_names(options: Any) -> set[str]:
    """Return the names of the options of a reader, in small letters."""
    return {str(key).lower() for key in each_of(options.keys().toSeq())}


def _column_of(df: DataFrame, name: str) -> str | None:
    """Return the column of the only stream that a column is, unchanged."""
    node: Any = df._jdf.queryExecution().analyzed()
    wanted = [number for number, column in columns_of(node) if column == name]
    if len(wanted) != 1:
        return None
    number = wanted[0]
    while node.children().size():
        if node.nodeName() == "Project":
            number = renamed_by(node).get(number, number)
        node = node.children().apply(0)
    return dict(columns_of(node)).get(number)


def renamed_by(project: Any) -> dict[int, int]:
    """Return what columns of a projection are renamed from, by their numbers."""
    return {
        column.exprId().id(): column.child().exprId().id()
        for column in each_of(project.projectList())
        if kind_of(column) == "Alias" and kind_of(column.child()) == "AttributeReference"
    }


def _leaves(stream: DataFrame) -> list[Any] | None:
    """Return the streams of Parquet files that a DataFrame has one row each for every row of.

    In the order in which they are united; None if it has other rows.
    """
    plan: Any = getattr(stream, "_jdf", None)  # Spark Connect has none
    if plan is None or not stream.isStreaming:
        return None
    leaves: list[Any] = []
    todo = [plan.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        name = node.nodeName()
        if name in _KEEP_ROWS:
            todo.extend(reversed([*each_of(node.children())]))
        elif _is_plain_parquet(node) or has_plain_files(node):
            leaves.append(node)
        else:
            return None
    return leaves


OWN = "StreamingRelationV2"
"""How Spark calls a stream of a data source in Python."""


def has_plain_files(relation: Any) -> bool:
    """Return whether a stream is of a source of eddyline that may tell the files of a batch."""
    if kind_of(relation) != OWN:
        return False
    source = source_in(relation)
    without = (Source.plain_files, Source.are_few)
    return source is not None and (type(source).plain_files, type(source).are_few) != without


def _is_plain_parquet(relation: Any) -> bool:
    """Return whether a stream reads all rows of Parquet files."""
    if kind_of(relation) != "StreamingRelation":
        return False
    source = relation.dataSource()
    if str(source.className()).lower() != "parquet":
        return False
    return not option_names(source.options()) & LEAVING_OUT


def path_of(uri: str) -> str | None:
    """Return the path of a file on this machine; None if it is on another one."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None


def kind_of(node: Any) -> str:
    """Return the class of an object of the JVM, without its package."""
    return str(node.getClass().getSimpleName())


def each_of(seq: Any) -> Iterator[Any]:
    """Yield the members of a sequence of Scala's."""
    for index in range(seq.size()):
        yield seq.apply(index)


_ATTRIBUTE = re.compile(r"(.*)#(\d+)L?(-T\d+ms)?", re.DOTALL)
"""How a column of a plan is written: its name and its number."""


def columns_of(node: Any) -> list[tuple[int, str]]:
    """Return the number and the name of each column of a plan.

    All are asked for at once: each question to the JVM takes some 0.2 ms.
    """
    texts = str(node.output().mkString("\0")).split("\0")
    matches = [_ATTRIBUTE.fullmatch(text) for text in texts]
    if all(matches):
        return [(int(match[2]), match[1]) for match in matches if match]
    return [(column.exprId().id(), str(column.name())) for column in each_of(node.output())]


MOST_LISTED = 20_000
"""Most files of a folder that are looked at."""

MOST_LOG_BYTES = 4 << 20
"""Most bytes of Spark's list of files that were read."""

MOST_S = 0.2
"""Longest look at a folder (s)."""

CHOOSING = {"pathglobfilter", "modifiedbefore", "modifiedafter", "maxfileage", "latestfirst"}
"""Options by which a stream leaves files of its folder out."""

KAFKA = "eddyline_kafka"
"""The name by which Spark knows Kafka as eddyline reads it."""

_FILES = "FileStreamSource["


def backlog_of(
    progress: Mapping[str, Any] | None, stream: DataFrame, checkpoint: Path, n_rows: int | None
) -> Backlog:
    """Return the input that waits, as of the newest batch that has ended.

    Args:
        progress: of that batch, as Spark tells it; None if there is none.
        stream: what the query reads.
        checkpoint: Spark's own.
        n_rows: input rows that were processed in the life of the query; None: not counted.
    """
    if progress is None:
        return Backlog(why="no batch has ended yet")
    sources = list(map(_decoded, progress["sources"]))
    counted = n_rows if len(sources) == 1 else None
    backlogs = []
    for number, source in enumerate(sources):
        if str(source["description"]).startswith(_FILES):
            log = checkpoint / "sources" / str(number)
            backlogs.append(_of_files(source, stream, log, counted))
        else:
            backlogs.append(of_offsets(source, counts_rows=_counts_rows(stream)))
    return whole(backlogs)


def _counts_rows(stream: DataFrame) -> bool:
    """Return whether every source in Python that a stream reads is Kafka's of eddyline."""
    names = [str(node.sourceName()) for node in nodes_of(stream, OWN)]
    return bool(names) and set(names) <= {KAFKA, "kafka"}


def _decoded(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Spark tells of a source, with offsets as values: PySpark hands out texts."""
    decoded = {**source}
    for name in ("endOffset", "latestOffset"):
        if isinstance(text := source.get(name), str):
            with suppress(msgspec.DecodeError):  # such as None
                text = msgspec.json.decode(text)
            decoded[name] = None if text == "None" else text
    return decoded


def of_offsets(source: Mapping[str, Any], *, counts_rows: bool = False) -> Backlog:
    """Return the backlog of a source by the offsets that Spark tells.

    Offsets of Kafka count rows. Of any other source Spark does not say what they count, so its
    backlog is known where nothing is left.

    Args:
        source: what Spark tells.
        counts_rows: whether a source in Python is one of Kafka.

    >>> source = {"description": "KafkaV2[Subscribe[t]]", "latestOffset": {"t": {"0": 9, "1": 5}}}
    >>> of_offsets(source | {"endOffset": {"t": {"0": 7, "1": 5}}}).n_rows
    2
    """
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if end is None or latest is None:
        return Backlog(why="its source does not tell how far its input goes")
    if end == latest:
        return Backlog(0)
    description = str(source["description"])
    if description.startswith("Kafka") or (counts_rows and "PythonMicroBatchStream" in description):
        with suppress(AttributeError, TypeError):
            return Backlog(
                sum(
                    max(0, offset - end.get(topic, {}).get(partition, 0))
                    for topic, partitions in latest.items()
                    for partition, offset in partitions.items()
                )
            )
    return Backlog(why="its source does not tell how many rows lie between two offsets")


def _of_files(
    source: Mapping[str, Any], stream: DataFrame, log: Path, n_rows: int | None
) -> Backlog:
    try:
        if stream_options(stream) & CHOOSING:
            raise _Unknown("the stream leaves files of its folder out")
        base = _folder(str(source["description"]))
        done = _processed(log, int(source["endOffset"]["logOffset"]))
        return _estimated(_looked(base, done), len(done), n_rows)
    except _Unknown as error:
        return Backlog(why=str(error))
    except (OSError, LookupError, TypeError, ValueError):
        return Backlog(why="the files of its folder cannot be looked at")


def _folder(description: str) -> str:
    """Return the folder that a stream reads."""
    base = description.removeprefix(_FILES).removesuffix("]")
    if not base.startswith("file:"):
        raise _Unknown("its files are not on this machine")
    if any(char in base for char in "*?[{"):
        raise _Unknown("its files are given by a pattern")
    folder = os.path.normpath("/" + base.removeprefix("file:").lstrip("/"))
    if (Path(folder) / "_spark_metadata").exists():
        raise _Unknown("its files count only once Spark's log has them")
    return folder


def _processed(log: Path, last: int) -> set[str]:
    """Return the files of batches that have ended, up to an entry of Spark's list."""
    files = set()
    for part in _parts(log):
        for line in part.read_bytes().splitlines()[1:]:  # the first has the version
            entry = _ENTRIES.decode(line)
            if entry.batchId <= last:
                files.add(unquote(urlsplit(entry.path).path))
    return files


def _parts(log: Path) -> list[Path]:
    """Return the files of Spark's list: the newest that has all before it, and those after it."""
    names = [file for file in log.iterdir() if file.name.split(".")[0].isdigit()]
    compact = {int(file.stem): file for file in names if file.suffix == ".compact"}
    first = max(compact, default=-1)
    parts = [file for file in names if file.name.isdigit() and int(file.name) > first]
    parts += [compact[first]] if compact else []
    if sum(part.stat().st_size for part in parts) > MOST_LOG_BYTES:
        raise _Unknown("too many files were read to look at all of them")
    return parts


@dataclass(slots=True)
class _Look:
    """Files of a folder."""

    n_waiting: int = 0
    waiting_bytes: int = 0
    n_done: int = 0
    done_bytes: int = 0


def _looked(folder: str, done: set[str]) -> _Look:
    """Count the files of a folder that wait, and those that were read."""
    look, until = _Look(), time.monotonic() + MOST_S
    for number, entry in enumerate(_files(folder)):
        if number >= MOST_LISTED or time.monotonic() > until:
            raise _Unknown("its folder has too many files to look at all of them")
        n_bytes = entry.stat().st_size
        if entry.path in done:
            look.n_done += 1
            look.done_bytes += n_bytes
        else:
            look.n_waiting += 1
            look.waiting_bytes += n_bytes
    return look


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder that Spark reads: not those with the names of hidden ones."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")) or entry.name.endswith("._COPYING_"):
                continue
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry


def _estimated(look: _Look, n_done: int, n_rows: int | None) -> Backlog:
    """Estimate the rows of files that wait by the size of those that were read."""
    if not look.n_waiting:
        return Backlog(0, n_files=0)
    if n_rows is None or not n_done:
        why = "no file was read before" if not n_done else "rows are not counted by stream"
        return Backlog(n_files=look.n_waiting, why=f"files wait, but {why}")
    per_file, waiting = n_rows / n_done, float(look.n_waiting)
    if look.done_bytes:
        waiting = look.waiting_bytes * look.n_done / look.done_bytes
    return Backlog(round(per_file * waiting), is_estimate=True, n_files=look.n_waiting)
