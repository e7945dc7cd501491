"""Rows whose key is over in the other streams: which leave, and how long keys are measured to come.

Every answer is compared with one that is found row by row.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.constraints.bounds import top_of
from eddyline.joins.graph import JoinGraph
from eddyline.joins.plan import CLOSED, MATCHED, PASSED
from eddyline.state.cold_runs import AskedKeys, ColdTier
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows
from eddyline.state.run_files import MAPPED
from eddyline.state.run_index import hashes_of
from tests.joins.operator.fed_bucket import LENGTH, FedBucket

STAR = JoinGraph(("a", "b", "c"), (frozenset("abc"),))
K = 30
ALL = (CLOSED, PASSED, MATCHED)


class Clustered(FedBucket):
    """Rows of ``b`` and ``c`` in clusters, and rows of ``a`` of which a share waits long for them.

    Keys of a cluster come again a window later now and then, and some have no cluster at all.
    """

    def __init__(self, folder, seed, *, n=40):
        super().__init__(STAR, folder, seed, n=n)

    def rows(self):
        starts = np.arange(self.at, self.at + self.n)
        found = {}
        for name in STAR.inputs:
            key = starts - self.rng.integers(0, K, self.n)
            if name == "a":
                early = self.rng.random(self.n) < 0.1
                key = np.where(early, starts + self.rng.integers(0, 800, self.n), key)
                key[self.rng.random(self.n) < 0.05] = -1
            again = self.rng.random(self.n) < 0.02
            key[again] -= self.rng.integers(0, LENGTH, int(again.sum()))
            codes = key // 3 * 7_919 % 100_003
            table = pa.table({"at": starts})
            found[name] = Rows({0: codes}, starts, starts + LENGTH, table)
        return found

    def batch(self, *, leaving=(), k=K, spans=LENGTH, n_lost=0, measures=True):
        """Join a batch; so many tasks before the one that counts are lost, with their files."""
        plan = self.plan(
            spans={"a": spans, "b": 3 * K, "c": None},
            covers=frozenset("a"),
            below={"a": {0: 20_000}},
            closed={"a": {0: dict.fromkeys("bc", k)}},
            clusters={(name, 0): self.at - 1 for name in "bc" if self.at},
            leaving=frozenset((rule, "a") for rule in leaving),
            measures=measures,
        )
        self.join(plan, n_lost=n_lost)

    def hot(self):
        """The keys and instants of the hot rows of ``a``."""
        files = self.state.runs.get("a", ())
        return [
            pair
            for run in map(self.opened, files)
            for pair in zip(run.rows.codes[0].tolist(), run.rows.starts.tolist(), strict=True)
        ]

    def opened(self, file):
        return MAPPED.run(self.place.files, self.place.runs, file, (0,))


@pytest.mark.large
@given(
    batches=st.lists(
        st.tuples(
            st.sets(st.sampled_from(ALL)),
            st.sampled_from([-LENGTH, 0, K, 300]),
            st.sampled_from([LENGTH, 0, 120]),
            st.integers(0, 1),
            st.booleans(),
        ),
        min_size=5,
        max_size=50,
    ),
    seed=st.integers(0, 99),
)
def test_whatever_is_closed_and_whatever_is_lost_no_result_changes(batches, seed):
    """All rules at once, wrong ks, and tasks whose files count no more."""
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        streams = Clustered(folder, seed)
        for leaving, k, spans, n_lost, measures in batches:
            streams.batch(leaving=leaving, k=k, spans=spans, n_lost=n_lost, measures=measures)
        assert streams.got() == streams.wanted()


def test_rows_whose_clusters_are_over_are_not_hot_and_those_that_wait_are(tmp_path):
    plain, leaving = Clustered(tmp_path / "plain", 1), Clustered(tmp_path / "leaving", 1)
    for _ in range(44):
        plain.batch()
        leaving.batch(leaving=[CLOSED])
    assert leaving.got() == leaving.wanted() == plain.got()
    before, after = (each.counts(CLOSED, "a") for each in (plain, leaving))
    assert len(leaving.hot()) < len(plain.hot()) / 2
    assert after.n_old_done == after.n_left > 0
    assert before.n_old_done > 0, "counted before any row leaves"
    assert before.n_left == before.ns == before.n_new_done == after.n_new_done == 0
    # What waits for a cluster that has not come stays, however long.
    came = {key for name in "bc" for key, _ in leaving.every[name]}
    waiting = {
        (key, at) for key, at in leaving.every["a"] if key not in came and at > leaving.at - 700
    }
    lost = waiting - {*leaving.hot()}
    assert len(waiting) > 20
    assert len(lost) <= 0.05 * len(waiting), "those that pass filters by chance"


@pytest.mark.large
def test_all_rules_together_let_go_of_what_each_does_alone(tmp_path):
    """A joint fixpoint: no rule asks what another keeps, so that their order does not matter."""
    hot = {}
    for rules in ((CLOSED,), (PASSED,), (MATCHED,), ALL):
        streams = Clustered(tmp_path / "-".join(rules), 4)
        for _ in range(32):
            streams.batch(leaving=rules)
        hot[rules] = {*streams.hot()}
        assert streams.got() == streams.wanted()
    # Runs that are merged at other times keep what is done until they are.
    for rules, rows in hot.items():
        assert len(hot[ALL]) <= len(rows), rules


@pytest.mark.large
def test_spans_are_those_from_the_first_row_of_a_key_cold_ones_included(tmp_path):
    streams = Clustered(tmp_path, 2, n=20)
    for _ in range(52):
        streams.batch()
    report, first, spans = streams.reports[-1], {}, []
    low = streams.at - streams.n
    oldest = min(file.first_start for file in streams.state.all_runs("b"))
    for key, at in streams.every["b"]:
        # Rows that have left their window are there until their run goes.
        if at >= oldest:
            first.setdefault(key, at)
        if at >= low:
            spans.append(at - first.get(key, at))
    measured = report.spans["b", 0]
    assert measured.n_rows == streams.n
    assert sum(measured.bins.values()) == sum(span > 0 for span in spans)
    if measured.bins:
        assert max(spans) <= top_of(max(measured.bins))
    assert any(each.spans["b", 0].bins for each in streams.reports[1:])
    assert streams.state.cold["b"]


def test_where_nothing_is_measured_nothing_is_looked_up_for_it(tmp_path):
    streams = Clustered(tmp_path, 3)
    for _ in range(20):
        streams.batch(measures=False)
    assert not any(each.spans or each.done for each in streams.reports)


def test_a_cold_tier_says_by_filters_what_runs_had_that_began_by_an_instant(tmp_path):
    streams = Clustered(tmp_path, 5)
    for _ in range(52):
        streams.batch()
    opened = []
    parts = streams.state.cold["b"]
    tier = ColdTier(streams.place.files, streams.place.runs, parts, (0,), opened.append)
    keys = np.array(sorted({key for key, _ in streams.every["b"]}))
    asked = AskedKeys.from_hashes(hashes_of(keys), keys)
    for limit in (0, streams.at - 600, streams.at - 300, streams.at):
        got = {*keys[tier.began_by(0, asked, limit, LENGTH)].tolist()}
        old = [
            run
            for run in (run for part in parts for run in part.runs)
            if run.last_end - LENGTH <= limit
        ]
        opened_here = [streams.opened(run).rows.codes[0].tolist() for run in old]
        assert {key for codes in opened_here for key in codes} <= got
        older = {key for key, at in streams.every["b"] if at <= limit}
        assert len(got - older) <= 0.03 * keys.size, "those that pass filters by chance"
    assert not opened
