"""Segments as rows of Arrow tables, and the tasks that make and read them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddyline.errors import OptionError, QueryError
from eddyline.models import graph, steps
from eddyline.models.fitting.bounds import FitOptions
from eddyline.models.fitting.fit import Fit, fit, fitted
from eddyline.models.segments import (
    Keyed,
    Layout,
    codes_by,
    entity_blocks,
    entity_ids,
    is_other_entity,
    keyed,
    table_of,
)
from eddyline.models.solving.text import read_condition
from tests.models.drawn_rows import METHODS, drawn_rows
from tests.models.pieces import drawn, pieces

COLUMNS = ["vessel", "origin", "lo", "hi", "is_point", "tomb", "coef_x", "err_x"]


def batches_of(rows, size):
    """Return rows as the batches that a task gets."""
    table = pa.table(
        {
            "k": pa.array(rows.keys).cast(pa.string()),
            "ts": pa.array(rows.times).cast(pa.timestamp("us", "UTC")),
            **{name: pa.array(each) for name, each in rows.values.items()},
        }
    )
    return table.to_batches(size)


def shown(table):
    """Return rows as texts: NaN is equal to NaN there, and times may be behind the year 9999."""
    for name in ("origin", "lo", "hi"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(at).cast(pa.int64()))
    return [repr(each) for each in table.to_pylist()]


def test_columns_say_what_is_key_and_attribute():
    assert Layout.from_columns(COLUMNS) == Layout(("vessel",), ("x",))
    assert Layout.from_columns(COLUMNS).columns == COLUMNS


@pytest.mark.parametrize("lost", COLUMNS[1:])
def test_a_column_that_is_missing_is_named(lost):
    with pytest.raises(QueryError, match=f"missing: .*{'coef_' if lost == 'coef_x' else lost}"):
        Layout.from_columns([each for each in COLUMNS if each != lost])


@given(drawn(names=("x", "y"), start=1_700_000_000_000_000), st.sampled_from(["UTC", None]))
def test_segments_are_the_same_behind_a_table(segments, zone):
    names = pa.table({"k": [f"entity {each}" for each in range(4)]})
    table = table_of(Keyed(segments, names), zone)
    assert table.schema.field("lo").type == pa.timestamp("us", zone)
    found = keyed(table, Layout.from_columns(table.column_names))
    assert found.names.column("k").to_pylist() == [f"entity {each}" for each in segments.keys]
    for name in ("origin", "lo", "hi", "is_point", "is_tombstone"):
        assert np.array_equal(getattr(found.segments, name), getattr(segments, name))
    for name in "xy":
        assert np.array_equal(found.segments.coefs[name], segments.coefs[name])


def test_lists_of_other_lengths_are_of_a_lower_degree_and_null_has_no_value():
    table = table_of(
        Keyed(pieces(*[(0, at, at + 1, {"x": [1]}) for at in range(3)]), pa.table({})), None
    )
    at = table.column_names.index("coef_x")
    table = table.set_column(at, "coef_x", pa.array([[1.0, 2.0], None, [3.0]]))
    found = keyed(table, Layout.from_columns(table.column_names)).segments.coefs["x"]
    np.testing.assert_array_equal(found, [[1, 2], [np.nan, np.nan], [3, 0]])


def test_entities_are_told_apart_by_all_keys_and_null_is_one():
    table = pa.table({"a": ["x", "x", None, None, "x"], "b": [1, 2, None, None, 1]})
    ids, first = entity_ids(table, ["a", "b"])
    assert ids.tolist() == [0, 1, 2, 2, 0]
    assert first.tolist() == [0, 1, 2]
    assert is_other_entity(table, ["a", "b"]).tolist() == [True, True, True, False, True]
    assert entity_ids(table, [])[0].tolist() == [0] * 5
    assert is_other_entity(table, []).tolist() == [True] + [False] * 4


@pytest.mark.large
@settings(deadline=None)
@given(drawn_rows(), st.sampled_from(METHODS), st.integers(1, 40), st.integers(1, 40))
def test_a_fit_does_not_depend_on_batches_and_blocks(rows, method, size, block):
    options = FitOptions(method=method[0], degree=method[1], prefix_rows=16)
    how = Fit(("k",), "ts", rows.within, options)
    whole, report = fit(*rows.args, options)
    parts = list(fitted(batches_of(rows, size), how, block_rows=block))
    found = pa.concat_tables([table_of(each, zone) for each, zone, _ in parts])
    names = pa.table({"k": pa.array(np.arange(whole.keys.max(initial=0) + 1)).cast(pa.string())})
    wanted = table_of(Keyed(whole, names), "UTC")
    assert shown(found) == shown(wanted)
    assert sum(each.n_rows for _, _, each in parts) == report.n_rows


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 7), st.integers(1, 30))
def test_blocks_have_whole_entities(sizes, size, block):
    keys = np.repeat(np.arange(len(sizes)), sizes)
    table = pa.table({"k": keys, "n": np.arange(keys.size)})
    tables = [pa.Table.from_batches([each]) for each in table.to_batches(size)]
    found = list(entity_blocks(tables, ["k"], block_rows=block))
    assert pa.concat_tables(found).combine_chunks().equals(table)
    seen = [set(each.column("k").to_pylist()) for each in found]
    assert sum(map(len, seen)) == len(sizes)


@pytest.mark.large
def test_a_part_that_two_steps_read_is_computed_once():
    calls = []

    class Counted(steps.Sample):
        def run(self, given):
            calls.append(len(given.segments))
            return given

        def shape(self, given):
            return given

    shape = steps.Shape(("k",), ("x",))
    shared = graph.Unary(Counted(1), graph.Input(0, shape))
    condition = read_condition("a.x < b.x + 1", ["a.x", "b.x"])
    both = graph.SameEntity(shared, shared, ("a", "b"), condition, "a.x < b.x + 1")
    given = Keyed(pieces((0, 0, 10, {"x": [1, 1]})), pa.table({"k": ["one"]}))
    found = graph.run(both, [given])
    assert calls == [1]
    assert found.segments.coefs.keys() == {"a_x", "b_x"}
    assert both.shape == steps.Shape(("k",), ("a_x", "b_x"))


def test_inputs_at_other_places_keep_what_is_shared():
    shape = steps.Shape((), ("x",))
    node = graph.Unary(steps.Sample(1), graph.Input(0, shape))
    moved = graph.with_inputs(
        graph.SameEntity(node, node, ("a", "b"), None, None), [graph.Input(2, node.shape)]
    )
    assert moved.left is moved.right
    assert moved.left.of.at == 2


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zeros_of_both_signs_are_one_entity(kind):
    keys = pa.table({"k": pa.array([0.0, -0.0, None, float("nan"), -0.0, float("nan")], kind)})
    assert entity_ids(keys, ["k"])[0].tolist() == [0, 0, 1, 2, 0, 2]
    assert is_other_entity(keys, ["k"]).tolist() == [True, False, True, True, True, True]


@pytest.mark.parametrize(("kind", "name"), [("samples", "Time"), ("changes", "until")])
def test_a_key_is_not_called_as_the_time_of_results(kind, name):
    with pytest.raises(OptionError, match=f"a key is called '{name}'.*rename"):
        steps.Shape((name,), ("x",), kind)
    assert steps.Shape((name,), ("x",)).keys == (name,)


KEYS = {
    "text": pa.array(["a", "b", "", None, "ab", "ba", "ä" * 40, "a"]),
    "whole": pa.array([1, 2, -1, None, 12, 21, 2**62, 1]),
    "number": pa.array([0.0, 1.5, np.nan, None, -1.5, np.inf, 5e-324, -0.0]),
    "raw": pa.array([b"a", b"\xff", b"", None, b"ab", b"ba", b"\x01", b"a"]),
    "flag": pa.array([True, False, True, None, False, True, False, True]),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_code_of_keys_is_the_same_wherever_they_are(name):
    keys = KEYS[name]
    table = pa.table({"one": keys, "other": pa.array(np.arange(8) // 7)})
    codes = codes_by(table, ["one"])
    assert codes[0] == codes[7]
    assert len({*codes.tolist()}) == len(entity_ids(table, ["one"])[1])
    chunks = pa.concat_tables([table.slice(5), table.slice(1, 2), table.slice(3, 0)])
    assert codes_by(chunks, ["one"]).tolist() == codes[[5, 6, 7, 1, 2]].tolist()
    both = codes_by(table, ["one", "other"])
    assert both[0] != both[7]
    assert codes_by(table.slice(0, 0), ["one"]).tolist() == []
    assert codes_by(table, []).tolist() == [0] * 8
