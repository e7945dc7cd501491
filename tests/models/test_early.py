"""Early results: the newest word of all batches is what the rows that have come give."""

from __future__ import annotations

import itertools
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.revisions import BOUNDS, REVISIONS, VALIDATED, VERSION, latest, living
from eddyline.models.segments import TOMB, keyed
from eddyline.models.streams.bucket import EarlyBatch, check_early, early_batch
from eddyline.models.streams.plan import StreamInput, StreamPlan
from tests.examples import examples
from tests.models.batches import (
    DECLARED,
    DOOR,
    FIT,
    NODES,
    SECOND,
    SHAPE,
    TOGETHER,
    Bucket,
    at_once,
    coded,
    made_of,
    of,
    rows_of,
    shown,
    table_of,
    together_at_once,
    where,
)
from tests.models.test_crossings import NODES as CROSSED


def cut(rows, times, cuts, lateness, rng):
    """Return rows in batches, out of order by no more than a lateness."""
    late = times + rng.integers(0, lateness + 1, len(times))
    rows = rows.take(np.argsort(late, kind="stable"))
    edges = [0, *sorted(int(each * len(rows)) for each in cuts), len(rows)]
    return [rows.slice(low, high - low) for low, high in itertools.pairwise(edges)]


def micros(table, name):
    return table.column(name).cast(pa.int64()).to_numpy()


class Told:
    """The newest word on each entity and instant at which a result begins, as a reader has it."""

    def __init__(self, kind, keys=("k",)):
        self.begin, self.end = BOUNDS[kind]
        self.kind, self.keys, self.newest = kind, keys, {}

    def of(self, row):
        return (*(row[key] for key in self.keys), row[self.begin])

    def take(self, table):
        """Take the rows of a batch, of which none says the same result twice."""
        rows = table.drop_columns([CODE]).to_pylist()
        seen = {*map(self.of, rows)}
        assert len(seen) == len(rows)
        assert all(row.pop(VERSION) == self.version for row in rows)
        self.newest |= {self.of(row): row for row in rows}

    @property
    def view(self):
        return [row for row in self.newest.values() if not row[TOMB]]


def view_table(rows, like):
    """Return the rows of a view without what final results do not have."""
    extra = {VALIDATED, *({TOMB} & ({*REVISIONS} - {*like.column_names}))}
    plain = [{name: each for name, each in row.items() if name not in extra} for row in rows]
    return pa.Table.from_pylist(plain, schema=like.schema)


def batches_of(batches, plan, lateness):
    """Yield event time, and the early and the final results of each batch; the last one ends all.

    Args:
        batches: rows of each input in each batch.
        plan: with early results.
        lateness: of all inputs (µs).
    """
    n = len(plan.inputs)
    with tempfile.TemporaryDirectory() as folder:
        early, final = (Bucket(plan, f"{folder}/{name}") for name in ("early", "final"))
        latest = np.array([-(2**62) if each.maker else 2**62 for each in plan.inputs])
        for number, rows in enumerate([*batches, [None] * n]):
            for at, each in enumerate(rows):
                if each is not None and len(each) and plan.inputs[at].maker:
                    latest[at] = max(latest[at], micros(each, "ts").max())
            until = 2**62 if number == len(batches) else int(latest.min()) - lateness
            given_ = [each if each is not None and len(each) else None for each in rows]
            told = early.run(until, given_, early_batch(plan), version=number)
            yield until, told, final.run(until, given_)


MAKERS = {"fit": FIT, "declared": DECLARED, "door": DOOR}
ASKED = ["segments", "where", "sample", "changes where", "average", "average at ticks",
         "greatest", "macd", "changes of a join", "average at ticks of a part",
         "sums of what is covered", "averages of averages of what is covered",
         "sums of the greatest", "greatest as segments", "changes of what is covered"]  # fmt: skip


@pytest.mark.large
@examples(25)
@pytest.mark.parametrize("name", ASKED)
@given(
    maker=st.sampled_from([*MAKERS]),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 80),
    cuts=st.lists(st.floats(0, 1), max_size=5),
    lateness=st.sampled_from([0, 3 * SECOND, 30 * SECOND]),
)
def test_the_newest_word_is_what_the_rows_so_far_give(name, maker, seed, n, cuts, lateness):
    maker, node = MAKERS[maker], NODES[name]
    rows = rows_of(seed, n)
    table = table_of(rows, maker)
    plan = StreamPlan((StreamInput(maker, SHAPE),), node, is_early=True)
    parts = cut(coded(table), rows[1], cuts, lateness, np.random.default_rng(seed + 1))
    told, every, settled = Told(node.shape.kind), [], []
    (like,) = at_once(table, maker, node)
    batches = batches_of([[each] for each in parts], plan, lateness)
    for number, (until, found, final) in enumerate(batches):
        told.version = number
        for each in found:
            told.take(each)
        every += found
        settled += [each.drop_columns([CODE]) for each in final]
        so_far = pa.concat_tables(parts[: number + 1]).drop_columns([CODE])
        wanted = at_once(so_far, maker, node) if len(so_far) else [like.slice(0, 0)]
        assert shown([view_table(told.view, like)]) == shown(wanted)
        assert all(row[VALIDATED] == is_checked(row[told.end], row["k"], until, so_far)
                   for row in told.view)  # fmt: skip
    assert exact(view_table(told.view, like)) == exact(*settled)
    if node.shape.kind == "segments" and every:
        assert by_instants(every, node.shape.layout) == sorted(
            (str(row["k"]), micro(row["lo"]), micro(row["hi"])) for row in told.view
        )


def micro(time):
    return pa.scalar(time).cast(pa.timestamp("us", "UTC")).value


def is_checked(end, key, until, rows):
    """Return whether event time, or a row of its entity, has come to the end of a result."""
    mine = [each is None if key is None else each == key for each in rows.column("k").to_pylist()]
    return micro(end) <= max([until, *micros(rows.filter(pa.array(mine)), "ts").tolist()])


def by_instants(tables, layout):
    """Return which ranges there are as ``updates.latest`` leaves them."""
    every = pa.concat_tables(tables)
    given_ = keyed(every.drop_columns([CODE]), layout)
    is_there = ~every.column(TOMB).to_numpy()
    found = living(latest(given_.segments, 2 * every.column(VERSION).to_numpy() + is_there))
    names = given_.entities.column("k").to_pylist()
    return sorted(
        (str(names[key]), lo, hi)
        for key, lo, hi in zip(found.keys, found.lo, found.hi, strict=True)
    )


@examples(25)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    cuts=st.lists(st.floats(0, 1), max_size=4).map(sorted),
    name=st.sampled_from(["join where", "changes", "average of a join"]),
    other=st.sampled_from([DECLARED, None]),
)
def test_of_two_streams_too_and_with_segments_that_are_there(seed, sizes, cuts, name, other):
    node, lateness, rng = TOGETHER[name], 3 * SECOND, np.random.default_rng(seed)
    makers = FIT, other
    tables = [table_of(rows_of(seed + at, n), [FIT, DECLARED][at]) for at, n in enumerate(sizes)]
    if other is None:
        tables[1] = made_of(tables[1], DECLARED)
    one, two = map(coded, tables)
    parts = [cut(one, micros(one, "ts"), cuts, lateness, rng)]
    nothing = [two.slice(0, 0)] * len(cuts)
    parts.append(cut(two, micros(two, "ts"), cuts, lateness, rng) if other else [two, *nothing])
    plan = StreamPlan(tuple(StreamInput(each, SHAPE) for each in makers), node, is_early=True)
    told, settled = Told(node.shape.kind), []
    like = together(tables, makers, node)
    batches = batches_of([*zip(*parts, strict=True)], plan, lateness)
    for number, (until, found, final) in enumerate(batches):
        told.version = number
        for each in found:
            told.take(each)
        settled += [each.drop_columns([CODE]) for each in final]
        so_far = [pa.concat_tables(each[: number + 1]).drop_columns([CODE]) for each in parts]
        wanted = [together(so_far, makers, node)] if all(map(len, so_far)) else []
        assert shown([view_table(told.view, like)]) == shown(wanted)
        of_rows = [each for each, maker in zip(so_far, makers, strict=True) if maker]
        for row in told.view:
            checked = [is_checked(row[told.end], row["k"], until, each) for each in of_rows]
            assert row[VALIDATED] == all(checked)
    assert exact(view_table(told.view, like)) == exact(*settled)


def declared_rows(*rows):
    """Return coded rows of the entity k0, of a time in seconds, x, and what x changes by."""
    times, x, v = zip(*rows, strict=True)
    return coded(
        pa.table(
            {
                "k": ["k0"] * len(rows),
                "ts": pa.array([each * SECOND for each in times]).cast(pa.timestamp("us", "UTC")),
                "x": pa.array([[a, b] for a, b in zip(x, v, strict=True)], pa.list_(pa.float64())),
                "y": pa.array([[0.0]] * len(rows), pa.list_(pa.float64())),
            }
        )
    )


def test_t28_what_no_longer_holds_is_taken_back_by_a_tombstone(tmp_path):
    """x > 0 from 5 on says the first row; the second one says -1, and the third, late, says 1."""
    maker = Declared(("k",), "ts", read_equations({"x": "x + v * t", "y": "y"}), 9 * SECOND)
    plan = StreamPlan((StreamInput(maker, SHAPE),), of(where("x > 0")), is_early=True)
    bucket, told = Bucket(plan, tmp_path), []
    parts = [declared_rows(each) for each in [(0, -5, 1), (6, -1, 0), (2, 1, 0)]]
    for number, (rows, until) in enumerate(zip([*parts, None], [-10, -4, -4, 20], strict=True)):
        before = bucket.state
        found = bucket.run(until * SECOND, [rows], EarlyBatch, version=number)
        bucket.state = before
        again = bucket.run(until * SECOND, [rows], EarlyBatch, version=number)
        assert again == found, "a batch that runs again says the same"
        counts = bucket.report.counts
        said = [row for each in found for row in each.to_pylist()]
        told.append(
            [
                (row[TOMB], micro(row["lo"]) // SECOND, micro(row["hi"]) // SECOND, row[VALIDATED])
                for row in said
            ]
        )
        assert counts.n_results == len(said)
        assert counts.n_taken_back == sum(row[TOMB] for row in said)
        assert counts.n_early == len(said) - counts.n_taken_back
    assert told == [
        [(False, 5, 9, False)],
        [(False, 5, 6, True), (True, 6, 9, False)],
        [(False, 2, 6, True), (True, 5, 6, True)],
        [],
    ]


def together(tables, makers, node):
    """Return what rows, or segments, of two inputs give at once."""
    both = zip(tables, makers, strict=True)
    return together_at_once([made_of(each, maker) if maker else each for each, maker in both], node)


def exact(*tables):
    return sorted(repr(row) for each in tables for row in each.to_pylist())


@pytest.mark.large
@examples(25, few=4)
@pytest.mark.parametrize("name", CROSSED)
@given(
    maker=st.sampled_from([*MAKERS]),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 60),
    cuts=st.lists(st.floats(0, 1), max_size=4),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_pairs_and_values_over_entities_are_given_early_too(name, maker, seed, n, cuts, lateness):
    maker, node = MAKERS[maker], CROSSED[name]
    rows = rows_of(seed, n)
    table = table_of(rows, maker)
    plan = StreamPlan((StreamInput(maker, SHAPE),), node, is_early=True)
    check_early(plan)
    parts = cut(coded(table), rows[1], cuts, lateness, np.random.default_rng(seed + 1))
    told, settled = Told(node.shape.kind, node.shape.keys), []
    (like,) = at_once(table, maker, node)
    batches = batches_of([[each] for each in parts], plan, lateness)
    for number, (until, found, final) in enumerate(batches):
        told.version = number
        for each in found:
            told.take(each)
        settled += [each.drop_columns([CODE]) for each in final]
        so_far = pa.concat_tables(parts[: number + 1]).drop_columns([CODE])
        wanted = at_once(so_far, maker, node) if len(so_far) else [like.slice(0, 0)]
        assert shown([view_table(told.view, like)]) == shown(wanted)
        assert all(row[VALIDATED] == (micro(row[told.end]) <= until) for row in told.view)
    assert exact(view_table(told.view, like)) == exact(*settled)
