"""The slow oracles of windowed joins: by hand, and each against the other on drawn cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate, combinations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings

from eddyline.query.predicates import FunctionPredicate, SqlPredicate
from eddyline.query.query import Input, KeyClass, Query, RangeWindow, RowsWindow, UnboundedWindow
from eddyline.query.select.reader import read_query
from tests.examples import examples
from tests.joins.instants import results_by_instants
from tests.oracles.join_strategies import JoinCase, join_cases, key_classes
from tests.oracles.joins import bag, results

NOW, ALL = RangeWindow(0), UnboundedWindow()


def join(windows, emits="istream", residual=(), predicates=None, streams=None):
    """Return a join of inputs with these windows on ``k``, which says the ``v`` of each."""
    names = list(windows)
    first, *others = names
    equalities = tuple(f"{first}.k = {name}.k" for name in others)
    inputs = tuple(
        Input(name, (streams or {}).get(name, name), window, (predicates or {}).get(name, ()))
        for name, window in windows.items()
    )
    keys = (KeyClass(dict.fromkeys(names, ("k",))),)
    projections = tuple(f"{name}.v AS {name}" for name in names)
    return Query(inputs, keys, equalities, residual, projections, emits, "a join")


def stream(*rows):
    """Return a stream: (event time, key, value) of each row."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = {"ts": pa.int64(), "k": pa.string(), "v": pa.int64()}
    return pa.table(
        {name: pa.array(each, types[name]) for name, each in zip(types, columns, strict=True)}
    )


def said(query, tables, static=()):
    """Return what both oracles say, after they said the same: sorted (instant, values…)."""
    times = {name: None if name in static else "ts" for name in tables}
    found = results(query, tables, times)
    names = [each.name for each in query.inputs]
    assert found.column_names == [*names, "_at"]
    rows = [(row["_at"], *(row[name] for name in names)) for row in found.to_pylist()]
    by_instants = [
        (row["_at"], *(row[name] for name in names))
        for row in results_by_instants(query, tables, times)
    ]
    assert Counter(rows) == Counter(by_instants)
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def test_a_range_holds_a_row_for_its_length_ends_included():
    tables = {"s": stream((0, "a", 1)), "t": stream((10, "a", 2), (11, "a", 3))}
    assert said(join({"s": RangeWindow(10), "t": NOW}), tables) == [(10, 1, 2)]


def test_a_result_is_emitted_at_the_latest_of_its_rows_whichever_input_that_is():
    tables = {"s": stream((0, "a", 1), (7, "a", 2)), "t": stream((5, "a", 3))}
    assert said(join({"s": RangeWindow(9), "t": RangeWindow(9)}), tables) == [(5, 1, 3), (7, 2, 3)]


def test_a_row_that_came_long_before_joins_if_its_window_still_holds_it():
    tables = {"s": stream((0, "a", 1)), "t": stream((100, "a", 2))}
    assert said(join({"s": ALL, "t": NOW}), tables) == [(100, 1, 2)]
    assert said(join({"s": NOW, "t": ALL}), tables) == []


def test_three_rows_that_meet_in_pairs_but_never_all_at_once_are_no_result():
    tables = {"s": stream((0, "a", 1)), "t": stream((4, "a", 2)), "u": stream((8, "a", 3))}
    windows = {"s": RangeWindow(5), "t": RangeWindow(5), "u": RangeWindow(5)}
    assert said(join(windows), tables) == []
    assert said(join({**windows, "s": RangeWindow(8)}), tables) == [(8, 1, 2, 3)]


def test_a_stream_ends_results_one_microsecond_after_the_last_instant():
    tables = {"s": stream((0, "a", 1)), "t": stream((2, "a", 2))}
    ended = join({"s": RangeWindow(5), "t": RangeWindow(9)}, "dstream")
    assert said(ended, tables) == [(6, 1, 2)]
    assert said(join({"s": ALL, "t": ALL}, "dstream"), tables) == []
    assert said(join({"s": RangeWindow(2**63 - 2), "t": ALL}, "dstream"), tables) == [
        (2**63 - 1, 1, 2)
    ]
    tables["s"] = stream((1, "a", 1))  # its end is beyond the last instant there is
    assert said(join({"s": RangeWindow(2**63 - 1), "t": ALL}), tables) == [(2, 1, 2)]


def test_rows_are_counted_before_the_predicates_of_the_input():
    tables = {
        "s": stream((0, "a", 1), (1, "b", 2), (2, "a", 3)),
        "t": stream((0, "a", 10), (1, "a", 11), (2, "a", 12)),
    }
    windows = {"s": RowsWindow(2), "t": NOW}
    assert said(join(windows), tables) == [(0, 1, 10), (1, 1, 11), (2, 3, 12)]
    odd = {"s": (SqlPredicate("v <> 2"),)}  # the row with 2 counts, so the one with 1 is gone at 2
    assert said(join(windows, predicates=odd), tables) == [(0, 1, 10), (1, 1, 11), (2, 3, 12)]


def test_groups_have_windows_of_their_own_and_null_is_a_group():
    tables = {
        "s": stream((0, "a", 1), (1, "b", 2), (2, "a", 3)),
        "t": stream((3, "a", 10), (3, "b", 11)),
    }
    grouped = join({"s": RowsWindow(1, ("k",)), "t": NOW})
    assert said(grouped, tables) == [(3, 2, 11), (3, 3, 10)]
    assert said(join({"s": RowsWindow(1), "t": NOW}), tables) == [(3, 3, 10)]
    tables["s"] = stream((0, "a", None), (1, "b", None), (2, "a", 3))
    by_value = join({"s": RowsWindow(1, ("v",)), "t": NOW})
    assert said(by_value, tables) == [(3, None, 11), (3, 3, 10)]


def test_rows_of_one_instant_are_ordered_by_their_contents_with_nulls_first():
    rows = [(5, "a", 2), (5, "a", None), (5, None, 9), (5, "a", 1)]
    tables = {"s": stream(*rows), "t": stream((5, "a", 0))}
    for n_rows, kept in [(1, [2]), (2, [1, 2]), (3, [None, 1, 2]), (4, [None, 1, 2])]:
        query = join({"s": RowsWindow(n_rows), "t": NOW})
        for rotated in range(4):
            tables["s"] = stream(*rows[rotated:], *rows[:rotated])
            found = results(query, tables, {"s": "ts", "t": "ts"})
            assert sorted(found["s"].to_pylist(), key=str) == sorted(kept, key=str)


def test_a_row_that_leaves_at_its_own_instant_was_never_there():
    tables = {"s": stream((5, "a", 1), (5, "a", 2)), "t": stream((5, "a", 0))}
    for emits in ("istream", "rstream"):
        assert said(join({"s": RowsWindow(1), "t": ALL}, emits), tables) == [(5, 2, 0)]
    assert said(join({"s": RowsWindow(1), "t": ALL}, "dstream"), tables) == []


def test_a_relation_is_said_at_each_instant_of_any_input_once():
    tables = {
        "s": stream((0, "a", 1), (2, "x", 0), (2, "y", 0), (6, "x", 0)),
        "t": stream((1, "a", 2), (2, "z", 0), (4, None, 0), (5, "z", 0)),
    }
    windows = {"s": RangeWindow(4), "t": ALL}
    at = [(1, 1, 2), (2, 1, 2), (4, 1, 2)]
    assert said(join(windows, "rstream"), tables) == at
    no_zeros = {name: (SqlPredicate("v > 0"),) for name in windows}
    assert said(join(windows, "rstream", predicates=no_zeros), tables) == at


def test_a_static_table_always_holds_its_rows_and_has_no_instants():
    tables = {
        "s": stream((0, "a", 1), (0, "b", 2), (3, "b", 4)),
        "t": stream((9, "a", 3), (9, None, 5)),
    }
    windows = {"s": NOW, "t": ALL}
    assert said(join(windows), tables, static="t") == [(0, 1, 3)]
    assert said(join(windows, "dstream"), tables, static="t") == [(1, 1, 3)]
    assert said(join({"s": ALL, "t": ALL}, "rstream"), tables, static="t") == [
        (0, 1, 3),
        (3, 1, 3),
    ]
    with pytest.raises(ValueError, match="static tables has no instants"):
        results(join(windows), tables, {"s": None, "t": None})


def test_null_keys_never_join():
    tables = {"s": stream((0, None, 1), (0, "a", 2)), "t": stream((0, None, 3), (0, "a", 4))}
    assert said(join({"s": ALL, "t": ALL}), tables) == [(0, 2, 4)]


def test_rows_without_an_event_time_are_not_in_the_stream():
    tables = {"s": stream((None, "a", 1), (0, "a", 2)), "t": stream((0, "a", 3))}
    assert said(join({"s": RowsWindow(1), "t": ALL}), tables) == [(0, 2, 3)]


def test_a_stream_may_be_joined_with_itself_under_two_windows():
    tables = {"s": stream((0, "a", 1), (1, "a", 2), (2, "b", 3))}
    streams = {"older": "s", "newer": "s"}
    query = join(
        {"older": RangeWindow(5), "newer": NOW}, residual=("older.v < newer.v",), streams=streams
    )
    assert said(query, tables) == [(1, 1, 2)]


def test_a_residual_that_is_unknown_is_not_true():
    tables = {"s": stream((0, "a", None), (0, "a", 1)), "t": stream((0, "a", 2))}
    query = join({"s": ALL, "t": ALL}, residual=("s.v < t.v OR s.v > 5",))
    assert said(query, tables) == [(0, 1, 2)]


@pytest.mark.parametrize("arrays", ["arrow", "pandas", "numpy"])
def test_functions_are_predicates_of_an_input_too(arrays):
    larger = FunctionPredicate(lambda a, b: a > b if arrays != "arrow" else pc.greater(a, b),
                               ("v", "v * 0 + 1"), "larger", arrays)  # fmt: skip
    tables = {"s": stream((0, "a", 1), (0, "a", 2)), "t": stream((0, "a", 3))}
    times = {"s": "ts", "t": "ts"}
    for predicate, kept in ((larger, [2]), (~larger, [1])):
        query = join({"s": ALL, "t": ALL}, predicates={"s": (predicate,)})
        assert results(query, tables, times)["s"].to_pylist() == kept
        with pytest.raises(NotImplementedError, match="larger"):
            results_by_instants(query, tables, times)


def test_timestamps_are_read_to_the_microsecond():
    us = pa.array([1_000_001, 1_000_002], pa.int64())
    tables = {"s": stream((0, "a", 1)), "t": stream((0, "a", 2), (0, "a", 3))}
    for kind in (pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns")):
        at = us.cast(pa.timestamp("us")).cast(kind) if kind.unit == "ns" else us.cast(kind)
        tables["t"] = tables["t"].set_column(0, "ts", at)
        tables["s"] = tables["s"].set_column(0, "ts", at[:1])
        assert said(join({"s": RangeWindow(1), "t": NOW}), tables) == [
            (1_000_001, 1, 2),
            (1_000_002, 1, 3),
        ]


def test_names_are_taken_as_they_are_written():
    query = Query(
        (Input("order", "order", ALL), Input("left", "left", RowsWindow(1, ("group by",)))),
        (KeyClass({"order": ("`a b`",), "left": ("`group by`",)}),),
        ("`order`.`a b` = `left`.`group by`",),
        (),
        ("`order`.`a b` AS `select`",),
        "istream",
        "odd names",
    )
    tables = {
        "order": pa.table({"at": [1], "a b": ["x"]}),
        "left": pa.table({"from": [2], "group by": ["x"]}),
    }
    times = {"order": "at", "left": "from"}
    assert results(query, tables, times).to_pylist() == [{"select": "x", "_at": 2}]
    assert results_by_instants(query, tables, times) == [{"select": "x", "_at": 2}]


def test_a_bag_counts_rows_whatever_the_order_of_columns_and_rows():
    one = pa.table({"a": [1, 2, 1], "b": ["x", None, "x"]})
    assert bag(one) == {(1, "x"): 2, (2, None): 1}
    assert bag(one.select(["b", "a"]).take([2, 1, 0])) == bag(one)


# Each oracle against the other.

MANY = examples(200, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.large
@MANY
@given(join_cases(max_rows={2: 20, 3: 14, 4: 9, 5: 7}))
def test_both_oracles_agree(case):
    found = results(case.query, case.tables, case.times)
    expected = results_by_instants(case.query, case.tables, case.times)
    assert bag(found) == Counter(tuple(row[k] for k in sorted(row)) for row in expected)
    assert all(list(row) == found.column_names for row in expected)


@given(join_cases(max_rows={2: 12, 3: 12, 4: 8, 5: 6}))
def test_rows_that_are_wholly_equal_may_stand_in_any_order(case):
    twice = {
        name: rows.take(pa.array([at // 3 * 3 for at in range(rows.num_rows)], pa.int64()))
        for name, rows in case.tables.items()
    }
    found = results(case.query, twice, case.times)
    expected = results_by_instants(case.query, twice, case.times)
    assert bag(found) == Counter(tuple(row[k] for k in sorted(row)) for row in expected)
    turned = {
        name: rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))
        for name, rows in twice.items()
    }
    assert bag(results(case.query, turned, case.times)) == bag(found)


@given(join_cases())
def test_what_holds_is_what_came_to_be_and_did_not_cease(case):
    came, ceased, holds = (
        by_instant(results(replace(case.query, emits=emits), case.tables, case.times))
        for emits in ("istream", "dstream", "rstream")
    )
    for at in instants_of(case):
        so_far = sum((came[each] for each in came if each <= at), Counter())
        gone = sum((ceased[each] for each in ceased if each <= at), Counter())
        assert gone <= so_far
        assert holds.pop(at, Counter()) == so_far - gone
    assert holds == {}


def by_instant(table):
    found: dict[int, Counter] = {}
    for row in table.to_pylist():
        at = row.pop("_at")
        found.setdefault(at, Counter())[tuple(row.values())] += 1
    return found


def instants_of(case):
    """Return each event time of any row."""
    streams = [case.tables[name]["ts"] for name, time in case.times.items() if time is not None]
    return {at for ts in streams for at in ts.cast(pa.int64()).to_pylist()}


# What is drawn.


@given(join_cases())
def test_key_classes_are_what_the_equalities_say(case):
    pairs = [
        f"{_qualified(a)} = {_qualified(b)}"
        for each in case.query.keys
        for a, b in combinations(
            [(name, text) for name, texts in each.members.items() for text in texts], 2
        )
    ]
    closed = replace(case.query, equalities=tuple(pairs))
    times = (case.tables, case.times)
    assert bag(results(closed, *times)) == bag(results(case.query, *times))


def _qualified(member):
    name, text = member
    return text.replace("k", f"{name}.k")


@given(join_cases())
def test_what_is_drawn_is_what_its_text_says(case):
    assert read_query(case.query.text, case.columns) == case.query


def test_classes_that_an_equality_connects_become_one():
    s, t, u, v = (("s", "{}k"), ("t", "{}k"), ("u", "{}k"), ("v", "{}k"))
    assert key_classes([(s, t), (u, v)]) == (
        KeyClass({"s": ("k",), "t": ("k",)}),
        KeyClass({"u": ("k",), "v": ("k",)}),
    )
    assert key_classes([(s, t), (u, v), (t, ("u", "{}j")), (v, s)]) == (
        KeyClass({"s": ("k",), "t": ("k",), "u": ("j", "k"), "v": ("k",)}),
    )


@given(join_cases())
def test_no_row_is_late_and_none_is_lost_in_the_cut(case: JoinCase):
    for name, rows in case.tables.items():
        if case.times[name] is None:
            assert all(name not in batch for batch in case.batches)
            continue
        arrived = pa.concat_tables([batch[name] for batch in case.batches])
        assert bag(arrived) == bag(rows)
        assert arrived.schema == rows.schema
        instants = arrived["ts"].cast(pa.int64()).to_pylist()
        latest = list(accumulate(instants, max))
        assert all(at >= last - case.lateness for at, last in zip(instants, latest, strict=True))


@pytest.mark.large
def test_every_kind_of_case_is_drawn():
    seen: Counter = Counter()

    @settings(max_examples=200, database=None)
    @given(join_cases())
    def look(case):
        query = case.query
        found = results(query, case.tables, case.times)
        streams = [each.stream for each in query.inputs]
        seen.update(
            {
                f"{len(query.inputs)} inputs{'' if found.num_rows else ', no results'}": 1,
                query.emits: bool(found.num_rows),
                "self-join": len(set(streams)) < len(streams),
                "static": None in case.times.values(),
                "residual": bool(query.residual),
                "predicates": any(each.predicates for each in query.inputs),
                "several classes": len(query.keys) > 1,
                "a class of part of the inputs": any(
                    len(each.members) < len(streams) for each in query.keys
                ),
                "a class with two columns of an input": any(
                    len(texts) > 1 for each in query.keys for texts in each.members.values()
                ),
                "an expression": any("(" in each or "+" in each for each in query.equalities),
                "cycle": len(query.equalities) > len(streams) - 1,
                "now": any(each.window == NOW for each in query.inputs),
                "several batches": len(case.batches) > 1,
                "no batch": any(not rows.num_rows for rows in case.tables.values()),
                "disorder": case.lateness > 0,
                **{type(each.window).__name__: 1 for each in query.inputs},
                **{f"groups {bool(each.window.partition_by)}": 1
                   for each in query.inputs if isinstance(each.window, RowsWindow)},
            }
        )  # fmt: skip

    look()
    kinds = [f"{n} inputs{more}" for n in (2, 3, 4, 5) for more in ("", ", no results")]
    kinds += ["istream", "dstream", "rstream", "self-join", "static", "residual", "predicates"]
    kinds += ["several classes", "a class of part of the inputs", "an expression", "cycle", "now"]
    kinds += ["a class with two columns of an input", "several batches", "no batch", "disorder"]
    kinds += ["RangeWindow", "RowsWindow", "UnboundedWindow", "groups True", "groups False"]
    assert {kind: seen[kind] for kind in kinds if seen[kind] < 5} == {}
