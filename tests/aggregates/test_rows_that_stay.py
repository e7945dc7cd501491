"""Rows that say how long they stay, in buckets: results are those of the definition."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates import changes
from eddyline.aggregates.cells import CHECK, CODE, Reach
from eddyline.aggregates.changes import StayBatch, StayHistory
from eddyline.aggregates.plan import IS, LAST, OLD, WAS, AggregatePlan, BucketState, Partials
from eddyline.errors import AggregateError
from eddyline.query.query import LONGEST, RangeWindow, StayWindow
from eddyline.state.bucket_state import FAN_IN
from eddyline.state.rows import FOREVER, Rows
from tests.aggregates.slow import place_in
from tests.examples import examples

LONGEST_STAY = 6
WINDOW = StayWindow((("time", RangeWindow(LONGEST_STAY)),), LONGEST_STAY)
COMMUTING = Partials({"n": "count", "s": "sum", "m": "max"})
ORDERED = Partials({"n": "count", "s": "sum", "m": "last_row"})
FINAL = 60


@st.composite
def cases(draw):
    """Return batches of rows (group, start, stay, value), and the watermark after each."""
    batches, low = [], 0
    for _ in range(draw(st.integers(1, 5))):
        row = st.tuples(
            st.integers(0, 2),
            st.integers(low, low + 12),
            st.integers(0, LONGEST_STAY),
            st.none() | st.integers(-3, 3),
        )
        low = draw(st.integers(low, low + 12))
        batches.append((draw(st.lists(row, max_size=8)), low))
    return [*batches, ([], FINAL)]


def rows_of(batch):
    """Return the rows of a batch as they come to a bucket; codes of groups are hashes that meet."""
    if not batch:
        return None
    group, start, stay, value = (np.array(each, object) for each in zip(*batch, strict=True))
    codes, starts = group.astype(np.int64), start.astype(np.int64)
    columns = {
        "k": pa.array(codes),
        "n": pa.array(np.ones(len(batch), np.int64)),
        "s": pa.array(value.tolist(), pa.int64()),
        "m": pa.array(value.tolist(), pa.int64()),
        "tie": pa.array(value.tolist(), pa.int64()),
        LAST: pa.array(starts + stay.astype(np.int64)),
    }
    return Rows({CODE: codes % 2, CHECK: codes}, starts, starts, pa.table(columns))


def wanted(case, emits, last_of):
    """Return the results by the definition: each instant is computed anew."""
    every = [row for batch, _ in case for row in batch]
    instants = {each[1] for each in every}
    found = []
    for group in range(3):
        before = None
        for instant in range(-1, FINAL):
            there = [
                each for each in every if each[0] == group and each[1] <= instant <= sum(each[1:3])
            ]
            values = [each[3] for each in there if each[3] is not None]
            now = (len(there), sum(values) if values else None, last_of(there)) if there else None
            side = before if emits == "dstream" else now
            is_told = instant in instants if emits == "rstream" else now != before
            if side is not None and is_told:
                found.append((group, *side, instant))
            before = now
    return Counter(found)


def greatest(there):
    return max((each[3] for each in there if each[3] is not None), default=None)


def latest(there):
    """Return the value of the last row that has one, by start and then by value."""
    known = [(each[1], each[3]) for each in there if each[3] is not None]
    return max(known)[1] if known else None


def results(case, emits, partials, *, compares=False):
    """Return the results of a bucket, batch by batch, and the most rows that it kept."""
    ties = ("tie",) if partials is ORDERED else ()
    plan = AggregatePlan(0, 0, ("k",), partials, WINDOW, emits, ties=ties, compares=compares)
    state, before, found, n_kept = BucketState(), 0, Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        place = place_in(folder)
        for batch, after in case:
            task = StayBatch(replace(plan, before=before, after=after), place, state, 0)
            for table in task.run(rows_of(batch)):
                found.update(_answers(table, emits, compares=compares))
            state, before = task.report.after, after
            n_kept = max(n_kept, sum(file.n_rows for file in state.files))
    assert not any(state.history.values())  # all of them have left
    return found, n_kept


def _answers(table, emits, *, compares):
    for row in table.to_pylist():
        now, old = (tuple(row.get(f"{each}{name}") for name in "nsm") for each in ("", OLD))
        if compares or emits == "rstream":
            yield (row["k"], *now, row["__instant"])
            continue
        is_there, was_there = (row[IS], row[WAS])
        sides = (is_there, now, was_there, old)
        new, value, other, other_value = sides if emits == "istream" else (*sides[2:], *sides[:2])
        if new and not (other and value == other_value):
            yield (row["k"], *value, row["__instant"])


@given(case=cases(), emits=st.sampled_from(["istream", "dstream"]))
@examples(150)
def test_any_cut_gives_what_the_definition_gives(case, emits):
    assert results(case, emits, COMMUTING)[0] == wanted(case, emits, greatest)
    if emits == "istream":
        assert results(case, emits, COMMUTING, compares=True)[0] == wanted(case, emits, greatest)


@given(case=cases(), emits=st.sampled_from(["istream", "dstream"]))
@examples(60)
def test_values_that_depend_on_the_order_of_rows_are_those_of_the_definition(case, emits):
    assert results(case, emits, ORDERED)[0] == wanted(case, emits, latest)


@given(case=cases(), partials=st.sampled_from([COMMUTING, ORDERED]))
@examples(60)
def test_all_groups_are_given_at_each_instant_at_which_a_row_comes(case, partials):
    last_of = greatest if partials is COMMUTING else latest
    assert results(case, "rstream", partials)[0] == wanted(case, "rstream", last_of)


@given(case=cases())
@examples(30)
def test_results_in_many_parts_are_the_same(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "MOST_ENTRIES", 5)
        patch.setattr(changes, "MOST_CHANGES", 3)
        patch.setattr(changes, "MOST_RESULTS", 4)
        assert results(case, "rstream", COMMUTING)[0] == wanted(case, "rstream", greatest)
        assert results(case, "istream", COMMUTING)[0] == wanted(case, "istream", greatest)
        assert results(case, "istream", ORDERED)[0] == wanted(case, "istream", latest)


def test_a_sum_that_is_too_large_for_some_rows_alone_is_none_for_all_of_them():
    large = 2**62
    case = [([(0, 0, 6, large), (0, 0, 6, large), (0, 0, 6, -large), (0, 2, 1, 1)], 1), ([], FINAL)]
    assert results(case, "istream", COMMUTING)[0] == wanted(case, "istream", greatest)
    with pytest.raises(AggregateError, match="does not fit"):
        results([([(0, 0, 6, large), (0, 0, 6, large)], 1)], "istream", COMMUTING)


def of_one_group(starts, last, values, partials, until=1000):
    """Return the instants and sums of a bucket of one batch."""
    n, codes = len(starts), np.zeros(len(starts), np.int64)
    columns = {"k": pa.array(codes), "s": values, LAST: pa.array(last, pa.int64())}
    at = np.array(starts, np.int64)
    rows = Rows({CODE: codes, CHECK: codes}, at, at, pa.table(columns))
    plan = AggregatePlan(0, until, ("k",), partials, WINDOW, "istream", compares=True)
    tables = list(StayBatch(plan, None, BucketState(), 0).run(rows)) if n else []
    return [(row["__instant"], row["s"]) for each in tables for row in each.to_pylist()]


def test_a_sum_of_decimals_that_does_not_fit_is_null_only_where_all_rows_do_not_fit():
    large, sums = Decimal(9) * 10**37, Partials({"s": "sum"}, ansi=False)
    values = pa.array([large, large, -large, Decimal(5)], pa.decimal128(38, 0))
    found = of_one_group([0, 1, 2, 10], [900, 900, 900, 800], values, sums)
    assert found[:4] == [(0, large), (1, None), (2, large), (10, Decimal(9 * 10**37 + 5))]
    found = of_one_group([0, 1, 3], [900] * 3, values.take(pa.array([0, 1, 3])), sums)
    assert found == [(0, large), (1, None)]


def test_sums_of_doubles_are_those_of_the_rows_of_each_instant():
    drawn = random.Random(3)
    starts = sorted(drawn.randrange(500) for _ in range(300))
    last = [at + drawn.randrange(200) for at in starts]
    values = [drawn.choice([0.1, 0.2, 1e9 / 3, None]) for _ in starts]
    found = of_one_group(starts, last, pa.array(values), Partials({"s": "sum"}))
    assert len(found) > 300
    for instant, total in found:
        rows = zip(starts, last, values, strict=True)
        there = [each for at, end, each in rows if at <= instant <= end and each is not None]
        assert total == (math.fsum(there) if there else None)


def test_a_row_that_is_gone_before_it_comes_is_never_there():
    assert of_one_group([10], [9], pa.array([1]), Partials({"s": "sum"})) == []


def test_files_whose_rows_are_all_gone_become_none(tmp_path):
    place, kept, reach = place_in(tmp_path), {}, Reach(1_000)
    for number in range(FAN_IN - 1):
        rows = rows_of([(0, number, 5, 1)])
        kept = StayHistory("stays", kept, reach, None, place, since=0).after(rows, 0)
    last = rows_of([(0, FAN_IN, 5, 1)])
    history = StayHistory("stays", kept, reach, None, place, since=0)
    spans = [*kept["stays"], history._written(last)]
    gone = StayHistory("stays", {}, reach, None, place, since=500)
    assert len(history._compacted(spans)) == 1
    assert gone._compacted(spans) == []


def test_rows_that_stay_for_ever_and_rows_of_the_last_instants_are_there():
    starts = np.array([0, FOREVER - 3])
    columns = {"k": pa.array([0, 0]), "n": pa.array([1, 1]), "s": pa.array([5, 7])}
    columns |= {"m": columns["s"], LAST: pa.array([LONGEST, LONGEST])}
    codes = np.zeros(2, np.int64)
    rows = Rows({CODE: codes, CHECK: codes}, starts, starts, pa.table(columns))
    plan = AggregatePlan(-5, FOREVER, ("k",), COMMUTING, WINDOW, "istream", compares=True)
    found = pa.concat_tables(StayBatch(plan, None, BucketState(), 0).run(rows))
    assert found["n"].to_pylist() == [1, 2]
    assert found["s"].to_pylist() == [5, 12]


def test_state_holds_rows_that_are_there_and_few_others():
    case = [
        ([(0, 10 * n, n % 7, 1) for n in range(5 * at, 5 * at + 5)], 50 * at) for at in range(9)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.aggregates.test_rows_that_stay.FINAL", 1000)
        found, n_kept = results([*case, ([], 1000)], "istream", COMMUTING)
    assert len(found) == 45
    assert n_kept <= 10
