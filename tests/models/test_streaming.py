"""Models of a stream give, batch by batch, what they give of all rows at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import graph, steps
from eddyline.models.entities import kept
from eddyline.models.entities.fronts import EntityIndex, KnownFronts
from eddyline.models.entities.kept import CODE, EntityRecords, EntityRows
from eddyline.models.entities.stages import Context, EntityStage, Flow
from eddyline.models.fitting.bounds import Bound
from eddyline.models.fitting.fit import Fit, FitOptions
from eddyline.models.segments import keyed
from eddyline.models.steps import Envelope, Extremum, Integral
from eddyline.models.streams.plan import BucketState, RowCounts, StreamInput, StreamPlan
from eddyline.models.streams.view import waiting_rows
from eddyline.state.rows import FOREVER
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
    Bucket,
    at_once,
    average,
    check_together,
    coded,
    joined,
    of,
    reported,
    rows_of,
    shown,
    streamed,
    table_of,
    where,
)
from tests.models.test_crossings import NODES as CROSSED
from tests.models.test_crossings import TOP, pairs

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
@examples(180, few=12)
@pytest.mark.parametrize("name", NODES)
@given(
    maker=st.sampled_from([FIT, DECLARED, DOOR]),
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


@pytest.mark.large
@examples(75, few=6)
@pytest.mark.parametrize("name", TOGETHER)
@given(makers=st.sampled_from([(FIT, DECLARED), (DECLARED, FIT), (FIT, None)]), **OF_TWO)
def test_any_batches_of_two_streams_give_what_all_rows_give(name, makers, **drawn):
    check_together(makers, TOGETHER[name], **drawn)


def written_by_batches(tmp_path, n_idle, node):
    """Return the bytes that 24 batches of 40 entities write beside so many others that wait."""
    bucket = Bucket(StreamPlan((StreamInput(FIT, SHAPE),), node), tmp_path / str(n_idle))

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

    sizes = []
    for number in range(28):
        # The others all come first, and none of them is over before the last batch.
        new = np.arange(40) if number else np.arange(n_idle)
        at = 1000 + number // 10 if number else 996
        names = {file.name for file in bucket.state.files}
        bucket.run(max(at + 2, 1000) * SECOND, [rows(new, at)])
        sizes.append(sum(file.n_bytes for file in bucket.state.files if file.name not in names))
    return sizes[0], sum(sizes[4:])


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(INPUT, id="segments"),
        pytest.param(of(average(60)), id="averages", marks=pytest.mark.large),
    ],
)
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
        n_done += report.counts.total.n_rows + report.counts.total.n_without
        waiting = report.after.counted(0)
        assert n_arrived - n_done == waiting.ahead + waiting.open
    assert reports[-1].after.counted(0) == RowCounts()


def test_rows_of_open_runs_and_rows_ahead_of_event_time_are_told_apart(tmp_path):
    plan = StreamPlan((StreamInput(FIT, SHAPE),), INPUT)
    bucket, states = Bucket(plan, tmp_path), []
    keys, seconds = np.repeat(np.arange(10), 3), np.tile([0, 1, 2], 10)
    rows = pa.table(
        {
            "k": keys, "ts": pa.array(seconds * SECOND).cast(pa.timestamp("us", "UTC")),
            "x": keys * 1.0, "y": keys * 1.0, CODE: keys,
        }
    )  # fmt: skip
    # Event time passes two of three rows, the third one, and then the gap of six seconds.
    for seconds_passed, arrived in ((2, rows), (3, None), (8, None), (9, None)):
        bucket.run(seconds_passed * SECOND, [arrived])
        states.append(bucket.state)
    counts = [RowCounts(10, 20), RowCounts(0, 30), RowCounts(0, 30), RowCounts()]
    assert [each.counted(0) for each in states] == counts
    (waiting,) = waiting_rows(plan, ["s"], [states[2]], 0)
    assert (waiting.n_ahead, waiting.n_open) == (0, 30)
    assert waiting.until == (8 + 6) * SECOND
    assert (waiting.wait_us, waiting.prefix_rows) == (6 * SECOND, 16)


# -- kept state -----------------------------------------------------------------------------------


LIVES = 3
"""Batches in which an entity has rows."""


def come_and_gone(number, n_new):
    """Return the rows of a batch: so many entities begin in each, and have two rows in three."""
    keys = np.repeat(np.arange(max(number - LIVES + 1, 0) * n_new, (number + 1) * n_new), 2)
    times = (10 * number + np.arange(len(keys)) % 2) * SECOND
    x = np.random.default_rng(number).integers(-9, 9, len(keys)).astype(float)
    return pa.table(
        {
            "k": keys.astype(str), "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "x": x, "y": x, CODE: keys,
        }
    )  # fmt: skip


def held_by_one(number, n_new):
    """Return the same with an entity that goes on all along in one segment, which is never over."""
    others = come_and_gone(number, n_new)
    times = pa.array(np.array([10 * number, 10 * number + 5]) * SECOND)
    zero = pa.array(np.zeros(2))
    one = pa.table(
        {
            "k": ["one"] * 2, "ts": times.cast(pa.timestamp("us", "UTC")), "x": zero, "y": zero,
            CODE: pa.array([-1, -1]),
        }
    )  # fmt: skip
    return pa.concat_tables([others, one]).sort_by("ts")


def all_files(state):
    return [*state.files]


def segment_files(state):
    """Return the files of segments that stages over several entities keep."""
    return [
        file for stage in state.stages.values() for own in stage.segments.values() for file in own
    ]


OF_ROWS = StreamInput(FIT, SHAPE)


def rows_by_batch(tmp_path, monkeypatch, node, rows, files_of=all_files, given=OF_ROWS):
    """Return for each batch the rows that are kept after it, are in files that it opens, are taken
    from files of segments, and are written.

    Codes are searched, not read.
    """
    counts, sizes = Counter(), []
    open_rows, whole = kept.open_rows, kept._whole

    def opening(files, folder, file):
        found = open_rows(files, folder, file)
        counts["opened"] += len(found) if len(found.payload.column_names) > 1 else 0
        return found

    def taking(found):
        counts["taken"] += sum(len(each) for each in found if "lo" in each.column_names)
        return whole(found)

    monkeypatch.setattr(kept, "open_rows", opening)
    monkeypatch.setattr(kept, "_whole", taking)
    bucket = Bucket(StreamPlan((given,), node), tmp_path)
    for number, table in enumerate(rows):
        before = {each.name for each in files_of(bucket.state)}
        counts.clear()
        bucket.run((10 * number + 6) * SECOND, [table])
        files = files_of(bucket.state)
        written = sum(each.n_rows for each in files if each.name not in before)
        kept_rows = sum(each.n_rows for each in files)
        sizes.append((kept_rows, counts["opened"], counts["taken"], written))
    return np.array(sizes)


def test_rows_that_nothing_looks_at_are_hidden_while_their_file_stays(tmp_path):
    def ends(rows):
        return rows.column("end").to_numpy()

    table = pa.table({CODE: [1, 1, 2, 3], "value": [0, 1, 2, 3], "end": [10, 20, 12, 30]})
    place = Bucket(None, tmp_path).place
    files = EntityRows(place, (), ends, ends).after(table, 0, lambda rows: rows)
    rows = EntityRows(place, files, ends, ends)
    assert rows.of(np.array([1, 2]), 5).column("value").to_pylist() == [0, 1, 2]
    assert rows.of(np.array([1, 2]), 12).column("value").to_pylist() == [1]
    assert rows.of(np.array([1, 2]), 20) is None


def test_records_go_once_runs_are_merged_behind_their_instant(tmp_path):
    place, runs = Bucket(None, tmp_path).place, ()
    for at in range(4):
        codes = np.array([at])
        records = {
            "told": (pa.table({CODE: codes}), codes),
            "held": (pa.table({CODE: codes}), codes),
        }
        runs = EntityRecords(place, runs).after(codes, records, {"told": -1})
    runs = EntityRecords(place, runs).after(np.zeros(0, np.int64), {}, {"told": 1})
    found = EntityRecords(place, runs).given(np.arange(4))
    assert {kind: each.column(CODE).to_pylist() for kind, each in found.items()} == {
        "told": [2, 3], "held": [0, 1, 2, 3],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("node", "n"), [(of(where("x > 0")), 0), (of(steps.Changes()), 0), (of(average(20)), 3)],
    ids=["where", "changes", "average"],
)  # fmt: skip
def test_segments_that_nothing_looks_back_at_are_not_kept(tmp_path, node, n):
    # Those of a table come before any row does, when no entity is looked at.
    place = Bucket(None, tmp_path).place
    (stage,) = StreamPlan((StreamInput(None, SHAPE),), node).stages
    keys = (CODE, *SHAPE.keys)
    rows = table_of((np.array([0, 0, 1]), np.arange(3) * SECOND, np.ones(3), np.ones(3)), DECLARED)
    (segments,) = replace(DECLARED, keys=keys).tables(coded(rows).to_batches())
    fresh = keyed(segments, replace(SHAPE, keys=keys).layout)
    before, flows = BucketState(), [Flow(fresh, KnownFronts(FOREVER))]
    index = EntityIndex(place, 0, 0, before)
    kept_files, _ = EntityStage(stage, index, before, flows, Context(place, "UTC")).keep()
    files = [file for each in kept_files.values() for file in each]
    assert sum(each.n_rows for each in files) == n


X = of(steps.Project.onto("x"))

FORGETTING = {
    "average": (of(average(20)), 10),
    "join": (joined(), 10),
    "average of a part": (of(average(9), of(where("x > 0"))), 10),
    "samples of a join": (of(steps.Sample(SECOND), joined()), 10),
    "greatest at ticks": (of(Extremum(20 * SECOND, 5 * SECOND, True), X), 10),
    "greatest": (of(Extremum(20 * SECOND, None, True), X), 10),
    "average of what is covered": (of(average(20, 5, covered=True)), 10),
    "changes of sums of a part": (
        of(steps.Changes(), of(Integral(9 * SECOND, None, False, True), of(where("x > 0")))), 10
    ),
    "greatest of a part, with all": (NODES["of a part, joined with all"], 10),
    "pairs of the greatest": (pairs(None, of(Extremum(9 * SECOND, None, True), X)), 2),
    "greatest of averages of what is covered": (
        of(Envelope((), True), of(average(9, covered=True), X)), 10
    ),
}  # fmt: skip


@pytest.mark.large("takes 75 batches")
@pytest.mark.parametrize("name", FORGETTING)
def test_windows_forget_entities_that_are_over(tmp_path, monkeypatch, name):
    node, n_new = FORGETTING[name]
    rows = (come_and_gone(number, n_new) for number in range(75))
    sizes = rows_by_batch(tmp_path, monkeypatch, node, rows)
    kept_rows, read, _, written = (each.reshape(-1, 15) for each in sizes.T)
    assert kept_rows[4].max() <= 1.2 * kept_rows[0].max()
    assert read[4].sum() <= 1.1 * read[1].sum()
    assert written[4].sum() <= 1.1 * written[1].sum()


@pytest.mark.large("takes 75 batches")
@pytest.mark.parametrize(
    ("node", "n_new"), [(pairs("a.x < b.x"), 3), (TOP, 10)], ids=["pairs", "greatest"]
)
def test_what_is_kept_of_many_entities_is_not_read_and_written_in_each_batch(
    tmp_path, monkeypatch, node, n_new
):
    rows = (held_by_one(number, n_new) for number in range(75))
    sizes = rows_by_batch(tmp_path, monkeypatch, node, rows, segment_files)
    kept_rows, _, taken, written = (each.reshape(-1, 25) for each in sizes.T)
    assert kept_rows[2, -1] >= 2.5 * kept_rows[0, -1]
    # Files are merged when newer ones have become as large: so a row is written a few times in all.
    assert taken[2].sum() <= 0.1 * kept_rows[2].sum()
    assert written[2].sum() <= 0.1 * kept_rows[2].sum()


@pytest.mark.large("takes 100 batches")
def test_rows_of_an_open_run_are_written_once_and_when_files_are_merged(tmp_path, monkeypatch):
    def rows(number):
        """Return ten rows of each of two entities; one goes on in one segment all along."""
        times = (10 * number + np.arange(20) // 2) * SECOND
        keys, one = np.arange(20) % 2, np.where(np.arange(20) % 2, 0.0, 9.0 * number)
        table = table_of((keys, times, one, np.zeros(20)), FIT)
        return coded(table)

    sizes = rows_by_batch(tmp_path, monkeypatch, INPUT, map(rows, range(100)))
    kept_rows, _, _, written = sizes.T
    assert kept_rows[-1] >= 1_000
    assert written.sum() <= 6 * 2_000
    assert np.median(written[50:]) <= 60


def held_in_groups(number, n_new):
    """Return the same in three groups, each with an entity that goes on all along."""
    rows = held_by_one(number, n_new).filter(pc.field("k") != "one")
    codes = rows.column(CODE).to_numpy()
    rows = rows.append_column("m", pa.array(codes % 3))
    ones = [held_by_one(number, 0).append_column("m", pa.array([m, m])) for m in range(3)]
    keys = [pa.array([f"one {m}"] * 2) for m in range(3)]
    own = [pa.array([-1 - m] * 2) for m in range(3)]
    ones = [
        each.set_column(0, "k", k).set_column(each.column_names.index(CODE), CODE, code)
        for each, k, code in zip(ones, keys, own, strict=True)
    ]
    return pa.concat_tables([rows, *ones]).sort_by("ts")


@pytest.mark.large("takes 75 batches")
def test_what_is_kept_of_groups_by_keys_is_not_read_and_written_in_each_batch(
    tmp_path, monkeypatch
):
    shape = steps.Shape(("k", "m"), ("x", "y"))
    node = of(Envelope(("m",), True), of(steps.Project.onto("x"), graph.Input(0, shape)))
    rows = (held_in_groups(number, 12) for number in range(75))
    given = StreamInput(replace(FIT, keys=shape.keys), shape)
    sizes = rows_by_batch(tmp_path, monkeypatch, node, rows, segment_files, given)
    kept_rows, _, taken, written = (each.reshape(-1, 25) for each in sizes.T)
    assert kept_rows[2, -1] >= 2.5 * kept_rows[0, -1]
    assert taken[2].sum() <= 0.1 * kept_rows[2].sum()
    assert written[2].sum() <= 0.1 * kept_rows[2].sum()


def visits(seed, n):
    """Return rows of entities that come for a while, go, and some of them come back.

    One is there all along for two minutes, and holds what needs all.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    who = np.repeat(rng.integers(0, 8, n), lengths)
    is_first = np.diff(np.repeat(np.arange(n), lengths), prepend=-1) > 0
    gaps = np.repeat(rng.choice([0, 3, 9, 40], n), lengths)
    times = np.cumsum(np.where(is_first, gaps, rng.choice([0, 1, 2, 4], len(who))))
    x = np.cumsum(rng.integers(-2, 3, len(who))).astype(float)
    y = np.where(rng.random(len(who)) < 0.1, np.nan, rng.integers(-3, 4, len(who)))
    stays = rng.integers(0, times[-1] + 1) + 4 * np.arange(30)
    who, x, y = (
        np.append(each, np.full(30, value)) for each, value in ((who, 8), (x, 0.0), (y, 0.0))
    )
    late = np.append(times + rng.integers(0, 9, len(times)), stays)
    order = np.argsort(late, kind="stable")
    return who[order], late[order] * SECOND, x[order], y[order]


LOOKING_BACK = {
    **{name: each for name, each in NODES.items() if graph.sees_entities(each)},
    **{f"crossed: {name}": each for name, each in CROSSED.items()},
}


@pytest.mark.large
@examples(8)
@pytest.mark.parametrize("name", LOOKING_BACK)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 10),
    rows=st.sampled_from([1, 2, 5]),
    maker=st.sampled_from([FIT, DECLARED]),
    lateness=st.sampled_from([0, 3 * SECOND]),
    n_tries=st.sampled_from([1, 2]),
)
def test_entities_that_come_back_have_what_all_rows_give(
    name, maker, seed, n, rows, lateness, n_tries
):
    drawn = visits(seed, n)
    keys = drawn[0]
    table = table_of(drawn, maker).set_column(0, "k", pa.array([f"k{each}" for each in keys]))
    table = table.append_column(CODE, pa.array(keys // 2))  # two of a code
    cuts = list(range(rows, len(keys), rows))
    rng = np.random.default_rng(seed + 1)
    found = streamed(table, maker, LOOKING_BACK[name], cuts, lateness, rng, n_tries=n_tries)
    assert shown(found) == shown(at_once(table, maker, LOOKING_BACK[name]))


@pytest.mark.large
def test_after_any_silence_nothing_is_told_again_or_left_out():
    # Long segments end before silences of 1 to 30 s, beside short ones; a batch comes each second.
    seconds = np.arange(90)
    keys, times = np.array(
        [(key, at) for at in seconds for key in range(33) if key >= 30 or not 30 < at <= 31 + key]
    ).T
    x = np.where(keys < 30, keys, 7 * keys * times % 11).astype(float)
    table = table_of((keys, times * SECOND, x, x), FIT)
    table = table.set_column(0, "k", pa.array(keys.astype(str)))
    table = table.append_column(CODE, pa.array(keys))
    cuts = np.flatnonzero(np.diff(times)) + 1
    node = of(average(20))
    found = streamed(table, FIT, node, cuts.tolist(), 0, np.random.default_rng(0))
    assert shown(found) == shown(at_once(table, FIT, node))


def test_results_without_keys_come_as_soon_as_they_are_final(tmp_path):
    """What holds a result back is a front of all rows, not of a run that a newer one replaced.

    ``x`` turns every 7 s, and the row behind a turn ends a segment: results are final up to then.
    """
    shape = steps.Shape((), ("x",))
    fit = Fit((), "ts", {"x": Bound(0.5)}, FitOptions(method="linear", max_gap_us=60 * SECOND))
    averages = of(Integral(5 * SECOND, None, True, False), graph.Input(0, shape))
    plan = StreamPlan((StreamInput(fit, shape),), of(Envelope((), True), averages))
    bucket, ends = Bucket(plan, tmp_path), []
    for batch in range(8):
        seconds = range(10 * batch, 10 * batch + 10)
        rows = pa.table(
            {
                "ts": pa.array([at * SECOND for at in seconds], pa.timestamp("us")),
                "x": [float(abs(at % 14 - 7)) for at in seconds],
                CODE: pa.array([0] * 10, pa.int64()),
            }
        )
        found = bucket.run(seconds[-1] * SECOND + 1, [rows])
        times = [end.timestamp() for table in found for end in table.column("hi").to_pylist()]
        ends.append(max(times, default=None))
    assert ends[1:] == [(last - 1) // 7 * 7 + 1 for last in range(19, 80, 10)]
