"""Every registered operator keeps its contract, whatever it does to rows.

A new operator adds a case to ``CASES``; everything else follows from the protocol.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, reduce
from shutil import copytree
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame

import eddyline as el
from eddyline.aggregates.functions import AGGREGATES
from eddyline.alarms.alarm_set import AlarmStep
from eddyline.errors import StateError
from eddyline.joins.plan import MEMBER
from eddyline.models import graph
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.steps import Sample as ModelSample
from eddyline.models.steps import Shape
from eddyline.models.streams.plan import (
    ModelStep,
    SharedModelStep,
    SharedPlan,
    StreamInput,
    StreamPlan,
)
from eddyline.query.correlations import CorrelateStep, Correlation, Reference
from eddyline.query.predicates import SqlPredicate, predicate
from eddyline.query.query import (
    CALL,
    GROUP,
    AggregateCall,
    KeyClass,
    RangeWindow,
    SlideWindow,
)
from eddyline.query.select.reader import read_query
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinedInput,
    JoinMember,
    JoinStep,
    MemberFilterStep,
    OverStep,
    ProjectStep,
    ReadStep,
    SharedAggregateStep,
    SharedJoinStep,
    UnionStep,
    steps,
)
from eddyline.report.html import write_report
from eddyline.report.progress import LINES, progress_lines
from eddyline.report.sections import RunView, Section, sections_json
from eddyline.report.terminal import explain
from eddyline.rules.store import RuleStep
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History
from eddyline.spark.analysis import column_types
from eddyline.spark.bucketed import ADAPTIVE
from eddyline.spark.operator import PREFIX, Batch, Stateful
from eddyline.spark.operators import OPERATORS, laid_out
from eddyline.spark.relation import Relation
from eddyline.spark.run.chain import Chain
from eddyline.state.manifest import ManifestFolder, StatePart
from tests.operators.newest import NewestOperator, NewestRecord, NewestStep, newest_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark

N_ROWS, N_BATCHES, WAIT_S = 3_000, 3, 30.0
RULES = {f"r{n}": f"c = 'always' AND t = 't{n}'" for n in range(8)}
"""By the first of two conditions, which nearly all rows fulfil, or by the second."""

LEARNS_SOON = {"sample_prob": 0.5, "max_overhead": 1.0}


@dataclass(frozen=True)
class Case:
    """A step, and rows over which its plan changes."""

    step: Callable[..., Any]
    """Makes it with some options; or a query with it, as text."""
    answer: str
    """SQL over ``rows``: every row so far."""
    adapts: bool = True
    time: str | None = None
    """The event time of the rows, as SQL."""


TIMED = "(SELECT *, timestamp_seconds(id) AS time FROM rows)"
ENDED = f"window.end <= (SELECT max(time) FROM {TIMED})"
FRAMES = (
    "RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
)


BURSTS = ((0, Correlation("c", "event_count", (Reference("r", ()),), 20_000_000, (("gte", 2),))),)
MATCHES = (
    "time",
    "inline(filter(array(named_struct('__place', 0, '__mask', 1L, '__key', array(string(w)), "
    "'__text', string(NULL), '__whole', 0L, '__fraction', 0L, '__carried', string(id), "
    "'__event', CAST(NULL AS STRUCT<x: INT>), "
    "'__alert', CAST(NULL AS STRUCT<first: BIGINT, events: BIGINT, value: DOUBLE>))), "
    "x -> w IS NOT NULL))",
)
ALERTS = ProjectStep("m", ("bigint(__carried) AS id", "bigint(__key[0]) AS w"))
"""A correlation of rows of one rule by ``w``: matches, and its alerts."""


LEVELS = StreamPlan(
    (
        StreamInput(
            Declared(("w",), "time", read_equations({"x": "v"}), 1_000_000), Shape(("w",), ("x",))
        ),
    ),
    graph.Unary(ModelSample(1_000_000), graph.Input(0, Shape(("w",), ("x",)))),
)
"""Rows as models that hold for a second, and their values at each second."""


HELD = StreamPlan(LEVELS.inputs, graph.Input(0, LEVELS.inputs[0].shape))
"""The same rows as models, of which alarms are asked."""


SHARED = SharedPlan(HELD.inputs, HELD.node, members=(("q", LEVELS.node),))
SOON = replace(HELD, is_early=True)
"""The same, given before they are final: that of the last row of a batch is a prediction."""


def _member(length_s, slide_s, by, *calls):
    """Return one of several aggregates by some columns."""
    made = tuple(
        AggregateCall(call.split("(")[0], () if "*" in call else ("v",), f"{CALL}{number}")
        for number, call in enumerate(calls)
    )
    window = SlideWindow(length_s * 1_000_000, slide_s * 1_000_000)
    groups = tuple((f"{GROUP}{number}", name) for number, name in enumerate(by))
    return AggregateStep("s", groups, made, window, ("1 AS one",))


def _shared_join():
    """Return a join of rows with themselves for two queries, with other windows and conditions."""
    windows = (RangeWindow(5_000_000), RangeWindow(2_000_000))
    columns = dict.fromkeys("st", ("id", "v"))
    wheres = ({}, {"s": "v < 50"})
    members = tuple(
        JoinMember(f"q{number}", ("s", "t"), dict.fromkeys("st", window), columns, where)
        for number, (window, where) in enumerate(zip(windows, wheres, strict=True))
    )
    joined = tuple(JoinedInput(name, name, windows[0], columns[name]) for name in "st")
    key = KeyClass(dict.fromkeys("st", ("id % 3",)))
    equal = ("s.id % 3 = t.id % 3",)
    return ReadStep("s", "t"), SharedJoinStep(
        joined, (key,), equal, "istream", "j", members=members
    )


PAIRS = (
    "SELECT named_struct('id', a.id, 'v', a.v) AS s, named_struct('id', b.id, 'v', b.v) AS t, "
    "{} AS member FROM rows a JOIN rows b ON a.id % 3 = b.id % 3 WHERE abs(a.id - b.id) <= {}"
)


CASES = {
    FilterStep: Case(
        lambda **_: FilterStep(
            "s",
            (
                SqlPredicate("v < 99"),
                SqlPredicate("w >= 0"),
                SqlPredicate("v % 10 = 3"),
                predicate(lambda id: pc.greater(id, 5), reads=["id"], name="often"),
                predicate(lambda w: pc.less(w, 2), reads=["w"], name="seldom"),
            ),
        ),
        "SELECT id, v, w, c, t FROM rows WHERE v < 99 AND v % 10 = 3 AND id > 5 AND w < 2",
    ),
    RuleStep: Case(
        lambda **options: RuleStep(
            "s", el.RuleSet(RULES, name="q", sample_prob=1.0, method="witnesses", **options)
        ),
        "SELECT id, v, w, c, t, array_compact(array("
        + ", ".join(f"IF({text}, '{name}', NULL)" for name, text in RULES.items())
        + f")) AS matches FROM rows WHERE {' OR '.join(RULES.values())}",
    ),
    JoinStep: Case(
        lambda **_: (
            "SELECT high.id AS a, high.n AS n, t.id AS b FROM high [RANGE 5 SECONDS], "
            "s t [RANGE 5 SECONDS] WHERE high.id % 3 = t.id % 3 AND high.n > 50"
        ),
        "SELECT a.id AS a, a.v + 1 AS n, b.id AS b FROM rows a JOIN rows b ON a.id % 3 = b.id % 3 "
        "WHERE abs(a.id - b.id) <= 5 AND a.v < 99 AND a.w >= 0 AND a.v % 10 = 3 AND a.v + 1 > 50",
        time="timestamp_seconds(id)",
    ),
    SharedJoinStep: Case(
        lambda **_: _shared_join(),
        f"{PAIRS.format(0, 5)} UNION ALL {PAIRS.format(1, 2)} AND a.v < 50",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    MemberFilterStep: Case(
        lambda **_: (
            ProjectStep("s", ("id", "v", f"int(id % 2) AS {MEMBER}"), "m"),
            MemberFilterStep("m", (SqlPredicate("v < 50"),), "q", 1),
        ),
        "SELECT id, v, int(id % 2) AS member FROM rows WHERE id % 2 = 0 OR v < 50",
        adapts=False,
    ),
    ProjectStep: Case(
        lambda **_: ProjectStep("s", ("id + 1 AS next", "w", "w AS w")),
        "SELECT id + 1 AS next, w, w AS w FROM rows",
        adapts=False,
    ),
    AggregateStep: Case(
        lambda **_: (
            "SELECT w, window.end AS e, count(*) AS n, sum(v) AS total "
            "FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY w"
        ),
        f"SELECT w, window.end AS e, count(*) AS n, sum(v) AS total FROM {TIMED} "
        f"GROUP BY window(time, '10 seconds', '2 seconds'), w HAVING {ENDED}",
        time="timestamp_seconds(id)",
    ),
    SharedAggregateStep: Case(
        lambda **_: SharedAggregateStep(
            "s",
            (
                (_member(10, 2, "w", "count(*)"), ""),
                (_member(6, 2, "cw", "count(*)", "sum(v)"), ""),
                (_member(4, 4, "w", "count(*)"), "v > 50"),
            ),
        ),
        "SELECT 0 AS place, NULL AS c, w, count(*) AS n, NULL AS total, 0L AS some, window FROM "
        f"{TIMED} GROUP BY window(time, '10 seconds', '2 seconds'), w HAVING {ENDED} UNION ALL "
        "SELECT 1 AS place, c, w, count(*) AS n, sum(v) AS total, 0L AS some, window FROM "
        f"{TIMED} GROUP BY window(time, '6 seconds', '2 seconds'), c, w HAVING {ENDED} UNION ALL "
        "SELECT 2 AS place, NULL AS c, w, 0L AS n, NULL AS total, count(*) AS some, window FROM "
        f"{TIMED} WHERE v > 50 GROUP BY window(time, '4 seconds', '4 seconds'), w HAVING {ENDED}",
        time="timestamp_seconds(id)",
    ),
    OverStep: Case(
        lambda **_: (
            f"SELECT id, w, sum(v) OVER (PARTITION BY w ORDER BY time {FRAMES[0]}) AS total, "
            f"count(*) OVER (PARTITION BY w ORDER BY time {FRAMES[1]}) AS n FROM s WHERE v < 99"
        ),
        f"SELECT id, w, total, n FROM (SELECT *, max(time) OVER () AS latest, "
        f"sum(v) OVER (PARTITION BY w ORDER BY time {FRAMES[0]}) AS total, "
        f"count(*) OVER (PARTITION BY w ORDER BY time {FRAMES[1]}) AS n "
        f"FROM {TIMED} WHERE v < 99) WHERE time < (SELECT max(time) FROM {TIMED})",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    CorrelateStep: Case(
        lambda **_: (ProjectStep("s", MATCHES, "m"), CorrelateStep("m", BURSTS), ALERTS),
        "SELECT id, w FROM (SELECT *, lag(n) OVER own AS n_before, lag(time) OVER own AS t_before "
        "FROM (SELECT *, count(*) OVER (PARTITION BY w ORDER BY time RANGE BETWEEN "
        f"INTERVAL '20' SECOND PRECEDING AND CURRENT ROW) AS n FROM {TIMED} WHERE w IS NOT NULL) "
        "WINDOW own AS (PARTITION BY w ORDER BY time)) WHERE n >= 2 AND NOT coalesce("
        "n_before >= 2 AND t_before >= time - INTERVAL '20' SECOND, FALSE) "
        f"AND time < (SELECT max(time) FROM {TIMED})",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    UnionStep: Case(
        lambda **_: (
            "SELECT id, v, w FROM s WHERE v < 50 UNION ALL SELECT id + 1, v, w FROM s WHERE w > 3"
        ),
        "SELECT id, v, w FROM rows WHERE v < 50 "
        "UNION ALL SELECT id + 1, v, w FROM rows WHERE w > 3",
        adapts=False,
    ),
    ModelStep: Case(
        lambda **_: ModelStep(("s",), LEVELS),
        "SELECT w, time, double(v) AS x, 0D AS err_x "
        f"FROM {TIMED} WHERE time < (SELECT max(time) FROM {TIMED})",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    SharedModelStep: Case(
        lambda **_: SharedModelStep(("s",), SHARED),
        "SELECT 0 AS member, w, time, double(v) AS x, 0D AS err_x "
        f"FROM {TIMED} WHERE time < (SELECT max(time) FROM {TIMED})",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    AlarmStep: Case(
        lambda **_: AlarmStep(("s",), HELD, alarms=el.AlarmSet({"high": "x > 97", "low": "x < 2"})),
        "SELECT IF(v > 97, 'high', 'low') AS alarm, w, time AS since, time + INTERVAL 1 SECOND AS "
        f"until, double(v) AS x, 0D AS err_x FROM {TIMED} WHERE (v > 97 OR v < 2) AND "
        f"time + INTERVAL 1 SECOND < (SELECT max(time) FROM {TIMED})",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
    NewestStep: Case(
        lambda **_: NewestStep("s", "w", "v", ("id",)),
        "SELECT id, v, w, c, t FROM (SELECT *, max(v) OVER (PARTITION BY w ORDER BY id "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM rows) "
        "WHERE before IS NULL OR v > before",
    ),
}
"""A join stands with all that belongs to it: its inputs, filters and columns of one of them. The
last one is of an operator with state that only tests know."""

_SEGMENTS = (
    "SELECT w, time AS origin, time AS lo, time + INTERVAL 1 SECOND AS hi, false AS is_point, "
    "false AS tomb, array(double(v)) AS coef_x, 0D AS err_x"
)

MORE = {
    "early models": Case(
        lambda **_: ModelStep(("s",), SOON),
        f"{_SEGMENTS}, id div {N_ROWS} AS version, id % {N_ROWS} < {N_ROWS - 1} AS validated "
        f"FROM {TIMED} UNION ALL {_SEGMENTS}, (id + 1) div {N_ROWS} AS version, true AS validated "
        f"FROM {TIMED} WHERE id % {N_ROWS} = {N_ROWS - 1} AND id + 1 < (SELECT count(*) FROM rows)",
        adapts=False,
        time="timestamp_seconds(id)",
    ),
}
"""Other cases of operators. Early results: a prediction is given again once it is validated."""

HIGH = "SELECT id, v + 1 AS n, time FROM s WHERE v < 99 AND w >= 0 AND v % 10 = 3"
"""The query behind an input of the join."""


@pytest.fixture(scope="module", autouse=True)
def _registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATORS, NewestStep, NewestOperator.from_step)
        patch.setitem(LINES, NewestRecord, newest_lines)
        yield


@pytest.fixture(scope="module", autouse=True)
def _settings_stay(spark):
    """A join changes a setting of the session of its batches, which is a stream's own elsewhere."""
    before = spark.conf.get(ADAPTIVE)
    yield
    spark.conf.set(ADAPTIVE, before)


def test_every_operator_has_a_case():
    assert OPERATORS.keys() == CASES.keys()


def batch_of(spark, number):
    """Return the rows of a batch."""
    rows = spark.range(number * N_ROWS, (number + 1) * N_ROWS, 1, 2)
    return rows.selectExpr(
        "id",
        "id % 100 AS v",
        "IF(id % 7 = 0, NULL, id % 13) AS w",
        "IF(id % 50 = 0, 'seldom', 'always') AS c",
        "concat('t', id % 97) AS t",
    )


def relations_of(spark, case, number):
    """Return the stream with the rows of a batch."""
    rows = batch_of(spark, number)
    if case.time is None:
        return {"s": Relation(rows)}
    return {"s": Relation(rows.selectExpr("*", f"{case.time} AS time"), "time")}


def steps_of(case, relations, **options):
    """Return the steps of a case's query."""
    made = case.step(**options)
    if isinstance(made, tuple):
        return (ReadStep("s", "s"), *made)
    if not isinstance(made, str):
        return (ReadStep("s", "s"), made)
    columns = {name: column_types(each.df) for name, each in relations.items()}
    known = {"aggregates": AGGREGATES}
    high = {"id": "bigint", "n": "bigint", "time": "timestamp"}
    inner = {"high": steps(read_query(HIGH, columns))}
    return steps(read_query(made, {**columns, "high": high}, **known), inner)


class Life:
    """The operators of a query through their batches, as a run leads them."""

    def __init__(self, spark, case, folder, **options):
        self.spark, self.case = spark, case
        relations = relations_of(spark, case, 0)
        self.steps, self.options = steps_of(case, relations, **options), LEARNS_SOON | options
        operators = laid_out(self.steps, relations, "q", self.options).make()
        self.manifests = ManifestFolder(fs.LocalFileSystem(), str(folder))
        self.chain = Chain(operators, lambda: self.manifests, "q")
        self.operators = self.chain.operators
        self.stateful = [each.name for each in operators if isinstance(each, Stateful)]

    def rows(self, number):
        """Return the rows of a batch, as the first operator reads them."""
        relations = relations_of(self.spark, self.case, number)
        return laid_out(self.steps, relations, "q", self.options).source

    def result(self, df, batch):
        """Return the rows of a batch, and what its job observed."""
        awaited = {}
        for each in self.operators:
            each.prepare(df, batch)
            laid = each.lay(df, batch)
            assert laid.df.dtypes == each.shape(df).dtypes
            df, awaited[each.name] = laid.df, laid.pending
        assert not [name for name in df.columns if name.startswith(PREFIX)]
        found = rows_of(df)
        seen = Chain.collect(awaited, WAIT_S)
        told = {name: len(observed) for name, observed in seen.items()}
        assert told == {name: len(pending) for name, pending in awaited.items()}, "not all is told"
        return found, seen

    def run(self, number, df=None, told=None):
        """Run a batch to its end; returns its rows and the decisions, of what others observed."""
        batch = Batch(number, N_ROWS, is_first=number == 0)
        self.chain.open(batch)
        found, seen = self.result(self.rows(number) if df is None else df, batch)
        for each in self.operators:
            assert each.name not in self.stateful or each.is_whole(seen[each.name])
        self.chain.commit(seen, batch)
        self.seen = seen
        return found, self.chain.take_entries() + self.chain.learn(told or seen, batch)

    def saved(self):
        return json.loads(msgspec.json.encode(self.chain.snapshot()))


def changes_in(entries):
    """Return the decisions that are another plan."""
    return [each for each in entries if each.after is not None and each.event != "sample"]


def rows_of(df):
    """Return rows as a sorted list; of columns of one name, too."""
    table = df.toArrow()
    return sorted(map(repr, zip(*(each.to_pylist() for each in table.columns), strict=True)))


QUICK = {FilterStep, RuleStep, ProjectStep, NewestStep}
"""Steps that ``make test`` takes: others write state in several jobs of a batch."""

PARAMS = [
    pytest.param(each, marks=() if step in QUICK else pytest.mark.large, id=step.__name__)
    for step, each in CASES.items()
]
PARAMS += [pytest.param(each, marks=pytest.mark.large, id=name) for name, each in MORE.items()]


@pytest.fixture(scope="module", params=PARAMS)
def case(request):
    return request.param


@pytest.fixture
def life(spark, case, tmp_path):
    """Return an operator that has learned nothing, each with a folder of its own."""
    made = []

    def make(folder=None, **options):
        made.append(None)
        return Life(spark, case, folder or tmp_path / f"state-{len(made)}", **options)

    return make


@dataclass
class Whole:
    """What a life of three batches has given, by batch; it is over."""

    life: Life
    folder: Path
    written: dict[str, Any]
    found: list[list[str]]
    decided: list[list[JournalEntry]]
    saved: list[Any]
    plans: list[dict[str, Any]]

    def copied(self, folder):
        """Return a copy of its state."""
        return copytree(self.folder, folder) if self.life.stateful else folder


@pytest.fixture(scope="module")
def whole(spark, case, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "state"
    life = Life(spark, case, folder)
    made = Whole(life, folder, life.chain.plan(), [], [], [], [])
    for number in range(N_BATCHES):
        found, entries = life.run(number)
        made.found.append(found)
        made.decided.append(entries)
        made.saved.append(life.saved())
        made.plans.append(life.chain.plan())
    return made


def wanted(spark, case, number):
    """Return the rows that a batch must give, by stock Spark: the answer so far, less before."""
    before, found = (Counter(answer(spark, case, number + more)) for more in (0, 1))
    assert before <= found
    return sorted((found - before).elements())


@cache
def answer(spark, case, n_batches):
    """Return the rows that so many batches must give; each test of a case asks for the same."""
    batches = [batch_of(spark, each) for each in range(n_batches)]
    if not batches:
        return []
    reduce(DataFrame.unionByName, batches).createOrReplaceTempView("rows")
    return rows_of(spark.sql(case.answer))


def test_any_plan_gives_the_answer_and_says_what_it_decided(spark, case, whole):
    assert whole.found == [wanted(spark, case, number) for number in range(N_BATCHES)]
    decided = [each for entries in whole.decided for each in entries]
    assert all(isinstance(each, JournalEntry) for each in decided)
    assert all(json.loads(each.to_json())["component"] for each in decided)
    changes = changes_in(decided)
    assert bool(changes) is case.adapts, "its case is made to change the plan"
    assert case.adapts or whole.plans[-1] == whole.written
    for each in changes:
        assert each.evidence, "a change without evidence"


def test_laying_runs_nothing_and_says_the_same_again(spark, whole, life):
    lived = life()
    lived.run(0)
    batch, both = Batch(1, N_ROWS), (lived.rows(1),) * 2
    lived.chain.open(batch)
    jobs = spark.sparkContext.statusTracker()
    for each in lived.operators:
        each.prepare(both[0], batch)
        before = set(jobs.getJobIdsForGroup(None))
        laid = [each.lay(df, batch) for df in both]
        each.shape(both[0])
        assert set(jobs.getJobIdsForGroup(None)) == before
        first, second = ([pending.name for pending in each.pending] for each in laid)
        assert first == second
        both = tuple(each.df for each in laid)
    first, second = map(rows_of, both)
    assert first == second == whole.found[1]


def test_nothing_is_learned_of_nothing(whole):
    lived = whole.life
    saved, plan = lived.saved(), lived.chain.plan()
    nothing = {each.name: [] for each in lived.operators}
    assert lived.chain.learn(nothing, Batch(N_BATCHES)) == []
    assert lived.chain.take_entries() == []
    assert (lived.saved(), lived.chain.plan()) == (saved, plan)


def test_a_batch_without_rows_has_no_rows_and_changes_no_plan(spark, case, life):
    lived = life()
    nothing = lived.rows(0).where("false")
    found, entries = lived.run(0, nothing)
    assert found == [] == changes_in(entries)
    _, _ = lived.run(1, lived.rows(0))
    plan = lived.chain.plan()
    found, entries = lived.run(2, nothing)
    assert found == [] == changes_in(entries)
    assert lived.chain.plan() == plan


def test_a_restored_operator_goes_on_alike(whole, life, tmp_path):
    """In another process, which may be one that runs a batch again."""
    again = life(whole.copied(tmp_path / "state"))
    again.chain.restore(whole.saved[1])
    assert again.saved() == whole.saved[1]
    assert again.chain.plan() == whole.plans[1]
    found, entries = again.run(2, told=whole.life.seen)
    assert found == whole.found[2]
    assert entries == whole.decided[2]
    assert again.chain.plan() == whole.plans[2]


def test_a_damaged_state_is_said_to_be_damaged(whole, life):
    saved = whole.saved[0]
    if not saved:
        pytest.skip("nothing is saved")
    fresh = life().chain
    fresh.restore(saved)
    for of, state in saved.items():
        for damaged in (5, "x", [], *({**state, key: {"damaged": [1]}} for key in state)):
            with pytest.raises(StateError):
                fresh.restore({**saved, of: damaged})
        for key, value in state.items():
            for lacking in value if isinstance(value, dict) else ():
                rest = {name: each for name, each in value.items() if name != lacking}
                with suppress(StateError):  # what is lacking may be known without it
                    fresh.restore({**saved, of: {**state, key: rest}})
    fresh.restore(saved)


def test_switched_off_nothing_is_decided(whole, life):
    off = life(adaptive=False)
    written = off.chain.plan()
    for number in range(N_BATCHES):
        assert off.run(number) == (whole.found[number], [])
    with suppress(StateError):  # it may be of no use to other options
        off.chain.restore(whole.saved[-1])
    assert off.chain.plan() == written


def test_what_people_see_is_plain(whole, tmp_path):
    lived = whole.life
    assert all(each.name for each in lived.operators)
    json.dumps(lived.chain.plan(), allow_nan=False)
    assert all(each.component for each in lived.chain.records())
    for line in progress_lines(lived.chain.records(), 1_000, 0.5):
        assert line
        assert "\n" not in line
    sections = lived.chain.describe(History())
    assert all(isinstance(each, Section) for each in sections)
    json.dumps(sections_json(sections), allow_nan=False)
    assert all(each.title in explain("q", sections) for each in sections if not each.is_aside)
    assert write_report(RunView("q", "SELECT", sections=tuple(sections)), tmp_path / "page.html")


def test_state_is_what_its_manifest_says(spark, case, whole, life, tmp_path):
    """A batch runs again from the state before it, in another process, with the same rows."""
    if not whole.life.stateful:
        pytest.skip("it has no durable state")
    again = life(whole.copied(tmp_path / "state"))
    parts = again.manifests.read(N_BATCHES - 1).parts
    assert list(parts) == whole.life.stateful
    assert all(isinstance(each, StatePart) for each in parts.values())
    found, _ = again.run(N_BATCHES - 1)
    assert found == whole.found[-1]
    assert again.run(N_BATCHES)[0] == wanted(spark, case, N_BATCHES)
