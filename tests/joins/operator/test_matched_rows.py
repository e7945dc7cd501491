"""Keys that are declared: they are checked, and matched rows leave the hot tier by them."""

from __future__ import annotations

import random
from collections import Counter
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.errors import DuplicateKeyError
from eddyline.joins.graph import JoinGraph, UniqueKey, covers, uncut_classes
from eddyline.joins.operator.bucket import BucketBatch, unique_classes
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import MATCHED, PASSED, BatchPlan
from eddyline.state.bucket_state import BucketState
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, Rows, SortedRun
from tests.joins.operator.fed_bucket import LENGTH, FedBucket
from tests.joins.plans import place_in, random_graph

CHAIN = JoinGraph(("c", "b", "o"), (frozenset("cb"), frozenset("bo")))
PAIR = JoinGraph(("p", "r"), (frozenset("pr"),))
KEY = UniqueKey("orders", "id", 0, pa.int64())


def test_covers_follow_keys_through_the_graph_whatever_its_shape():
    assert covers(CHAIN, {"b": (0,), "o": (1,)}) == {"c"}
    assert covers(CHAIN, {"c": (0,), "b": (0, 1), "o": (1,)}) == {"c", "b", "o"}
    assert covers(CHAIN, {"b": (0,)}) == frozenset()
    assert covers(CHAIN, {"c": (0,), "o": (1,)}) == {"b"}
    cycle = JoinGraph(("a", "b", "c"), (frozenset("ab"), frozenset("bc"), frozenset("ca")))
    assert covers(cycle, {"b": (0,), "c": (1,)}) == {"a"}
    star = JoinGraph(("a", "b", "c"), (frozenset("abc"),))
    assert covers(star, {"b": (0,)}) == frozenset()
    assert covers(star, {"b": (0,), "c": (0,)}) == {"a"}


def test_rows_are_cut_so_that_equal_keys_meet():
    assert uncut_classes(CHAIN, [("b", 0)]) == {1}
    assert uncut_classes(CHAIN, [("o", 1)]) == frozenset()
    assert uncut_classes(CHAIN, [("b", 0), ("b", 1)]) == {0, 1}


@given(seed=st.integers(0, 10_000), n_inputs=st.integers(2, 4))
def test_a_row_of_a_cover_is_in_one_result_at_most(seed, n_inputs):
    """Random relations over random graphs, some columns of which are unique, joined one by one."""
    graph, rng = random_graph(random.Random(seed), n_inputs), np.random.default_rng(seed)
    keys, rows = {}, {}
    for name in graph.inputs:
        own, n = graph.classes_of[name], rng.integers(0, 5)
        keys[name] = tuple(k for k in own if rng.random() < 0.6)
        columns = {
            k: rng.permutation(5)[:n] if k in keys[name] else rng.integers(0, 2, n) for k in own
        }
        rows[name] = [{k: int(of[at]) for k, of in columns.items()} for at in range(n)]
    found = [{}]
    for name in graph.inputs:
        found = [
            {**one, name: at}
            for one in found
            for at, row in enumerate(rows[name])
            if all(
                rows[other][of].get(k, value) == value
                for other, of in one.items()
                for k, value in row.items()
            )
        ]
    for name in covers(graph, keys):
        assert max(Counter(one[name] for one in found).values(), default=0) <= 1


class Keyed(FedBucket):
    """Rows of ``p`` that come before or after the one of ``r`` with their key, or never.

    A key of ``r`` may come again once its row has left its window.
    """

    def __init__(self, folder, seed, *, n=40):
        super().__init__(PAIR, folder, seed, n=n)

    def rows(self):
        """Keys of r count up; those of p are near them; some come again a window later."""
        starts = np.arange(self.at, self.at + self.n)
        again = self.rng.random(self.n) < 0.1
        r = np.where(again & (starts > LENGTH), starts - LENGTH - 1, starts)
        r = np.where(np.isin(r, r[~again]) & again, starts, r)
        p = starts + self.rng.integers(-60, 60, self.n)
        p[self.rng.random(self.n) < 0.05] -= LENGTH // 2
        return {name: made(keys, starts) for name, keys in (("p", p), ("r", r))}

    def batch(self, *, leaving=(), below=None, spans=None, n_lost=0, measures=True):
        """Join a batch; so many tasks before the one that counts are lost, with their files."""
        plan = self.plan(
            spans=dict.fromkeys("pr", LENGTH) if spans is None else spans,
            covers=frozenset("p"),
            below={} if below is None else {"p": {0: below}},
            leaving=frozenset((rule, "p") for rule in leaving),
            measures=measures,
        )
        self.join(plan, n_lost=n_lost)


def made(keys, starts):
    starts = np.array(starts)
    return Rows({0: np.array(keys)}, starts, starts + LENGTH, pa.table({"at": starts}))


@pytest.mark.large
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from([(), (MATCHED,), (PASSED,), (MATCHED, PASSED)]),
            st.sampled_from([None, -60, 0, 60]),
            st.integers(0, 1),
            st.sampled_from([LENGTH, 0, 120, None]),
        ),
        min_size=5,
        max_size=60,
    ),
    seed=st.integers(0, 99),
)
def test_whatever_leaves_and_whatever_is_lost_no_result_changes(batches, seed):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        streams = Keyed(folder, seed)
        for leaving, passed, n_lost, span in batches:
            below = None if passed is None else streams.at + passed
            mine = leaving if span is not None else ()
            streams.batch(leaving=mine, below=below, n_lost=n_lost, spans={"p": span, "r": None})
        assert streams.got() == streams.wanted()


def test_rows_that_were_matched_are_not_hot_and_no_row_is_written_more_often(tmp_path):
    plain, leaving = Keyed(tmp_path / "plain", 1), Keyed(tmp_path / "leaving", 1)
    for _ in range(40):
        plain.batch()
        leaving.batch(leaving=[MATCHED])
    assert leaving.got() == leaving.wanted() == plain.got()
    assert leaving.n_hot("p") < plain.n_hot("p") / 3
    assert leaving.n_hot("r") == plain.n_hot("r")
    before, after = (each.counts(MATCHED, "p") for each in (plain, leaving))
    assert after.n_new_done == before.n_new_done > 0
    assert after.n_old_done == before.n_old_done > 0
    assert after.n_merged < before.n_merged / 2
    assert 0 < after.n_left <= after.n_merged
    assert before.n_left == before.ns == 0


@pytest.mark.large
def test_rows_whose_key_was_passed_are_not_hot_new_ones_neither(tmp_path):
    plain, leaving = Keyed(tmp_path / "plain", 2), Keyed(tmp_path / "leaving", 2)
    for _ in range(40):
        plain.batch(below=plain.at)
        leaving.batch(leaving=[PASSED], below=leaving.at)
    assert leaving.got() == leaving.wanted() == plain.got()
    assert leaving.n_hot("p") < plain.n_hot("p") / 3
    before, after = (each.counts(PASSED, "p") for each in (plain, leaving))
    assert after.n_new_done == before.n_new_done > 0
    assert before.n_old_done > after.n_old_done == after.n_left > 0


@pytest.mark.large
def test_of_batches_that_are_not_measured_rules_are_counted_by_which_rows_leave_alone(tmp_path):
    """The others take no time in them, and all runs are as they would be."""
    measured, plain = Keyed(tmp_path / "measured", 3), Keyed(tmp_path / "plain", 3)
    none = Keyed(tmp_path / "none", 3)
    for _ in range(40):
        measured.batch(leaving=[MATCHED], below=measured.at)
        plain.batch(leaving=[MATCHED], below=plain.at, measures=False)
        none.batch(below=none.at, measures=False)
    assert len(none.reports) == 40
    assert not any(each.done for each in none.reports)
    of = [each.counts(MATCHED, "p") for each in (measured, plain)]
    for each in of:
        assert each.ns > 0
        each.ns = each.merge_ns = 0
    assert of[0] == of[1]
    assert of[0].n_left > 0
    assert measured.counts(PASSED, "p").n_new_done > 0
    assert not any((PASSED, "p") in each.done for each in plain.reports)
    assert plain.n_hot("p") == measured.n_hot("p") < none.n_hot("p") / 3
    assert none.got() == plain.got() == measured.got() == plain.wanted()


# -- the check ------------------------------------------------------------------------------------


def checked(folder, state, rows, *, key=KEY, spans=None):
    plan = BatchPlan(
        0,
        PAIR,
        written_orders(PAIR),
        dict.fromkeys("pr", LENGTH),
        keys={"r": key},
        spans=spans or {},
    )
    task = BucketBatch(plan, place_in(folder), state)
    list(task.run({"r": rows}))
    return task.report.after


def test_a_second_row_with_a_key_is_refused_where_both_are_in_their_window(tmp_path):
    state = checked(tmp_path, BucketState(), made([1, 2, 3], [0, 10, 20]))
    before = msgspec.json.encode(state)
    with pytest.raises(DuplicateKeyError) as caught:
        checked(tmp_path, state, made([7, 2], [900, 1_010]))
    said = str(caught.value)
    assert "stream 'orders' have the key id = 2, of 1970-01-01 00:00:00.000010 UTC and of " in said
    assert "1970-01-01 00:00:00.001010 UTC" in said
    assert "Nothing is lost" in said
    assert msgspec.json.encode(state) == before
    state = checked(tmp_path, state, made([7, 2], [900, 1_011]))
    with pytest.raises(DuplicateKeyError, match="id = 9"):
        checked(tmp_path, state, made([9, 8, 9], [2_000, 2_001, 2_002]))
    checked(tmp_path, state, made([9, 8, 9], [2_000, 2_001, 3_001]))


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 300)), min_size=1, max_size=4),
        max_size=12,
    ),
    span=st.sampled_from([None, 0, 400]),
)
def test_a_batch_is_refused_where_two_rows_of_a_key_share_their_window_and_only_then(batches, span):
    """Rows come in any order of time within a batch; refused batches leave nothing behind."""
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        state, known = BucketState(), []
        for number, batch in enumerate(batches):
            rows = [(key, 300 * number + at) for key, at in batch]
            every = [*known, *rows]
            has_two = any(
                key == other and at <= than <= at + LENGTH
                for place, (key, at) in enumerate(sorted(every, key=lambda row: row[1]))
                for other, than in sorted(every, key=lambda row: row[1])[place + 1 :]
            )
            if has_two:
                with pytest.raises(DuplicateKeyError):
                    checked(folder, state, made(*zip(*rows, strict=True)), spans={"r": span})
                continue
            state = checked(folder, state, made(*zip(*rows, strict=True)), spans={"r": span})
            known = every


def test_a_second_row_with_a_key_is_found_in_the_cold_tier(tmp_path):
    state, spans = BucketState(), {"r": 0}
    for at in range(0, 500, 50):
        state = checked(tmp_path, state, made([at], [at]), spans=spans)
    with pytest.raises(DuplicateKeyError, match="id = 100"):
        checked(tmp_path, state, made([100], [600]), spans=spans)


def test_where_codes_are_hashes_the_keys_themselves_are_compared(tmp_path):
    key = UniqueKey("orders", "id", 0, None)

    def named(ids, codes, at):
        starts = np.arange(at, at + len(ids))
        return Rows({0: np.array(codes)}, starts, starts + LENGTH, pa.table({"id": ids}))

    state = checked(tmp_path, BucketState(), named(["a", "b", "c"], [5, 5, 6], 0), key=key)
    state = checked(tmp_path, state, named(["d", "e"], [5, 6], 10), key=key)
    with pytest.raises(DuplicateKeyError, match="id = 'b'"):
        checked(tmp_path, state, named(["f", "b"], [6, 5], 20), key=key)
    with pytest.raises(DuplicateKeyError, match="id = 'g'"):
        checked(tmp_path, state, named(["g", "g"], [5, 5], 20), key=key)


@pytest.mark.parametrize(("is_local", "words"), [(True, ""), (False, " UTC")])
def test_instants_of_wall_clocks_are_in_no_time_zone(tmp_path, is_local, words):
    key = UniqueKey("orders", "id", 0, pa.int64(), is_local)
    second = "1970-01-01 00:00:00.000001"
    with pytest.raises(DuplicateKeyError, match=rf"of 1970-01-01 00:00:00{words} and of {second}"):
        checked(tmp_path, BucketState(), made([7, 7], [0, 1]), key=key)


def test_tables_tell_their_keys_by_themselves():
    codes = {0: np.array([4, 2, 9]), 1: np.array([1, 1, 2])}
    starts = np.full(3, ALWAYS)
    run = SortedRun.from_rows(Rows(codes, starts, starts + 1, pa.table({"id": starts})))
    assert unique_classes(run) == (0,)
