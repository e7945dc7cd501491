"""Cold runs, the numbers of their rows, and the filters that a process keeps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state.cold_runs import ColdTier, cooled
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import ReadFiles, RunFile
from eddyline.state.run_index import hashes_of


@pytest.fixture
def kept():
    return ReadFiles(250)


def test_filters_that_are_used_stay_and_others_go_by_their_size(kept):
    a, b, c = {}, {}, {}
    kept.keep(("a", 1), 100, a)
    kept.keep(("b", 2), 100, b)
    assert kept.get(("a", 1)) is a
    kept.keep(("c", 3), 100, c)
    assert kept.get(("b", 2)) is None, "it was used longest ago"
    assert kept.get(("a", 1)) is a
    assert kept.get(("c", 3)) is c
    kept.keep(("d", 4), 900, {})
    assert kept.get(("a", 1)) is kept.get(("c", 3)) is None
    assert kept.get(("d", 4)) == {}, "the newest one stays, whatever its size is"


def test_rows_keep_to_their_numbers_when_runs_below_a_filter_have_left_the_window(tmp_path):
    """Filters that are merged when runs below them have left count rows that are not there."""
    files, folder, runs, cold, has_gaps = fs.LocalFileSystem(), str(tmp_path), {}, (), False
    for number in range(24):
        codes, starts = np.array([2 * number, 2 * number + 1]), np.full(2, 8 * number)
        run = SortedRun.of(Rows({0: codes}, starts, starts + 1_000, pa.table({"at": codes})))
        file = RunFile(str(number), 2, 8 * number, 8 * number + 1_000, 1, 1)
        runs[file.name] = run
        now = 8 * number + 900
        cold = cooled(
            files, folder, cold, [file], lambda of: runs[of.name], horizon=now, length=1_000
        )
        has_gaps |= any(
            part.filter.n_rows < sum(p.filter.n_rows for p in part.parts) for part in cold
        )
        tier = ColdTier(files, folder, cold, (0,), lambda of: runs[of.name])
        wanted = np.concatenate([runs[of.name].rows.codes[0] for p in cold for of in p.runs])
        numbers = np.array([_number(tier, code) for code in wanted.tolist()])
        assert sorted(numbers.tolist()) == [*range(len(tier))]
        having, own = tier.having(numbers)
        found = np.concatenate([each.rows.codes[0] for each in having])[own]
        assert found.tolist() == wanted.tolist()
    assert has_gaps, "filters have been merged whose runs had left in part"


def _number(tier, code):
    """The number of the row of a code, as a look-up finds it."""
    asked = tier.asked(0, hashes_of(np.array([code])), np.array([code]))
    (number,) = [
        first + at
        for run, first, _ in asked
        for at in np.flatnonzero(run.rows.codes[0] == code).tolist()
    ]
    return number
