"""The backlog by what Spark tells of sources, and by the files of a folder."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from eddyline.runtime.records import Backlog
from eddyline.spark import stream_files as module
from eddyline.spark.stream_files import backlog_of, of_offsets

KAFKA = {"description": "KafkaV2[Subscribe[t, u]]"}


@pytest.fixture(autouse=True)
def options(monkeypatch):
    """Return the names of the options of all streams."""
    found = set()
    monkeypatch.setattr(module, "stream_options", lambda _: found)
    return found


def as_pyspark_has_it(source):
    """Return what Spark tells of a source with its offsets as texts."""
    texts = {name: json.dumps(source[name]) for name in ("endOffset", "latestOffset")}
    return {**source, **texts}


class Folder:
    """A folder that a stream reads, and Spark's list of the files that were read."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "a b%é"
        self.path.mkdir()
        self.checkpoint = tmp_path / "checkpoint"
        self.log = self.checkpoint / "sources" / "0"
        self.log.mkdir(parents=True)

    def put(self, name, n_bytes):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * n_bytes)

    def read(self, batch_id, *names, suffix="", of=None):
        """Note files as read; ``of`` has their batches where the list is a compact one."""
        ids = of or [batch_id] * len(names)
        lines = [
            json.dumps({"path": f"file://{quote(f'{self.path}/{name}')}", "batchId": at})
            for name, at in zip(names, ids, strict=True)
        ]
        (self.log / f"{batch_id}{suffix}").write_text("\n".join(("v1", *lines)))

    def progress(self, offset, n_sources=1, description=None):
        source = {
            "description": description or f"FileStreamSource[file:{self.path}]",
            "endOffset": {"logOffset": offset},
            "latestOffset": None,
        }
        return {"sources": [as_pyspark_has_it(source)] * n_sources}

    def backlog(self, offset=0, n_rows=100, **how):
        return backlog_of(self.progress(offset, **how), None, self.checkpoint, n_rows)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_files_that_wait_have_as_many_rows_for_their_size_as_those_that_were_read(folder):
    for name, n_bytes in (("a", 10), ("b", 30), ("c", 80), ("d", 20)):
        folder.put(name, n_bytes)
    folder.read(0, "a", "b")
    assert folder.backlog() == Backlog(250, is_estimate=True, n_files=2)


def test_files_of_a_batch_that_goes_on_still_wait(folder):
    for name in "abc":
        folder.put(name, 10)
    folder.read(0, "a")
    folder.read(1, "b")
    assert folder.backlog(0).n_files == 2
    assert folder.backlog(1).n_files == 1


def test_a_compact_list_stands_for_those_before_it(folder):
    for name in "abcd":
        folder.put(name, 10)
    folder.read(8, "a")
    folder.read(9, "a", "b", suffix=".compact", of=(8, 9))
    folder.read(10, "c")
    assert folder.backlog(10) == Backlog(33, is_estimate=True, n_files=1)


def test_nothing_waits_once_all_files_were_read(folder):
    folder.put("a", 10)
    folder.read(0, "a")
    assert folder.backlog() == Backlog(0, n_files=0)


def test_files_that_were_moved_away_tell_their_rows_by_their_number(folder):
    folder.put("c", 10)
    folder.read(0, "a", "b")
    assert folder.backlog() == Backlog(50, is_estimate=True, n_files=1)


def test_hidden_files_do_not_count_and_those_of_partitions_do(folder):
    for name in ("_SUCCESS", ".a.crc", "x._COPYING_", "_temporary/b", "day=1/c"):
        folder.put(name, 10)
    folder.read(0, "z")
    assert folder.backlog().n_files == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"description": "FileStreamSource[hdfs://a/b]"}, "not on this machine"),
        ({"description": "FileStreamSource[file:/a/*.json]"}, "by a pattern"),
        ({"description": "FileStreamSource[file:/is/not/there]"}, "cannot be looked at"),
        ({"n_rows": None}, "not counted by stream"),
        ({"n_sources": 2}, ""),
    ],
)
def test_what_is_not_known_says_why(folder, how, why):
    folder.put("a", 10)
    folder.put("b", 10)
    folder.read(0, "a")
    found = folder.backlog(**how)
    assert found.n_rows is None
    assert found.why
    assert why in found.why


def test_options_that_leave_files_out_are_told(folder, options):
    options.add("pathglobfilter")
    assert "leaves files of its folder out" in folder.backlog().why


def test_the_folder_of_a_streaming_sink_has_a_log_of_its_own(folder):
    (folder.path / "_spark_metadata").mkdir()
    assert "Spark's log" in folder.backlog().why


@pytest.mark.parametrize(
    ("name", "most"), [("MOST_LISTED", 1), ("MOST_LOG_BYTES", 5), ("MOST_S", -1)]
)
def test_a_look_is_bounded(folder, monkeypatch, name, most):
    folder.put("a", 10)
    folder.put("b", 10)
    folder.read(0, "a")
    monkeypatch.setattr(module, name, most)
    assert "too many files" in folder.backlog().why


def test_a_list_that_is_damaged_tells_nothing(folder):
    folder.put("a", 10)
    (folder.log / "0").write_text("v1\n{")
    assert folder.backlog() == Backlog(why="the files of its folder cannot be looked at")


def test_before_the_first_batch_nothing_is_known(folder):
    assert backlog_of(None, None, folder.checkpoint, 0).why == "no batch has ended yet"


@pytest.mark.parametrize(
    ("end", "latest", "n_rows"),
    [
        ({"t": {"0": 7, "1": 5}}, {"t": {"0": 9, "1": 5}}, 2),
        ({"t": {"0": 7}}, {"t": {"0": 7, "1": 5}, "u": {"0": 3}}, 8),
        ({"t": {"0": 9}}, {"t": {"0": 7}}, 0),
        ({"t": {"0": 7}}, {"t": {"0": 7}}, 0),
        ({"t": {"0": 7}}, None, None),
        ({"t": 7}, {"t": 9}, None),
    ],
)
def test_offsets_of_kafka_count_rows(end, latest, n_rows):
    found = of_offsets(KAFKA | {"endOffset": end, "latestOffset": latest})
    assert found.n_rows == n_rows
    assert bool(found.why) == (n_rows is None)


@pytest.mark.parametrize(("end", "latest", "n_rows"), [(5, 5, 0), (5, 7, None), (None, 7, None)])
def test_offsets_of_other_sources_tell_only_that_nothing_is_left(end, latest, n_rows):
    rate = {"description": "RateStreamV2[rowsPerSecond=5"}
    assert of_offsets(rate | {"endOffset": end, "latestOffset": latest}).n_rows == n_rows


def test_the_backlog_of_several_sources_is_known_if_that_of_each_is(folder):
    done = KAFKA | {"endOffset": {"t": {"0": 7}}, "latestOffset": {"t": {"0": 9}}}
    silent = {"description": "TextSocket", "endOffset": "3", "latestOffset": "None"}
    found = backlog_of({"sources": [done, as_pyspark_has_it(done)]}, None, folder.checkpoint, 10)
    assert found == Backlog(4)
    assert backlog_of({"sources": [done, silent]}, None, folder.checkpoint, 10).n_rows is None
