from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state import mapped_runs
from eddyline.state.mapped_runs import MappedRuns
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import paths_of, write_run

FILES = fs.LocalFileSystem()


def written(folder, name, *times):
    starts = np.array(times, np.int64)
    run = SortedRun.of(Rows({0: starts}, starts, starts + 10, pa.table({"at": starts})))
    write_run(FILES, str(folder), name, run)


def times_in(run):
    return sorted(run.rows.payload["at"].to_pylist())


def test_a_run_is_mapped_once(tmp_path):
    written(tmp_path, "r", 3, 1)
    runs = MappedRuns()
    first = runs.run(FILES, str(tmp_path), "r", (0,))
    assert times_in(first) == [1, 3]
    assert runs.run(FILES, str(tmp_path), "r", (0,)) is first


def test_another_run_of_the_same_name_is_opened_anew(tmp_path):
    runs = MappedRuns()
    for times in ((1, 2), (3, 4, 5)):
        written(tmp_path, "r", *times)
        assert times_in(runs.run(FILES, str(tmp_path), "r", (0,))) == list(times)
        for path in paths_of(str(tmp_path), "r"):
            FILES.delete_file(path)
    with pytest.raises(OSError, match="No such file"):
        runs.run(FILES, str(tmp_path), "r", (0,))


def test_runs_that_are_gone_are_let_go_of(tmp_path):
    runs = MappedRuns()
    for number in range(6):
        for path in paths_of(str(tmp_path), f"r{number - 1}") if number else ():
            FILES.delete_file(path)
        written(tmp_path, f"r{number}", number)
        runs.run(FILES, str(tmp_path), f"r{number}", (0,))
    assert len(runs) == 1


def test_no_more_runs_stay_than_may_and_the_oldest_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_runs, "MOST_RUNS", 3)
    runs, opened = MappedRuns(), {}
    for number in range(3):
        written(tmp_path, f"r{number}", number)
        opened[number] = runs.run(FILES, str(tmp_path), f"r{number}", (0,))
    assert runs.run(FILES, str(tmp_path), "r0", (0,)) is opened[0]
    written(tmp_path, "r3", 3)
    runs.run(FILES, str(tmp_path), "r3", (0,))
    assert len(runs) == 3
    assert runs.run(FILES, str(tmp_path), "r0", (0,)) is opened[0]
    assert runs.run(FILES, str(tmp_path), "r1", (0,)) is not opened[1]


def test_what_is_not_mapped_is_not_kept(tmp_path):
    written(tmp_path, "r", 7)
    runs, elsewhere = MappedRuns(), fs.SubTreeFileSystem(str(tmp_path), FILES)
    assert times_in(runs.run(elsewhere, "", "r", (0,))) == [7]
    assert len(runs) == 0
