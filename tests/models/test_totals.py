"""Sums and averages over entities at an instant, against each entity by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import NEEDS, Bound
from eddyline.models.segments import Keyed, Layout, in_seconds, keyed, table_of
from eddyline.models.solving.expressions import Range
from eddyline.models.steps import Total
from eddyline.models.windows.integrals import totals
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, value


def total(segments, groups=None, *, is_average=False):
    groups = np.zeros(len(segments), np.int64) if groups is None else np.array(groups)
    return totals(segments, groups, is_average=is_average)


@pytest.mark.parametrize("start", [0, EPOCH])
def test_pieces_end_where_a_segment_begins_or_ends(start):
    segments = pieces(
        (0, 0, 10, {"x": [0, 1]}),
        (1, 0, 10, {"x": [5, 0]}),
        (2, 4, 6, {"x": [8, -1]}, 4),
        (2, 12, 13, {"x": [1, 0]}, 12),
        start=start,
        errors=0.25,
    )
    found = total(segments)
    assert ranges(found, start) == [(0, 4), (4, 6), (6, 10), (12, 13)]
    assert found.origin.tolist() == found.lo.tolist()
    assert found.coefs["x"].tolist() == [[5, 1], [17, 0], [11, 1], [1, 0]]
    assert found.errors["x"] == pytest.approx([0.5, 0.75, 0.5, 0.25], rel=1e-12)
    found = total(segments, is_average=True)
    assert value(found, "x", 5, start) == pytest.approx([17 / 3], rel=1e-15)
    assert found.errors["x"] == pytest.approx(0.25, rel=1e-12)
    apart = total(segments, [0, 1, 0, 0])
    assert [*zip(apart.keys.tolist(), ranges(apart, start), strict=True)] == [
        (0, (0, 4)), (0, (4, 6)), (0, (6, 10)), (0, (12, 13)), (1, (0, 10)),
    ]  # fmt: skip


def test_what_has_no_length_or_no_value_is_not_there():
    segments = pieces(
        (0, 0, 4, {"x": [1], "y": [1]}),
        (1, 1, 3, {"x": [2], "y": [math.nan]}),
        (2, 2, 2, {"x": [9], "y": [9]}),
        (3, 1, 3, None),
        (4, 5, 6, {"x": [math.nan], "y": [math.nan]}),
        (5, 7, 8, {"x": [math.nan], "y": [3]}),
    )
    found = total(segments, is_average=True)
    assert ranges(found) == [(0, 1), (1, 3), (3, 4), (7, 8)]
    np.testing.assert_array_equal(found.coefs["x"][:, 0], [1, 1.5, 1, math.nan])
    np.testing.assert_array_equal(found.coefs["y"][:, 0], [1, 1, 1, 3])
    assert found.errors["x"][3] == 0
    for none in (segments.take(np.arange(0)), segments.take(np.array([2, 3, 4]))):
        assert len(total(none)) == 0


def read(segments, name, times):
    """Return what a reader computes of each segment at each instant, NaN where it is not there."""
    tau = in_seconds(times[:, None] - segments.origin)
    found = np.zeros(tau.shape)
    for power in range(segments.coefs[name].shape[1] - 1, -1, -1):
        found = found * tau + segments.coefs[name][:, power]
    there = (segments.lo <= times[:, None]) & (times[:, None] < segments.hi)
    return np.where(there & ~(segments.is_point | segments.is_tombstone), found, np.nan)


def with_errors(segments, seed, names):
    """Return segments of any size, with errors, and some without values."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-3, 7, len(segments))
    gone = rng.random((len(segments), 2)) < 0.2
    coefs, errors = {}, {}
    for at, name in enumerate(names):
        coefs[name] = segments.coefs[name] * size[:, None] / 3
        coefs[name][gone[:, at]] = np.nan
        errors[name] = rng.choice([0.0, 0.1, 0.3], len(segments)) * size
    return replace(segments, coefs=coefs, errors=errors), rng


@given(
    segments=drawn(("x", "y"), keys=7, start=EPOCH),
    seed=st.integers(0, 2**32),
    is_average=st.booleans(),
)
def test_values_are_those_of_all_entities_within_the_error(segments, seed, is_average):
    segments, rng = with_errors(segments, seed, "xy")
    n = int(segments.keys.max()) + 1
    group_of = rng.integers(0, 3, n)
    found = total(segments, group_of[segments.keys], is_average=is_average)
    assert (found.lo < found.hi).all()
    bounds = np.concatenate([segments.lo, segments.hi, segments.hi - 1])
    times = np.concatenate([bounds, EPOCH + rng.integers(0, 20 * SECOND, 100)])
    for name in "xy":
        each = read(segments, name, times)
        far = rng.choice([-1, 1], len(segments)) * segments.errors[name]  # rows as far as may be
        got = read(found, name, times)
        for group in range(3):
            own = np.flatnonzero(group_of[segments.keys] == group)
            mine = np.flatnonzero(found.keys == group)
            for at in range(len(times)):
                there = own[~np.isnan(each[at, own])]
                now = mine[~np.isnan(got[at, mine])]
                assert len(now) == (len(there) > 0)
                if len(now):
                    wanted = math.fsum([*each[at, there], *far[there]])
                    wanted /= len(there) if is_average else 1
                    assert abs(got[at, now[0]] - wanted) <= found.errors[name][now[0]]


@given(
    segments=drawn(("x", "y"), keys=6, start=EPOCH),
    seed=st.integers(0, 2**32),
    is_average=st.booleans(),
    by=st.sampled_from([(), ("m",)]),
)
def test_nothing_depends_on_the_order_or_on_parts(segments, seed, is_average, by):
    segments, rng = with_errors(segments, seed, "xy")
    n = int(segments.keys.max()) + 1
    names = pa.table({"k": pa.array(rng.permutation(n)), "m": pa.array(rng.integers(0, 2, n))})
    step = Total(by, is_average)
    wanted = table_of(step.run(Keyed(segments, names)), None)
    part = rng.integers(0, 3, len(segments))
    mixed = [segments.take(rng.permutation(np.flatnonzero(part == each))) for each in range(3)]
    tables = [table_of(step.partial(Keyed(each, names)), None) for each in mixed]
    together = step.run(keyed(pa.concat_tables(tables), Layout(("k", "m"), ("x", "y"))))
    found = table_of(together, None)
    order = [(each, "ascending") for each in (*by, "lo")]
    for name in wanted.column_names:
        one, other = (each.sort_by(order).column(name).to_pylist() for each in (found, wanted))
        np.testing.assert_equal(one, other)


def test_how_near_entities_have_to_be():
    share, near = Bound(0.01, is_relative=True), Bound(0.5)
    positive, any_sign = {"x": Range(0.0, 5.0, 1.0)}, {"x": Range(-1.0, 5.0, 1.0)}
    average, whole = Total((), True), Total((), False)

    def back(step, bound, known):
        return step.back({"x": bound}, known, by_pace=False)

    assert back(average, near, {}) == {"x": near}
    assert back(average, share, positive) == back(whole, share, positive) == {"x": share}
    assert average.ranges(any_sign) == any_sign
    assert whole.ranges(positive)["x"][:2] == (0.0, math.inf)
    assert whole.ranges({"x": Range(-3.0, -1.0)})["x"][:2] == (-math.inf, -1.0)
    assert whole.ranges(any_sign) == {}
    for known, helps in (({}, True), (any_sign, False)):
        for step in (average, whole):
            with pytest.raises(OptionError) as error:
                back(step, share, known)
            assert (NEEDS in error.value.facts) == helps
    with pytest.raises(OptionError, match="how many there are is not known") as error:
        back(whole, near, positive)
    assert NEEDS not in error.value.facts
