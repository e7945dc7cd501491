from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state.grid import Grid, Split
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import open_run, paths_of, write_run

FILES = fs.LocalFileSystem()
GRID = Grid((2, 1), (Split(0, 7, (("s", 2),)),))


def run_of(*times):
    starts = np.array(times, np.int64)
    codes = {0: starts % 3, 2: starts % 5}
    payload = pa.table({"at": starts, "text": [str(time) for time in times]})
    return SortedRun.of(Rows(codes, starts, starts + 10, payload))


def test_a_run_comes_back_as_it_was_written(tmp_path):
    run = run_of(5, 1, 4, 9)
    said = write_run(FILES, str(tmp_path), "r", run)
    sizes = [each.stat().st_size for each in tmp_path.iterdir()]
    assert (said.n_rows, said.first_start, said.last_end) == (4, 1, 19)
    assert said.n_bytes == sum(sizes)
    back = open_run(FILES, str(tmp_path), said, (0, 2))
    assert back.rows.payload.equals(run.rows.payload)
    for key in (0, 2):
        assert (back.rows.codes[key] == run.rows.codes[key]).all()
        for part in ("tags", "entries", "directory", "rows", "bounds"):
            assert (getattr(back.index(key), part) == getattr(run.index(key), part)).all()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_run_that_is_not_whole_says_so(tmp_path, which, share):
    file = write_run(FILES, str(tmp_path), "r", run_of(*range(500)))
    path = Path(paths_of(str(tmp_path), "r")[which])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(OSError, match="damaged"):
        open_run(FILES, str(tmp_path), file, (0, 2))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("n_bytes", [1, 8, 512, 5_000])
@pytest.mark.parametrize("files", [FILES, None], ids=["local", "elsewhere"])
def test_bytes_that_are_others_say_so(tmp_path, which, n_bytes, files):
    file = write_run(FILES, str(tmp_path), "r", run_of(*range(5_000)))
    files = files or fs.SubTreeFileSystem(str(tmp_path), FILES)
    folder = str(tmp_path) if files is FILES else ""
    path = Path(paths_of(str(tmp_path), "r")[which])
    whole, rng = path.read_bytes(), np.random.default_rng([which, n_bytes])
    for at in rng.integers(0, len(whole) - n_bytes, 50):
        for other in (bytes(n_bytes), rng.bytes(n_bytes)):
            damaged = whole[:at] + other + whole[at + n_bytes :]
            if damaged != whole:
                path.write_bytes(damaged)
                with pytest.raises(OSError, match="damaged"):
                    open_run(files, folder, file, (0, 2))
    path.write_bytes(whole)
    assert len(open_run(files, folder, file, (0, 2))) == 5_000


def test_parts_of_different_runs_do_not_make_one(tmp_path):
    file = write_run(FILES, str(tmp_path), "r", run_of(1, 2, 3))
    other = write_run(FILES, str(tmp_path), "other", run_of(1, 2))
    Path(paths_of(str(tmp_path), "other")[1]).rename(paths_of(str(tmp_path), "r")[1])
    with pytest.raises(OSError, match="damaged"):
        open_run(FILES, str(tmp_path), file, (0, 2))
    with pytest.raises(OSError, match="No such file"):
        open_run(FILES, str(tmp_path), other, (0, 2))
