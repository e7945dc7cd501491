"""Delta tables as streams and tables, without a JVM.

``deltalake`` and Arrow read them. The driver reads the log: of a whole version by ``deltalake``, of
one change the file of its commit. Tasks read Parquet files by Arrow, and neither the log nor
deletion vectors: a split has what they need.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import fs, parquet

from eddyline.errors import SourceError
from eddyline.registry import checked_text, package
from eddyline.sources.versions import (
    Change,
    Names,
    Part,
    VersionedSource,
    as_texts,
    checked_start,
    fitted_batch,
    stored_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.sources.source import Offset

NEEDS = ("a Delta table", "delta")
"""What needs ``deltalake``, and the extra that has it."""

LOG = "_delta_log"
"""The folder of the log in that of a table."""

STORAGE = "storage."
"""Start of the names of options that ``deltalake`` gets to reach the storage."""

BATCH_ROWS = 32_768
"""Rows that a task decodes at once."""

_FEATURES = {
    *("deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview"),
    *("v2Checkpoint", "vacuumProtocolCheck"),
}
"""Features of tables that a reader has to know, and that this one knows."""

_SIMPLE = {
    **{name: name for name in ("string", "float", "double", "boolean", "binary", "date")},
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""Names of Delta's types, and what Spark's DDL calls them."""

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def delta(
    path: str | Path,
    *,
    storage: Mapping[str, str] | None = None,
    start: str | int | None = None,
    on_change: str | None = None,
    max_per_batch: int | None = None,
) -> Delta:
    """Return a Delta table as a source, for ``Engine.stream`` or ``Engine.table``.

    Args:
        path: folder of the table, or its URI such as ``s3://lake/clicks``.
        storage: what ``deltalake`` needs to reach the URI, such as ``AWS_REGION``.
        start: where a new stream starts. If omitted it reads the table as it stands, and then what
            is added. ``latest``: only what is added from now on. A number of a version: what that
            version and later ones add. A time (ISO 8601, UTC if it says no zone): what is added
            from then on. ``earliest``: the oldest version in the log, then what later ones add.
        on_change: what becomes of versions that delete, update or overwrite rows. If omitted they
            are an error. ``ignore`` leaves them out, also rows that such a version inserts beside;
            ``rows`` reads all files that they add as new rows, so rows in them may come again.
        max_per_batch: most rows of a batch; files are not cut, so a larger file is a batch.

    Raises:
        OptionError: an option is out of range.
    """
    name = str(path) if isinstance(path, Path) else checked_text("path of a Delta table", path)
    options = as_texts(
        {
            "path": name if "://" in name else Path(name).absolute(),
            "start": start,
            "on_change": on_change,
            "max_per_batch": max_per_batch,
        }
    )
    of_storage = {f"{STORAGE}{key}".lower(): str(value) for key, value in (storage or {}).items()}
    return Delta(options | of_storage)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table."""

    path: str
    """As the log has it."""
    n_bytes: int
    n_rows: int | None
    """None: the log does not say it."""
    partition: tuple[tuple[str, Any], ...] = ()
    """Values of the partition columns, by their names; texts are as the log has them."""
    kept: bytes | None = None
    """Which rows the deletion vector keeps: bits, compressed; None: all."""


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """What a task reads."""

    root: str
    storage: dict[str, str]
    version: int
    names: Names
    parts: tuple[Part, ...]


class Delta(VersionedSource):
    """A Delta table; see ``delta``.

    Args:
        options: ``path``, those of ``VersionedSource``, and ``storage.…``.
    """

    kind = "delta"
    names: ClassVar[frozenset[str]] = VersionedSource.names | {"path"}
    prefixes = (STORAGE,)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.path = checked_text("path of a Delta table", self.options.get("path", ""))
        self.storage = {
            name.removeprefix(STORAGE): value
            for name, value in self.options.items()
            if name.startswith(STORAGE)
        }
        self._known: int | None = None
        """A version that is there."""
        self._loaded: Any = None
        """The version that was loaded last."""
        self._identity: tuple[Any, str] | None = None
        """The id of the table, with the commit that it was read from: version, bytes, time (ns)."""

    @property
    def where(self) -> str:
        """The table, as errors call it."""
        return f"the Delta table {self.path}"

    def ddl(self, version: Offset | None = None) -> str:
        """Return the columns of a version, the newest if None, as Spark's DDL."""
        from eddyline.sql.parsing import quoted  # noqa: PLC0415 - workers need no parser

        fields = self._schema(self._table(None if version is None else version["version"]))
        return ", ".join(f"{quoted(field['name'])} {self._type(field)}" for field in fields)

    # -- versions ---------------------------------------------------------------------------------

    def newest(self) -> int:
        """Return the newest version."""
        if self._known is None or not self._has_commit(self._known):
            self._known = int(self._table(None).version())
        while self._has_commit(self._known + 1):
            self._known += 1
        return self._known

    def identity(self, version: int) -> str | None:
        """Return the id in the table's metadata."""
        files, root = self._file_system()
        with self._asked():
            info = files.get_file_info(root + _commit(max(version, 0)))
        commit = version, info.size, info.mtime_ns
        if self._identity is None or self._identity[0] != commit:
            self._loaded = None  # a table that was made again may have as many versions
            with self._asked():
                table = self._table(None if version < 0 else version)
                self._identity = commit, str(table.metadata().id)
        return self._identity[1]

    def _has_commit(self, version: int) -> bool:
        files, root = self._file_system()
        with self._asked():
            return bool(files.get_file_info(root + _commit(version)).type == fs.FileType.File)

    def before(self, start: str) -> int:
        """Return the version after which a start reads."""
        newest, wanted = self.newest(), checked_start(start)
        if isinstance(wanted, datetime):
            return self._before_time(wanted, newest)
        if wanted > newest + 1:
            msg = f"start={wanted}: the newest version of {self.where} is {newest}"
            raise SourceError(msg, version=wanted)
        if wanted <= newest:
            self._actions(wanted)
        return wanted - 1

    def between(self, after: int, until: int) -> Sequence[int]:
        """Return the versions after one, until another one."""
        return range(after + 1, until + 1)

    def change(self, version: int) -> Change:
        """Return the files that a commit adds."""
        added, removes, operation, masks = [], False, "", False
        for action in self._actions(version):
            if "add" in action and action["add"].get("dataChange", True):
                added.append(action["add"])
                masks |= action["add"].get("deletionVector") is not None
            removes |= action.get("remove", {}).get("dataChange", False)
            operation = action.get("commitInfo", {}).get("operation", operation)
            if "protocol" in action:
                self._check_features(action["protocol"], version)
            if "metaData" in action and version:
                self._check_columns(action["metaData"], version)
        kept = self._masks(self._table(version)) if masks else {}
        files = tuple(
            DataFile(
                add["path"],
                add["size"],
                _n_records(add.get("stats")),
                tuple(sorted((add.get("partitionValues") or {}).items())),
                kept.get(unquote(add["path"])),
            )
            for add in added
        )
        return Change(files, (operation or "no operation is named") if removes else "")

    def files(self, version: int) -> tuple[DataFile, ...]:
        """Return the files of a version, by their paths."""
        table = self._table(version)
        stored = {name: inner[0] for name, inner in self._names(table).items()}
        with self._asked():
            rows = pa.table(table.get_add_actions()).to_pylist()
        kept = self._masks(table)
        files = [
            DataFile(
                row["path"],
                row["size_bytes"],
                row["num_records"],
                tuple(
                    sorted(
                        (stored.get(name, name), value)
                        for name, value in (row.get("partition") or {}).items()
                    )
                ),
                kept.get(unquote(row["path"])),
            )
            for row in rows
        ]
        return tuple(sorted(files, key=lambda file: file.path))

    def size(self, file: DataFile) -> tuple[int | None, int]:
        """Return the number of rows of a file, if it is known, and its bytes."""
        return file.n_rows, file.n_bytes

    def split(self, version: int, parts: tuple[Part, ...]) -> DeltaSplit:
        """Return what a task needs to read some parts of files."""
        names = self._names(self._table(version))
        return DeltaSplit(self.path, self.storage, version, names, parts)

    def plain_path(self, version: int, file: DataFile) -> str | None:
        """Return the path of a file that has just the rows and columns of the table."""
        files, root = file_system(self.path, self.storage)
        path = unquote(file.path)
        is_elsewhere = "://" in path or not isinstance(files, fs.LocalFileSystem)
        if is_elsewhere or file.kept is not None or file.partition:
            return None
        return None if _is_mapped(self._names(self._table(version))) else root + path

    # -- rows -------------------------------------------------------------------------------------

    def read(self, split: DeltaSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        for part in split.parts:
            path = unquote(part.file.path)
            files, root = file_system(split.root, split.storage)
            if "://" in path:  # of a clone
                files, root = file_system(path.rpartition("/")[0], split.storage)
                path = path.rpartition("/")[2]
            try:
                with files.open_input_file(root + path) as opened:
                    yield from _rows(opened, part, split, schema)
            except FileNotFoundError as error:
                msg = (
                    f"{path} of {self.where} is gone: version {split.version} needs it, and vacuum "
                    f"has removed it. Begin a query with another checkpoint, and keep files for "
                    f"longer than queries wait (delta.deletedFileRetentionDuration)"
                )
                raise SourceError(msg, path=path, version=split.version) from error
            except (OSError, pa.ArrowException) as error:
                msg = f"cannot read {path} of {self.where}: {error}"
                raise SourceError(msg, path=path, version=split.version) from error

    # -- the log ----------------------------------------------------------------------------------

    def _file_system(self) -> tuple[fs.FileSystem, str]:
        return file_system(self.path, self.storage)

    def _table(self, version: int | None) -> Any:
        """Return a version; the newest if None.

        Raises:
            SourceError: there is no such table, it does not answer, or the version is gone.
        """
        if version is not None and self._loaded is not None and self._loaded.version() == version:
            return self._loaded
        deltalake = package("deltalake", NEEDS)
        with self._asked(version):
            self._loaded = deltalake.DeltaTable(
                self.path, version=version, storage_options=self.storage or None
            )
        return self._loaded

    @contextmanager
    def _asked(self, version: int | None = None) -> Iterator[None]:
        """Say in an error of the package which table it is about.

        Raises:
            SourceError: there was one.
        """
        exceptions = package("deltalake.exceptions", NEEDS)
        try:
            yield
        except exceptions.TableNotFoundError as error:
            if version is not None:
                msg = (
                    f"version {version} of {self.where} is gone: its log was cleaned up. Begin a "
                    f"query with another checkpoint"
                )
                raise SourceError(msg, path=self.path, version=version) from error
            msg = f"there is no Delta table at {self.path}; see that its folder has a {LOG}"
            raise SourceError(msg, path=self.path) from error
        except (exceptions.DeltaError, OSError, ValueError) as error:
            what = "" if version is None else f"version {version} of "
            words = re.sub(r"\x1b\[\d*m|\s*↳", " ", str(error))
            msg = f"cannot read {what}{self.where}: {' '.join(words.split())}"
            raise SourceError(msg, path=self.path, version=version) from error

    def _actions(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit.

        Raises:
            SourceError: it is gone.
        """
        files, root = self._file_system()
        with self._asked(version):
            try:
                with files.open_input_file(root + _commit(version)) as opened:
                    lines = bytes(opened.read()).splitlines()
            except FileNotFoundError as error:
                msg = (
                    f"version {version} of {self.where} is gone: its log was cleaned up, so what "
                    f"that version added is not known. Begin a query with another checkpoint, and "
                    f"keep the log for longer than queries wait (delta.logRetentionDuration)"
                )
                raise SourceError(msg, path=self.path, version=version) from error
            return [json.loads(line) for line in lines if line.strip()]

    def oldest(self) -> int:
        """Return the oldest version whose commit is in the log."""
        files, root = self._file_system()
        with self._asked():
            infos = files.get_file_info(fs.FileSelector(root + LOG))
        names = (re.fullmatch(r"(\d{20})\.json", info.base_name) for info in infos)
        return min(int(name[1]) for name in names if name)

    def _before_time(self, wanted: datetime, newest: int) -> int:
        """Return the newest version that was committed before a time; -1 if none was."""
        oldest, version = self.oldest(), newest
        while version >= oldest:
            infos = (action.get("commitInfo", {}) for action in self._actions(version))
            times = [info.get("inCommitTimestamp", info.get("timestamp")) for info in infos if info]
            if not times or times[0] is None:
                msg = f"version {version} of {self.where} has no time; give start= a version"
                raise SourceError(msg, version=version)
            if times[0] < wanted.timestamp() * 1000:
                return version
            version -= 1
        if oldest:
            msg = (
                f"start={wanted.isoformat()}: the log of {self.where} begins with version {oldest},"
                f" which is later; give a later time, or start='earliest'"
            )
            raise SourceError(msg, version=oldest)
        return -1

    def _masks(self, table: Any) -> dict[str, bytes]:
        """Return the rows that deletion vectors keep, as compressed bits, by path."""
        with self._asked():
            reader = pa.RecordBatchReader.from_stream(table.deletion_vectors())
            root = f"{_plain(table.table_uri).rstrip('/')}/"
            masks = {}
            for batch in reader:
                vectors = batch.column("selection_vector")
                for place, path in enumerate(batch.column("filepath").to_pylist()):
                    kept = np.asarray(vectors[place].values.to_numpy(zero_copy_only=False), bool)
                    name = unquote(_plain(path).removeprefix(root))
                    masks[name] = zlib.compress(np.packbits(kept).tobytes(), 1)
        return masks

    # -- columns ----------------------------------------------------------------------------------

    @staticmethod
    def _schema(table: Any) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
        return fields

    def _names(self, table: Any) -> Names:
        """Return the names of columns in the files, if columns are mapped."""
        return _names_of(self._schema(table))

    def _type(self, field: Mapping[str, Any]) -> str:
        """Return the type of a column in Spark's DDL.

        Raises:
            SourceError: it has none that eddyline reads.
        """
        try:
            return _ddl(field["type"])
        except KeyError as error:
            msg = (
                f"column {field['name']!r} of {self.where} has the type {error}, which is not read"
            )
            raise SourceError(msg, column=field["name"]) from error

    def _check_features(self, protocol: Mapping[str, Any], version: int) -> None:
        unread = {*protocol.get("readerFeatures", ())} - _FEATURES
        if unread:
            msg = (
                f"version {version} of {self.where} needs features that eddyline does not read: "
                f"{', '.join(sorted(unread))}"
            )
            raise SourceError(msg, version=version)

    def _check_columns(self, metadata: Mapping[str, Any], version: int) -> None:
        """Raise SourceError if a version lacks columns that the one before it has."""
        columns = json.loads(metadata["schemaString"])["fields"]
        fields = {column["name"]: column for column in columns}
        for field in self._schema(self._table(version - 1)):
            name = field["name"]
            if name not in fields or not _is_wider(field["type"], fields[name]["type"]):
                change = "has another type" if name in fields else "is no longer there"
                msg = (
                    f"column {name!r} of {self.where} {change} in version {version}; a stream "
                    f"keeps its columns. Begin a query with start={version} and another checkpoint"
                )
                raise SourceError(msg, column=name, version=version)


def file_system(root: str, storage: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Return the file system of a table, and how paths within the table start."""
    if "://" not in root or root.startswith("file://"):
        folder = unquote(urlsplit(root).path) if "://" in root else root
        return fs.LocalFileSystem(), f"{folder.rstrip('/')}/"
    handler = package("deltalake.fs", NEEDS).DeltaStorageHandler(root, dict(storage) or None)
    return fs.PyFileSystem(handler), ""


def _rows(
    opened: Any, part: Part, split: DeltaSplit, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open file, or of a part of it."""
    file = parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us")
    n_groups = file.metadata.num_row_groups
    first, end = (n_groups * place // part.n_parts for place in (part.number, part.number + 1))
    row = sum(file.metadata.row_group(group).num_rows for group in range(first))
    kept = _kept(part.file.kept, file.metadata.num_rows)
    columns = stored_names(schema, split.names, file.schema_arrow.names)
    stored = {name: split.names.get(name, (name, None))[0] for name in schema.names}
    values = dict(part.file.partition)
    constants = {
        name: partition_value(values[stored[name]], schema.field(name).type)
        for name in schema.names
        if stored[name] in values
    }
    groups = range(first, end)
    for batch in file.iter_batches(BATCH_ROWS, groups, columns, use_threads=False):
        rows = fitted_batch(batch, schema, split.names, constants)
        if kept is not None:
            rows = rows.filter(pa.array(kept[row : row + batch.num_rows]))
        row += batch.num_rows
        if rows.num_rows:
            yield rows


def _kept(packed: bytes | None, n_rows: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return which rows of a file are kept; None: all."""
    if packed is None:
        return None
    bits = np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8))[:n_rows].astype(bool)
    return np.concatenate([bits, np.ones(n_rows - len(bits), bool)])


def partition_value(value: Any, wanted: pa.DataType) -> pa.Scalar:
    """Return the value of a partition column, which is a text in the log.

    Instants without a zone are UTC. An empty text is NULL.
    """
    if value is None or value == "":
        return pa.scalar(None, wanted)
    if not isinstance(value, str):
        return pa.scalar(value, pa.scalar(value).type).cast(wanted)
    if pa.types.is_timestamp(wanted) and wanted.tz is not None:
        time = datetime.fromisoformat(value)
        return pa.scalar(time.replace(tzinfo=UTC) if time.tzinfo is None else time, wanted)
    return pa.scalar(value).cast(wanted)


def _commit(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _plain(uri: str) -> str:
    """Return a URI without what stands for characters in it; of a local file its path."""
    return unquote(uri).removeprefix("file://")


def _n_records(stats: str | None) -> int | None:
    n_rows = json.loads(stats).get("numRecords") if stats else None
    return None if n_rows is None else int(n_rows)


def _names_of(fields: Sequence[Mapping[str, Any]]) -> Names:
    return {
        field["name"]: (
            field.get("metadata", {}).get(_PHYSICAL, field["name"]),
            _inner(field["type"]),
        )
        for field in fields
    }


def _is_mapped(names: Any) -> bool:
    """Return whether a column has another name in the files."""
    if isinstance(names, dict):
        return any(name != stored or _is_mapped(inner) for name, (stored, inner) in names.items())
    return isinstance(names, tuple) and any(map(_is_mapped, names))


def _inner(kind: Any) -> Any:
    """Return the names in the files of the fields of a type; None if it has none."""
    if isinstance(kind, str):
        return None
    if kind["type"] == "struct":
        return _names_of(kind["fields"])
    if kind["type"] == "array":
        return _inner(kind["elementType"])
    return _inner(kind["keyType"]), _inner(kind["valueType"])


def _ddl(kind: Any) -> str:
    """Return a type of Delta's in Spark's DDL; KeyError: there is none."""
    from eddyline.sql.parsing import quoted  # noqa: PLC0415 - workers need no parser

    if isinstance(kind, str):
        return kind if re.fullmatch(r"decimal\(\d+, ?-?\d+\)", kind) else _SIMPLE[kind]
    if kind["type"] == "struct":
        fields = (f"{quoted(field['name'])}: {_ddl(field['type'])}" for field in kind["fields"])
        return f"struct<{', '.join(fields)}>"
    if kind["type"] == "array":
        return f"array<{_ddl(kind['elementType'])}>"
    return f"map<{_ddl(kind['keyType'])}, {_ddl(kind['valueType'])}>"


_ORDER = ("byte", "short", "integer", "long")


def _is_wider(before: Any, after: Any) -> bool:
    """Return whether values of a type can be read as another one."""
    if isinstance(before, str) or isinstance(after, str):
        if before in _ORDER and after in _ORDER:
            return _ORDER.index(before) <= _ORDER.index(after)
        return before == after or (before, after) == ("float", "double")
    if before["type"] != after["type"]:
        return False
    if before["type"] == "struct":
        fields = {field["name"]: field["type"] for field in after["fields"]}
        return all(
            field["name"] in fields and _is_wider(field["type"], fields[field["name"]])
            for field in before["fields"]
        )
    parts = ("elementType",) if before["type"] == "array" else ("keyType", "valueType")
    return all(_is_wider(before[part], after[part]) for part in parts)
