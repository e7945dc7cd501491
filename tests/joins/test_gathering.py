"""Rows of many parts are taken as if the parts were one table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.joins.gathering import rows_of_parts


def parts_of(rng, sizes):
    return [
        pa.table(
            {
                "number": rng.integers(0, 1000, size),
                "text": [f"{value}" * (value % 3) or None for value in rng.integers(0, 9, size)],
            },
            schema=pa.schema({"number": pa.int64(), "text": pa.string()}),
        )
        for size in sizes
    ]


@pytest.mark.parametrize("sizes", [(50,), (1, 1), (3, 200, 1), (500, 0, 70, 30, 2)])
@pytest.mark.parametrize("n_rows", [0, 1, 17, 400])
def test_rows_of_parts_are_those_of_one_table(sizes, n_rows):
    rng = np.random.default_rng([n_rows, *sizes])
    parts = parts_of(rng, sizes)
    whole = pa.concat_tables(parts).combine_chunks()
    for rows in (rng.integers(0, sum(sizes), n_rows), np.full(n_rows, sum(sizes) - 1)):
        wanted = whole.take(pa.array(rows)).combine_chunks()
        assert rows_of_parts(parts, rows).combine_chunks().equals(wanted)
