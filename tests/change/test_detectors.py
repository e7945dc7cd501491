"""The public face: names, options, errors, and the two ways to drive a detector."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

import eddyline as el
from eddyline.change import DETECTORS, adwin, martingale, meta, options_of
from eddyline.change.adwin import AdwinOptions
from eddyline.errors import OptionError, PluginError, QueryError, StateError

if TYPE_CHECKING:
    from eddyline.change.protocol import DetectorBank


def quick(name):
    """Return the options of a detector that simulates nothing before it starts."""
    return options_of(name, **({"thresholds": "asymptotic"} if name == "meta" else {}))


def test_detector_by_name_by_options_and_with_changes():
    assert el.detector("adwin").options == AdwinOptions()
    assert el.detector("adwin", check_every=32).options == AdwinOptions(check_every=32)
    given = AdwinOptions(check_every=32)
    assert el.detector(given).options is given
    assert el.detector(given, min_part=5).options == AdwinOptions(check_every=32, min_part=5)
    assert el.detector_bank(given, 3).n == 3
    assert repr(el.detector_bank(given, 3)) == "Adwin(3 detectors)"
    assert options_of(el.detector(given), min_part=2) == AdwinOptions(check_every=32, min_part=2)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("adwim", {}, "unknown detector 'adwim'.*did you mean 'adwin'"),
        ("adwin", {"chek_every": 3}, "unknown option.*'chek_every'.*did you mean 'check_every'"),
        (AdwinOptions(), {"chek_every": 3}, "did you mean 'check_every'"),
        (AdwinOptions, {}, "an options object such as AdwinOptions()"),
        (3.5, {}, "a name, an options object"),
        (None, {}, "a name, an options object"),
        ("adwin", {"significance": 0}, "'significance' must be a number in"),
        ("adwin", {"significance": 1}, "'significance' must be"),
        ("adwin", {"n_feedback": 2.5}, "'n_feedback' must be a whole number"),
        ("adwin", {"check_every": 0}, "'check_every'"),
        ("adwin", {"change_point": "somewhere"}, "'change_point' must be one of window, split"),
        ("beta_cusum", {"threshold": "25"}, "'threshold' must be a number"),
        ("beta_cusum", {"threshold": float("nan")}, "'threshold'"),
        ("beta_cusum", {"clip": 0.5}, "'clip'"),
        ("beta_cusum", {"block_rows": 1}, "'clip' must be given"),
        ("beta_cusum", {"memory": 1}, "'memory'"),
        ("beta_cusum", {"n_feedback": 2}, "'n_feedback'"),
        ("martingale", {"floor": "no"}, "'floor' must be True or False"),
        ("martingale", {"tie_share": 0}, "'tie_share'"),
        ("martingale", {"exponent": 1}, "'exponent'"),
        ("meta", {"baselines": ()}, "'baselines'"),
        ("meta", {"baselines": [100]}, "'baselines'"),
        ("meta", {"baselines": (100, 1)}, "'baselines'"),
        ("meta", {"thresholds": "guessed"}, "'thresholds'"),
        ("meta", {"thresholds": (0.3, 0.3)}, "'thresholds'"),
        ("change_finder", {"stabiliser": 100}, "'stabiliser'"),
        ("cusum", {"min_spread": 0}, "'min_spread'"),
        ("page_hinkley", {"direction": "sideways"}, "'direction' must be one of up, down, both"),
    ],
)
def test_what_is_wrong_with_options_is_said(spec, options, message):
    with pytest.raises(OptionError, match=message):
        el.detector(spec, **options)


@pytest.mark.parametrize("n", [-1, 2.5, True, "3"])
def test_a_bank_has_a_whole_number_of_detectors(n):
    with pytest.raises(QueryError, match="whole number of detectors"):
        el.detector_bank("cusum", n)


@pytest.mark.parametrize("name", ["beta_cusum", "adwin"])
@pytest.mark.parametrize("bad", [-0.01, 1.01, 25, np.inf, -np.inf])
def test_fractions_out_of_range_are_refused_with_place_and_value(name, bad):
    bank = el.detector_bank(name, 3)
    with pytest.raises(QueryError, match=rf"{name}: the item of detector 1 .* \[0, 1\], got"):
        bank.update(np.array([0.5, bad, np.nan]))
    assert bank.n_seen.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["cusum", "page_hinkley", "martingale", "meta", "change_finder"])
def test_detectors_of_any_number_take_large_ones(name):
    rng = np.random.default_rng(0)
    bank = el.detector_bank(quick(name), 4)
    scale = np.array([1.0, -1e6, 1e150, 1e308])
    for _ in range(200):
        bank.update(scale * rng.random(4))
    with pytest.raises(QueryError, match="must be a finite number, got inf"):
        bank.update(np.array([1.0, 1.0, np.inf, 1.0]))


@pytest.mark.large
@pytest.mark.parametrize("name", ["cusum", "martingale", "change_finder", "meta"])
def test_detectors_of_any_number_do_not_depend_on_unit_or_origin(name):
    rng = np.random.default_rng(1)
    items = rng.normal(0, 1, (400, 6)) + 3 * (np.arange(400) >= 250)[:, None]
    found = []
    for scale, origin in ((1.0, 0.0), (64.0, 1024.0)):
        bank = el.detector_bank(name, 6)
        found.append([bank.update(scale * row + origin) for row in items])
    differ = (np.array(found[0]) != np.array(found[1])).any(axis=0)
    assert differ.sum() <= 1, "rounding alone may move a change of one of six"
    assert np.array(found[0])[250:].any(axis=0).sum() >= 3


def test_state_by_state_is_update():
    rng = np.random.default_rng(2)
    items = rng.binomial(50, np.where(np.arange(300) < 150, 0.3, 0.7)) / 50
    for name in DETECTORS:
        by_update, by_state = el.detector(quick(name)), el.detector(quick(name))
        by_state.initialize()
        held = []
        for item in items:
            by_update.update(item)
            if not by_state.has_feedback:
                held.append(item)
                if by_state.is_sequential or len(held) == by_state.n_feedback:
                    by_state.use_feedback(held)
                    held = []
                found = False
            elif found := by_state.check(item):
                point = by_state.get_change_point()
                assert point == by_update.change_point
                by_state.initialize() if by_state.is_amnesic else by_state.adjust_feedback()
            assert found == by_update.drift_detected
        assert by_update.change_point >= 0, f"{name} found nothing"


def test_kinds_of_the_detectors():
    kinds = {
        name: (one.is_amnesic, one.is_sequential, one.n_feedback > 0)
        for name, one in ((name, el.detector(quick(name))) for name in DETECTORS)
    }
    assert [name for name, kind in kinds.items() if not kind[0]] == ["adwin"]
    assert [name for name, kind in kinds.items() if not kind[2]] == ["martingale"]
    assert [name for name, kind in kinds.items() if kind[1]] == ["adwin", "meta", "page_hinkley"]


def test_checks_and_feedback_out_of_turn_are_refused():
    watched = el.detector("beta_cusum", n_feedback=4)
    with pytest.raises(QueryError, match="learns from 4 items first"):
        watched.check(0.5)
    with pytest.raises(QueryError, match="learns from 4 items at once, got"):
        watched.use_feedback([0.5, 0.4])
    with pytest.raises(QueryError, match=r"in \[0, 1\], got 2"):
        watched.use_feedback([0.5, 0.4, 0.3, 2.0])
    assert watched.n_seen == 0
    watched.use_feedback([0.5, 0.4, 0.3, 0.2])
    for bad in (np.nan, 1.5):
        with pytest.raises(QueryError, match=r"in \[0, 1\]"):
            watched.check(bad)
    assert (watched.n_seen, watched.has_feedback) == (4, True)


def test_drift_is_over_after_the_next_update():
    watched = el.detector("cusum", n_feedback=5)
    for item in [0.5, 0.6, 0.4, 0.5, 0.5, 30.0]:
        watched.update(item)
    assert watched.drift_detected
    watched.update(float("nan"))
    assert not watched.drift_detected
    assert (watched.change_point, watched.n_seen) == (5, 6)


def test_detectors_are_copied_with_their_state():
    watched = el.detector("adwin")
    for item in [0.2] * 100 + [0.8] * 13:
        watched.update(item)
    for again in (copy.deepcopy(watched), pickle.loads(pickle.dumps(watched)), watched.clone()):
        again.update(0.8)
        assert again.drift_detected == (again.n_seen == 114)
    saved = watched.snapshot()
    other = el.detector("adwin")
    other.restore(saved)
    other.update(0.8)
    assert other.drift_detected


def test_snapshot_of_other_options_is_refused_if_it_does_not_fit():
    bank = el.detector_bank("beta_cusum", 2, n_feedback=5)
    bank.update(np.array([0.5, 0.5]))
    with pytest.raises(StateError, match="restore with the options that it was saved with"):
        el.detector_bank("beta_cusum", 2, n_feedback=6).restore(bank.snapshot())


class Steps:
    """A bank of another package, which fulfils the protocol and nothing more."""

    n = 1
    is_amnesic = True
    n_feedback = 0

    def __init__(self):
        self.n_seen = np.zeros(1, dtype=np.int64)
        self.change_points = np.full(1, -1)
        self.has_feedback = np.ones(1, dtype=np.bool_)

    def update(self, values):
        self.n_seen += 1
        return values > 1

    def reset(self, which): ...

    def snapshot(self):
        return {}

    def restore(self, state): ...


class StepsOptions:
    def build(self, n):
        return Steps()


def test_a_bank_of_another_package_plugs_in():
    bank: DetectorBank = el.detector_bank(StepsOptions(), 1)
    assert bank.update(np.array([2.0])).all()
    watched = el.detector(StepsOptions())
    watched.update(2.0)
    assert watched.drift_detected
    with pytest.raises(PluginError, match="cannot be driven state by state"):
        watched.check(1.0)


@pytest.mark.parametrize("name", DETECTORS)
def test_defaults_hold_no_mutable_state(name):
    assert options_of(name) == options_of(name)
    assert hash(options_of(name)) == hash(options_of(name))


class Point:
    name = "steps"
    dist = None

    def load(self):
        return StepsOptions


def test_detectors_of_installed_packages_are_found_by_name(monkeypatch):
    groups = {"eddyline.change": [Point()]}
    monkeypatch.setattr("eddyline.registry.entry_points", lambda group: groups[group])
    assert isinstance(el.detector("steps").options, StepsOptions)
    with pytest.raises(OptionError, match=r"known: adwin, .*steps; did you mean 'steps'"):
        el.detector("stepps")


@pytest.mark.parametrize("name", ["adwin", "martingale", "meta"])
def test_kernels_are_compiled_once_for_all_forms_of_items(name):
    options = quick(name)
    table = np.random.default_rng(0).random((300, 4))
    frozen = table.copy()
    frozen.flags.writeable = False
    forms = [frozen, np.asfortranarray(table), table.astype(np.float32), table]
    entry = {"adwin": adwin.advance, "martingale": martingale.check, "meta": meta.take}[name]
    for items in forms:
        bank = options.build(4)
        for row in items:
            bank.update(row)
        bank.update(items[:, 0][:4])
        bank.update(np.where(np.arange(4) < 2, np.nan, items[0]))
    assert len(entry.dispatcher.signatures) == 1
