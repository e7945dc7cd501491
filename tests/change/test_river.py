"""Detectors of river in eddyline, and eddyline's in river."""

from __future__ import annotations

import base64
import os
import pickle
import random
import zlib

import numpy as np
import pytest

import eddyline as el
from eddyline.data.arrays import pack
from eddyline.errors import OptionError, StateError

drift = pytest.importorskip("river.drift")


def shifting(n_rows=1500, seed=0):
    rng = np.random.default_rng(seed)
    fracs = np.where((np.arange(n_rows) // 500) % 2 == 0, 0.2, 0.7)
    return rng.binomial(10, fracs) / 10


def drifts_of(detector, items):
    found = []
    for at, item in enumerate(items):
        detector.update(item)
        if detector.drift_detected:
            found.append(at)
    return found


@pytest.mark.large
@pytest.mark.parametrize(
    "made",
    [
        drift.ADWIN,
        lambda: drift.PageHinkley(threshold=3.0),
        lambda: drift.KSWIN(seed=3),
        drift.binary.DDM,
        drift.binary.EDDM,
    ],
)
def test_bank_of_river_finds_what_river_finds(made):
    items = np.stack([shifting(seed=s) for s in range(3)], axis=1)
    if "binary" in type(made()).__module__:
        items = (items > 0.5).astype(float)
    bank = el.detector_bank(made(), 3)
    found = np.array([bank.update(row) for row in items])
    for i in range(3):
        assert np.flatnonzero(found[:, i]).tolist() == drifts_of(made(), items[:, i])
    assert drifts_of(el.detector(made()), items[:, 0]) == drifts_of(made(), items[:, 0])


def test_prototype_is_never_updated():
    prototype = drift.ADWIN()
    drifts_of(el.detector(prototype), shifting())
    assert prototype.width == 0


def test_change_point_of_rivers_adwin_is_where_its_window_begins():
    ours, theirs = el.detector(drift.ADWIN()), drift.ADWIN()
    for at, item in enumerate(shifting()):
        ours.update(item)
        theirs.update(item)
        if theirs.drift_detected:
            assert ours.change_point == at + 1 - theirs.width
    assert ours.change_point > 0


@pytest.mark.parametrize(("threshold", "mode"), [(1.0, "up"), (3.0, "down"), (3.0, "both")])
def test_page_hinkley_is_rivers(threshold, mode):
    given = {"threshold": threshold, "delta": 0.01, "alpha": 0.999}
    theirs = drift.PageHinkley(mode=mode, min_instances=30, **given)
    ours = el.detector(
        "page_hinkley",
        threshold=threshold,
        tolerance=0.01,
        fading=0.999,
        n_feedback=29,
        direction=mode,
    )
    items = shifting(3000)
    expected = drifts_of(theirs, items)
    assert expected
    assert drifts_of(ours, items) == expected


def test_adwin_finds_the_shifts_that_rivers_finds():
    """The windows are the same, river checks at every 32nd item and from its own first bucket."""
    items = shifting(3000)
    ours = el.detector("adwin", significance=0.002, check_every=32, min_part=5)
    found, expected = drifts_of(ours, items), drifts_of(drift.ADWIN(), items)
    shifts = range(500, 3000, 500)
    for at in shifts:
        delays = [min(t - at for t in each if t >= at) for each in (found, expected)]
        assert abs(delays[0] - delays[1]) <= 64, f"delays {delays} after the shift at {at}"


@pytest.mark.large
def test_detectors_work_in_rivers_evaluation():
    evaluate = pytest.importorskip("river.evaluate")
    metrics, naive_bayes = (pytest.importorskip(f"river.{m}") for m in ("metrics", "naive_bayes"))
    rng = random.Random(0)
    xs = [rng.random() for _ in range(2000)]
    stream = [({"x": x}, (x > 0.5) != (t >= 1000)) for t, x in enumerate(xs)]

    def score(model):
        return evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get()

    plain = score(naive_bayes.GaussianNB())
    for name in ("adwin", "page_hinkley", "beta_cusum"):
        options = {"clip": 0.05, "block_rows": 1} if name == "beta_cusum" else {}
        watched = el.detector(name, **options)
        model = drift.DriftRetrainingClassifier(naive_bayes.GaussianNB(), drift_detector=watched)
        assert score(model) > plain + 0.1, name
        assert model.drift_detector.change_point > 0, name


def test_a_class_of_river_is_not_a_detector():
    with pytest.raises(OptionError, match="a detector of river, got"):
        el.detector(drift.ADWIN)
    with pytest.raises(OptionError, match="unknown option of RiverOptions 'delta'"):
        el.detector(drift.ADWIN(), delta=0.1)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trap",)


def part_of(saved):
    (part,) = saved["parts"]
    return part


def test_no_code_is_read_from_a_snapshot(tmp_path, monkeypatch):
    """Snapshots were pickles once; one in the old form is refused unread."""
    monkeypatch.chdir(tmp_path)
    bank = el.detector_bank(drift.ADWIN(), 1)
    bank.update(np.array([0.5]))
    saved = bank.snapshot()
    body = base64.b64encode(zlib.compress(pickle.dumps(Trap()))).decode()
    for part in ({"pickle": body}, {**part_of(saved), "items": body}):
        with pytest.raises(StateError):
            bank.restore({**saved, "parts": [part]})
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"of": "KSWIN"},
        {"items": "%"},
        {"items": None},
        {"items": pack(np.zeros((2, 2)))},
        {"items": pack(np.zeros(3, np.int64))},
        {"items": pack(np.zeros(3_000))},
    ],
)
def test_damaged_state_is_refused(change):
    bank = el.detector_bank(drift.ADWIN(), 1)
    bank.update(np.array([0.5]))
    saved = bank.snapshot()
    for part in ({**part_of(saved), **change}, {}, None, [1], "ADWIN"):
        with pytest.raises(StateError):
            bank.restore({**saved, "parts": [part]})


def test_restored_detectors_have_seen_the_newest_items():
    items = np.concatenate([np.zeros(5_000), shifting()])[:, None]
    bank, again = (el.detector_bank(drift.PageHinkley(threshold=3.0), 1) for _ in range(2))
    for row in items[:-700]:
        bank.update(row)
    again.restore(bank.snapshot())
    fresh = drift.PageHinkley(threshold=3.0)
    drifts_of(fresh, items[:-700, 0][-2_048:])
    found = [bool(again.update(row)[0]) for row in items[-700:]]
    assert any(found)
    assert np.flatnonzero(found).tolist() == drifts_of(fresh, items[-700:, 0])
