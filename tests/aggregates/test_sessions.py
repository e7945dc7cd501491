"""Buckets of sessions: the definition, row by row, and how many open ones a batch reads."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import accumulate

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from eddyline.aggregates.bucket import state_of
from eddyline.aggregates.cells import CHECK, CODE
from eddyline.aggregates.plan import AggregatePart, AggregatePlan, BucketState, Partials
from eddyline.aggregates.windows import SessionBatch
from eddyline.query.query import SessionWindow
from eddyline.state.rows import ALWAYS, Rows
from tests.aggregates.slow import place_in
from tests.examples import examples

PARTIALS = Partials({"n": "count", "most": "max"})


def cells_of(groups, instants, checks=None):
    """Return rows as cells, each by itself; the code of a group is the group."""
    codes = np.asarray(groups, np.int64)
    checks = codes if checks is None else np.asarray(checks, np.int64)
    starts = np.asarray(instants, np.int64)
    ones = pa.array(np.ones(starts.size, np.int64))
    payload = pa.table({"g": pa.array(checks), "n": ones, "most": pa.array(starts)})
    return Rows({CODE: codes, CHECK: checks}, starts, starts, payload)


def answered(place, gap, state, bucket, span, arrived):
    """Return the results of a batch of a bucket, and its report."""
    plan = AggregatePlan(*span, ("g",), PARTIALS, SessionWindow(gap))
    task = SessionBatch(plan, place, state, bucket)
    tables = list(task.run(arrived))
    names = ("g", "__first", "__instant", "n", "most")
    rows = [tuple(row[name] for name in names) for each in tables for row in each.to_pylist()]
    return Counter(rows), task.report


def definition(rows, gap, until):
    """Return the sessions that are over at an instant."""
    found = Counter()
    for group in {group for group, _ in rows}:
        instants = sorted(at for own, at in rows if own == group)
        session = instants[:1]
        for at in [*instants[1:], None]:
            if at is not None and at - session[-1] <= gap:
                session.append(at)
                continue
            if session[-1] + gap < until:
                whole = (session[0], session[-1] + gap, len(session), session[-1])
                found[(group, *whole)] += 1
            session = [at]
    return found


@st.composite
def cases(draw):
    """Return a gap, and batches of rows, each with the time after it and the buckets there are."""
    batches, before = [], 0
    for after in accumulate(draw(st.lists(st.integers(0, 6), min_size=1, max_size=9))):
        row = st.tuples(st.integers(0, 5), st.integers(before, after + 9))
        batches.append((draw(st.lists(row, max_size=8)), after, draw(st.integers(1, 2))))
        before = after
    return draw(st.integers(1, 6)), batches


@given(cases())
@example((3, [([(0, 1), (0, 9), (1, 2)], 1, 1), ([(0, 3)], 2, 1), ([(0, 7)], 3, 1), ([], 30, 1)]))
@examples(300)
def test_sessions_whatever_the_batches_and_buckets(case):
    """Groups 2 n and 2 n + 1 have one code, and are told apart by their other one."""
    gap, batches = case
    rows, before, part = [], ALWAYS, AggregatePart(1)
    with tempfile.TemporaryDirectory() as folder:
        place, found = place_in(folder), Counter()
        for new, after, n_buckets in batches:
            states = {}
            for bucket in range(n_buckets):
                own = [(group, at) for group, at in new if group // 2 % n_buckets == bucket]
                groups, instants = zip(*own, strict=True) if own else ((), ())
                arrived = cells_of([each // 2 for each in groups], instants, groups)
                state = state_of(part, bucket, n_buckets, place)
                span = before, after
                results, report = answered(
                    place, gap, state, bucket, span, arrived if own else None
                )
                found += results
                states[bucket] = report.after
            rows, part, before = rows + new, AggregatePart(n_buckets, states), after
            assert found == definition(rows, gap, after)


def test_the_work_of_a_batch_does_not_grow_with_the_sessions_that_are_open(tmp_path):
    place = place_in(tmp_path)
    n_open, gap, state, before = 20_000, 1_000, BucketState(), ALWAYS
    _, report = answered(place, gap, state, 0, (before, 0), cells_of(range(n_open), [5] * n_open))
    n_read = []
    for number in range(1, 60):
        groups = [(number * 100 + k) % n_open for k in range(100)]
        arrived = cells_of(groups, [5 + number] * 100)
        _, report = answered(place, gap, report.after, 0, (number - 1, number), arrived)
        n_read.append(report.profile.n_read)
        assert len(report.after.waiting) <= 8, "files that grow in number are to be read each time"
    assert max(n_read) <= 100, "of the groups that have rows each has one session"
    results, report = answered(place, gap, report.after, 0, (59, 1_006), None)
    assert sum(results.values()) == n_open - 59 * 100
    assert report.profile.n_read == n_open - 59 * 100
