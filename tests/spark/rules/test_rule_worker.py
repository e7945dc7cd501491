"""What runs in Spark's workers, without Spark: any cut of a task, errors, and what is kept."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from eddyline.errors import PredicateError, SourceError
from eddyline.options import SharingOptions
from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    FunctionTest,
    IsNull,
    Not,
    Operand,
    Or,
    Rule,
    TextTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Batch, Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.runtime.journal import TaskReport
from eddyline.spark.rules import task as rule_worker
from eddyline.spark.rules.task import MAX_PROGRAMS, RuleTask
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import INT, STRING
from tests.examples import examples
from tests.oracles import rule_strategies
from tests.oracles import rules as reference_rules

N = Operand("`n`", INT, ("n",))
S = Operand("`s`", STRING, ("s",))
RULES = (
    Rule("small", Compare(N, "<", 10)),
    Rule('it\'s "odd" `名`\n😀', TextTest(S, (Wild(ANY), "7", Wild(ANY)))),
    Rule("x" * 300, And((Compare(N, ">=", 500), TextTest(S, ("t9", Wild(ANY)))))),
    Rule("not three", Not(TextTest(S, (Wild(ANY), "3", Wild(ANY))))),
)
N_ROWS = 1_000
TABLE = pa.table(
    {"`n`": pa.array(range(N_ROWS), pa.int32()), "`s`": [f"t{at}" for at in range(N_ROWS)]}
)
WANTED = reference_rules.matches(RULES, TABLE)


def block(rules=RULES, *, plan=None, is_measured=False, **given):
    program = compile_rules(rules)
    fields = {
        "program_id": uuid.uuid4().hex,
        "load": lambda: program,
        "plan": plan or plan_of(program),
        "is_measured": is_measured,
        "options": SharingOptions(**given.pop("options", {})),
        "run_id": "0.0",
        "batch_id": 0,
        "name": "rules",
    }
    return RuleTask(**fields | given), program


def batches(program, table, sizes):
    low = 0
    for size in sizes:
        part = table.slice(low, size).combine_chunks()
        low += size
        columns = [_column(part, sql) for sql in program.columns]
        yield tuple(columns) or (pa.array([True] * size, pa.bool_()),)


def _column(part, sql):
    chunks = part[sql].chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], part.schema.field(sql).type)


def run(made, program, sizes, table=TABLE):
    """Return the matches of all rows and the reports, and check where the reports stand."""
    parts = list(made.run(batches(program, table, sizes)))
    assert sum(map(len, parts)) == sum(sizes)
    reports = [each for part in parts for each in part.field("report").to_pylist()]
    assert all(each is None for each in reports[:-1])
    found = [each for part in parts for each in part.field("matches").to_pylist()]
    return found, TaskReport.from_bytes(reports[-1]) if reports else None


SIZES = ([1_000], [1, 999], [0, 500, 0, 500, 0], [7] * 142 + [6], [50, 51, 100, 799], [1] * 1_000)


@pytest.mark.parametrize("options", [{}, {"method": "blocks"}, {"method": "every_row"}])
@pytest.mark.parametrize("sizes", SIZES, ids=len)
def test_any_cut_gives_the_same(sizes, options):
    found, report = run(*block(options=options), sizes)
    assert found == WANTED
    assert report.profile.n_rows == N_ROWS
    assert report.profile.matches.tolist() == [
        sum(rule.name in row for row in WANTED) for rule in RULES
    ]
    assert (report.partition, report.attempt) == (0, 0)


def test_the_first_calls_of_a_process_are_in_no_cost(monkeypatch):
    rows, loading_ns = [], 10**12
    counted = Batch._count

    def slow_at_first(batch, construct, n_rows, started):
        rows.append(batch.n_rows)
        counted(batch, construct, n_rows, started - (loading_ns if len(rows) == 1 else 0))

    monkeypatch.setattr(Batch, "_count", slow_at_first)
    made, program = block()
    _, report = run(made, program, [400, 600])
    assert rows[0] == 0
    assert 0 < report.profile.construct_ns.sum() < loading_ns
    _, report = run(made, program, [1_000])
    assert rows.count(0) == rows.index(next(filter(None, rows))), "once"


def test_small_batches_are_gathered_once_rows_are_known(monkeypatch):
    monkeypatch.setattr(rule_worker, "GATHERED_ROWS", 400)

    def lengths(sizes, **given):
        made, program = block(**given)
        parts = list(made.run(batches(program, TABLE, sizes)))
        assert [each for part in parts for each in part.field("matches").to_pylist()] == WANTED
        return [len(part) for part in parts]

    assert lengths([100] * 10) == [100, 100, 100, 400, 300], "the next is asked for before"
    assert lengths([600, 400]) == [600, 400]
    assert lengths([100] * 10, options={"adaptive": False}) == [100] * 10
    monkeypatch.setattr(rule_worker, "GATHERED_BYTES", 200 * TABLE.nbytes // N_ROWS)
    assert max(lengths([100] * 10)) <= 300
    monkeypatch.setattr(rule_worker, "MAX_GATHERED_PAIRS", 0)
    assert lengths([100] * 10) == [100] * 10


def test_matches_may_be_places_in_the_set():
    made, program = block(about=None)
    found, _ = run(made, program, [N_ROWS])
    assert [[program.names[place] for place in row] for row in found] == WANTED


COUNTS = {rule.name: sum(rule.name in row for row in WANTED) for rule in RULES}


@pytest.mark.parametrize("sizes", SIZES, ids=len)
def test_any_cut_gives_the_same_counts(sizes):
    never = Rule("never", Compare(N, "<", 0))
    made, program = block((*RULES, never))
    (found,) = made.count(batches(program, TABLE, sizes))
    *counted, (rule, count, packed) = zip(*found.to_pydict().values(), strict=True)
    assert {name: number for name, number, _ in counted} == COUNTS
    assert (rule, count) == (None, None)
    assert all(report is None for _, _, report in counted)
    report = TaskReport.from_bytes(packed)
    assert (report.profile.n_rows, report.partition, report.attempt) == (N_ROWS, 0, 0)


def test_no_rows():
    made, program = block()
    assert list(made.run(iter([]))) == []
    assert list(made.count(iter([]))) == []
    assert list(made.count(batches(program, TABLE, [0, 0]))) == []
    assert run(made, program, [0, 0], TABLE.slice(0, 0)) == ([], None)


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ((), []),
        ((Rule("never", Constant(False)), Rule("unknown", Constant(None))), []),
        ((Rule("always", Constant(True)), Rule("never", Constant(False))), ["always"]),
        ((Rule("a", Or((Compare(N, "=", 1), Constant(True)))),), ["a"]),
    ],
)
def test_rules_that_look_at_nothing(rules, wanted):
    found, report = run(*block(rules), [600, 400])
    assert found == [wanted] * N_ROWS
    assert report.profile.n_rows == N_ROWS


def test_a_batch_is_cut_by_its_bytes_and_by_its_pairs(monkeypatch):
    rules = tuple(Rule(f"r{at}", Not(IsNull(S))) for at in range(50))
    seen = []
    made, program = block(rules, is_measured=True, options={"method": "every_row"})
    match = Matcher.match

    def noted(self, columns, *, n_rows, **samples):
        seen.append(n_rows)
        return match(self, columns, n_rows=n_rows, **samples)

    monkeypatch.setattr(Matcher, "match", noted)
    assert run(made, program, [N_ROWS])[0] == [[rule.name for rule in rules]] * N_ROWS
    assert seen == [0, 1_000], "none first, to load kernels"
    every_row = plan_of(program, method="every_row")
    monkeypatch.setattr(rule_worker, "MAX_PIECE_PAIRS", 5_000)
    made, program = block(rules, plan=every_row, is_measured=True)
    seen.clear()
    found, report = run(made, program, [N_ROWS])
    assert found == [[rule.name for rule in rules]] * N_ROWS
    assert seen == [0] + [100] * 10
    assert report.profile.n_rows == N_ROWS
    monkeypatch.setattr(rule_worker, "MAX_PIECE_PAIRS", 1 << 30)
    monkeypatch.setattr(rule_worker, "MAX_PIECE_BYTES", TABLE["`s`"].nbytes // 4)
    seen.clear()
    run(*block(rules, plan=every_row, is_measured=True), [N_ROWS])
    assert sum(seen) == N_ROWS
    assert 4 <= len(seen[1:]) <= 5


def test_more_names_than_an_array_holds_are_refused(monkeypatch):
    made, program = block()
    n_bytes = sum(len(name.encode()) for row in WANTED for name in row)
    monkeypatch.setattr(rule_worker, "MAX_NAMES_BYTES", n_bytes)
    assert run(made, program, [N_ROWS])[0] == WANTED
    monkeypatch.setattr(rule_worker, "MAX_NAMES_BYTES", n_bytes - 1)
    with pytest.raises(
        SourceError, match=f"names of .* {n_bytes:,} bytes.*lower spark.*maxRecordsPerBatch"
    ):
        run(made, program, [N_ROWS])
    assert len(run(*block(about=None), [N_ROWS])[0]) == N_ROWS


def test_the_first_rows_of_a_run_are_looked_at_whole():
    made, program = block(options={"sample_prob": 0.0})
    _, report = run(made, program, [N_ROWS])
    assert report.profile.n_sampled == 500
    assert report.n_entries == len(report.entries) <= 2
    # The next task of the same run goes on with what was learned, and reports only its own rows.
    _, report = run(made, program, [300], TABLE.slice(0, 300))
    assert (report.profile.n_rows, report.profile.n_sampled) == (300, 0)


def test_a_process_loads_a_set_once_and_keeps_few():
    loads = []
    program = compile_rules(RULES)

    def load():
        loads.append(1)
        return program

    made, _ = block(program_id="kept", load=load)
    run(made, program, [10], TABLE.slice(0, 10))
    run(made, program, [10], TABLE.slice(0, 10))
    assert len(loads) == 1
    for _ in range(MAX_PROGRAMS + 2):
        run(*block(), [10], TABLE.slice(0, 10))
    assert len(rule_worker._kept) <= MAX_PROGRAMS
    run(made, program, [10], TABLE.slice(0, 10))
    assert len(loads) == 2


def test_a_task_that_failed_leaves_nothing_behind():
    fails = [True]

    def risky(n):
        if fails[0]:
            raise ValueError("no")
        return [value > 5 for value in n.to_pylist()]

    rules = (Rule("risky", FunctionTest(FunctionPredicate(risky, ("`n`",)))), *RULES)
    made, program = block(rules)
    with pytest.raises(PredicateError, match=r"rule 'risky': predicate 'risky.*ValueError: no"):
        list(made.run(batches(program, TABLE, [400, 600])))
    fails[0] = False
    found, report = run(made, program, [400, 600])
    assert [row.count("risky") for row in found] == [0] * 6 + [1] * (N_ROWS - 6)
    assert [row[-len(want) :] if want else [] for row, want in zip(found, WANTED, strict=True)] == (
        WANTED
    )
    assert report.profile.n_rows == N_ROWS


def test_blocks_travel_with_lambdas_and_closures():
    limit = 990
    above = FunctionPredicate(lambda n: [value >= limit for value in n.to_pylist()], ("`n`",))
    made, program = block((Rule("above", FunctionTest(above)),))
    there = cloudpickle.loads(cloudpickle.dumps(made))
    found, _ = run(there, program, [N_ROWS])
    assert [at for at, row in enumerate(found) if row] == list(range(990, 1_000))


def test_reports_under_different_plans_add_up():
    made, program = block(options={"method": "blocks"}, is_measured=True)
    one = run(made, program, [N_ROWS])[1].profile
    plan = plan_of(program, method="blocks")
    sizes = {"plan": plan, "is_measured": True, "options": {"adaptive": False}}
    two = run(*block(**sizes), [500, 500])[1].profile
    three = run(*block(), [N_ROWS])[1].profile
    whole = one.merge(two, three)
    assert whole.n_rows == 3 * N_ROWS
    assert whole.matches.tolist() == (3 * one.matches).tolist()
    assert sum(each.n_rows for each in whole.blocks.values()) >= N_ROWS
    assert whole.evaluation_ns >= max(each.evaluation_ns for each in (one, two, three))
    assert set(two.blocks) == set(plan.blocks)


@pytest.fixture(scope="module")
def plans_at_every_look():
    """Have loops make their plan again as often as they can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RuleChoice.__init__.__kwdefaults__, "review_rows", 1)
        patch.setitem(RuleChoice.__init__.__kwdefaults__, "min_change", 0.0)
        yield


@pytest.mark.usefixtures("plans_at_every_look")
@examples(60)
@given(st.data())
def test_any_rules_in_any_cut(data):
    rules = data.draw(rule_strategies.rules())
    table = data.draw(rule_strategies.rule_rows())
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=4))
    sizes = [size for size, end in zip(sizes, np.cumsum(sizes), strict=True) if end <= len(table)]
    sizes.append(len(table) - sum(sizes))
    method = data.draw(st.sampled_from(["auto", "witnesses", "blocks", "every_row"]))
    options = {"method": method, "sample_prob": data.draw(st.sampled_from([0.0, 0.5, 1.0]))}
    found, _ = run(*block(rules, options=options), sizes, table)
    assert found == reference_rules.matches(rules, table)
