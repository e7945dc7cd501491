"""One manifest for a query: committed whole, durable before it counts, and cleaned up after."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.data import files
from eddyline.errors import StateError
from eddyline.joins.view import JoinPart
from eddyline.state.bucket_state import BucketState, ColdRuns
from eddyline.state.grid import Grid, Split
from eddyline.state.manifest import FORMAT, ManifestFolder, StatePart
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import open_run, write_run

FILES = fs.LocalFileSystem()
GRID = Grid((2, 1), (Split(0, 7, (("s", 2),)),))


class Counts(msgspec.Struct, forbid_unknown_fields=True):
    """The state of another operator than a join."""

    by_key: dict[str, int]
    run: str = ""


def written(folder, name):
    starts = np.array([1], np.int64)
    run = SortedRun.from_rows(
        Rows({0: starts, 2: starts}, starts, starts + 10, pa.table({"at": starts}))
    )
    return write_run(FILES, folder.place("").runs, name, run)


def committed(folder, batch_id, *names, **more):
    """A manifest of a join with some runs, and of more operators."""
    bucket = BucketState({"s": tuple(written(folder, name) for name in names)})
    part = JoinPart(GRID, {0: bucket}, n_late={"s": batch_id})
    return folder.commit(batch_id, "query", {"join": part.packed(), **more})


def runs_of(folder):
    return {name.split(".")[0] for name in os.listdir(folder.place("").runs)}


@pytest.fixture
def folder(tmp_path):
    return ManifestFolder(FILES, str(tmp_path / "windows"))


def test_a_manifest_comes_back_and_the_last_two_stay(folder):
    assert (folder.latest(), folder.read(0)) == (None, None)
    made = [committed(folder, batch_id, f"r{batch_id}") for batch_id in range(4)]
    assert [folder.read(each.batch_id) for each in made] == [None, None, *made[2:]]
    again = ManifestFolder(FILES, folder.folder)
    assert again.latest() == made[3]
    part = again.latest().parts["join"].read(JoinPart)
    assert (part.grid, part.n_late) == (GRID, {"s": 3})
    assert [file.name for file in part.buckets[0].runs["s"]] == ["r3"]


def test_a_batch_starts_from_the_manifest_before_it(folder):
    assert folder.before(0) == (None, None)
    first, second = committed(folder, 0, "a"), committed(folder, 1, "b")
    assert folder.before(1) == (first, second), "an earlier attempt has committed"
    assert folder.before(2) == (second, None)
    with pytest.raises(StateError, match=r"after batch 6 is not in .*start with an empty"):
        folder.before(7)


def test_operators_are_committed_together_and_each_reads_its_own(folder):
    for name in ("group-1", "group-2"):
        written(folder, name)
    counts = StatePart.from_content(Counts({"x": 3}, "group-1"), ["group-1"])
    committed(folder, 0, "joined", count=counts)
    parts = ManifestFolder(FILES, folder.folder).latest().parts
    assert parts["count"].read(Counts) == Counts({"x": 3}, "group-1")
    assert runs_of(folder) == {"group-1", "joined"}
    with pytest.raises(StateError, match=r"cannot be read as JoinPart: .*backup"):
        parts["count"].read(JoinPart)
    with pytest.raises(StateError, match="cannot be read as Counts"):
        StatePart((), msgspec.Raw(b'{"by_key": {"x"')).read(Counts)


def test_runs_that_no_manifest_names_go(folder):
    first = committed(folder, 0, "old", "stays")
    written(folder, "of-a-failed-attempt")
    part = first.parts["join"].read(JoinPart)
    stays = BucketState({"s": part.buckets[0].runs["s"][1:]})
    for batch_id in (1, 2):
        assert runs_of(folder) >= {"old", "stays"}
        folder.commit(batch_id, "query", {"join": JoinPart(GRID, {0: stays}).packed()})
    assert runs_of(folder) == {"stays"}


def test_files_of_others_in_the_folder_of_runs_stay(folder):
    committed(folder, 0, "r")
    other = Path(folder.place("").runs) / "model.bin"
    other.write_bytes(b"weights")
    committed(folder, 1)
    committed(folder, 2)
    assert runs_of(folder) == {"model"}
    folder.clear()
    assert folder.latest() is None
    assert other.read_bytes() == b"weights"


def test_every_kind_of_file_of_a_bucket_is_kept(folder):
    names = "run", "cold", "filter", "waits", "ends", "groups"
    run, cold, filter_, waits, ends, groups = (written(folder, name) for name in names)
    state = BucketState(
        runs={"s": (run,)},
        cold={"s": (ColdRuns(filter_, cold),)},
        waiting={"s": (waits,)},
        ends={"s": (ends,)},
        groups={"s": groups},
        emitted_until=7,
    )
    for batch_id in range(3):
        folder.commit(batch_id, "query", {"join": JoinPart(GRID, {3: state}).packed()})
    assert runs_of(folder) == set(names)
    assert folder.latest().parts["join"].read(JoinPart).buckets == {3: state}


def test_a_batch_that_runs_again_replaces_its_manifest_and_what_came_after(folder):
    for batch_id in range(3):
        committed(folder, batch_id, f"r{batch_id}")
    again = committed(folder, 1, "again")
    assert (folder.read(1), folder.read(2)) == (again, None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"batch_id": 0}', f'{{"format": {FORMAT}, "batch_id": 0}}', "\xff"]
)
def test_a_manifest_that_is_broken_says_so(folder, text):
    committed(folder, 0, "r")
    Path(folder.folder, "manifest-00000000.json").write_bytes(text.encode("latin1"))
    with pytest.raises(StateError, match=r"cannot be read .*restore it from a backup"):
        folder.read(0)


def test_a_manifest_of_an_older_version_says_what_to_do(folder):
    path = Path(folder.folder, "manifest-00000000.json")
    path.write_text('{"format": 2, "batch_id": 0, "identity": "query", "windows": {}}')
    with pytest.raises(
        StateError, match=rf"format 2, .* reads {FORMAT}; start .* empty checkpoint, or"
    ):
        folder.latest()


@pytest.mark.parametrize("at", range(30, 600, 7))
def test_a_manifest_that_is_not_what_was_written_says_so(folder, at):
    committed(folder, 0, "r")
    path = Path(folder.folder, "manifest-00000000.json")
    whole = path.read_bytes()
    at %= len(whole)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(StateError, match=r"cannot be read.*restore|format"):
        folder.latest()


def test_a_manifest_in_the_place_of_another_batch_says_so(folder):
    for batch_id in range(2):
        committed(folder, batch_id, f"r{batch_id}")
    older, newer = (Path(folder.folder, f"manifest-0000000{each}.json") for each in range(2))
    newer.write_bytes(older.read_bytes())
    with pytest.raises(StateError, match=r"000001.* cannot be read \(it is that of batch 0"):
        ManifestFolder(FILES, folder.folder).before(2)


def test_no_room_for_a_manifest_leaves_the_one_before(folder, monkeypatch):
    before = committed(folder, 0, "r")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"batch 1 cannot be written .*No space left"):
        committed(folder, 1, "r2")
    monkeypatch.undo()
    assert folder.latest() == before
    (run,) = before.parts["join"].read(JoinPart).buckets[0].runs["s"]
    assert open_run(FILES, folder.place("").runs, run, (0, 2)).rows.payload.num_rows == 1


def test_what_a_manifest_names_is_on_the_disk_before_it(folder, monkeypatch):
    flushed = []
    sync, replace = files._sync, Path.replace
    monkeypatch.setattr(files, "_sync", lambda path: flushed.append(Path(path).name) or sync(path))
    monkeypatch.setattr(
        Path, "replace", lambda path, to: flushed.append(Path(to).name) or replace(path, to)
    )
    committed(folder, 0, "a")
    draft, *runs = sorted(flushed[:4], key=lambda name: not name.endswith(".part"))
    assert draft.startswith("manifest-00000000.json.")
    assert sorted(runs) == ["a.index.arrow", "a.rows.arrow", "runs"]
    assert flushed[4:] == ["manifest-00000000.json", "windows"]
    del flushed[:]
    first = folder.latest().parts["join"].read(JoinPart).buckets[0].runs["s"]
    state = BucketState({"s": (*first, written(folder, "b"))})
    folder.commit(1, "query", {"join": JoinPart(GRID, {0: state}).packed()})
    assert "a.rows.arrow" not in flushed, "what the manifest before names is there already"
    assert "b.rows.arrow" in flushed
    written(ManifestFolder(FILES, folder.folder), "of-a-failed-attempt")
    del flushed[:]
    ManifestFolder(FILES, folder.folder).commit(
        2, "query", {"join": JoinPart(GRID, {0: state}).packed()}
    )
    assert flushed[1:] == ["manifest-00000002.json", "windows"], "also after a restart"


def test_a_file_that_is_not_there_is_not_committed(folder):
    before = committed(folder, 0, "r")
    run = before.parts["join"].read(JoinPart).buckets[0].runs["s"][0]
    lost = BucketState({"s": (run, replace(run, name="lost"))})
    with pytest.raises(StateError, match=r"names 1 files that are not in .*, such as lost;"):
        folder.commit(1, "query", {"join": JoinPart(GRID, {0: lost}).packed()})
    assert folder.latest() == before


def test_what_cannot_be_removed_goes_with_a_later_commit(folder, monkeypatch):
    committed(folder, 0, "r")
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_clean", lambda *_: os.unlink("nowhere"))
        for batch_id in (1, 2, 3):
            committed(folder, batch_id, f"r{batch_id}")
    assert runs_of(folder) == {"r", "r1", "r2", "r3"}
    committed(folder, 4, "r4")
    assert runs_of(folder) == {"r3", "r4"}


def test_drafts_of_a_killed_process_go(folder):
    draft = Path(folder.folder, "manifest-00000000.json.4711.part")
    draft.write_text("{")
    committed(folder, 0, "r")
    assert not draft.exists()


def test_any_file_system_will_do(tmp_path):
    files = fs.SubTreeFileSystem(str(tmp_path), FILES)
    folder = ManifestFolder(files, "windows")
    manifest = folder.commit(0, "query", {"join": JoinPart(GRID).packed()})
    assert ManifestFolder(files, "windows").latest() == manifest
