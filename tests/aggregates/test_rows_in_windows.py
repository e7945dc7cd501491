"""Windows that count rows, and all groups at each instant, in buckets: as by the definition."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eddyline.aggregates import changes as change_windows
from eddyline.aggregates.cells import CHECK, CODE
from eddyline.aggregates.changes import ChangeBatch, CountBatch
from eddyline.aggregates.plan import (
    INSTANT,
    IS,
    OLD,
    OWN_CHECK,
    OWN_CODE,
    PASSES,
    WAS,
    AggregatePlan,
    BucketState,
    Partials,
)
from eddyline.query.query import UNBOUNDED, RangeWindow, RowsWindow
from eddyline.state.rows import Rows
from tests.aggregates.slow import place_in
from tests.examples import examples
from tests.oracles.aggregate_strategies import CONDITIONS, GROUPS, WORLDS, plain_table, streams
from tests.oracles.aggregates import Aggregation, Call, arrived, changes, plain

CALLS = (Call("count", "n"), Call("sum", "s", "v"), Call("max", "m", "v"))
PARTIALS = Partials({"n": "count", "s": "sum", "m": "max"})
LENGTHS = st.integers(0, 5).map(lambda n: RangeWindow(n * WORLDS[0].unit))
COUNTS = st.builds(RowsWindow, st.integers(1, 5), st.sampled_from([(), ("k",), ("g", "k")]))
EMITS = st.sampled_from(["istream", "dstream", "rstream"])


@st.composite
def cases(draw, windows):
    """Return what is asked, the window, what is emitted, and the batches of a stream in order."""
    window, emits = draw(windows), draw(EMITS)
    names = draw(st.lists(st.sampled_from(["k", "g", "x"]), max_size=3, unique=True))
    where = draw(st.sampled_from([None, None, *CONDITIONS]))
    groups = tuple((name, GROUPS[name]) for name in names)
    of = Aggregation(groups, CALLS, (*names, "n", "s", "m", "we"), where)
    lateness, batches = draw(streams(WORLDS[0], late=draw(st.booleans())))
    return of, window, emits, lateness, batches


def codes_of(table, names):
    """Return codes of the values of some columns: as good as hashes, with few of them equal."""
    rows = zip(*(table[name].to_pylist() for name in names), strict=True) if names else ()
    known = [hash(tuple(map(plain, row))) for row in rows] or [0] * table.num_rows
    return np.array(known, np.int64) % 3, np.array(known, np.int64)


def rows_of(of, window, batch):
    """Return the rows of a batch as they come to a bucket: cells, or rows that are counted."""
    is_counted = isinstance(window, RowsWindow)
    kept = batch if is_counted else [row for row in batch if of.keeps(row)]
    if not kept:
        return None
    table = plain_table(kept)
    names = [name for name, _ in of.groups]
    own = codes_of(table, names)
    code, check = codes_of(table, window.partition_by) if is_counted else own
    columns = {name: table[name] for name in names}
    ones = pa.array(np.ones(len(kept), np.int64))
    columns |= {"n": ones, "s": table["v"], "m": table["v"]}
    columns |= {f"__tie{name}": table[name] for name in table.column_names if is_counted}
    if is_counted:
        columns |= {OWN_CODE: pa.array(own[0]), OWN_CHECK: pa.array(own[1])}
    if is_counted and of.where:
        columns[PASSES] = pa.array([of.keeps(row) for row in kept])
    starts = table["ts"].to_numpy()
    return Rows({CODE: code, CHECK: check}, starts, starts, pa.table(columns))


def found(of, window, emits, lateness, batches, *, compares=False, is_alone=False):
    """Return the results of a stream, batch by batch, of one bucket; perhaps it compares them."""
    is_counted = isinstance(window, RowsWindow)
    names = tuple(name for name, _ in of.groups)
    ties = tuple(f"__tie{name}" for name in plain_table([]).column_names) if is_counted else ()
    spans = is_counted and not {*window.partition_by} <= {*names}
    facts = {"ties": ties, "spans": spans, "compares": compares, "is_alone": is_alone}
    plan = AggregatePlan(0, 0, names, PARTIALS, window, emits, **facts)
    state, before, results = BucketState(), -(2**62), []
    with tempfile.TemporaryDirectory() as folder:
        place = place_in(folder)
        for number, batch in enumerate(batches):
            stream = arrived(batches[: number + 1], lateness)
            timed = [row for row in batch if row["ts"] is not None and row["ts"] >= before]
            after = before if stream.low is None else max(before, stream.low)
            kind = CountBatch if is_counted else ChangeBatch
            task = kind(replace(plan, before=before, after=after), place, state, 0)
            for table in task.run(rows_of(of, window, timed)):
                results += answers(table, names, "rstream" if compares else emits)
            state, before = task.report.after, after
            assert not (is_alone and state.history)
    return sorted(results, key=repr)


def answers(table, names, emits):
    """Return the results of a table: those that changed, or all."""
    columns = ["n", "s", "m"]
    given = [tuple(row[name] for name in [*names, *columns, INSTANT]) for row in table.to_pylist()]
    if emits == "rstream":
        return [tuple(map(plain, row)) for row in given]
    new, old = (IS, WAS) if emits == "istream" else (WAS, IS)
    kept = []
    for row in table.to_pylist():
        sides = [[row[name] for name in columns], [row[f"{OLD}{name}"] for name in columns]]
        now, before = sides if emits == "istream" else sides[::-1]
        if row[new] and not (row[old] and now == before):
            kept.append(tuple(map(plain, [*(row[each] for each in names), *now, row[INSTANT]])))
    return kept


def check(case):
    of, window, emits, lateness, batches = case
    wanted = [tuple(map(plain, row)) for row in changes(batches, lateness, of, window, emits)]
    assert found(of, window, emits, lateness, batches) == sorted(wanted, key=repr), case
    if emits == "istream":  # of which tasks may leave out what did not change
        again = found(of, window, emits, lateness, batches, compares=True)
        assert again == sorted(wanted, key=repr), case


@pytest.mark.large
@given(case=cases(COUNTS))
@examples(300)
def test_rows_that_are_counted(case):
    check(case)


def test_windows_of_the_newest_row_need_none_of_before(monkeypatch):
    """If results say when they are: no two of them are equal."""
    original = rows_of

    def timed(*args):
        rows = original(*args)
        if rows is not None:
            at = rows.payload.schema.get_field_index("m")
            payload = rows.payload.set_column(at, "m", pa.array(rows.starts))
            rows = Rows(rows.codes, rows.starts, rows.ends, payload)
        return rows

    monkeypatch.setitem(globals(), "rows_of", timed)
    found_any = []

    @given(case=cases(st.builds(RowsWindow, st.just(1), st.sampled_from([(), ("k",)]))))
    @examples(100)
    def each(case):
        of, window, _, lateness, batches = case
        assume({*window.partition_by} <= {name for name, _ in of.groups})
        given = (of, window, "istream", lateness, batches)
        alone = found(*given, compares=True, is_alone=True)
        assert alone == found(*given, compares=True) == found(*given)
        found_any.extend(alone)

    each()
    assert found_any


@given(case=cases(st.one_of(LENGTHS, st.just(UNBOUNDED))))
@examples(150)
def test_windows_of_time(case):
    check(case)


@given(case=cases(st.one_of(COUNTS, LENGTHS)))
@examples(100)
def test_results_in_many_parts(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_windows, "MOST_RESULTS", 2)
        patch.setattr(change_windows, "MOST_ROWS", 3)
        check(case)
