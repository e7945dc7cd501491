"""Cells by group: those of wanted groups, in memory and in files that are mapped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.aggregates.cells import CHECK, CODE, of_groups
from eddyline.state.rows import Rows
from eddyline.state.run_files import open_rows, write_rows
from tests.examples import examples

CODES = st.lists(st.integers(-4, 4), max_size=12)


def cells_of(codes):
    own = np.array(sorted(codes), np.int64)
    starts = np.arange(own.size)
    return Rows({CODE: own, CHECK: own}, starts, starts, pa.table({"n": pa.array(starts)}))


@given(CODES, st.sets(st.integers(-6, 6)))
@example([], {1})
@example([3], {4, 5})
@example([3, 3], {3})
@examples(200)
def test_cells_of_groups_are_those_with_their_codes(codes, wanted):
    cells = cells_of(codes)
    found = of_groups(cells, np.array(sorted(wanted), np.int64))
    is_wanted = np.isin(cells.codes[CODE], list(wanted))
    assert found.codes[CODE].tolist() == cells.codes[CODE][is_wanted].tolist()
    assert found.payload["n"].to_pylist() == np.flatnonzero(is_wanted).tolist()


def test_files_are_opened_and_looked_through_without_being_copied(tmp_path):
    """A million silent groups would cost each batch a copy of their codes and instants."""
    n = 100_000
    files = fs.LocalFileSystem()
    file = write_rows(files, str(tmp_path), cells_of(range(n)), is_sorted=True)
    before = pa.total_allocated_bytes()
    rows = open_rows(files, str(tmp_path), file)
    assert of_groups(rows, np.array([-1, 5, n + 1])).codes[CODE].tolist() == [5]
    assert pa.total_allocated_bytes() - before < 8 * n
