"""Watched series: alarms of single detectors, restarts, missing values, and names."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import eddyline as el
from eddyline.errors import OptionError, StateError
from eddyline.report.decisions import sentence
from eddyline.runtime.records import BatchRecord, OrderRecord
from eddyline.runtime.watch import Watch, series_of, watch_of


def batches(n=120, shift_at=70):
    """Batches that take longer from one on; the cost is unknown in every third of them."""
    rng = np.random.default_rng(5)
    for at in range(n):
        seconds = (0.2 if at < shift_at else 2.0) + 0.02 * rng.random()
        cost = math.nan if at % 3 == 0 else rng.normal(50.0) if at < 60 else 1.7e308
        order = OrderRecord("filter order", ("a", "b"), (0, 1), (0.5, 0.2), cost, 60.0)
        yield BatchRecord(at, 1000 + at, 10, seconds, operators=(order,))


@pytest.mark.parametrize("detector", ["cusum", "adwin", "beta_cusum", "martingale"])
def test_alarms_are_those_of_a_detector_of_its_own_with_restarts(detector):
    """Through JSON after every batch; bounded detectors get numbers scaled by the first one."""
    single, expected, scale = el.detector(detector, preprocess="hampel"), [], None
    watch = Watch(watch_of({"run.seconds": el.detector(detector, preprocess="hampel")}))
    alarms = []
    for batch in batches():
        alarms += watch.observe(batch)
        saved = json.loads(json.dumps(watch.snapshot()))
        watch = Watch(watch_of({"run.seconds": el.detector(detector, preprocess="hampel")}))
        watch.restore(saved)
        scale = scale or batch.seconds
        is_bounded = detector in {"adwin", "beta_cusum"}
        ratio = batch.seconds / scale
        single.update(ratio / (ratio + 1.0) if is_bounded else batch.seconds)
        if single.drift_detected:
            expected.append((batch.batch_id, single.change_point))
    assert [(each.batch_id, each.evidence["since_batch"]) for each in alarms] == expected
    first = alarms[0]
    assert 70 <= first.batch_id < 110
    assert (first.component, first.event) == ("watch", "alarm")
    assert first.evidence["mean_after"] > first.evidence["mean_before"]
    assert sentence(first).startswith("run.seconds has changed since batch ")


def test_a_pattern_watches_every_series_that_it_names_from_when_it_appears():
    """Missing values are no items; numbers near the largest float stay in range."""
    watch = Watch(
        watch_of({"cost_ns": "adwin", "filter *.as_written_ns": "cusum", "rules.x": "cusum"})
    )
    entries = [entry for batch in batches() for entry in watch.observe(batch)]
    assert [(each.event, each.batch_id) for each in entries if each.event != "alarm"] == [
        ("unmatched", 2)
    ]
    assert "filter order.as_written_ns" in entries[0].evidence["known"]
    assert sentence(entries[0]).startswith("No series has the watched name 'rules.x' yet.")
    assert {each.evidence["series"] for each in entries[1:]} == {"filter order.cost_ns"}
    assert entries[1].batch_id > 60


def test_after_a_restart_with_another_detector_a_pattern_starts_anew_and_others_go_on():
    first = Watch(watch_of(["run.seconds", "run.n_rows"]))
    for batch in batches(40):
        first.observe(batch)
    saved = json.loads(json.dumps(first.snapshot()))
    second = Watch(watch_of({"run.seconds": "cusum", "run.n_rows": "page_hinkley"}))
    second.restore(saved)
    for batch in batches(41):
        last = batch
    second.observe(last)
    seen = {bank.names: bank._bank.n_seen.tolist() for bank in second._banks}
    assert seen == {("run.seconds",): [41], ("run.n_rows",): [1]}
    saved["banks"][0]["bank"]["n"] = 7
    with pytest.raises(StateError):
        Watch(watch_of(["run.seconds"])).restore(saved)
    with pytest.raises(StateError, match="watched series"):
        Watch(watch_of(["run.seconds"])).restore({"banks": 3})


def test_nothing_is_watched_unless_it_is_asked_for():
    assert Watch(watch_of(None)).observe(next(batches())) == []
    assert Watch().snapshot() is None
    unknown = BatchRecord(0, n_rows=0, n_kept=0, seconds=math.nan)
    assert series_of(unknown) == {"run.n_rows": 0, "run.n_kept": 0}


def test_options_say_what_is_wrong():
    with pytest.raises(OptionError, match=r"option 'watch' is a name of a series.*got 3"):
        watch_of(3)
    with pytest.raises(OptionError, match="unknown detector 'adwinn'"):
        watch_of({"run.seconds": "adwinn"})
    with pytest.raises(OptionError, match="name of a watched series"):
        watch_of([7])
