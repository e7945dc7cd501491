"""Columns of Parquet files as columns of a table.

Names and types are matched, and a file may lack columns. Formats of tables with a log may store a
column under another name, in an older type, or not at all. Workers import the module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Names = dict[str, tuple[str, Any]]
"""By name of a field: its name in the files, and the names of its own fields (of a struct, of the
elements of a list, of keys and values of a map), or None."""


def fitted(array: pa.Array, wanted: pa.DataType, names: Any = None) -> pa.Array:
    """Return an array as one of another type: fields by their names, values cast.

    Args:
        array: what the file has; not sliced.
        wanted: the type of the table.
        names: of a struct: ``Names``; of a list: the names of its element; of a map: a pair.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if pa.types.is_struct(wanted):
        return _struct(array, wanted, names or {})
    if pa.types.is_list(wanted):
        values = fitted(array.values, wanted.value_type, names)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=mask)
    if pa.types.is_map(wanted):
        of_keys, of_items = names or (None, None)
        keys = fitted(array.keys, wanted.key_type, of_keys)
        items = fitted(array.items, wanted.item_type, of_items)
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=mask)
    return array if array.type == wanted else array.cast(wanted)


def _struct(array: pa.StructArray, wanted: pa.StructType, names: Names) -> pa.Array:
    places = {field.name: place for place, field in enumerate(array.type)}
    children = []
    for field in wanted:
        stored, inner = names.get(field.name, (field.name, None))
        if stored in places:
            children.append(fitted(array.field(places[stored]), field.type, inner))
        else:
            children.append(pa.nulls(len(array), field.type))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


def fitted_batch(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    names: Names,
    constants: Mapping[str, pa.Scalar],
) -> pa.RecordBatch:
    """Return rows of a file as rows of a table.

    Args:
        batch: the columns of the file that the table has.
        schema: the columns of the table.
        names: in the files, where they are others.
        constants: by name of a column, its value in every row of the file.
    """
    columns: list[pa.Array] = []
    for field in schema:
        stored, inner = names.get(field.name, (field.name, None))
        if field.name in constants:
            columns.append(pa.repeat(constants[field.name].cast(field.type), batch.num_rows))
        elif stored in batch.schema.names:
            columns.append(fitted(batch.column(stored), field.type, inner))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stored_names(schema: pa.Schema, names: Names, there: Sequence[str]) -> list[str]:
    """Return the columns of a file that a table has."""
    stored = [names.get(name, (name, None))[0] for name in schema.names]
    return [name for name in stored if name in there]
