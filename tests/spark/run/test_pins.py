"""Plans that a person pins while a query runs: they change the work, never the answer."""

from __future__ import annotations

import itertools
import random

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import PlanError
from eddyline.runtime.choice import OneOfFew
from eddyline.spark.run.run import Run
from tests import examples
from tests.spark.run import lives

pytestmark = pytest.mark.spark

N_BATCHES = 6


class OfFour(lives.Kind):
    """A query of four predicates, two of them in Python."""

    def engine(self, spark, folder):
        engine = el.Engine(spark)
        engine.stream("s", lives.stream_of(spark, folder, "s", schema=lives.SCHEMA))
        engine.function("often", lambda k: pc.less(k, 35), reads=["k"])
        engine.function("seldom", lambda k: pc.greater(k, 9), reads=["k"])
        engine.query(self.answers["q"][0], name="q")
        return engine


KINDS = lives.KINDS | {
    "filters": OfFour(
        {
            "q": (
                "SELECT id FROM s WHERE often(k) AND k % 7 <> 3 AND seldom(k) AND id % 2 = 0",
                "SELECT id FROM every_s WHERE k < 35 AND k % 7 <> 3 AND k > 9 AND id % 2 = 0",
            )
        }
    )
}


def drawn_plans(run, drawn):
    """Return possible plans of some components of a run."""
    plans = {}
    for name, pin in run.chain.choices.items():
        if isinstance(pin, OneOfFew):
            orders = pin.plans
        elif isinstance(pin.plan, list):
            orders = [list(each) for each in itertools.permutations(pin.plan)]
        else:
            orders = [pin.plan]
        if drawn.random() < 0.7:
            plans[name] = drawn.choice([each for each in orders if pin.is_possible(each)])
    return plans


@pytest.mark.large("runs six batches, each under another plan")
@pytest.mark.parametrize(
    "kind",
    [
        "filters",
        "rules",
        "filters together",
        "join",
        "aggregate",
        "aggregates together",
        "aggregate of a join",
    ],
)
@pytest.mark.parametrize("seed", [1] if examples.are_few() else [1, 2])
def test_any_plan_at_any_batch_gives_the_same_rows(spark, tmp_path, monkeypatch, kind, seed):
    drawn, one = random.Random(seed), KINDS[kind]
    lives.write(tmp_path, N_BATCHES)
    laid, wanted, pinned = [], {}, set()
    process = Run._process

    def steered(run, df, batch):
        found = process(run, df, batch)
        laid.append({name: each for name, each in run.plan().items() if name in wanted})
        if drawn.random() < 0.3:
            run.adapt()
            wanted.clear()
        plans = drawn_plans(run, drawn)
        run.pin(plans)
        wanted.update(plans)
        pinned.update(plans)
        expected.append(dict(wanted))
        return found

    expected = [{}]
    monkeypatch.setattr(Run, "_process", steered)
    for run in one.start(spark, tmp_path):
        assert run.await_termination(120)
    assert one.written(tmp_path) == one.wanted(N_BATCHES)
    assert laid == expected[: len(laid)]
    assert len(laid) >= N_BATCHES
    assert pinned


@pytest.fixture
def started(spark, tmp_path):
    """Start a query with two native filters over a stream, and a checkpoint."""
    lives.write(tmp_path, 2)
    engine = el.Engine(spark)
    stream = lives.stream_of(spark, tmp_path, "s", schema=lives.SCHEMA)
    engine.stream("s", stream, time="ts", lateness="2 seconds")

    text = "SELECT id FROM s WHERE k > 3 AND k % 7 <> 3"

    def start(**options):
        query = engine.query(text, name="q", replace=True, **options)
        return query.start("memory", checkpoint=tmp_path / "ckpt")

    return start


SWAPPED = ["k % 7 <> 3", "k > 3"]


def test_a_pin_is_journaled_shown_and_survives_a_restart(started):
    with started() as run:
        run.process_all_available()
        written = run.plan()
        assert written == {"native": SWAPPED[::-1]}
        run.pin({"native": SWAPPED})
        entry = run.journal[-1]
        assert (entry["component"], entry["event"], entry["batch_id"]) == ("native", "pin", 1)
        assert (entry["before"], entry["after"]) == (SWAPPED[::-1], SWAPPED)
        assert entry["evidence"] == {"by": "person"}
        assert "pinned by a person after batch 1, in force from the next batch on" in run.explain()
        assert run.plan() == written  # no batch has come
        assert "<h2>Pinned by a person</h2>" in run._repr_html_()
        run.stop()
    with started() as again:
        assert again.plan() == {"native": SWAPPED}
        assert "k % 7 <> 3 → k > 3: pinned by a person after batch 1" in again.explain()
        again.adapt()
        assert "pinned by a person" not in again.explain()
        events = [each["event"] for each in again.journal]
        assert events[-3:] == ["stop", "restore", "adapt"]
        stop = next(each for each in again.journal if each["event"] == "stop")
        assert (stop["component"], stop["evidence"]) == ("run", {"by": "person"})


def test_what_cannot_be_pinned_says_what_can(started):
    with started(adaptive=False) as run:
        with pytest.raises(PlanError, match=r"unknown component 'nativ'.*did you mean 'native'"):
            run.pin(component="nativ")
        with pytest.raises(PlanError, match="unknown component 'arrow'; known: native"):
            run.pin({"arrow": ["x"]})
        with pytest.raises(PlanError, match="each once, in any order; in force is"):
            run.pin(["k > 3"])
        with pytest.raises(PlanError, match="adaptive=True"):
            run.adapt()
        run.pin(SWAPPED, component="filter")
        run.process_all_available()
        assert run.journal[-1]["event"] == "pin"
    assert run.journal[-1]["evidence"] == {"why": "the block that it was started in has ended"}


def test_a_query_without_a_choice_says_so(spark, tmp_path):
    lives.write(tmp_path, 1)
    engine = el.Engine(spark)
    engine.stream("s", lives.stream_of(spark, tmp_path, "s", schema=lives.SCHEMA))
    query = engine.query("SELECT id FROM s", name="all")
    assert "SELECT id FROM s" in query._repr_html_()
    with query.start() as run, pytest.raises(PlanError, match="the query has no plan to pin"):
        run.pin()
