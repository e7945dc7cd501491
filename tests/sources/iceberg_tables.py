"""Iceberg tables of tests, in a catalog on SQLite."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import Record


def catalog_in(folder):
    """Return the properties of a catalog in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def make_table(folder, schema, name="db.t", **how):
    catalog = load_catalog(None, **catalog_in(folder))
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    return catalog.create_table(name, schema, **how)


def load_table(folder, name="db.t"):
    return load_catalog(None, **catalog_in(folder)).load_table(name)


class Replacing(_OverwriteFiles):
    """A snapshot of kind ``replace``, which ``pyiceberg`` does not write."""

    def _summary(self, snapshot_properties):
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)


def compact(table):
    """Write all rows of a table to new files, as a compaction does."""
    files = {task.file.file_path: task.file for task in table.scan().plan_files()}
    rows = table.scan().to_arrow()
    before = table.current_snapshot().snapshot_id
    table.append(rows)  # the new files are taken from here
    both = {task.file.file_path: task.file for task in table.scan().plan_files()}
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    with (
        table.transaction() as transaction,
        Replacing(Operation.OVERWRITE, transaction, table.io) as replacing,
    ):
        for path, file in both.items():
            if path in files:
                replacing.delete_data_file(file)
            else:
                replacing.append_data_file(file)
    table.refresh()


def position_deletes(path, data_file, rows):
    """Write a file of position deletes, and return its entry."""
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    table = pa.table([[data_file.file_path] * len(rows), rows], pa.schema(fields))
    pq.write_table(table, path)
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )
