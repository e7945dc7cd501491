"""Numeric options that change while a query runs: checked, journaled, and never in the answer."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError

pytestmark = pytest.mark.spark

ROWS = {"k": [at % 7 for at in range(300)], "v": list(range(300))}


@pytest.fixture
def engine(spark, tmp_path):
    """An engine with the streams ``a``, ``b`` and ``c`` of one batch each."""
    engine = el.Engine(spark)
    for name in "abc":
        (tmp_path / name).mkdir()
        micros = [1_700_000_000_000_000 + 1_000_000 * v for v in ROWS["v"]]
        times = pa.array(micros, pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({**ROWS, "ts": times}), tmp_path / name / "0.parquet")
        stream = spark.readStream.schema("k BIGINT, v BIGINT, ts TIMESTAMP")
        engine.stream(name, stream.parquet(str(tmp_path / name)), time="ts", lateness="1 minute")
    with engine:
        yield engine


def test_an_option_is_in_force_at_once_and_in_the_journal(engine):
    query = engine.query("SELECT v FROM a WHERE v > 3 AND k < 5", name="one")
    with query.start("memory") as run:
        (part,) = [each for each in run.chain.operators[0].parts if hasattr(each, "loop")]
        run.adjust(sample_prob=0.25)
        run.adjust(component="filter", max_overhead=0.5, sample_prob=0.125)
        assert (part.loop.options.sample_prob, part.loop.options.max_overhead) == (0.125, 0.5)
        entries = [each for each in run.decisions if each.event == "adjust"]
        assert [(each.component, each.before, each.after) for each in entries] == [
            ("filter", {"sample_prob": 0.01}, {"sample_prob": 0.25}),
            (
                "filter",
                {"sample_prob": 0.25, "max_overhead": 0.01},
                {"sample_prob": 0.125, "max_overhead": 0.5},
            ),
        ]
        assert all(each.evidence == {"by": "person"} for each in entries)
        assert not any(each.is_plan_change for each in entries)
        assert run.run_view().settings["sample_prob"] == "0.125"
        for wrong in ({"sample_prob": 2}, {"sample_prob": 0.5, "max_overhead": 0}):
            with pytest.raises(OptionError, match="must be a number in"):
                run.adjust(**wrong)
        with pytest.raises(OptionError, match="option that can be changed 'seed'"):
            run.adjust(seed=3)
        with pytest.raises(OptionError, match="did you mean 'filter'"):
            run.adjust(component="filtr", sample_prob=0.5)
        assert part.loop.options.sample_prob == 0.125
        assert len([each for each in run.decisions if each.event == "adjust"]) == 2


@pytest.mark.large
def test_rules_sample_by_the_new_value_and_go_on_from_what_they_learned(engine, tmp_path):
    rules = el.RuleSet({"big": "v > 200", "odd": "v % 2 = 1 AND k > 2"})
    query = engine.rules("rules", rules, stream="a")
    with query.start("memory", checkpoint=tmp_path / "ck") as run:
        run.adjust(sample_prob=0.5)
        (operator,) = [each for each in run.chain.operators if each.name == "rules"]
        assert operator.compiled.choice.options.sample_prob == 0.5
        run.process_all_available()
        n_rows = run.to_arrow().num_rows
    assert n_rows == sum(
        v > 200 or (v % 2 == 1 and k > 2) for k, v in zip(ROWS["k"], ROWS["v"], strict=True)
    )
    with query.start("memory", checkpoint=tmp_path / "ck") as run:
        (operator,) = [each for each in run.chain.operators if each.name == "rules"]
        assert operator.options.sample_prob == 0.01
        assert [each.event for each in run.decisions][-1] == "restore"


@pytest.mark.large
def test_memory_of_caches_changes_and_the_answer_does_not(engine):
    text = (
        "SELECT a.v, b.v AS w, c.v AS x FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE], "
        "c [RANGE 1 MINUTE] WHERE a.k = b.k AND b.k = c.k AND a.v % 9 = 0"
    )
    rows = {}
    for name, memory in (("plain", None), ("small", 8_192)):
        query = engine.query(text, name=name, caches=True)
        with query.start("memory") as run:
            if memory is not None:
                run.adjust(cache_bytes=memory)
                (join,) = [each for each in run.chain.operators if each.name == "join"]
                assert join.caches.n_pages == 2
                with pytest.raises(OptionError, match="need 4,096 bytes or more, got 4,095"):
                    run.adjust(cache_bytes=4_095)
                assert (join.caches.n_pages, join.options.cache_bytes) == (2, memory)
                assert {each.name for each in run.steering.properties()} == {
                    "cache_bytes", "sample_prob", "max_overhead", "hysteresis",
                }  # fmt: skip
            run.process_all_available()
            rows[name] = sorted(run.to_arrow().to_pandas().itertuples(index=False, name=None))
    assert rows["small"] == rows["plain"]
    assert rows["plain"]


def test_the_threshold_of_a_policy_is_changed(engine):
    query = engine.query("SELECT v FROM a WHERE v > 3 AND k < 5", name="one")
    with query.start("memory") as run:
        (part,) = [each for each in run.chain.operators[0].parts if hasattr(each, "loop")]
        run.adjust(hysteresis=0.5)
        assert part.loop.policy.options.hysteresis == 0.5
        assert run.decisions[-1].before == {"hysteresis": 0.9}
        with pytest.raises(OptionError, match="must be a number in"):
            run.adjust(hysteresis=2)
        assert part.loop.policy.options.hysteresis == 0.5
    with engine.query(query.text, policy="fixed").start("memory") as run:
        assert {each.name for each in run.steering.properties()} == {"sample_prob", "max_overhead"}


@pytest.mark.large
def test_a_smaller_bound_moves_rows_to_the_cold_tier_and_the_answer_stays(engine):
    text = "SELECT a.v, b.v AS w FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
    rows = {}
    for bound in (None, 2.0):
        with engine.query(text, name=f"bound {bound}", constraints="exact").start("memory") as run:
            (join,) = [each for each in run.chain.operators if each.name == "join"]
            assert [each.name for each in run.steering.properties()] == ["largest_k_s"]
            if bound is not None:
                run.adjust(largest_k_s=bound)
                assert join.leaving.tiers.largest == join.leaving.clusters.largest == 2_000_000
            run.process_all_available()
            rows[bound] = sorted(run.to_arrow().to_pandas().itertuples(index=False, name=None))
    assert rows[None] == rows[2.0]
    assert rows[None]
    dropping = engine.query(text, name="dropping", constraints="discard")
    with dropping.start("memory") as run, pytest.raises(OptionError, match="no option"):
        run.adjust(largest_k_s=1.0)
