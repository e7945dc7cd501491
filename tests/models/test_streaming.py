"""Models of a stream give, batch by batch, what they give of all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.models.bucket import BucketBatch
from eddyline.models.kept import CODE
from eddyline.models.streaming import BucketState, StreamInput, StreamPlan
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
