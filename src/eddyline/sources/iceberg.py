"""Iceberg tables as streams and tables, without a JVM.

``pyiceberg`` reads them. The driver asks the catalog and reads manifests. A split has the entries
of its files and the schema of the table, so tasks ask no catalog. ``pyiceberg`` finds columns by
their ids and applies position deletes and deletion vectors; it does not read equality deletes,
which are an error.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from eddyline.errors import EddylineError, OptionError, SourceError
from eddyline.registry import checked_text, package
from eddyline.sources.versions import (
    Change,
    Part,
    VersionedSource,
    as_texts,
    checked_start,
    fitted_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from eddyline.sources.source import Offset, Split

NEEDS = ("an Iceberg table", "iceberg")
"""What needs ``pyiceberg``, and the extra that has it."""

CATALOG = "catalog."
"""Start of the names of options that ``pyiceberg`` gets to reach the catalog."""

EXPIRED = -1
"""Stands for a snapshot that has expired and whose id is not known."""

_SIMPLE = {
    **{name: name for name in ("boolean", "int", "float", "double", "date", "string", "binary")},
    "long": "bigint",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Names of Iceberg's types, and what Spark's DDL calls them."""


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str],
    start: str | int | None = None,
    on_change: str | None = None,
    max_per_batch: int | None = None,
) -> Iceberg:
    """Return an Iceberg table as a source, for ``Engine.stream`` or ``Engine.table``.

    Args:
        table: its name with its namespace, such as ``db.views``.
        catalog: properties of the catalog for ``pyiceberg``, such as ``uri`` and ``warehouse``, and
            its ``name`` if that is not ``default``; or the name of one in its configuration.
        start: where a new stream starts. If omitted it reads the table as it stands, and then what
            is added. ``latest``: only what is added from now on. An id of a snapshot: what that
            snapshot and later ones add. A time (ISO 8601, UTC if it says no zone): what is added
            from then on. ``earliest``: the oldest snapshot, then what later ones add.
        on_change: what becomes of snapshots that delete, update or overwrite rows. If omitted they
            are an error. ``ignore`` leaves them out, also rows that such a snapshot inserts beside;
            ``rows`` reads all files that they add as new rows, so rows in them may come again.
        max_per_batch: most rows of a batch; files are not cut, so a larger file is a batch.

    Raises:
        OptionError: an option is out of range.
    """
    options = as_texts(
        {
            "table": checked_text("name of an Iceberg table", table),
            "start": start,
            "on_change": on_change,
            "max_per_batch": max_per_batch,
        }
    )
    return Iceberg(options | catalog_options(catalog))


def catalog_options(catalog: Any) -> dict[str, str]:
    """Return a catalog as options of a source.

    Raises:
        OptionError: it is neither a name nor a mapping.
    """
    if isinstance(catalog, str):
        return {"catalog": checked_text("name of a catalog", catalog)}
    try:
        return {f"{CATALOG}{name}".lower(): str(value) for name, value in dict(catalog).items()}
    except (TypeError, ValueError):
        msg = (
            "catalog= has properties for pyiceberg, such as {'uri': 'http://host:8181'}, or is the "
            "name of a catalog in its configuration"
        )
        raise OptionError(msg, got=type(catalog).__name__) from None


def catalog_of(options: Mapping[str, str]) -> Any:
    """Return the catalog of options of a source.

    Raises:
        Exception: of the catalog.
    """
    properties = {
        name.removeprefix(CATALOG): value
        for name, value in options.items()
        if name.startswith(CATALOG)
    }
    loading = package("pyiceberg.catalog", NEEDS)
    name = properties.pop("name", options.get("catalog"))
    return loading.load_catalog(name, **properties)


@contextmanager
def asking(where: str, **facts: Any) -> Iterator[None]:
    """Say in an error of ``pyiceberg`` which table it is about.

    Raises:
        SourceError: there was one.
    """
    exceptions = package("pyiceberg.exceptions", NEEDS)
    try:
        yield
    except EddylineError:
        raise
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        msg = f"{where} is not there: its catalog, as it is named here, has no such table"
        raise SourceError(msg, **facts) from error
    except Exception as error:  # of the catalog's own client, of the storage or of pyiceberg
        first = next(iter(str(error).splitlines()), "")
        msg = f"{where} cannot be reached or read: {type(error).__name__}: {first}"
        raise SourceError(msg, **facts) from error


@dataclass(frozen=True, slots=True)
class IcebergSplit:
    """What a task reads."""

    properties: dict[str, str]
    """Of the storage."""
    metadata: Any
    """Of the table, without its snapshots."""
    parts: tuple[Part, ...]


class Iceberg(VersionedSource):
    """An Iceberg table; see ``iceberg``. Its versions are ids of snapshots; None: it has none.

    Args:
        options: ``table``, ``catalog`` or ``catalog.…``, and those of ``VersionedSource``.
    """

    kind = "iceberg"
    names: ClassVar[frozenset[str]] = VersionedSource.names | {"table", "catalog"}
    prefixes = (CATALOG,)
    cuts_files = False

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.table = checked_text("name of an Iceberg table", self.options.get("table", ""))
        if not any(name.startswith("catalog") for name in self.options):
            msg = (
                f"the Iceberg table {self.table} needs a catalog, such as "
                f"catalog={{'uri': 'http://host:8181'}}"
            )
            raise OptionError(msg, table=self.table)
        self._loaded: Any = None

    @property
    def where(self) -> str:
        """The table, as errors call it."""
        return f"the Iceberg table {self.table}"

    def ddl(self, version: Offset | None = None) -> str:
        """Return the columns of the table, now or at a version, as Spark's DDL."""
        from eddyline.sql.parsing import quoted  # noqa: PLC0415 - workers need no parser

        columns, table = [], self.loaded(is_new=True)
        schema = table.schema() if version is None else self._schema_at(version["version"])
        for field in schema.fields:
            try:
                columns.append(f"{quoted(field.name)} {_ddl(field.field_type)}")
            except KeyError as error:
                msg = (
                    f"column {field.name!r} of {self.where} has the type {error}, which is not read"
                )
                raise SourceError(msg, column=field.name) from error
        return ", ".join(columns)

    # -- versions ---------------------------------------------------------------------------------

    def newest(self) -> int | None:
        """Return the newest snapshot."""
        snapshot = self.loaded(is_new=True).current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    def oldest(self) -> int | None:
        """Return the oldest snapshot before the newest one."""
        line = [*self._line(self.newest())]
        return line[-1].snapshot_id if line else None

    def before(self, start: str) -> int | None:
        """Return the snapshot after which a start reads."""
        wanted, line = checked_start(start), [*self._line(self.newest())]
        for snapshot in line:
            if isinstance(wanted, datetime):
                if snapshot.timestamp_ms < wanted.timestamp() * 1000:
                    return int(snapshot.snapshot_id)
            elif snapshot.snapshot_id == wanted:
                return _parent(snapshot)
        if not isinstance(wanted, datetime):
            msg = (
                f"start={wanted}: {self.where} has no such snapshot in its history; it has expired "
                f"or is of another branch"
            )
            raise SourceError(msg, version=wanted)
        if line and _parent(line[-1]) is not None:
            msg = (
                f"start={wanted.isoformat()}: the history of {self.where} begins later, because "
                f"snapshots have expired; give a later time, or start='earliest'"
            )
            raise SourceError(msg)
        return None

    def between(self, after: int | None, until: int | None) -> Sequence[int]:
        """Return the snapshots after one, until another one."""
        if after == until:
            return []
        snapshots: list[int] = []
        for snapshot in self._line(until):
            snapshots.insert(0, snapshot.snapshot_id)
            if _parent(snapshot) == after:
                return snapshots
        msg = (
            f"{self.where} does not lead from snapshot {after} to {until}: snapshots have expired, "
            f"or it was rolled back. What was added between them is not known; begin a query with "
            f"another checkpoint, and keep snapshots for longer than queries wait"
        )
        raise SourceError(msg, version=after)

    def change(self, version: int) -> Change:
        """Return the files that a snapshot adds."""
        manifest = package("pyiceberg.manifest", NEEDS)
        snapshot = self._snapshot(version)
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        if operation == "replace":
            return Change(())
        added, is_rewrite = [], operation == "delete"
        with self._asking(version):
            for listed in snapshot.manifests(self.loaded().io):
                if listed.added_snapshot_id != version:
                    continue
                for entry in listed.fetch_manifest_entry(self.loaded().io, discard_deleted=False):
                    if entry.snapshot_id != version:
                        continue
                    is_data = entry.data_file.content == manifest.DataFileContent.DATA
                    if is_data and entry.status == manifest.ManifestEntryStatus.ADDED:
                        added.append(entry.data_file)
                    elif entry.status != manifest.ManifestEntryStatus.EXISTING:
                        is_rewrite = True
        task = package("pyiceberg.table", NEEDS).FileScanTask
        files = tuple(task(file) for file in sorted(added, key=lambda file: str(file.file_path)))
        return Change(files, operation if is_rewrite else "")

    def files(self, version: int | None) -> tuple[Any, ...]:
        """Return the files of a snapshot, by their paths."""
        if version is None:
            return ()
        self._snapshot(version)
        with self._asking(version):
            tasks = self.loaded().scan(snapshot_id=version).plan_files()
            return tuple(sorted(tasks, key=lambda task: str(task.file.file_path)))

    def size(self, file: Any) -> tuple[int | None, int]:
        """Return the number of rows of a file, and its bytes."""
        return int(file.file.record_count), int(file.file.file_size_in_bytes)

    def split(self, version: int | None, parts: tuple[Part, ...]) -> IcebergSplit:  # noqa: ARG002
        """Return what a task needs to read some files: the columns are those of now."""
        return IcebergSplit(*for_tasks(self.loaded()), parts)

    def table_splits(self, version: Offset) -> Sequence[Split]:
        """Return what the tasks of a job read of a version, with the columns that it had."""
        schema_id = self._schema_at(version["version"]).schema_id
        return [
            replace(
                split,
                metadata=split.metadata.model_copy(update={"current_schema_id": schema_id}),
            )
            for split in super().table_splits(version)
        ]

    def _schema_at(self, version: int | None) -> Any:
        """Return the columns of a snapshot."""
        table = self.loaded()
        schema_id = None if version is None else self._snapshot(version).schema_id
        return table.schema() if schema_id is None else table.schemas()[schema_id]

    def plain_path(self, version: int | None, file: Any) -> str | None:  # noqa: ARG002
        """Return the path of a file that has just the rows and columns of the table.

        Columns are found by ids in their files. Their names are those of the table as long as it
        has had one schema, without other names for columns, whose names Parquet takes as they are.
        """
        table = self.loaded()
        path, kind = str(file.file.file_path), str(file.file.file_format)
        place = urlsplit(path)
        if place.scheme == "file" and not place.netloc and "#" not in path and "?" not in path:
            path = place.path
        is_local_parquet = path.startswith("/") and kind in _PARQUET
        has_one_schema = len(table.metadata.schemas) == 1 and NAME_MAPPING not in table.properties
        fields = table.schema().fields
        if file.delete_files or not is_local_parquet or not has_one_schema:
            return None
        are_plain = (_PLAIN_NAME.fullmatch(field.name) and _is_plain(field) for field in fields)
        return path if all(are_plain) else None

    # -- rows -------------------------------------------------------------------------------------

    def read(self, split: IcebergSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        columns = split.metadata.schema()
        unknown = [name for name in schema.names if name not in columns.column_names]
        if unknown:
            msg = (
                f"column {unknown[0]!r} of {self.where} is no longer there; a stream keeps its "
                f"columns. Begin a query with another checkpoint"
            )
            raise SourceError(msg, column=unknown[0])
        reading = package("pyiceberg.io.pyarrow", NEEDS)
        anything = package("pyiceberg.expressions", NEEDS).AlwaysTrue()
        for part in split.parts:
            path = part.file.file.file_path
            try:
                files = package("pyiceberg.io", NEEDS).load_file_io(split.properties, path)
                scan = reading.ArrowScan(
                    split.metadata, files, columns.select(*schema.names), anything
                )
                for batch in _batches(scan, files, part.file):
                    if batch.num_rows:
                        yield fitted_batch(batch, schema, {}, {})
            except FileNotFoundError as error:
                msg = (
                    f"{path} of {self.where} is gone: its snapshot has expired. Begin a query with "
                    f"another checkpoint, and keep snapshots for longer than queries wait"
                )
                raise SourceError(msg, path=path) from error
            except EddylineError:
                raise
            except Exception as error:  # of the storage, of Arrow or of pyiceberg
                msg = f"cannot read {path} of {self.where}: {error}"
                raise SourceError(msg, path=path) from error

    # -- the catalog ------------------------------------------------------------------------------

    def _asking(self, version: int | None = None) -> Any:
        return asking(self.where, table=self.table, version=version)

    def loaded(self, *, is_new: bool = False) -> Any:
        """Return the table, as the catalog has it now or had it when it was asked last.

        Raises:
            SourceError: the catalog does not answer, or does not know it.
        """
        if self._loaded is None or is_new:
            with self._asking():
                if self._loaded is None:
                    self._loaded = catalog_of(self.options).load_table(self.table)
                else:
                    self._loaded.refresh()
        return self._loaded

    def _snapshot(self, version: int) -> Any:
        """Return a snapshot.

        Raises:
            SourceError: it has expired.
        """
        snapshot = self.loaded().snapshot_by_id(version)
        snapshot = snapshot or self.loaded(is_new=True).snapshot_by_id(version)
        if snapshot is None:
            msg = (
                f"snapshot {version} of {self.where} has expired; begin a query with another "
                f"checkpoint, and keep snapshots for longer than queries wait"
            )
            raise SourceError(msg, version=version)
        return snapshot

    def _line(self, version: int | None) -> Iterator[Any]:
        """Yield a snapshot and those before it, as long as they are there."""
        snapshot = None if version is None else self._snapshot(version)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.loaded().snapshot_by_id(parent)


def for_tasks(table: Any) -> tuple[dict[str, str], Any]:
    """Return what a task needs of a table: properties of its storage, metadata without history."""
    few: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
    return dict(table.io.properties), table.metadata.model_copy(update=few)


def _batches(scan: Any, files: Any, task: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file; the public way would hold all of them in memory."""
    reading = package("pyiceberg.io.pyarrow", NEEDS)
    one_by_one = getattr(scan, "_record_batches_from_scan_tasks_and_deletes", None)
    deletes = getattr(reading, "_read_all_delete_files", None)
    if one_by_one is None or deletes is None:
        yield from scan.to_record_batches([task])
    else:
        yield from one_by_one([task], deletes(files, [task]))


def _parent(snapshot: Any) -> int | None:
    """Return the snapshot before one; None: it is the first.

    Snapshots whose parent has expired may not name it. They have rows that they did not add.
    """
    if snapshot.parent_snapshot_id is not None:
        return int(snapshot.parent_snapshot_id)
    summary = snapshot.summary or {}
    n_added = int(summary.get("added-records") or 0)
    return None if int(summary.get("total-records") or n_added) == n_added else EXPIRED


NAME_MAPPING = "schema.name-mapping.default"
"""The property of a table that has other names of columns, for files without ids."""

_PARQUET = ("PARQUET", "FileFormat.PARQUET")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""Names that writers do not change in files."""


def _is_plain(field: Any) -> bool:
    """Whether the values of a column are in files as Spark has them."""
    kind = str(field.field_type)
    return kind in _SIMPLE or kind.startswith("decimal")


def _ddl(kind: Any) -> str:
    """Return a type of Iceberg's in Spark's DDL; KeyError: there is none."""
    from eddyline.sql.parsing import quoted  # noqa: PLC0415 - workers need no parser

    types = package("pyiceberg.types", NEEDS)
    if isinstance(kind, types.StructType):
        fields = (f"{quoted(field.name)}: {_ddl(field.field_type)}" for field in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, types.ListType):
        return f"array<{_ddl(kind.element_type)}>"
    if isinstance(kind, types.MapType):
        return f"map<{_ddl(kind.key_type)}, {_ddl(kind.value_type)}>"
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    return "binary" if isinstance(kind, types.FixedType) else _SIMPLE[str(kind)]
