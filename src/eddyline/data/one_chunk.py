"""Columns of one chunk are taken as they are: Arrow's ``combine_chunks`` copies these, too."""

from __future__ import annotations

import pyarrow as pa


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, which is part of the column where that has one chunk.

    >>> column = pa.chunked_array([[1, 2]])
    >>> whole(column).buffers()[1].address == column.chunk(0).buffers()[1].address
    True
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
