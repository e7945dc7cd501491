"""Rows of many parts are taken as if the parts were one table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.joins.operator.composites import rows_of_parts


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


MONTHS_DAYS = pa.month_day_nano_interval()


def of_all_kinds(rng, size):
    """A table with a column of each kind that is gathered in a way of its own."""
    numbers = rng.integers(0, 1 << 40, size)
    some = np.where(rng.random(size) < 0.3, None, numbers.astype(object)).tolist()
    kinds = {
        "int8": pa.array(numbers % 100, pa.int8()),
        "float32": pa.array(numbers.astype(np.float32)),
        "date": pa.array((numbers % 10_000).astype(np.int32), pa.date32()),
        "instant": pa.array(numbers, pa.timestamp("us", "UTC")),
        "bool": pa.array(numbers % 2 == 0),
        "missing": pa.array(some, pa.int64()),
        "decimal": pa.array(numbers).cast(pa.decimal128(20, 0)),
        "text": pa.array([str(number) for number in numbers], pa.string()),
        "struct": pa.StructArray.from_arrays([pa.array(numbers)], ["n"]),
        "interval": pa.array([(1, number % 9, 0) for number in range(size)], MONTHS_DAYS),
        "null": pa.nulls(size),
    }
    return pa.table(kinds)


def test_columns_of_any_kind_and_layout_are_gathered():
    rng = np.random.default_rng(17)
    parts = [
        of_all_kinds(rng, 300).slice(11, 200),
        pa.concat_tables([of_all_kinds(rng, 40), of_all_kinds(rng, 60)]),
        of_all_kinds(rng, 0),
        of_all_kinds(rng, 500),
    ]
    whole = pa.concat_tables(parts).combine_chunks()
    for rows in (rng.integers(0, 800, 300), rng.integers(0, 200, 50), np.arange(0, 800, 40)):
        found = rows_of_parts(parts, rows)
        found.validate(full=True)
        assert found.combine_chunks().equals(whole.take(pa.array(rows)).combine_chunks())


def test_a_value_that_is_missing_in_one_part_is_missing():
    parts = [pa.table({"v": [1, 2, 3]}), pa.table({"v": pa.array([None, 5, 6], pa.int64())})]
    found = rows_of_parts(parts, np.array([4, 0, 3, 2]))
    assert found["v"].to_pylist() == [5, 1, None, 3]
