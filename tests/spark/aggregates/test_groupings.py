"""Queries of one stream that group more or less finely, and share cells: each as by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import StateError
from eddyline.spark.shared.scans import SharedAggregates
from tests.examples import examples
from tests.oracles.aggregate_strategies import (
    GROUPS,
    WORLDS,
    ZONE,
    Case,
    aggregations,
    streams,
    text_of,
    windows,
)
from tests.oracles.aggregates import differences
from tests.spark.aggregates.aggregate_streams import found, settings, wanted, write_case
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

US = pa.timestamp("us", "UTC")

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # jobs are slow


@st.composite
def nested(draw):
    """Return queries over one stream, of any two of which one groups by all that the other does."""
    world = draw(st.sampled_from(WORLDS))
    lateness, batches = draw(streams(world, late=draw(st.booleans())))
    finest = draw(st.permutations(sorted(GROUPS)))[:3]
    sizes = [3, 1, *draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))]
    cases = []
    for size in sizes:
        groups = draw(st.permutations(finest[:size]))
        of, distinct = draw(aggregations(exact=False, window_columns=True, groups=groups))
        window = draw(windows(draw(st.sampled_from(["tumbling", "slides"])), world))
        text = text_of(of, window, None, world, distinct=distinct)
        cases.append(Case(text, of, window, None, batches, lateness, world))
    return cases


def engine_of(spark, folder, texts, lateness):
    engine = el.Engine(spark)
    stream = stream_of(spark, folder, "s")
    engine.stream("s", stream, time="ts", lateness=f"{lateness} microseconds")
    for name, text in texts.items():
        engine.query(text, name=name)
    return engine


def finished(engine, **where):
    runs = engine.start_all(trigger="available_now", **where)
    for run in runs:
        assert run.await_termination(240)
    return runs


@pytest.mark.large
@given(cases=nested(), partitions=st.permutations([1, 2, 5]))
@examples(8, phases=PHASES)
def test_each_answers_as_defined_whatever_the_cut_and_the_partitions(spark, cases, partitions):
    first = cases[0]
    texts = {f"q{at}": each.text for at, each in enumerate(cases)}
    answers = [[] for _ in cases]
    half = -(-len(first.batches) // 2)
    with tempfile.TemporaryDirectory() as name, settings(spark, zone=ZONE):
        folder = Path(name)
        for (since, past), n in zip([(0, half), (half, None)], partitions, strict=False):
            if not first.batches[since:past]:
                continue
            write_case(first, folder, since, past)
            with settings(spark, partitions=n):
                engine = engine_of(spark, folder, texts, first.lateness)
                runs = finished(engine, checkpoint=str(folder / "ckpt"))
            assert len({getattr(run, "shared", run.name) for run in runs}) == 1
            for answer, case, run in zip(answers, cases, runs, strict=True):
                answer.extend(found(case, run.to_arrow()))
    for answer, case in zip(answers, cases, strict=True):
        assert differences(answer, wanted(case)) == ([], []), (texts, case)


# -- which go together ----------------------------------------------------------------------------

WINDOW = "[RANGE 2 SECONDS SLIDE 1 SECOND]"
TEXTS = {
    "user": f"SELECT c, u, sum(v) AS v FROM s {WINDOW} GROUP BY c, u",
    "city": f"SELECT C AS c, max(v) AS v FROM s {WINDOW} WHERE v > 1 GROUP BY C",
    "turned": "SELECT count(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY u,  c",
    "all": f"SELECT sum(v) AS v FROM s {WINDOW}",
    "other": f"SELECT u, v, count(*) AS n FROM s {WINDOW} GROUP BY u, v",
    "sketch": f"SELECT c, median(v) AS v FROM s {WINDOW} GROUP BY c",
}


def write_rows(folder, number):
    """Write the rows of six seconds."""
    ids = range(number * 60, number * 60 + 60)
    rows = {
        "ts": pa.array([each * 100_000 for each in ids], US),
        "c": pa.array([["a", "b", None][each % 3] for each in ids]),
        "u": pa.array([each * 7 % 11 for each in ids], pa.int64()),
        "v": pa.array([each % 5 for each in ids], pa.int64()),
    }
    write_batch(folder, "s", number, pa.table(rows))


@pytest.fixture
def folder(tmp_path):
    for number in range(2):
        write_rows(tmp_path, number)
    return tmp_path


def groups_of(engine):
    """Return the names of the queries that go together."""
    found = {}
    for name, folder in SharedAggregates.folders(list(engine.queries.values())).items():
        found.setdefault(folder, set()).add(name)
    return sorted(found.values(), key=sorted)


@pytest.mark.large
def test_parts_of_the_finest_groups_go_together(spark, folder):
    engine = engine_of(spark, folder, TEXTS, 0)
    assert groups_of(engine) == [{"all"}, {"user", "city", "turned"}, {"other"}, {"sketch"}]
    turned = engine_of(spark, folder, dict(reversed(TEXTS.items())), 0)
    by_name = SharedAggregates.folders(list(engine.queries.values()))
    assert by_name == SharedAggregates.folders(list(turned.queries.values()))


def test_sketches_go_with_those_that_group_as_finely(spark, folder):
    texts = {
        "sketch": f"SELECT c, u, approx_count_distinct(v) AS v FROM s {WINDOW} GROUP BY c, u",
        "city": TEXTS["city"],
        "user": TEXTS["user"],
    }
    assert groups_of(engine_of(spark, folder, texts, 0)) == [{"sketch", "city", "user"}]


def test_texts_in_quotes_are_other_groups(spark, folder):
    form = "SELECT count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY {}"
    groups = ("concat(c, 'A')", "CONCAT(c,  'A')", "concat(c, 'a')", "concat(c, 'a ')")
    texts = {f"q{at}": form.format(each) for at, each in enumerate(groups)}
    assert groups_of(engine_of(spark, folder, texts, 0)) == [{"q0", "q1"}, {"q2"}, {"q3"}]


@pytest.mark.large("runs six queries twice")
def test_it_is_said_who_shares_and_why_others_do_not(spark, folder):
    runs = {run.name: run for run in finished(engine_of(spark, folder, TEXTS, 0))}
    alone = {run.name: run for run in finished(engine_of(spark, folder, TEXTS, 0), shared=False)}
    for name, run in runs.items():
        rows = [sorted(map(repr, each.to_arrow().to_pylist())) for each in (run, alone[name])]
        assert rows[0] == rows[1] != [], name
    said = " ".join(runs["city"].explain().split())
    assert "'city' runs together with 2 others over s" in said
    assert "Cells are by u, c, and merged for city by c." in said
    reasons = {
        "all": "it has no groups, so all cells would be in one bucket",
        "other": "no other of its options and trigger groups by a part of what it groups by",
        "sketch": "no other groups alike, and its sketches are not merged over finer groups",
    }
    for name, reason in reasons.items():
        assert f"it runs by itself: {reason}" in " ".join(runs[name].explain().split())
        assert "runs by itself" not in alone[name].explain()


# -- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.large
def test_a_finer_query_that_is_new_leaves_the_others_where_they_were(spark, folder):
    where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
    texts = {name: TEXTS[name] for name in ("user", "city")}
    finer = {"finer": f"SELECT c, u, v, count(*) AS n FROM s {WINDOW} GROUP BY c, u, v"}
    finished(engine_of(spark, folder, texts, 0), sink="parquet", **where)
    before = spark.read.parquet(str(folder / "out" / "city")).count()
    turned = finer | dict(reversed(texts.items()))
    runs = finished(engine_of(spark, folder, turned, 0), sink="parquet", **where)
    assert [hasattr(run, "shared") for run in runs] == [False, True, True]
    assert spark.read.parquet(str(folder / "out" / "city")).count() == before > 0
    assert spark.read.parquet(str(folder / "out" / "finer")).count() > 0


@pytest.mark.large
def test_a_coarser_query_does_not_go_on_by_itself(spark, folder):
    where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
    texts = {name: TEXTS[name] for name in ("user", "city")}
    finished(engine_of(spark, folder, texts, 0), sink="parquet", **where)
    with pytest.raises(StateError, match="ran together with others"):
        finished(engine_of(spark, folder, texts, 0), sink="parquet", shared=False, **where)
    changed = texts | {"city": f"SELECT v, max(v) AS m FROM s {WINDOW} GROUP BY v"}
    with pytest.raises(StateError, match="is the checkpoint of another query 'city'"):
        finished(engine_of(spark, folder, changed, 0), sink="parquet", **where)


@pytest.mark.large("starts queries five times")
def test_others_go_on_where_one_is_left_out(spark, folder):
    names = ["user", "city", "turned"]
    texts = {name: f"SELECT window.end AS at, -- last\n {TEXTS[name][7:]}" for name in names}
    where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
    for number, left in enumerate((None, "turned", "user"), 2):
        texts.pop(left, None)
        finished(engine_of(spark, folder, texts, 0), sink="parquet", **where)
        write_rows(folder, number)
    finished(engine_of(spark, folder, texts, 0), sink="parquet", **where)
    (alone,) = finished(engine_of(spark, folder, texts, 0), shared=False)
    found = spark.read.parquet(str(folder / "out" / "city")).toArrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, alone.to_arrow().to_pylist()))
    assert len(found) > 6
