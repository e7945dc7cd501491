"""Checks that every change detector must pass, also one from another package.

Call ``check_detector(MyOptions())`` in a test; it raises AssertionError with what is broken.
"""

from __future__ import annotations

import json
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.change.protocol import Detector
from eddyline.errors import QueryError, StateError

if TYPE_CHECKING:
    from eddyline.change.protocol import DetectorBank, DetectorOptions
    from eddyline.data.arrays import Floats, Mask

_N, _BEFORE, _AFTER = 5, 400, 800
"""Detectors of a bank, and the items of each before a shift and behind it."""


def check_detector(options: DetectorOptions) -> None:
    """Check the whole contract of a detector for items in [0, 1].

    Raises:
        AssertionError: the detector breaks the contract; the message says how.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_options_survive_pickling(options)
        check_same_items_give_same_changes(options)
        check_bank_is_independent_detectors(options)
        check_restored_bank_continues(options)
        check_reset_forgets(options)
        check_counts_items_of_each(options)
        check_empty_bank(options)
        check_edges_of_the_range(options)
        check_finds_two_shifts(options)
        check_refuses_what_it_cannot_take(options)
        check_clone_starts_afresh(options)


def check_options_survive_pickling(options: DetectorOptions) -> None:
    """Options and banks travel between processes."""
    again = pickle.loads(pickle.dumps(options))
    assert again == options, f"pickling changes {options!r} to {again!r}"
    bank, items = options.build(_N), _shifting(0)
    _run(bank, items[:_BEFORE])
    copy = pickle.loads(pickle.dumps(bank))
    after = items[_BEFORE:]
    assert (_run(bank, after) == _run(copy, after)).all(), "a pickled bank goes another way"


def check_same_items_give_same_changes(options: DetectorOptions) -> None:
    """No clock, no randomness without a seed, no state shared between banks; inputs are kept."""
    items = _shifting(1)
    items.flags.writeable = False
    assert (_run(options.build(_N), items) == _run(options.build(_N), items)).all(), (
        "the same items, other changes"
    )


def check_bank_is_independent_detectors(options: DetectorOptions) -> None:
    """A bank finds what single detectors find, whoever gets an item."""
    items = _with_holes(_shifting(2))
    bank, singles = options.build(_N), [Detector(options) for _ in range(_N)]
    for row in items:
        changes = bank.update(row)
        for i, single in enumerate(singles):
            single.update(row[i])
            assert single.drift_detected == changes[i], f"detector {i} of a bank differs"
            assert single.change_point == bank.change_points[i], "another change point in a bank"
            assert single.has_feedback == bank.has_feedback[i], "other feedback in a bank"


def check_restored_bank_continues(options: DetectorOptions) -> None:
    """A snapshot is JSON, and a bank restored from it finds what the original finds."""
    items = _with_holes(_shifting(3))
    for n_items in (0, 1, 37, _BEFORE, _BEFORE + 25):
        original, restored = options.build(_N), options.build(_N)
        _run(original, items[:n_items])
        saved = json.dumps(original.snapshot(), allow_nan=False)
        _run(restored, items[::-1][:60])
        restored.restore(json.loads(saved))
        assert json.dumps(restored.snapshot()) == saved, "a restored bank saves another state"
        assert (_run(original, items[n_items:]) == _run(restored, items[n_items:])).all(), (
            f"restored before item {n_items}: finds other changes"
        )
        assert (original.change_points == restored.change_points).all()
        for damaged in _damaged(json.loads(saved)):
            _must_raise(StateError, lambda bank=restored, bad=damaged: bank.restore(bad))
    _must_raise(StateError, lambda: options.build(_N + 1).restore(json.loads(saved)))


def check_reset_forgets(options: DetectorOptions) -> None:
    """A reset detector finds what a fresh one finds; the others do not notice."""
    items = _shifting(4)
    bank, untouched, fresh = (options.build(_N) for _ in range(3))
    _run(bank, items[:_BEFORE])
    _run(untouched, items[:_BEFORE])
    which = np.arange(_N) % 2 == 0
    seen = bank.n_seen.copy()
    bank.reset(which)
    assert (bank.n_seen == seen).all(), "a reset changes how many items were seen"
    assert (bank.has_feedback == fresh.has_feedback)[which].all(), "feedback survives a reset"
    after = items[_BEFORE:]
    assert (_run(bank, after) == _run(untouched, after))[:, ~which].all(), "others were reset too"
    _must_raise(QueryError, lambda: bank.reset(np.ones(_N + 1, dtype=np.bool_)))


def check_counts_items_of_each(options: DetectorOptions) -> None:
    """``n_seen`` counts items, nan is none, and change points are places among them."""
    items = _with_holes(_shifting(5))
    bank = options.build(_N)
    for t, row in enumerate(items):
        changes = bank.update(row)
        assert changes.shape == (_N,), f"update returns shape {changes.shape}"
        assert changes.dtype == np.bool_, f"update returns {changes.dtype}"
        assert not changes[np.isnan(row)].any(), "a change without an item"
        assert (bank.n_seen == (~np.isnan(items[: t + 1])).sum(axis=0)).all(), "miscounts"
        places = bank.change_points[changes]
        assert ((places >= 0) & (places <= bank.n_seen[changes])).all(), f"change points {places}"
        assert (bank.change_points[bank.n_seen == 0] == -1).all(), "a change before any item"
    before = json.dumps(bank.snapshot())
    assert not bank.update(np.full(_N, np.nan)).any(), "a change without any item"
    assert json.dumps(bank.snapshot()) == before, "no items change the state"


def check_empty_bank(options: DetectorOptions) -> None:
    """A bank of no detectors works."""
    bank = options.build(0)
    assert bank.update(np.zeros(0)).shape == (0,), "an empty bank returns something"
    bank.restore(json.loads(json.dumps(bank.snapshot())))
    bank.reset(np.zeros(0, dtype=np.bool_))
    assert bank.has_feedback.shape == (0,)


def check_edges_of_the_range(options: DetectorOptions) -> None:
    """Items at 0 and 1, and streams that never vary, are no change and no trouble."""
    constant = np.tile([0.0, 1.0, 0.5, 0.3, 1.0 / 3.0], (_BEFORE, 1))
    assert not _run(options.build(_N), constant).any(), "a change in a constant stream"
    ends = (np.random.default_rng(6).random((_BEFORE, _N)) < 0.5).astype(np.float64)
    _run(options.build(_N), ends)
    _run(options.build(_N), np.concatenate([constant, 1.0 - constant, ends]))


def check_finds_two_shifts(options: DetectorOptions) -> None:
    """Most detectors find a shift from .2 to .9, and then one back, long after each other."""
    rng = np.random.default_rng(7)
    parts = [rng.binomial(50, p, (_AFTER, _N)) / 50 for p in (0.2, 0.9, 0.2)]
    bank = options.build(_N)
    _run(bank, parts[0])
    for which, part in zip(("first", "second"), parts[1:], strict=True):
        changed = _run(bank, part).any(axis=0)
        assert changed.sum() > _N / 2, f"{_N - changed.sum()} of {_N} miss the {which} shift"


def check_refuses_what_it_cannot_take(options: DetectorOptions) -> None:
    """Infinities and wrong numbers of values raise, and nothing is taken in."""
    bank = options.build(_N)
    _run(bank, _shifting(8)[:50])
    before = json.dumps(bank.snapshot())
    for bad in (np.inf, -np.inf):
        items = np.full(_N, 0.5)
        items[3] = bad
        _must_raise(QueryError, lambda items=items: bank.update(items))
    for shape in (_N + 1, _N - 1, (_N, 1)):
        _must_raise(QueryError, lambda shape=shape: bank.update(np.full(shape, 0.5)))
    assert json.dumps(bank.snapshot()) == before, "items that were refused change the state"


def check_clone_starts_afresh(options: DetectorOptions) -> None:
    """A clone has the options and none of the items."""
    detector, items = Detector(options), _shifting(9)[:, 0]
    for x in items:
        detector.update(x)
    clone = detector.clone()
    assert clone.options == detector.options
    assert (clone.n_seen, clone.change_point, clone.drift_detected) == (0, -1, False)


def _run(bank: DetectorBank, items: Floats) -> Mask:
    """Return a mask of the detectors that found a change with each row of items."""
    return np.array([bank.update(row) for row in items]).reshape(len(items), bank.n)


def _shifting(seed: int) -> Floats:
    """Return block estimates whose fraction shifts after 400 of 500 ((500, n))."""
    rng = np.random.default_rng(seed)
    fracs = np.where(np.arange(_BEFORE + 100) < _BEFORE, 0.3, 0.8)
    return rng.binomial(50, fracs[:, None], (len(fracs), _N)) / 50


def _with_holes(items: Floats) -> Floats:
    """Return items of which some are missing, all of the last detector."""
    holes = np.random.default_rng(len(items)).random(items.shape) < 0.1
    holes[:, -1] = True
    return np.where(holes, np.nan, items)


def _damaged(saved: dict[str, Any]) -> list[Any]:
    return [
        None,
        {},
        {**saved, "kind": "another"},
        {**saved, "n": _N + 1},
        {**saved, "touched": "x"},
    ]


def _must_raise(kind: type[Exception], call: Any) -> None:
    try:
        call()
    except kind:
        return
    msg = f"{kind.__name__} was not raised"
    raise AssertionError(msg)
