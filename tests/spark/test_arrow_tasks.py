"""What tasks in Python workers have in common, without Spark."""

from __future__ import annotations

import gc
import io
import sys
import traceback

import pyarrow as pa
import pytest

from eddyline.spark import arrow_tasks
from eddyline.spark.arrow_tasks import (
    _WithoutBrokenPipes,
    gathered,
    leave_out_of_collections,
    quiet_when_cut_short,
)


def printed(text, *, in_pieces):
    """Return what a worker that may be cut short prints of a text."""
    stream = io.StringIO()
    quiet = _WithoutBrokenPipes(stream)
    for piece in text.splitlines(keepends=True) if in_pieces else [text]:
        quiet.write(piece)
    return stream.getvalue()


def raised(error):
    try:
        raise error
    except type(error):
        return traceback.format_exc()


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError()])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_traces_of_broken_pipes_are_not_printed(error, in_pieces):
    assert printed(raised(error), in_pieces=in_pieces) == ""
    assert printed(raised(error) + "after it\n", in_pieces=True) == "after it\n"


@pytest.mark.parametrize("in_pieces", [False, True])
def test_everything_else_is(in_pieces):
    text = raised(ValueError("first\n  second line")) + "plain\n" + raised(KeyError("k"))
    assert printed(text, in_pieces=in_pieces) == text


def test_a_worker_is_quiet_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    quiet_when_cut_short()
    quiet_when_cut_short()
    assert sys.stderr._stream is stream
    assert not sys.stderr.closed, "it is the stream in all else"


def test_what_is_loaded_is_collected_no_more_and_what_comes_later_is(monkeypatch):
    monkeypatch.setattr(arrow_tasks, "_n_loaded", 0)
    try:
        leave_out_of_collections()
        n_kept = gc.get_freeze_count()
        assert n_kept > len(sys.modules)
        made = [[] for _ in range(1000)]
        leave_out_of_collections()
        assert gc.get_freeze_count() <= n_kept, "no module came since"
        for number in range(arrow_tasks.MANY_MODULES):
            monkeypatch.setitem(sys.modules, f"a_module_that_came_{number}", None)
        leave_out_of_collections()
        assert gc.get_freeze_count() >= n_kept + len(made) / 2
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("sizes", [[], [3], [1, 2, 3, 4], [0, 0, 5], [5, 0], [2] * 9])
@pytest.mark.parametrize("n_rows", [1, 4, 100])
def test_gathered_batches_have_all_rows_in_their_order(sizes, n_rows):
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    batches = [
        (pa.array(range(start, start + n), pa.int64()), pa.array(["x"] * n, pa.string()))
        for start, n in zip(starts, sizes, strict=True)
    ]
    found = list(gathered(iter(batches), lambda: n_rows, 1 << 20))
    rows = [row for columns in found for row in columns[0].to_pylist()]
    assert rows == list(range(sum(sizes)))
    assert all(len(columns[0]) >= n_rows for columns in found[:-1])
    assert all(len(columns[0]) == len(columns[1]) for columns in found)
