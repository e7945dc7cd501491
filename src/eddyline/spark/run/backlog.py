"""The backlog of a query by the progress that Spark tells, and by the files that wait.

Nothing here happens in a batch: whoever looks at the query asks. What a look costs is bounded.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from eddyline.runtime.records import Backlog, whole
from eddyline.spark.batch_files import stream_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

MOST_FILES = 20_000
"""Most files of a folder that are looked at."""

MOST_LOG_BYTES = 4 << 20
"""Most bytes of Spark's list of files that were read."""

MOST_S = 0.2
"""Longest look at a folder (s)."""

CHOOSING = {"pathglobfilter", "modifiedbefore", "modifiedafter", "maxfileage", "latestfirst"}
"""Options by which a stream leaves files of its folder out."""

_FILES = "FileStreamSource["


class _Unknown(Exception):
    """Says why a backlog is not known."""


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
    found = []
    for number, source in enumerate(sources):
        if str(source["description"]).startswith(_FILES):
            log = checkpoint / "sources" / str(number)
            found.append(_of_files(source, stream, log, counted))
        else:
            found.append(of_offsets(source))
    return whole(found)


def _decoded(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Spark tells of a source, with offsets as values: PySpark hands out texts."""
    found = {**source}
    for name in ("endOffset", "latestOffset"):
        if isinstance(text := source.get(name), str):
            with suppress(msgspec.DecodeError):  # such as None
                text = msgspec.json.decode(text)
            found[name] = None if text == "None" else text
    return found


def of_offsets(source: Mapping[str, Any]) -> Backlog:
    """Return the backlog of a source by the offsets that Spark tells.

    Offsets of Kafka count rows. Of any other source Spark does not say what they count, so its
    backlog is known where nothing is left.

    >>> source = {"description": "KafkaV2[Subscribe[t]]", "latestOffset": {"t": {"0": 9, "1": 5}}}
    >>> of_offsets(source | {"endOffset": {"t": {"0": 7, "1": 5}}}).n_rows
    2
    """
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if end is None or latest is None:
        return Backlog(why="its source does not tell how far its input goes")
    if end == latest:
        return Backlog(0)
    if str(source["description"]).startswith("Kafka"):
        with suppress(AttributeError, TypeError):
            return Backlog(
                sum(
                    max(0, at - end.get(topic, {}).get(partition, 0))
                    for topic, partitions in latest.items()
                    for partition, at in partitions.items()
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


class _Entry(msgspec.Struct):
    """A line of Spark's list of files that were read."""

    path: str
    batchId: int


def _processed(log: Path, last: int) -> set[str]:
    """Return the files of batches that have ended, up to an entry of Spark's list."""
    decoder, found = msgspec.json.Decoder(_Entry), set()
    for part in _parts(log):
        for line in part.read_bytes().splitlines()[1:]:  # the first has the version
            entry = decoder.decode(line)
            if entry.batchId <= last:
                found.add(unquote(urlsplit(entry.path).path))
    return found


def _parts(log: Path) -> list[Path]:
    """Return the files of Spark's list: the newest that has all before it, and those after it."""
    names = [each for each in log.iterdir() if each.name.split(".")[0].isdigit()]
    compact = {int(each.stem): each for each in names if each.suffix == ".compact"}
    first = max(compact, default=-1)
    parts = [each for each in names if each.name.isdigit() and int(each.name) > first]
    parts += [compact[first]] if compact else []
    if sum(each.stat().st_size for each in parts) > MOST_LOG_BYTES:
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
    found, until = _Look(), time.monotonic() + MOST_S
    for number, entry in enumerate(_files(folder)):
        if number >= MOST_FILES or time.monotonic() > until:
            raise _Unknown("its folder has too many files to look at all of them")
        n_bytes = entry.stat().st_size
        if entry.path in done:
            found.n_done += 1
            found.done_bytes += n_bytes
        else:
            found.n_waiting += 1
            found.waiting_bytes += n_bytes
    return found


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder that Spark reads: not those with the names of hidden ones."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name.startswith((".", "_")) or each.name.endswith("._COPYING_"):
                continue
            if each.is_dir():
                yield from _files(each.path)
            else:
                yield each


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
