"""Runs as files: they come back as they were written, and are mapped once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state import run_files
from eddyline.state.grid import Grid, Split
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import MappedRuns, open_run, paths_of, write_run

FILES = fs.LocalFileSystem()
GRID = Grid((2, 1), (Split(0, 7, (("s", 2),)),))


def run_of(*times):
    starts = np.array(times, np.int64)
    codes = {0: starts % 3, 2: starts % 5}
    payload = pa.table({"at": starts, "text": [str(time) for time in times]})
    return SortedRun.from_rows(Rows(codes, starts, starts + 10, payload))


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


def written(folder, name, *times):
    starts = np.array(times, np.int64)
    run = SortedRun.from_rows(Rows({0: starts}, starts, starts + 10, pa.table({"at": starts})))
    return write_run(FILES, str(folder), name, run)


def times_in(run):
    return sorted(run.rows.payload["at"].to_pylist())


def test_a_run_is_mapped_once(tmp_path):
    file, runs = written(tmp_path, "r", 3, 1), MappedRuns()
    first = runs.run(FILES, str(tmp_path), file, (0,))
    assert times_in(first) == [1, 3]
    assert runs.run(FILES, str(tmp_path), file, (0,)) is first


def test_another_run_of_the_same_name_is_opened_anew(tmp_path):
    runs = MappedRuns()
    for times in ((1, 2), (3, 4, 5)):
        file = written(tmp_path, "r", *times)
        assert times_in(runs.run(FILES, str(tmp_path), file, (0,))) == list(times)
        for path in paths_of(str(tmp_path), "r"):
            FILES.delete_file(path)
    with pytest.raises(OSError, match="No such file"):
        runs.run(FILES, str(tmp_path), file, (0,))


def test_a_run_that_was_damaged_since_it_was_mapped_says_so(tmp_path):
    file, runs = written(tmp_path, "r", *range(500)), MappedRuns()
    runs.run(FILES, str(tmp_path), file, (0,))
    damage(tmp_path, 1)
    with pytest.raises(OSError, match="damaged"):
        runs.run(FILES, str(tmp_path), file, (0,))


def test_a_process_trusts_the_run_that_it_wrote_once(tmp_path):
    starts = np.arange(500)
    run = SortedRun.from_rows(Rows({0: starts}, starts, starts + 10, pa.table({"at": starts})))
    writer = MappedRuns()
    file = writer.write(FILES, str(tmp_path), run)
    assert times_in(writer.run(FILES, str(tmp_path), file, (0,))) == list(range(500))
    damage(tmp_path, 1, file.name)
    other = MappedRuns()
    never_mapped = other.write(FILES, str(tmp_path), run)
    damage(tmp_path, 0, never_mapped.name)
    with pytest.raises(OSError, match="damaged"):
        other.run(FILES, str(tmp_path), never_mapped, (0,))
    for runs in (writer, MappedRuns()):
        with pytest.raises(OSError, match="damaged"):
            runs.run(FILES, str(tmp_path), file, (0,))


def damage(folder, which, name="r"):
    path = Path(paths_of(str(folder), name)[which])
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 512] = bytes(512)
    path.write_bytes(whole)


def test_runs_that_are_gone_are_let_go_of(tmp_path):
    runs = MappedRuns()
    for number in range(6):
        for path in paths_of(str(tmp_path), f"r{number - 1}") if number else ():
            FILES.delete_file(path)
        runs.run(FILES, str(tmp_path), written(tmp_path, f"r{number}", number), (0,))
    assert len(runs) == 1


def test_many_runs_are_not_asked_for_each_new_one(tmp_path, monkeypatch):
    asked, runs = [], MappedRuns()
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: asked.append(path) or exists(path))
    for number in range(200):
        runs.run(FILES, str(tmp_path), written(tmp_path, f"r{number}", number), (0,))
    assert len(asked) < 2_000, "about eight for each, and not the hundred that there are"


def test_no_more_runs_stay_than_may_and_the_oldest_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(run_files, "MOST_RUNS", 3)
    runs, opened = MappedRuns(), {}
    files = [written(tmp_path, f"r{number}", number) for number in range(4)]
    for number in range(3):
        opened[number] = runs.run(FILES, str(tmp_path), files[number], (0,))
    assert runs.run(FILES, str(tmp_path), files[0], (0,)) is opened[0]
    runs.run(FILES, str(tmp_path), files[3], (0,))
    assert len(runs) == 3
    assert runs.run(FILES, str(tmp_path), files[0], (0,)) is opened[0]
    assert runs.run(FILES, str(tmp_path), files[1], (0,)) is not opened[1]


def test_what_is_not_mapped_is_not_kept(tmp_path):
    file = written(tmp_path, "r", 7)
    runs, elsewhere = MappedRuns(), fs.SubTreeFileSystem(str(tmp_path), FILES)
    assert times_in(runs.run(elsewhere, "", file, (0,))) == [7]
    assert len(runs) == 0
