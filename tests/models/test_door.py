"""Rows of declared models at the door: what a loop over rows drops, for any batches."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import Bound
from eddyline.models.fitting.declared import declared
from eddyline.models.streams.bucket import BucketBatch
from eddyline.models.streams.plan import BucketState, StreamInput, StreamPlan
from eddyline.state.place import StatePlace
from tests.models.batches import (
    DECLARED,
    DOOR,
    INPUT,
    SECOND,
    SHAPE,
    at_once,
    coded,
    rows_of,
    shown,
    streamed,
    table_of,
)


def allowed(bound, value):
    return bound.value * abs(value) if bound.is_relative else bound.value


def by_a_loop(rows, how):
    """Return for each model its entity, begin and end, and how many rows it stands for."""
    keys, times, x, y = rows
    latest = {}  # of an instant the row of the greatest coefficients counts
    for key, time, *values in sorted(
        zip(keys, times, x, np.nan_to_num(y, nan=np.inf), strict=True)
    ):
        latest[key, time] = values
    found, before = [], None
    for (key, time), values in sorted(latest.items()):
        goes_on = before is not None and before[0] == key and time - before[1] < how.horizon_us
        if goes_on:
            _, begin, _, own, _ = found[-1]
            model = own[0] + (time - begin) / SECOND, own[1]
            goes_on = all(
                not np.isfinite(each) or abs(each - its) <= allowed(bound, each)
                for each, its, bound in zip(values, model, how.within.values(), strict=True)
            )
            if found[-1][0] == key:
                found[-1][2] = min(found[-1][2], time)
        if goes_on:
            found[-1][2] = time + how.horizon_us
            found[-1][4] += 1
        else:
            found.append([key, time, time + how.horizon_us, values, 1])
        before = key, time
    return found


@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 150), most=st.sampled_from([0.0, 0.5, 1.5, 9.0])
)
def test_rows_are_dropped_as_a_loop_drops_them_and_are_within_printed_errors(seed, n, most):
    rows = rows_of(seed, n)
    how = replace(DOOR, within={"x": Bound(most), "y": Bound(0.5, is_relative=True)})
    table = table_of(rows, how).sort_by([("k", "ascending"), ("ts", "ascending")])
    found = declared(table, how)
    names = found.entities.column("k").to_pylist()
    got = [
        (names[key], lo, hi)
        for key, lo, hi in zip(*(getattr(found.segments, each).tolist() for each in
                                 ("keys", "lo", "hi")), strict=True)
    ]  # fmt: skip
    named = {0: "k0", 1: "k1", 2: None}
    wanted = [(named[key], begin, end) for key, begin, end, _, _ in by_a_loop(rows, how)]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)
    segments = found.segments
    checked = 0
    for key, time, x, y in zip(*rows, strict=True):
        (at,) = [
            place
            for place, (name, lo, hi) in enumerate(got)
            if name == named[key] and lo <= time < hi
        ]
        for name, value in (("x", x), ("y", y)):
            others = rows[2 if name == "x" else 3][(rows[0] == key) & (rows[1] == time)]
            if np.isfinite(value) and len(others) == 1:
                coefs = segments.coefs[name][at]
                model = np.polyval(coefs[::-1], (time - segments.origin[at]) * 1e-6)
                assert abs(value - model) <= segments.errors[name][at] or np.isnan(model)
                checked += 1
    assert checked or n < 20


@pytest.mark.large
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 120), max_size=5),
)
def test_counts_do_not_depend_on_batches(seed, n, cuts):
    table = table_of(rows_of(seed, n), DOOR).sort_by("ts")
    whole = reports(table, [], DOOR)
    assert reports(table, cuts, DOOR) == whole
    assert whole.n_rows == whole.n_segments + whole.n_dropped
    assert whole.n_broken < whole.n_segments
    without = reports(table, cuts, DECLARED)
    assert (without.n_dropped, without.n_broken) == (0, 0)
    assert without.n_rows == whole.n_rows


def test_a_model_goes_on_by_a_row_that_is_not_kept():
    # Of the rows at 0, 1 and 4 s the bucket keeps the first and the last one, a horizon apart.
    seconds = np.array([0, 1, 4, 5])
    table = table_of((seconds * 0, seconds * SECOND, seconds * 1.0, seconds * 0.0 + 2), DOOR)
    found = streamed(table, DOOR, INPUT, [3], 0, np.random.default_rng(0))
    assert shown(found) == shown(at_once(table, DOOR, INPUT))
    assert sum(map(len, found)) == 1


def reports(table, cuts, how):
    plan, state, found = StreamPlan((StreamInput(how, SHAPE),), INPUT), BucketState(), []
    with tempfile.TemporaryDirectory() as folder:
        place = StatePlace(fs.LocalFileSystem(), folder, "models")
        fs.LocalFileSystem().create_dir(place.runs)
        edges = sorted({0, *(min(each, len(table)) for each in cuts), len(table)})
        for low, high in itertools.pairwise(edges):
            part = table.slice(low, high - low)
            until = part.column("ts").to_pylist()[-1].timestamp() * 1e6
            batch = BucketBatch(plan, place, state, 0, int(until))
            [*batch.run([coded(part)])]
            state = batch.report.after
            found.append(batch.report.fit)
        batch = BucketBatch(plan, place, state, 0, 2**62)
        [*batch.run([None])]
        found.append(batch.report.fit)
    total = found[0]
    for each in found[1:]:
        total += each
    return total


@pytest.mark.parametrize(
    ("within", "message"),
    [
        ({"z": Bound(1.0)}, "unknown attribute in within 'z'"),
        ({"x": Bound(1.0, is_relative=True)}, "less than 100 %"),
    ],
)
def test_bounds_that_say_nothing_are_refused(within, message):
    with pytest.raises(OptionError, match=message):
        replace(DECLARED, within=within)
