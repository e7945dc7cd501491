from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.segments import Keyed, Layout, keyed, table_of
from eddyline.models.steps import Envelope
from eddyline.models.windows.extrema import Pieces, envelope, extrema_at, fused, windowed_extremum
from eddyline.models.windows.integrals import integrals_at, sampled
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, value, values_at

START = pytest.mark.parametrize("start", [0, EPOCH])


def curves(start):
    return pieces(
        (0, 0, 10, {"x": [0, 1]}),
        (1, 0, 10, {"x": [5, 0]}),
        (2, 4, 10, {"x": [8, -1]}, 4),
        start=start,
    )


@START
def test_t16_envelopes(start):
    segments = curves(start)
    found = envelope(segments, "x", largest=True)
    assert ranges(found, start) == [(0, 4), (4, 6), (6, 10)]
    assert found.coefs["x"].tolist() == [[5, 0], [8, -1], [0, 1]]
    found = envelope(segments, "x", largest=False)
    assert ranges(found, start) == [(0, 5), (5, 7), (7, 10)]
    assert found.coefs["x"].tolist() == [[0, 1], [5, 0], [8, -1]]


@START
def test_t17_windowed_maximum(start):
    top = envelope(curves(start), "x", largest=True)
    found = windowed_extremum(top, "x", 3 * SECOND, largest=True)
    expected = [
        (0, 4, lambda _: 5),
        (4, 7, lambda _: 8),
        (7, 7.5, lambda t: 15 - t),
        (7.5, 10, lambda t: t),
        (10, 13, lambda _: 10),
    ]
    assert len(found) == len({*found.lo.tolist()})
    assert ranges(found, start)[0][0] == 0
    assert ranges(found, start)[-1][1] == 13
    for lo, hi, curve in expected:
        for t in np.linspace(lo, hi, 9)[:-1]:
            assert value(found, "x", t, start) == pytest.approx([curve(t)], abs=1e-9)


def test_groups_errors_and_what_has_no_length():
    segments = pieces(
        (0, 0, 4, {"x": [1, 0]}),
        (1, 0, 4, {"x": [2, 0]}),
        (2, 0, 4, {"x": [3, 0]}),
        (3, 2, 2, {"x": [9, 0]}),
        (4, 1, 3, None),
    )
    segments = replace(segments, errors={"x": np.array([0.5, 0.1, 0.2, 3, 3])})
    found = envelope(segments, "x", largest=True, groups=np.array([0, 0, 1, 0, 0]))
    assert found.keys.tolist() == [0, 1]
    assert found.coefs["x"][:, 0].tolist() == [2, 3]
    assert found.errors["x"].tolist() == [0.5, 0.2]


def test_nothing_and_one_segment():
    one = pieces((0, 0, 4, {"x": [1, 2]}))
    none = one.take(np.arange(0))
    assert len(envelope(none, "x", largest=True)) == 0
    assert len(windowed_extremum(none, "x", SECOND, largest=True)) == 0
    assert ranges(envelope(one, "x", largest=False)) == [(0, 4)]
    lag = windowed_extremum(one, "x", SECOND, largest=False)
    assert value(lag, "x", 0.5) == [1]
    assert value(lag, "x", 3) == [5]
    assert value(lag, "x", 4.5) == [8]
    assert ranges(lag)[-1] == (4, 5)


def extreme(rows, largest):
    found = np.full(len(rows), np.nan)
    some = ~np.isnan(rows).all(axis=1)
    found[some] = (np.nanmax if largest else np.nanmin)(rows[some], axis=1)
    return found


@given(segments=drawn(keys=6, start=EPOCH), largest=st.booleans())
def test_envelopes_are_what_dense_samples_say(segments, largest):
    found = envelope(segments, "x", largest=largest)
    times = EPOCH + np.arange(0, 20 * SECOND, SECOND // 17) + 13
    expected = extreme(values_at(segments, times), largest)
    got = values_at(found, times)
    assert ((~np.isnan(got)).sum(axis=1) <= 1).all()
    np.testing.assert_allclose(extreme(got, largest), expected, atol=1e-6, rtol=1e-9)
    assert np.isin(found.origin, segments.origin).all()


@given(
    segments=drawn(keys=6, start=EPOCH),
    largest=st.booleans(),
    parts=st.lists(st.integers(0, 2), min_size=24, max_size=24),
)
def test_what_may_be_extreme_among_some_has_the_envelope_of_all(segments, largest, parts):
    step = Envelope((), largest)
    errors = {"x": np.round(np.sin(np.arange(len(segments)) * 7.0) ** 2, 2)}
    segments = replace(segments, errors=errors)
    names = pa.table({"k": np.arange(segments.keys.max() + 1)})
    of = np.array(parts)[: len(segments)]
    few = [step.partial(Keyed(segments.take(of == part), names)) for part in range(3)]
    tables = [table_of(each, None) for each in few[::-1]]
    together = keyed(pa.concat_tables(tables), Layout(("k",), ("x",)))
    wanted, found = step.run(Keyed(segments, names)).segments, step.run(together).segments
    for name in ("lo", "hi", "origin"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    np.testing.assert_array_equal(found.coefs["x"], wanted.coefs["x"])
    there = (segments.lo < wanted.hi[:, None]) & (segments.hi > wanted.lo[:, None])
    greatest = np.where(there, errors["x"], 0).max(axis=1) if len(wanted) else np.zeros(0)
    np.testing.assert_array_equal(wanted.errors["x"], greatest)
    np.testing.assert_array_equal(found.errors["x"], greatest)


@given(
    segments=drawn(keys=3, start=EPOCH),
    largest=st.booleans(),
    width=st.sampled_from([0.3, 1.0, 2.5, 40.0]),
)
def test_windowed_extrema_are_what_dense_samples_say(segments, largest, width):
    width_us = round(width * SECOND)
    found = windowed_extremum(segments, "x", width_us, largest=largest)
    step = 20_000
    for key in np.unique(segments.keys):
        own, made = segments.take(segments.keys == key), found.take(found.keys == key)
        start, stop = own.lo.min(), own.hi.max() + width_us
        times = np.arange(start + 13, stop + 5 * step, step)
        inside = np.concatenate([times, own.lo, own.hi - 1])
        values = extreme(values_at(own, inside), largest)
        window = (times[:, None] - width_us < inside) & (inside <= times[:, None])
        expected = extreme(np.where(window, values, np.nan), largest)
        got = extreme(values_at(made, times), largest)
        slope = max(
            np.nanmax(np.abs(values_at(replace(own, coefs={"x": derived(own)}), times)), initial=0),
            1,
        )
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        some = ~np.isnan(expected)
        np.testing.assert_allclose(got[some], expected[some], atol=2 * slope * step / SECOND)


@given(
    segments=drawn(keys=3, start=EPOCH),
    largest=st.booleans(),
    width=st.sampled_from([0.3, 1.0, 2.5, 40.0]),
    every=st.sampled_from([0.1, 0.25, 3.0]),
)
def test_extrema_at_ticks_are_those_of_the_envelope(segments, largest, width, every):
    every_us, width_us = round(every * SECOND), round(width * SECOND)
    found = extrema_at(segments, "x", width_us, every_us, largest=largest)
    wanted = sampled(windowed_extremum(segments, "x", width_us, largest=largest), every_us)
    order = np.lexsort((wanted.times, wanted.keys))
    np.testing.assert_array_equal(found.keys, wanted.keys[order])
    np.testing.assert_array_equal(found.times, wanted.times[order])
    values = wanted.values["x"][order]
    np.testing.assert_allclose(found.values["x"], values, rtol=1e-9, atol=1e-6)


def test_the_error_at_a_tick_is_the_greatest_in_its_window():
    made = pieces(*((0, at, at + 1, {"x": [float(at)]}) for at in range(6)))
    made = replace(made, errors={"x": np.array([0.0, 0.5, 0.1, 0.0, 0.2, 0.0])})
    found = extrema_at(made, "x", SECOND // 2, SECOND, largest=True)
    assert found.errors["x"].tolist() == [0.0, 0.5, 0.5, 0.1, 0.2, 0.2, 0.0]


def test_extrema_at_ticks_of_nothing_are_none():
    nothing = pieces((0, 0, 1, {"x": [1.0]})).take(np.empty(0, np.intp))
    assert len(extrema_at(nothing, "x", SECOND, SECOND, largest=True).times) == 0


def derived(segments):
    coefs = segments.coefs["x"]
    return np.concatenate([coefs[:, 1:] * np.arange(1, coefs.shape[1]), coefs[:, :1] * 0], axis=1)


def test_neighbours_of_one_function_are_one_piece_unless_a_gap_parts_them():
    def found(*ranges):
        n = len(ranges)
        zero, lo, hi = np.zeros(n, np.int64), *np.array(ranges).T
        made = fused(Pieces(zero, zero, zero, lo, hi, np.arange(n) / 8))
        return [*zip(made.lo.tolist(), made.hi.tolist(), made.errors.tolist(), strict=True)]

    assert found((0, 2), (2, 5)) == [(0, 5, 0.125)]
    assert found((0, 2), (3, 5)) == [(0, 2, 0.0), (3, 5, 0.125)]


def test_segments_without_values_are_left_out():
    segments = pieces((0, 0, 9, {"x": [np.nan]}), (1, 2, 4, {"x": [5]}), (0, 9, 10, {"x": [3]}))
    assert ranges(envelope(segments, "x", largest=True)) == [(2, 4), (9, 10)]
    assert ranges(windowed_extremum(segments, "x", SECOND, largest=False)) == [
        (9, 10), (10, 11), (2, 3), (3, 4), (4, 5),
    ]  # fmt: skip


def test_errors_are_of_all_that_were_compared():
    segments = pieces((0, 0, 9, {"x": [1]}), (1, 2, 4, {"x": [5]}), (2, 20, 21, {"x": [1]}))
    segments = replace(segments, errors={"x": np.array([0.1, 0.7, 0.2])})
    found = envelope(segments, "x", largest=False)
    assert ranges(found) == [(0, 9), (20, 21)]
    assert found.errors["x"].tolist() == [0.7, 0.2]
    assert ranges(envelope(segments, "x", largest=True)) == [
        (0, 2), (2, 4), (4, 9), (20, 21),
    ]  # fmt: skip


def test_windows_at_ticks_are_not_looked_for_in_gaps():
    later = 50 * 365 * 86_400
    segments = pieces((0, 0, 3, {"x": [1]}), (0, later, later + 3, {"x": [2]}))
    greatest = extrema_at(segments, "x", 2 * SECOND, SECOND, largest=True)
    assert (greatest.times // SECOND).tolist() == [0, 1, 2, 3, 4] + [
        later + each for each in range(5)
    ]
    average = integrals_at(segments, 2 * SECOND, SECOND, is_average=True, covered=True)
    assert (average.times // SECOND).tolist() == [1, 2, 3, 4] + [
        later + each for each in range(1, 5)
    ]
