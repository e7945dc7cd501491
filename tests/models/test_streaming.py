"""Models of a stream give, batch by batch, what they give of all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.models.entities.kept import CODE
from eddyline.models.streams.bucket import BucketBatch
from eddyline.models.streams.plan import BucketState, RowCounts, StreamInput, StreamPlan
from eddyline.models.streams.view import waiting_rows
from eddyline.state.place import StatePlace
from tests.examples import examples
from tests.models.batches import (
    DECLARED,
    DOOR,
    FIT,
    INPUT,
    NODES,
    OF_TWO,
    SECOND,
    SHAPE,
    TOGETHER,
    at_once,
    average,
    check_together,
    of,
    reported,
    rows_of,
    shown,
    streamed,
    table_of,
)
from tests.models.test_crossings import NODES as CROSSED

QUICK = {"segments": NODES, "macd": NODES, "changes of what is covered": NODES,
         "of a part, joined with all": NODES, "greatest of each of pairs, joined": CROSSED,
         "changes of the greatest": CROSSED}  # fmt: skip
"""A few of all graphs, which have most of what streams do between them."""


@examples(20)
@pytest.mark.parametrize("name", QUICK)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 50),
    cuts=st.lists(st.floats(0, 1), max_size=3),
    maker=st.sampled_from([FIT, DOOR]),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_batches_of_a_few_graphs_give_what_all_rows_give(name, seed, n, cuts, maker, lateness):
    node, table = QUICK[name][name], table_of(rows_of(seed, n), maker)
    rng = np.random.default_rng(seed + 1)
    found = streamed(table, maker, node, [int(each * n) for each in cuts], lateness, rng)
    assert shown(found) == shown(at_once(table, maker, node))


@pytest.mark.large
@examples(60)
@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("maker", [FIT, DECLARED, DOOR], ids=["fit", "declared", "door"])
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    cuts=st.lists(st.floats(0, 1), max_size=5),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_any_batches_give_what_all_rows_give_at_once(name, maker, seed, n, cuts, lateness):
    rows = rows_of(seed, n)
    table = table_of(rows, maker)
    rng = np.random.default_rng(seed + 1)
    found = streamed(table, maker, NODES[name], [int(each * n) for each in cuts], lateness, rng)
    assert shown(found) == shown(at_once(table, maker, NODES[name]))


MAKERS = {"fit": FIT, "declared": DECLARED}


@pytest.mark.large
@examples(25)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("makers", [("fit", "declared"), ("declared", "fit"), ("fit", "static")])
@given(**OF_TWO)
def test_any_batches_of_two_streams_give_what_all_rows_give(name, makers, **drawn):
    check_together([MAKERS.get(each) for each in makers], TOGETHER[name], **drawn)


def written_by_batches(tmp_path, n_idle, node):
    """Return the bytes that 24 batches of 40 entities write beside so many others that wait."""
    place = StatePlace(fs.LocalFileSystem(), str(tmp_path / str(n_idle)), "models")
    fs.LocalFileSystem().create_dir(place.runs)
    plan = StreamPlan((StreamInput(FIT, SHAPE),), node)

    def rows(entities, at):
        keys, times = (
            np.repeat(entities, 4),
            np.tile(at * SECOND + np.arange(4) * SECOND, len(entities)),
        )
        values = np.sin(keys * 7.0 + times)
        return pa.table(
            {
                "k": keys, "ts": pa.array(times).cast(pa.timestamp("us", "UTC")), "x": values,
                "y": values, CODE: keys,
            }
        )  # fmt: skip

    state, sizes = BucketState(), []
    for number in range(28):
        # The others all come first, and none of them is over before the last batch.
        new = np.arange(40) if number else np.arange(n_idle)
        at = 1000 + number // 10 if number else 996
        batch = BucketBatch(plan, place, state, 0, max(at + 2, 1000) * SECOND)
        names = {file.name for file in state.files}
        list(batch.run([rows(new, at)]))
        state = batch.report.after
        sizes.append(sum(file.n_bytes for file in state.files if file.name not in names))
    return sizes[0], sum(sizes[4:])


@pytest.mark.parametrize("node", [INPUT, of(average(60))], ids=["segments", "averages"])
def test_a_batch_writes_what_it_changes_and_not_the_state(tmp_path, node):
    (first, few), (first_of_many, many) = (
        written_by_batches(tmp_path, n, node) for n in (2_000, 20_000)
    )
    assert first_of_many > 8 * first
    assert many <= 1.3 * few
    assert few < 24 * first


@examples(40)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 80), n_cuts=st.integers(0, 6))
def test_each_row_that_waits_is_counted_once(seed, n, n_cuts):
    rng = np.random.default_rng(seed)
    table = table_of(rows_of(seed, n), FIT).sort_by("ts")
    codes = pa.array(rng.integers(0, 3, n), pa.int64())
    table = table.append_column(CODE, codes).set_column(0, "k", codes.cast(pa.string()))
    cuts = sorted(rng.integers(0, n + 1, n_cuts).tolist())
    plan = StreamPlan((StreamInput(FIT, SHAPE),), INPUT)
    reports, _ = reported(plan, table, cuts)
    n_done = 0
    for report, n_arrived in zip(reports, [*cuts, n, n], strict=True):
        n_done += report.fit.n_rows + report.fit.n_without
        waiting = report.after.counted(0)
        assert n_arrived - n_done == waiting.ahead + waiting.open
    assert reports[-1].after.counted(0) == RowCounts()


def test_rows_of_open_runs_and_rows_ahead_of_event_time_are_told_apart(tmp_path):
    place = StatePlace(fs.LocalFileSystem(), str(tmp_path), "models")
    fs.LocalFileSystem().create_dir(place.runs)
    plan = StreamPlan((StreamInput(FIT, SHAPE),), INPUT)
    keys, seconds = np.repeat(np.arange(10), 3), np.tile([0, 1, 2], 10)
    rows = pa.table(
        {
            "k": keys, "ts": pa.array(seconds * SECOND).cast(pa.timestamp("us", "UTC")),
            "x": keys * 1.0, "y": keys * 1.0, CODE: keys,
        }
    )  # fmt: skip
    state, counts = BucketState(), []
    # Event time passes two of three rows, the third one, and then the gap of six seconds.
    for seconds_passed, arrived in ((2, rows), (3, None), (8, None), (9, None)):
        batch = BucketBatch(plan, place, state, 0, seconds_passed * SECOND)
        list(batch.run([arrived]))
        state = batch.report.after
        counts.append(state.counted(0))
    assert counts == [RowCounts(10, 20), RowCounts(0, 30), RowCounts(0, 30), RowCounts()]
    (waiting,) = waiting_rows(plan, ["s"], [batch.state], 0)
    assert (waiting.n_ahead, waiting.n_open) == (0, 30)
    assert waiting.until == (8 + 6) * SECOND
    assert (waiting.wait_us, waiting.prefix_rows) == (6 * SECOND, 16)
