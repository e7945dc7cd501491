"""Values that a source could not read: counted once, the newest kept, at a flat price."""

from __future__ import annotations

import time

import pytest

from eddyline.errors import SourceError
from eddyline.sources.rejected import (
    MOST_KEPT,
    MOST_OF_A_SPLIT,
    RejectedValues,
    Rejects,
    file_name,
)
from eddyline.sources.source import Source


class Numbers(Source):
    """A source that is asked for nothing."""

    kind = "numbers"
    names = frozenset({"on_reject"})

    def ddl(self):
        raise NotImplementedError

    def initial(self):
        raise NotImplementedError

    def latest(self, start, most_rows, until):
        raise NotImplementedError

    def splits(self, start, end):
        raise NotImplementedError

    def read(self, split, schema):
        raise NotImplementedError


def reject(folder, batch, offsets, split="t-0-0", stream="s"):
    """Reject values as a task does."""
    source = Numbers({})
    source.rejected_to = str(folder / file_name(stream) / str(batch))
    with Rejects(source, split) as rejects:
        for offset in offsets:
            rejects.add("t", 0, offset, "broken", b"value %d" % offset)


def n_rejected(values, batch):
    return sum(record.n_rejected for record in values.records(batch))


def test_a_task_or_batch_that_runs_again_counts_once(tmp_path):
    values = RejectedValues(tmp_path)
    for _ in range(2):
        reject(tmp_path, 0, [1, 2])
        assert n_rejected(values, 0) == 2
    # Records went between two attempts, so the second has other splits.
    reject(tmp_path, 0, [2, 3], split="t-0-2")
    assert n_rejected(values, 0) == 3
    assert values.table("s", 0)["offset"].to_pylist() == [1, 2, 3]


def test_a_task_that_fails_leaves_nothing(tmp_path):
    source = Numbers({})
    source.rejected_to = str(tmp_path / "s" / "0")
    with pytest.raises(ValueError, match="x"), Rejects(source, "t") as rejects:  # noqa: PT012
        rejects.add("t", 0, 1, "broken", b"")
        raise ValueError("x")
    assert RejectedValues(tmp_path).table("s", 9).num_rows == 0


def test_values_of_a_batch_that_has_not_ended_are_not_shown(tmp_path):
    values = RejectedValues(tmp_path)
    for batch in (0, 1):
        reject(tmp_path, batch, [batch])
    assert values.table("s", 0)["batch"].to_pylist() == [0]
    assert values.table("s", 1)["batch"].to_pylist() == [0, 1]
    assert values.table("other", 1).num_rows == 0


def test_many_values_of_a_task_are_counted_and_not_kept(tmp_path):
    reject(tmp_path, 0, range(3 * MOST_OF_A_SPLIT))
    values = RejectedValues(tmp_path)
    assert n_rejected(values, 0) == 3 * MOST_OF_A_SPLIT
    table = values.table("s", 0)
    assert table.num_rows == MOST_OF_A_SPLIT + 1
    assert table["reason"][-1].as_py() == (
        "values after 1,000 rejected ones of a task are only counted"
    )


def test_a_thousand_batches_stay_flat(tmp_path):
    """A batch costs the same, whatever was rejected before, and the oldest values go."""
    values, seconds, n_values = RejectedValues(tmp_path), [], 40
    for batch in range(1_000):
        reject(tmp_path, batch, range(batch * n_values, (batch + 1) * n_values))
        started = time.process_time()
        assert n_rejected(values, batch) == n_values
        seconds.append(time.process_time() - started)
    kept = MOST_KEPT // n_values
    assert len(list((tmp_path / "s").iterdir())) == kept
    table = values.table("s", 999)
    assert table.num_rows == MOST_KEPT
    assert table["batch"].to_pylist()[0] == 1_000 - kept
    assert sorted(seconds[-200:])[100] < 4 * sorted(seconds[10:210])[100]
    # A run that goes on from the checkpoint keeps as many.
    again = RejectedValues(tmp_path)
    reject(tmp_path, 1_000, range(n_values))
    assert n_rejected(again, 1_000) == n_values
    assert again.table("s", 1_000)["batch"].to_pylist()[0] == 1_001 - kept


def test_values_outlive_a_folder_that_goes_with_its_run(tmp_path):
    values = RejectedValues(tmp_path)
    reject(tmp_path, 0, [5], stream="流")
    values.keep_in_memory()
    (file,) = tmp_path.rglob("*.json")
    file.unlink()
    assert values.table("流", 0)["value"].to_pylist() == ["value 5"]


def test_a_full_disk_is_said(tmp_path):
    (tmp_path / "s").write_text("a file stands where the folder should be")
    with pytest.raises(
        SourceError, match=r"cannot be written to .*; free space, or give write permission"
    ):
        reject(tmp_path, 0, [1])


def test_names_of_files():
    for name in ("s", "a-b_c.d", "Ströme", "流"):
        assert file_name(name) == name
    assert file_name("..") == "%2E."
    assert file_name("a/b c") == "a%2Fb%20c"
    names = {file_name(name) for name in ("x" * 300, "x" * 301, "流" * 200, "%20", " ")}
    assert len(names) == 5
    assert all(len(name.encode()) <= 200 for name in names)
