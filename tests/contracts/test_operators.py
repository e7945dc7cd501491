"""Every registered operator keeps its contract, whatever it does to rows.

A new operator adds a case to ``CASES``; everything else follows from the protocol.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame

import eddyline as el
from eddyline.errors import StateError
from eddyline.query.predicates import SqlPredicate, predicate
from eddyline.query.steps import FilterStep, ProjectStep
from eddyline.rules.step import RuleStep
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History
from eddyline.spark.operator import PREFIX, Batch, Site, Stateful, collected
from eddyline.spark.operators import OPERATORS
from eddyline.state.manifest import ManifestFolder, StatePart
from eddyline.watch.html.report import write_report
from eddyline.watch.sections import RunView, Section, sections_json
from eddyline.watch.terminal.explain import explain
from tests.operators.newest import NewestOperator, NewestStep

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark

N_ROWS, N_BATCHES, WAIT_S = 3_000, 3, 30.0
RULES = {f"r{n}": f"c = 'always' AND t = 't{n}'" for n in range(8)}
"""By the first of two conditions, which nearly all rows fulfil, or by the second."""

LEARNS_SOON = {"sample_prob": 0.5, "warmup_prob": 0.5, "min_fill": 20, "max_overhead": 1.0}


@dataclass(frozen=True)
class Case:
    """A step, and rows over which its plan changes."""

    step: Callable[..., Any]
    """Makes it with some options."""
    answer: str
    """SQL over ``rows``: every row so far."""
    adapts: bool = True


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
    ProjectStep: Case(
        lambda **_: ProjectStep("s", ("id + 1 AS next", "w", "w AS w")),
        "SELECT id + 1 AS next, w, w AS w FROM rows",
        adapts=False,
    ),
    NewestStep: Case(
        lambda **_: NewestStep("s", "w", "v", ("id",)),
        "SELECT id, v, w, c, t FROM (SELECT *, max(v) OVER (PARTITION BY w ORDER BY id "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM rows) "
        "WHERE before IS NULL OR v > before",
    ),
}
"""The last one is of an operator with state that only tests know."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(OPERATORS, NewestStep, NewestOperator.of)


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


class Life:
    """An operator through its batches, as a run leads it."""

    def __init__(self, spark, case, folder, **options):
        self.spark, self.case = spark, case
        step = case.step(**options)
        site = Site(batch_of(spark, 0).limit(0), "q", LEARNS_SOON | options)
        self.operator = OPERATORS[type(step)](step, site)
        self.manifests = ManifestFolder(fs.LocalFileSystem(), str(folder))
        self.is_stateful = isinstance(self.operator, Stateful)
        if self.is_stateful:
            self.operator.attach(self.manifests.place(self.operator.name))

    def open(self, batch):
        if self.is_stateful:
            manifests = self.manifests.before(batch.id)
            name = self.operator.name
            self.operator.open(
                *(None if each is None else each.parts[name] for each in manifests), batch
            )

    def result(self, df, batch):
        """Return the rows of a batch, and what its job observed."""
        self.operator.prepare(df, batch)
        laid = self.operator.lay(df, batch)
        assert laid.df.dtypes == self.operator.shape(df).dtypes
        assert not [name for name in laid.df.columns if name.startswith(PREFIX)]
        found = rows_of(laid.df)
        observed, waiting = collected(laid.pending, WAIT_S)
        assert waiting == [], "the job has run, and something that it should tell is not told"
        return found, observed

    def close(self, observed, batch):
        if not self.is_stateful:
            return None
        assert self.operator.is_whole(observed)
        part = self.operator.close(observed, batch)
        self.manifests.commit(batch.id, "q", {self.operator.name: part})
        return part

    def run(self, number, df=None):
        """Run a batch to its end; returns its rows and the decisions."""
        batch = Batch(number, N_ROWS, is_first=number == 0)
        self.open(batch)
        found, observed = self.result(batch_of(self.spark, number) if df is None else df, batch)
        self.close(observed, batch)
        entries = self.operator.take_entries() + self.operator.learn(observed, batch)
        return found, entries

    def saved(self):
        return json.loads(msgspec.json.encode(self.operator.snapshot()))


def changes_in(entries):
    """Return the decisions that are another plan."""
    return [each for each in entries if each.after is not None and each.event != "sample"]


def rows_of(df):
    """Return rows as a sorted list; of columns of one name, too."""
    table = df.toArrow()
    return sorted(map(repr, zip(*(each.to_pylist() for each in table.columns), strict=True)))


@pytest.fixture(params=CASES, ids=lambda step: step.__name__)
def case(request):
    return CASES[request.param]


@pytest.fixture
def life(spark, case, tmp_path):
    """Return an operator that has learned nothing, each with a folder of its own."""
    made = []

    def make(folder=None, **options):
        made.append(None)
        return Life(spark, case, folder or tmp_path / f"state-{len(made)}", **options)

    return make


def wanted(spark, case, number):
    """Return the rows that a batch must give, by stock Spark: the answer so far, less before."""
    found = answer(spark, case, number + 1)
    for row in answer(spark, case, number):
        found.remove(row)
    return found


def answer(spark, case, n_batches):
    """Return the rows that so many batches must give."""
    batches = [batch_of(spark, each) for each in range(n_batches)]
    if not batches:
        return []
    reduce(DataFrame.unionByName, batches).createOrReplaceTempView("rows")
    return rows_of(spark.sql(case.answer))


def test_any_plan_gives_the_answer_and_says_what_it_decided(spark, case, life):
    lived, decided = life(), []
    written = lived.operator.plan()
    for number in range(N_BATCHES):
        found, entries = lived.run(number)
        assert found == wanted(spark, case, number)
        decided += entries
    assert all(isinstance(each, JournalEntry) for each in decided)
    assert all(json.loads(each.to_json())["component"] for each in decided)
    changes = changes_in(decided)
    assert bool(changes) is case.adapts, "its case is made to change the plan"
    assert case.adapts or lived.operator.plan() == written
    for each in changes:
        assert each.evidence, "a change without evidence"


def test_laying_runs_nothing_and_says_the_same_again(spark, case, life):
    lived = life()
    lived.run(0)
    batch, df = Batch(1, N_ROWS), batch_of(spark, 1)
    lived.open(batch)
    lived.operator.prepare(df, batch)
    jobs = spark.sparkContext.statusTracker()
    before = set(jobs.getJobIdsForGroup(None))
    laid = [lived.operator.lay(df, batch) for _ in range(2)]
    lived.operator.shape(df)
    assert set(jobs.getJobIdsForGroup(None)) == before
    first, second = (rows_of(each.df) for each in laid)
    assert first == second == wanted(spark, case, 1)
    assert [each.name for each in laid[0].pending] == [each.name for each in laid[1].pending]


def test_nothing_is_learned_of_nothing(life):
    lived = life()
    lived.run(0)
    saved, plan = lived.saved(), lived.operator.plan()
    assert lived.operator.learn([], Batch(1)) == []
    assert lived.operator.take_entries() == []
    assert (lived.saved(), lived.operator.plan()) == (saved, plan)


def test_a_batch_without_rows_has_no_rows_and_changes_no_plan(spark, case, life):
    lived = life()
    nothing = batch_of(spark, 0).where("false")
    found, entries = lived.run(0, nothing)
    assert found == [] == changes_in(entries)
    _, _ = lived.run(1, batch_of(spark, 0))
    plan = lived.operator.plan()
    found, entries = lived.run(2, nothing)
    assert found == [] == changes_in(entries)
    assert lived.operator.plan() == plan


def test_a_restored_operator_goes_on_alike(spark, case, life, tmp_path):
    first = life(tmp_path / "state")
    for number in range(2):
        first.run(number)
    again = life(tmp_path / "state")
    again.operator.restore(first.saved())
    assert again.saved() == first.saved()
    assert again.operator.plan() == first.operator.plan()
    batch, df = Batch(2, N_ROWS), batch_of(spark, 2)
    for lived in (first, again):
        lived.open(batch)
    found, observed = first.result(df, batch)
    assert again.result(df, batch)[0] == found
    assert first.operator.learn(observed, batch) == again.operator.learn(observed, batch)
    assert first.operator.plan() == again.operator.plan()


def test_a_damaged_state_is_said_to_be_damaged(life):
    lived = life()
    lived.run(0)
    state = lived.saved()
    if state is None:
        pytest.skip("nothing is saved")
    life().operator.restore(state)
    for damaged in (5, "x", [], *({**state, key: {"damaged": [1]}} for key in state)):
        with pytest.raises(StateError):
            life().operator.restore(damaged)
    for key, value in state.items():
        for lacking in value if isinstance(value, dict) else ():
            rest = {name: each for name, each in value.items() if name != lacking}
            with suppress(StateError):  # what is lacking may be known without it
                life().operator.restore({**state, key: rest})


def test_switched_off_nothing_is_decided(spark, case, life):
    learned, off = life(), life(adaptive=False)
    written = off.operator.plan()
    for number in range(N_BATCHES):
        learned.run(number)
        found, entries = off.run(number)
        assert found == wanted(spark, case, number)
        assert entries == []
    if learned.operator.snapshot() is not None:
        with suppress(StateError):  # it may be of no use to other options
            off.operator.restore(learned.saved())
    assert off.operator.plan() == written


def test_what_people_see_is_plain(life, tmp_path):
    lived = life()
    for number in range(2):
        lived.run(number)
    operator = lived.operator
    assert operator.name
    json.dumps(operator.plan(), allow_nan=False)
    assert all(each.component for each in operator.records())
    for line in operator.lines():
        assert line
        assert "\n" not in line
    sections = operator.sections(History())
    assert all(isinstance(each, Section) for each in sections)
    json.dumps(sections_json(sections), allow_nan=False)
    assert all(each.title in explain("q", sections) for each in sections if not each.is_aside)
    assert write_report(RunView("q", "SELECT", sections=tuple(sections)), tmp_path / "page.html")


def test_state_is_what_its_manifest_says(spark, case, life, tmp_path):
    """A batch runs again from the state before it, in another process, with the same rows."""
    lived = life(tmp_path / "state")
    if not lived.is_stateful:
        pytest.skip("it has no durable state")
    lived.run(0)
    first, _ = lived.run(1)
    part = lived.manifests.read(1).parts[lived.operator.name]
    assert isinstance(part, StatePart)
    again = life(tmp_path / "state")
    found, _ = again.run(1)
    assert found == first
    assert again.run(2)[0] == wanted(spark, case, 2)
