"""The reader of SELECT: cases of ``queries.txt``, and what holds of all queries."""

import itertools
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import FunctionPredicate, SqlPredicate, predicate
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import identifier
from tests.examples import examples
from tests.query.select.cases import (
    COLUMNS_OF_S,
    broken,
    cases,
    check_is_read_or_refused,
    parts_of,
    words_of,
)

COLUMNS = {
    "s": COLUMNS_OF_S,
    "t": {"k": "bigint", "w": "int", "Date": "date", "a b": "int", "case": "int"},
    "u": {"k": "int", "j": "string", "d": "decimal(10,2)", "w": "int"},
    "Events": {"id": "int", "t": "struct<w:int>", "n": "string collate UTF8_LCASE"},
}
f = predicate(lambda w: w, reads=["w"], name="f")
g = predicate(lambda a, b: a, reads=["s.v", "upper(txt)"], name="g", arrays="numpy")
h = predicate(lambda b: b, reads=["a b"], name="h")
FUNCTIONS = {"F": f, "g": g, "h": h}


def read(text):
    return read_query(text, COLUMNS, FUNCTIONS)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_query_is_read(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


def test_the_text_is_kept():
    for text in ("SELECT * FROM s", "SELECT v FROM u [NOW], s;"):
        assert read(text).text == text


def test_kinds_of_predicates():
    query = read("SELECT v FROM s, t WHERE v > 3 AND g() AND NOT f(w)")
    native, called = query.inputs[0].predicates
    assert native == SqlPredicate("v > 3")
    assert isinstance(called, FunctionPredicate)
    assert (called.fn, called.arrays, called.reads) == (g.fn, "numpy", ("v", "upper(txt)"))
    assert query.inputs[1].predicates == (~f,)
    assert read("SELECT v FROM s WHERE f() AND NOT g(*)").inputs[0].predicates == (f, ~g)


def test_a_function_may_have_the_name_of_an_aggregate():
    query = read_query("SELECT v FROM s WHERE last(v)", COLUMNS, {"last": f})
    assert query.inputs[0].predicates[0].reads == ("v",)


def test_a_struct_is_found_where_the_input_of_its_name_lacks_the_column():
    columns = {"s": {"t": "struct<x:int>"}, "t": {"w": "int"}}
    query = read_query("SELECT t.w, s.t FROM s, t WHERE s.t.x = t.w", columns)
    assert dict(query.keys[0].members) == {"s": ("t.x",), "t": ("w",)}


def test_everything_has_columns_of_using_once_and_first():
    columns = {"a": {"x": "int", "k": "int"}, "b": {"y": "int", "k": "int"}}
    columns["c"] = {"z": "int", "k": "int"}
    query = read_query("SELECT * FROM a JOIN b USING (k) JOIN c USING (k)", columns)
    assert query.projections == ("a.k AS k", "a.x AS x", "b.y AS y", "c.z AS z")
    assert dict(query.keys[0].members) == {"a": ("k",), "b": ("k",), "c": ("k",)}


def test_everything_is_in_the_order_of_inputs():
    columns = {"a": {"x": "int"}, "b": {"y": "int", "z": "int"}}
    wanted = ("q.y AS y", "q.z AS z", "a.x AS x")
    assert read_query("SELECT * FROM b q, a", columns).projections == wanted
    assert read_query("SELECT q.*, a.* FROM b q, a", columns).projections == wanted


def test_the_default_name_of_a_column_is_on_one_line():
    assert read("SELECT upper(\n txt ) FROM s, t").projections == (
        "upper(\n s.txt ) AS `upper( txt )`",
    )


def test_a_table_beside_streams_is_read_by_joins_only():
    assert len(read_query("SELECT v FROM s, t", COLUMNS, tables=["t"]).inputs) == 2
    with pytest.raises(NotSupportedError, match="'t' is a table: join it with a stream"):
        read_query("SELECT w FROM t", COLUMNS, tables=["t"])


def test_a_place_is_found_on_later_lines():
    with pytest.raises(QueryError, match=r"unknown column 'q' of t; .* \(line 3, column 14\)"):
        read("SELECT v\nFROM s [NOW], t [ROWS 3]\nWHERE s.k =  t.q")


@given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_the_closure_of_equalities_is_transitive(pairs):
    streams = {f"s{number}": {"k": "int"} for number in range(6)}
    pairs = [(a, b) for a, b in pairs if a != b]
    where = " AND ".join(["true", *(f"s{a}.k = s{b}.k" for a, b in pairs)])
    query = read_query(f"SELECT s0.k FROM {', '.join(streams)} WHERE {where}", streams)
    groups = {number: {number} for number in range(6)}
    for a, b in pairs:
        groups[a] |= groups[b]
        for each in groups[a]:
            groups[each] = groups[a]
    wanted = {frozenset(f"s{each}" for each in group) for group in groups.values()}
    found = [frozenset(each.members) for each in query.keys]
    assert len(found) == len(set(found))
    assert set(found) == {group for group in wanted if len(group) > 1}


CONJUNCTS = (
    "s.k = t.k",
    "x.k = s.k",
    "(t.w = x.w)",
    "s.k + 1 = t.w",
    "x.k = s.v - 1",
    "t.k = abs(x.w)",
    "s.v = s.k",
    "t.w > 0",
    "v IS NOT NULL",
    "s.k < x.w",
    "t.k = x.k OR s.k = 2",
    "(s.k = t.w AND x.w <> v)",
    "x.w = 1",
    "NOT (s.k = x.k)",
    "s.v BETWEEN t.k AND x.k",
)


@pytest.fixture(scope="module")
def numbers():
    """Three tables with every pair of four values, one of them NULL."""
    made = sqlite3.connect(":memory:")
    values = (None, 0, 1, 2)
    for table, columns in (("s", "k, v"), ("t", "k, w"), ("u", "k, w")):
        made.execute(f"CREATE TABLE {table} ({columns})")
        rows = itertools.product(values, values)
        made.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    yield made
    made.close()


@given(
    on=st.lists(st.sampled_from(CONJUNCTS[:1] + CONJUNCTS[3:4]), max_size=2),
    where=st.lists(st.sampled_from(CONJUNCTS), min_size=1, max_size=5),
)
def test_the_parts_mean_what_the_whole_means(numbers, on, where):
    """Keys alone, without the equalities that made them, give the query's rows."""
    columns = {name: {"k": "int", "v" if name == "s" else "w": "int"} for name in "stu"}
    joined = " AND ".join(["true", *on])
    text = (
        f"SELECT s.k AS a, v AS b, t.k AS c, t.w AS d, x.k AS e, x.w AS f "
        f"FROM s JOIN t ON {joined}, u AS x WHERE {' AND '.join(where)}"
    )
    wanted = numbers.execute(text).fetchall()
    found = numbers.execute(_from_parts(read_query(text, columns))).fetchall()
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def _from_parts(query):
    """Return the query in SQL again, from what was made of it."""
    sources, conditions = [], list(query.residual)
    for each in query.inputs:
        where = " AND ".join(f"({p.text})" for p in each.predicates) or "true"
        keys = [
            f", {text} AS key_{number}_{place}"
            for number, key in enumerate(query.keys)
            for place, text in enumerate(key.members.get(each.name, ()))
        ]
        sources.append(f"(SELECT *{''.join(keys)} FROM {each.stream} WHERE {where}) {each.name}")
    for number, key in enumerate(query.keys):
        names = [
            f"{name}.key_{number}_{place}"
            for name, texts_of in key.members.items()
            for place in range(len(texts_of))
        ]
        conditions += [f"{a} = {b}" for a, b in itertools.pairwise(names)]
    where = " AND ".join(f"({each})" for each in conditions) or "true"
    return f"SELECT {', '.join(query.projections)} FROM {', '.join(sources)} WHERE {where}"


WHOLE = (
    "ISTREAM(SELECT v, a.k, t.w AS x FROM s [RANGE 10 SECONDS] a, t [NOW] JOIN u "
    "[PARTITION BY k ROWS 5] ON a.k = u.k AND f(t.w) JOIN Events y ON id = t.w "
    "WHERE (a.k, 1) = (t.w, 2) AND NOT v IS DISTINCT FROM t.`a b`)"
)


def test_the_whole_of_what_is_broken_below_is_read():
    members = [dict(each.members) for each in read(WHOLE).keys]
    assert members[:2] == [{"a": ("k",), "u": ("k",)}, {"y": ("id",), "t": ("w",)}]
    nulls, values = members[2:]  # nothing else connects a and t
    assert {**nulls} == {"a": ("((k) IS NULL)",), "t": ("((w) IS NULL)",)}
    assert values.keys() == {"a", "t"}
    assert read(" ".join(words_of(WHOLE))).keys == read(WHOLE).keys


@examples(400)
@given(query=broken(WHOLE))
def test_whatever_is_wrong_is_a_query_error(query):
    check_is_read_or_refused(lambda text: read(text).inputs, query)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "port"),
        ("_x1", "_x1"),
        ("date", "date"),
        ("dst port", "`dst port`"),
        ("1a", "`1a`"),
        ("a`b", "`a``b`"),
        ("größe", "`größe`"),
        ("case", "`case`"),
        ("null", "`null`"),
        ("left", "`left`"),
        ("interval", "`interval`"),
        ("current_date", "`current_date`"),
        ("end", "`end`"),
        ("is", "`is`"),
    ],
)
def test_identifiers_are_quoted_where_needed(name, text):
    assert identifier(name) == text
