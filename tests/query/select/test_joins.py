"""SELECT over several inputs with windows."""

import itertools
import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import FunctionPredicate, SqlPredicate, predicate
from eddyline.query.select.joins import is_join, read_join
from eddyline.query.select.scope import identifier
from eddyline.query.windows import RangeWindow, RowsWindow, UnboundedWindow
from tests.examples import examples

COLUMNS = {
    "s": {
        "k": "int",
        "v": "double",
        "txt": "string",
        "arr": "array<int>",
        "st": "struct<x:int,k:int>",
        "ts": "timestamp",
    },
    "t": {"k": "bigint", "w": "int", "Date": "date", "a b": "int", "case": "int"},
    "u": {"k": "int", "j": "string", "d": "decimal(10,2)", "w": "int"},
    "Events": {"id": "int", "t": "struct<w:int>", "n": "string collate UTF8_LCASE"},
}
f = predicate(lambda w: w, reads=["w"], name="f")
g = predicate(lambda a, b: a, reads=["s.v", "upper(txt)"], name="g", arrays="numpy")
h = predicate(lambda b: b, reads=["a b"], name="h")
FUNCTIONS = {"F": f, "g": g, "h": h}


def read(text):
    return read_join(text, COLUMNS, FUNCTIONS)


def texts(query):
    return {
        each.name: [p.text for p in each.predicates] for each in query.inputs if each.predicates
    }


def members(query):
    return [dict(each.members) for each in query.keys]


class TestInputs:
    def test_in_the_order_in_which_they_are_written(self):
        query = read("SELECT v FROM u [NOW], s [RANGE 10 SECONDS], t AS x [ROWS 5]")
        found = [(each.name, each.stream, each.window) for each in query.inputs]
        assert found == [
            ("u", "u", RangeWindow(0)),
            ("s", "s", RangeWindow(10_000_000)),
            ("x", "t", RowsWindow(5)),
        ]
        assert query.text == "SELECT v FROM u [NOW], s [RANGE 10 SECONDS], t AS x [ROWS 5]"
        assert (query.keys, query.equalities, query.residual) == ((), (), ())

    @pytest.mark.parametrize(
        ("items", "names", "windows"),
        [
            ("s, t", "s t", [UnboundedWindow()] * 2),
            ("s a, t AS b", "a b", [UnboundedWindow()] * 2),
            ("s [NOW] a, t [NOW] AS b", "a b", [RangeWindow(0)] * 2),
            ("s a [NOW], t AS b [NOW]", "a b", [RangeWindow(0)] * 2),
            ("s[ROWS 1]a,t[ROWS 2]b", "a b", [RowsWindow(1), RowsWindow(2)]),
            ("s, s AS s2 [ROWS 2]", "s s2", [UnboundedWindow(), RowsWindow(2)]),
            ("s JOIN t [NOW]", "s t", [UnboundedWindow(), RangeWindow(0)]),
            ("s [NOW] INNER JOIN t ON s.k = t.k", "s t", [RangeWindow(0), UnboundedWindow()]),
            ("s CROSS JOIN t x [NOW]", "s x", [UnboundedWindow(), RangeWindow(0)]),
            ("s JOIN t [NOW] USING (k), u", "s t u", None),
            ("s [NOW] JOIN t [NOW] x ON s.k = x.k JOIN u [NOW] ON x.k = u.k", "s x u", None),
            ("EVENTS, S", "Events s", [UnboundedWindow()] * 2),
            ("s AS `my s`, t AS `case` [NOW]", "my s|case", [UnboundedWindow(), RangeWindow(0)]),
            ("s\n  [ RANGE -- how long\n 1 SECOND ]\n, t", "s t", None),
            (
                "s [PARTITION BY K, TXT ROWS 3], t [partition by date, `a b` rows 1]",
                "s t",
                [RowsWindow(3, ("k", "txt")), RowsWindow(1, ("Date", "a b"))],
            ),
        ],
    )
    def test_names_and_windows_are_found(self, items, names, windows):
        query = read(f"SELECT 1 AS one FROM {items}")
        assert [each.name for each in query.inputs] == names.split("|" if "|" in names else " ")
        if windows is not None:
            assert [each.window for each in query.inputs] == windows

    @pytest.mark.parametrize(
        ("text", "emits"),
        [
            ("SELECT v FROM s, t", "istream"),
            ("ISTREAM(SELECT v FROM s, t)", "istream"),
            ("dstream ( SELECT v FROM s, t WHERE (s.k = t.k) ) ;", "dstream"),
            ("RSTREAM(SELECT v FROM s, t)", "rstream"),
            ("SELECT ISTREAM(v) FROM s, t", "istream"),
            ("SELECT Dstream(v, (w)) FROM s, t", "dstream"),
            ("SELECT RSTREAM(s.*) FROM s, t;", "rstream"),
        ],
    )
    def test_what_is_emitted(self, text, emits):
        assert read(text).emits == emits


class TestKeys:
    @pytest.mark.parametrize(
        ("where", "keys"),
        [
            ("s.k = t.k", [{"s": ("k",), "t": ("k",)}]),
            ("s.k == t.k", [{"s": ("k",), "t": ("k",)}]),
            ("(S.K = T.K)", [{"s": ("k",), "t": ("k",)}]),
            ("(s.k) = ((t.k))", [{"s": ("k",), "t": ("k",)}]),
            ("j = txt", [{"u": ("j",), "s": ("txt",)}]),
            ("s.k = t.k AND u.k = t.k", [{"s": ("k",), "t": ("k",), "u": ("k",)}]),
            ("s.k = t.k AND T.`k` = u.k", [{"s": ("k",), "t": ("k",), "u": ("k",)}]),
            ("s.k = t.k AND t.k = s.k", [{"s": ("k",), "t": ("k",)}]),
            (
                "s.k = t.k AND s.txt = u.j",
                [{"s": ("k",), "t": ("k",)}, {"s": ("txt",), "u": ("j",)}],
            ),
            (
                "s.txt = j AND s.k = t.k AND u.k = t.w AND t.w = s.k",
                [
                    {"s": ("txt",), "u": ("j",)},
                    {"s": ("k",), "t": ("k", "w"), "u": ("k",)},
                ],
            ),
            ("s.k = t.k AND s.k = t.w", [{"s": ("k",), "t": ("k", "w")}]),
            ("s.k = t.k AND s.st.x = t.k", [{"s": ("k", "st.x"), "t": ("k",)}]),
            ("s.k + 1 = t.w - 1", [{"s": ("k + 1",), "t": ("w - 1",)}]),
            ("upper(s.txt) = lower(j)", [{"s": ("upper(txt)",), "u": ("lower(j)",)}]),
            (
                "UPPER(s.txt) = j AND upper( TXT ) = concat(j, 'x')",
                [{"s": ("UPPER(txt)",), "u": ("j", "concat(j, 'x')")}],
            ),
            ("s.arr[0] = t.w", [{"s": ("arr[0]",), "t": ("w",)}]),
            ("`a b` = s.k", [{"t": ("`a b`",), "s": ("k",)}]),
            ("t.case = s.k", [{"t": ("`case`",), "s": ("k",)}]),
            ("s.k = u.d", [{"s": ("k",), "u": ("d",)}]),
            ("CAST(s.v AS INT) = t.w", [{"s": ("CAST(v AS INT)",), "t": ("w",)}]),
            (
                "CASE WHEN s.k = 1 THEN 2 END = t.k",
                [{"s": ("CASE WHEN k = 1 THEN 2 END",), "t": ("k",)}],
            ),
            ("s.k = abs(t.k, 1 = 1)", [{"s": ("k",), "t": ("abs(k, 1 = 1)",)}]),
            ("s.k = t.k OR s.k = 1", []),
            ("NOT (s.k = t.k)", []),
        ],
    )
    def test_equalities_make_classes(self, where, keys):
        assert members(read(f"SELECT v FROM s, t, u WHERE {where}")) == keys

    def test_they_are_kept_as_written_but_for_their_columns(self):
        query = read("SELECT v FROM s, t x WHERE S.K  = X.k AND (s.k+1 /* one */ = `a b`)")
        assert query.equalities == ("s.k  = x.k", "s.k+1 /* one */ = x.`a b`")

    def test_both_sides_of_a_self_join(self):
        query = read("SELECT a.v FROM s a, s b WHERE a.k = b.k AND a.k = b.st.x")
        assert members(query) == [{"a": ("k",), "b": ("k", "st.x")}]
        assert query.equalities == ("a.k = b.k", "a.k = b.st.x")
        assert [each.stream for each in query.inputs] == ["s", "s"]

    def test_conditions_of_on_and_where_are_one(self):
        query = read(
            "SELECT w + 1 AS w FROM s JOIN t ON s.k = t.k AND v > 1, Events e "
            "JOIN s AS z ON z.k = id AND t.w = 1 "
            "WHERE id = s.k"
        )
        assert members(query) == [{"s": ("k",), "t": ("k",), "z": ("k",), "e": ("id",)}]
        assert texts(query) == {"s": ["v > 1"], "t": ["w = 1"]}

    @pytest.mark.parametrize(
        ("where", "residual"),
        [
            ("s.v < t.w", "s.v < t.w"),
            ("v<w", "s.v<t.w"),
            ("V < `W`", "s.v < t.w"),
            ("s.k <=> t.k", "s.k <=> t.k"),
            ("s.k IS NOT DISTINCT FROM t.k", "s.k IS NOT DISTINCT FROM t.k"),
            ("NOT (s.k = t.k)", "NOT (s.k = t.k)"),
            ("s.k = t.k OR w = 1", "s.k = t.k OR t.w = 1"),
            ("s.k + t.k = 5", "s.k + t.k = 5"),
            ("s.k + t.k = t.w", "s.k + t.k = t.w"),
            ("s.k = s.st.x + t.k", "s.k = s.st.x + t.k"),
            ("s.k = t.w = true", "s.k = t.w = true"),
            ("s.k IN (t.k, w)", "s.k IN (t.k, t.w)"),
            ("v BETWEEN w AND t.k", "s.v BETWEEN t.w AND t.k"),
            ("st = named_struct('x', w, 'k', w)", "s.st = named_struct('x', t.w, 'k', t.w)"),
            ("s.arr = array(w)", "s.arr = array(t.w)"),
            ("exists(arr, x -> x = w)", "exists(s.arr, x -> x = t.w)"),
            ("ts + INTERVAL 1 DAY > date", "s.ts + INTERVAL 1 DAY > t.Date"),
            ("dateadd(day, 1, ts) > t.date", "dateadd(day, 1, s.ts) > t.Date"),
            ("concat(txt, 's.k') LIKE w", "concat(s.txt, 's.k') LIKE t.w"),
            ("t.case > s.arr[w]", "t.`case` > s.arr[t.w]"),
            ("st.x + st.k > `a b`", "s.st.x + s.st.k > t.`a b`"),
        ],
    )
    def test_other_conditions_over_several_inputs_are_residual(self, where, residual):
        query = read(f"SELECT v FROM s, t WHERE {where}")
        assert (query.residual, query.keys, texts(query)) == ((residual,), (), {})

    @pytest.mark.parametrize(
        "where",
        [
            "e.n = s.txt",
            "upper(e.n) = s.txt",
            "s.txt COLLATE UTF8_LCASE = u.j",
            "s.txt = collate(u.j, 'UTF8_LCASE')",
            "(s.k, s.txt) = (u.k, u.j)",
            "((s.k, s.txt)) = (u.k, u.j)",
        ],
    )
    def test_rows_and_strings_with_a_collation_are_no_key(self, where):
        query = read(f"SELECT id FROM Events e, s, u WHERE {where}")
        assert (query.residual, query.keys) == ((where,), ())

    @given(pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
    def test_the_closure_is_transitive(self, pairs):
        streams = {f"s{number}": {"k": "int"} for number in range(6)}
        pairs = [(a, b) for a, b in pairs if a != b]
        where = " AND ".join(["true", *(f"s{a}.k = s{b}.k" for a, b in pairs)])
        query = read_join(f"SELECT s0.k FROM {', '.join(streams)} WHERE {where}", streams, {})
        groups = {number: {number} for number in range(6)}
        for a, b in pairs:
            groups[a] |= groups[b]
            for each in groups[a]:
                groups[each] = groups[a]
        wanted = {frozenset(f"s{each}" for each in group) for group in groups.values()}
        found = [frozenset(each.members) for each in query.keys]
        assert len(found) == len(set(found))
        assert set(found) == {group for group in wanted if len(group) > 1}


class TestPredicates:
    @pytest.mark.parametrize(
        ("where", "predicates"),
        [
            ("s.v > 3", {"s": ["v > 3"]}),
            ("s.k = 5 AND 'a' = txt", {"s": ["k = 5", "'a' = txt"]}),
            ("v > 3 AND t.w < 4 AND S.V < 9", {"s": ["v > 3", "V < 9"], "t": ["w < 4"]}),
            ("s.k = s.st.x", {"s": ["k = st.x"]}),
            ("(w IS NULL OR w > 1)", {"t": ["w IS NULL OR w > 1"]}),
            ("t.`a b` = 1 AND t.Case = 2", {"t": ["`a b` = 1", "`Case` = 2"]}),
            ("t.date > '2020-01-01'", {"t": ["date > '2020-01-01'"]}),
            ("s.txt  = 's.txt' -- why", {"s": ["txt  = 's.txt'"]}),
            ("exists(s.arr, x -> x > s.k)", {"s": ["exists(arr, x -> x > k)"]}),
            ("true AND 1 = 1", {"s": ["true", "1 = 1"]}),
            ("rand() < s.v", {"s": ["rand() < v"]}),
            ("f(t.w) AND NOT f( w + 1 )", {"t": ["f(w)", "NOT f(w + 1)"]}),
            ("f() AND f(*)", {"t": ["f(w)", "f(w)"]}),
            ("g()", {"s": ["g(v, upper(txt))"]}),
            ("NOT g(s.v, s.k)", {"s": ["NOT g(v, k)"]}),
            ("h()", {"t": ["h(a b)"]}),
            ("h(s.k)", {"s": ["h(k)"]}),
            ("h(1)", {"s": ["h(1)"]}),
        ],
    )
    def test_conditions_over_one_input_are_its_predicates(self, where, predicates):
        query = read(f"SELECT v FROM s, t WHERE {where}")
        assert texts(query) == predicates
        assert (query.residual, query.equalities) == ((), ())

    def test_their_kinds(self):
        query = read("SELECT v FROM s, t WHERE v > 3 AND g() AND NOT f(w)")
        native, called = query.inputs[0].predicates
        assert native == SqlPredicate("v > 3")
        assert isinstance(called, FunctionPredicate)
        assert (called.fn, called.arrays, called.reads) == (g.fn, "numpy", ("v", "upper(txt)"))
        assert query.inputs[1].predicates == (~f,)

    def test_a_struct_of_the_name_of_an_input(self):
        query = read("SELECT e.t.w AS w FROM Events e, t WHERE t.w = 1 AND e.t.w = 2 AND t.k = id")
        assert texts(query) == {"e": ["t.w = 2"], "t": ["w = 1"]}
        assert query.projections == ("e.t.w AS w",)

    def test_a_struct_is_found_where_the_input_of_its_name_lacks_the_column(self):
        columns = {"s": {"t": "struct<x:int>"}, "t": {"w": "int"}}
        query = read_join("SELECT t.w, s.t FROM s, t WHERE s.t.x = t.w", columns, {})
        assert members(query) == [{"s": ("t.x",), "t": ("w",)}]


class TestUsing:
    def test_is_an_equality_and_one_name(self):
        query = read("SELECT k, v FROM s JOIN t USING (K) WHERE k > 3 AND t.k < 9")
        assert members(query) == [{"s": ("k",), "t": ("k",)}]
        assert query.equalities == ("s.k = t.k",)
        assert query.projections == ("s.k AS k", "s.v AS v")
        assert texts(query) == {"s": ["k > 3"], "t": ["k < 9"]}

    def test_everything_has_it_once_and_first(self):
        columns = {"a": {"x": "int", "k": "int"}, "b": {"y": "int", "k": "int"}}
        columns["c"] = {"z": "int", "k": "int"}
        query = read_join("SELECT * FROM a JOIN b USING (k) JOIN c USING (k)", columns, {})
        assert query.projections == ("a.k AS k", "a.x AS x", "b.y AS y", "c.z AS z")
        assert members(query) == [{"a": ("k",), "b": ("k",), "c": ("k",)}]

    def test_several(self):
        query = read("SELECT v FROM t JOIN u USING (w, k), s")
        assert query.equalities == ("t.w = u.w", "t.k = u.k")


class TestOutput:
    @pytest.mark.parametrize(
        ("select", "projections"),
        [
            ("v", ["s.v AS v"]),
            ("V", ["s.v AS v"]),
            ("S.V, t.W", ["s.v AS v", "t.w AS w"]),
            ("s.k AS sk, t.k tk", ["s.k AS sk", "t.k AS tk"]),
            ("v + w AS `a sum`", ["s.v + t.w AS `a sum`"]),
            ("v+1", ["s.v+1 AS `v+1`"]),
            ("upper(\n txt )", ["upper(\n s.txt ) AS `upper( txt )`"]),
            ("(w)", ["(t.w) AS w"]),
            ("((s.st.x)) AS y", ["((s.st.x)) AS y"]),
            ("st.x, s.st.k", ["s.st.x AS x", "s.st.k AS k"]),
            ("arr[0], arr[w] e", ["s.arr[0] AS `arr[0]`", "s.arr[t.w] AS e"]),
            ("t.`a b`, t.case", ["t.`a b` AS `a b`", "t.`case` AS `case`"]),
            ("date", ["t.Date AS Date"]),
            ("1 AS one, 's.v' AS t", ["1 AS one", "'s.v' AS t"]),
            ("CAST(w AS STRING) x", ["CAST(t.w AS STRING) AS x"]),
            ("transform(arr, v -> v + w) y", ["transform(s.arr, v -> v + t.w) AS y"]),
            ("current_date AS d", ["current_date AS d"]),
            (
                "t.*",
                [
                    "t.k AS k",
                    "t.w AS w",
                    "t.Date AS Date",
                    "t.`a b` AS `a b`",
                    "t.`case` AS `case`",
                ],
            ),
            ("(v, w)", ["(s.v, t.w) AS `(v, w)`"]),
            ("ALL w", ["t.w AS w"]),
        ],
    )
    def test_every_column_is_qualified_and_named(self, select, projections):
        assert read(f"SELECT {select} FROM s, t").projections == tuple(projections)

    def test_everything(self):
        columns = {"a": {"x": "int"}, "b": {"y": "int", "z": "int"}}
        wanted = ("q.y AS y", "q.z AS z", "a.x AS x")
        assert read_join("SELECT * FROM b q, a", columns, {}).projections == wanted
        assert read_join("SELECT q.*, a.* FROM b q, a", columns, {}).projections == wanted

    def test_of_a_self_join(self):
        query = read("SELECT `x y`.v, b.v AS w FROM s `x y`, s b")
        assert query.projections == ("`x y`.v AS v", "b.v AS w")


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
    found = numbers.execute(_from_parts(read_join(text, columns, {}))).fetchall()
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


INSIDE = (
    "the function {} inside a larger expression is not supported yet; "
    "it may stand between the ANDs of WHERE, alone or after NOT"
)
INNER = "{} is not supported yet; only inner joins of streams are"
WINDOW = "a window […] over one stream is not supported yet"
SEVERAL = "the function {} reads s and t; over several inputs it is not supported yet"
STAR = ": a star (name the columns) is not supported yet"
CAST = "; CAST one to the type of the other"
TYPES = "an equality of different types is not supported yet as the key of a join: "
CHANCE = (
    "{}: rand() is not deterministic, which is not supported yet in a condition over several inputs"
)
NOT_SUPPORTED = [
    ("SELECT v FROM s [NOW]", WINDOW, 17),
    ("SELECT v FROM s AS x [ROWS 5] WHERE v > 1", WINDOW, 22),
    ("ISTREAM(SELECT v FROM s)", "ISTREAM of one stream is not supported yet", 1),
    ("SELECT DSTREAM(v) FROM s", "DSTREAM of one stream is not supported yet", 1),
    ("SELECT v FROM s LEFT JOIN t ON s.k = t.k", INNER.format("LEFT JOIN"), 17),
    ("SELECT v FROM s [NOW] left outer join t ON true", INNER.format("LEFT OUTER JOIN"), 23),
    ("SELECT v FROM s RIGHT JOIN t ON true", INNER.format("RIGHT JOIN"), 17),
    ("SELECT v FROM s FULL OUTER JOIN t ON true", INNER.format("FULL OUTER JOIN"), 17),
    ("SELECT v FROM s SEMI JOIN t ON true", INNER.format("SEMI JOIN"), 17),
    ("SELECT v FROM s LEFT ANTI JOIN t ON true", INNER.format("LEFT ANTI JOIN"), 17),
    ("SELECT v FROM s NATURAL JOIN t", INNER.format("NATURAL JOIN"), 17),
    ("SELECT v FROM s JOIN u ON s.k = u.k LEFT JOIN t ON true", INNER.format("LEFT JOIN"), 37),
    (
        "SELECT v FROM s JOIN t JOIN u ON true ON true",
        "nested joins are not supported yet; write s JOIN t ON … JOIN u ON …",
        29,
    ),
    ("SELECT v FROM s, (SELECT * FROM t)", "a subquery is not supported yet", 26),
    ("SELECT v FROM s, (t JOIN u)", "a subquery is not supported yet", 19),
    ("SELECT v FROM s, t WHERE s.k IN (SELECT k FROM u)", "a subquery is not supported yet", 41),
    ("SELECT v FROM s, range(5)", "FROM needs the names of streams", 18),
    ("SELECT v FROM s, db.t", "FROM needs the names of streams", 18),
    ("SELECT v FROM s x (a, b), t", "names of columns in FROM are not supported yet", 17),
    ("SELECT v FROM s TABLESAMPLE (3 ROWS), t", "only the stream's name may stand in FROM yet", 15),
    ("SELECT DISTINCT v FROM s, t", "DISTINCT is not supported yet", 8),
    ("SELECT ISTREAM(DISTINCT v) FROM s, t", "DISTINCT is not supported yet", 16),
    ("SELECT v FROM s, t GROUP BY v", "GROUP BY is not supported yet", 20),
    ("SELECT v FROM s, t WHERE true HAVING v > 1", "HAVING is not supported yet", 31),
    ("SELECT v FROM s, t ORDER BY v", "ORDER BY is not supported yet", 20),
    ("SELECT v FROM s, t LIMIT 3", "LIMIT is not supported yet", 20),
    ("SELECT v FROM s, t LATERAL VIEW explode(arr) z AS y", "LATERAL is not supported yet", 20),
    ("SELECT v FROM s, t UNION SELECT v FROM s, t", "UNION is not supported yet", 20),
    ("WITH a AS (SELECT 1) SELECT * FROM a, s", "WITH is not supported yet; write one SELECT", 1),
    ("SELECT v FROM s, t; SELECT 1", "a query is one statement", 19),
    (
        "SELECT sum(v) FROM s, t",
        "output column 'sum(v)': the aggregate function sum() is not supported yet",
        8,
    ),
    (
        "SELECT v FROM s JOIN t ON max(w) > 1",
        "ON: the aggregate function max() is not supported yet",
        27,
    ),
    ("SELECT v FROM s, t WHERE hash(*) = 3", f"WHERE{STAR}", 26),
    ("SELECT v, hash(*) FROM s, t", f"output column 'hash(*)'{STAR}", 11),
    ("SELECT * EXCEPT (k) FROM s, t", f"output column '* EXCEPT (k)'{STAR}", 8),
    (
        "SELECT st.* FROM s, t",
        "output column 'st.*': a star of a struct (name its fields) is not supported yet",
        8,
    ),
    ("SELECT v FROM s, t WHERE f(w) OR true", INSIDE.format("f"), 26),
    ("SELECT v FROM s, t WHERE f(w) = t.w", INSIDE.format("f"), 26),
    ("SELECT f(w) FROM s, t", INSIDE.format("f"), 8),
    ("SELECT v FROM s, t WHERE g(s.v, w)", SEVERAL.format("g"), 26),
    ("SELECT v FROM s, t WHERE f(s.k + w)", SEVERAL.format("f"), 26),
    ("SELECT v FROM s, t WHERE rand() < 0.5", CHANCE.format("WHERE"), 26),
    ("SELECT v FROM s JOIN t ON s.k + rand() = t.k", CHANCE.format("ON"), 27),
    (
        "SELECT v FROM s, t WHERE txt = t.k",
        f"{TYPES}txt of s is a string, k of t is a number{CAST}",
        26,
    ),
    (
        "SELECT s.v FROM s, t WHERE t.w = s.v",
        f"{TYPES}w of t is a number, v of s is a float{CAST}",
        28,
    ),
    (
        "SELECT v FROM s, t WHERE ts = t.date",
        f"{TYPES}ts of s is a timestamp, Date of t is a date{CAST}",
        26,
    ),
    (
        "SELECT v FROM s JOIN u USING (k) JOIN t ON t.k = j",
        f"{TYPES}k of t is a number, j of u is a string{CAST}",
        44,
    ),
]


@pytest.mark.parametrize(
    ("text", "says", "column"), NOT_SUPPORTED, ids=[x[0] for x in NOT_SUPPORTED]
)
def test_what_is_not_supported_is_said_at_its_place(text, says, column):
    with pytest.raises(NotSupportedError) as caught:
        read(text)
    check(caught.value, says, column)


FORMS = " is RANGE 10 SECONDS, ROWS 1000, PARTITION BY k ROWS 10, NOW or UNBOUNDED, got nothing"
TWICE = "; give one another name with AS"
READ_TWICE = "stream 's' is read twice; give each an alias: FROM s AS a, s AS b"
AROUND = "ISTREAM(…) stands around all output columns and before FROM"
EVERY = "s.k, s.v, s.txt, s.arr, s.st, s.ts, t.k, t.w, t.Date, t.`a b`, t.`case`"
MISTAKES = [
    ("", "the query is empty", 1),
    ("INSERT INTO s VALUES (1), (2)", "a query starts with SELECT, got 'INSERT'", 1),
    ("SELECT v FROM s", "a join needs two streams or more", 1),
    ("SELECT v", "a query needs FROM and a stream", 8),
    ("SELECT FROM s, t", "an output column is missing", 8),
    (
        "SELECT AS FROM s, t",
        "the output columns cannot be read; write words of SQL in backticks",
        8,
    ),
    ("SELECT v FROM s JOIN u ON JOIN t ON true", "the condition of ON is missing", 24),
    (
        "SELECT v FROM s, t WHERE",
        "the query cannot be read as SQL: an operand is missing near 'WHERE'",
        20,
    ),
    (
        "SELECT v FROM s, t WHERE s.k = 'x",
        "the query has a quote or a comment that is left open",
        32,
    ),
    ("SELECT v FROM s, tt", "unknown stream 'tt'; known: s, t, u, Events; did you mean 't'?", 18),
    ("SELECT v FROM s, s", READ_TWICE, 18),
    ("SELECT v FROM s JOIN S [NOW] ON true", READ_TWICE, 22),
    ("SELECT v FROM s x, t X", "two inputs are called 'X'; give them different aliases", 22),
    ("SELECT v FROM s t, t", "two inputs are called 't'; give them different aliases", 20),
    (
        "SELECT v FROM s [ROWS 0], t",
        "the window of 's': ROWS 0 would hold nothing; write 1 or more",
        23,
    ),
    (
        "SELECT v FROM s, t AS x [RANGE 5]",
        "the window of 'x': RANGE 5 needs a unit, such as SECONDS",
        33,
    ),
    ("SELECT v FROM s, t []", f"the window of 't'{FORMS}", 21),
    ("SELECT v FROM s [NOW, t", "a window has a bracket that is left open", 17),
    ("SELECT v FROM [NOW] s, t", "a window stands behind the name or the alias of a stream", 15),
    (
        "SELECT v FROM s AS [NOW] x, t",
        "a window stands behind the name or the alias of a stream",
        20,
    ),
    ("SELECT v FROM s [NOW] x [NOW], t", "'x' has two windows; write one", 25),
    ("SELECT v FROM s [NOW] [NOW], t", "'s' has two windows; write one", 23),
    (
        "SELECT v FROM s [PARTITION BY kk ROWS 4], t",
        "the window of 's': unknown column 'kk' of s; "
        "known: k, v, txt, arr, st, ts; did you mean 'k'?",
        31,
    ),
    ("SELECT v FROM s, t WHERE k = 1", "WHERE: column 'k' may be s.k or t.k; write which", 26),
    ("SELECT K FROM s, t", "output column 'K': column 'K' may be s.k or t.k; write which", 8),
    ("SELECT v FROM s JOIN t ON k = w", "ON: column 'k' may be s.k or t.k; write which", 27),
    (
        "SELECT vv FROM s, t",
        f"output column 'vv': unknown column 'vv'; known: {EVERY}; did you mean 's.v'?",
        8,
    ),
    (
        "SELECT s.w FROM s, t",
        "output column 's.w': unknown column 'w' of s; known: k, v, txt, arr, st, ts",
        8,
    ),
    (
        "SELECT v FROM s, t WHERE s.k = t.kk",
        "WHERE: unknown column 'kk' of t; known: k, w, Date, a b, case; did you mean 'k'?",
        32,
    ),
    ("SELECT x.v FROM s, t", "output column 'x.v': unknown input 'x'; known: s, t", 8),
    ("SELECT x.* FROM s, t", "output column 'x.*': unknown input 'x'; known: s, t", 8),
    (
        "SELECT s.v FROM s a, t",
        "output column 's.v': unknown input 's'; known: a, t; s is called a here",
        8,
    ),
    (
        "SELECT v FROM s JOIN t ON s.k = u.k JOIN u ON true",
        "ON: unknown input 'u'; known: s, t; u is joined after this ON",
        33,
    ),
    (
        "SELECT v FROM s JOIN t ON s.k = j JOIN u ON true",
        f"ON: unknown column 'j'; known: {EVERY}",
        33,
    ),
    (
        "SELECT v FROM s JOIN t USING (w)",
        "USING: unknown column 'w'; known: s.k, s.v, s.txt, s.arr, s.st, s.ts",
        31,
    ),
    (
        "SELECT v FROM s JOIN t USING (v)",
        "USING: unknown column 'v'; known: t.k, t.w, t.Date, t.`a b`, t.`case`",
        31,
    ),
    ("SELECT v FROM s, t JOIN u USING (k)", "USING: column 'k' may be s.k or t.k; write which", 34),
    ("SELECT v, s.V FROM s, t", f"two output columns are called 'v': s.v and s.v{TWICE}", 11),
    ("SELECT s.k, t.k FROM s, t", f"two output columns are called 'k': s.k and t.k{TWICE}", 13),
    ("SELECT v AS w, W FROM s, t", f"two output columns are called 'w': s.v and t.w{TWICE}", 16),
    ("SELECT * FROM s, t", f"two output columns are called 'k': s.k and t.k{TWICE}", 8),
    ("SELECT v FROM s, t, u WHERE f()", "f: column 'w' may be t.w or u.w; write which", 29),
    (
        "SELECT id FROM Events, s WHERE f()",
        "f: unknown column 'w'; known: Events.id, Events.t, Events.n, s.k, s.v, ",
        None,
    ),
    ("SELECT v FROM s, t WHERE f(w, 1)", "f(w) takes 1 argument(s), got 2", 26),
    ("SELECT ISTREAM(v), w FROM s, t", AROUND, 8),
    ("SELECT ISTREAM(v FROM s, t", AROUND, 8),
    ("SELECT RSTREAM * FROM s, t", "write SELECT RSTREAM(…) FROM …", 8),
    ("SELECT istream v, w FROM s, t", "write SELECT istream(…) FROM …", 8),
    ("SELECT v FROM s JOIN t USING ()", "USING needs the names of columns", 24),
    ("ISTREAM()", "ISTREAM(…) needs a SELECT", 9),
    ("SELECT ISTREAM() FROM s, t", "an output column is missing", 18),
    ("ISTREAM(SELECT v FROM s, t", "ISTREAM has a parenthesis that is left open", 8),
    ("ISTREAM(SELECT v FROM s, t) x", "nothing may follow ISTREAM(…), got 'x'", 29),
    ("ISTREAM(SELECT DSTREAM(v) FROM s, t)", "what the query emits is said twice", 16),
]


@pytest.mark.parametrize(("text", "says", "column"), MISTAKES, ids=[x[0] for x in MISTAKES])
def test_a_mistake_is_shown_at_its_place(text, says, column):
    with pytest.raises(QueryError) as caught:
        read(text)
    assert not isinstance(caught.value, NotSupportedError)
    check(caught.value, says, column)


def check(error, says, column):
    said = error.message.splitlines()[0]
    if column is None:
        assert says in said
        return
    assert said == f"{says} (line 1, column {column})"
    assert error.facts["column"] == column


def test_the_place_is_found_on_later_lines():
    with pytest.raises(QueryError, match=r"unknown column 'q' of t; .* \(line 3, column 14\)"):
        read("SELECT v\nFROM s [NOW], t [ROWS 3]\nWHERE s.k =  t.q")


WHOLE = (
    "ISTREAM(SELECT v, a.k, t.w AS x FROM s [RANGE 10 SECONDS] a, t [NOW] JOIN u "
    "[PARTITION BY k ROWS 5] ON a.k = u.k AND f(t.w) JOIN Events y ON id = t.w "
    "WHERE (a.k, 1) = (t.w, 2) AND NOT v IS DISTINCT FROM t.`a b`)"
)
WORDS = re.findall(r"\w+|`[^`]*`|\S", WHOLE)


def test_the_whole_of_what_is_broken_below_is_read():
    assert members(read(WHOLE)) == [{"a": ("k",), "u": ("k",)}, {"y": ("id",), "t": ("w",)}]
    assert read(" ".join(WORDS)).keys == read(WHOLE).keys


@examples(400)
@given(
    dropped=st.lists(st.integers(0, len(WORDS) - 1), max_size=4, unique=True),
    added=st.lists(st.sampled_from(WORDS), max_size=3),
    place=st.integers(0, len(WORDS)),
)
def test_whatever_is_wrong_is_a_query_error(dropped, added, place):
    kept = [word for number, word in enumerate(WORDS) if number not in dropped]
    text = " ".join([*kept[:place], *added, *kept[place:]])
    said = ""
    try:
        query = read(text)
    except QueryError as error:
        said = error.message
    assert said.splitlines()[-1].strip() == "^" if said else len(query.inputs) > 1


IS_JOIN = [
    ("SELECT v FROM s, t", True),
    ("SELECT v FROM s JOIN t ON true", True),
    ("SELECT v FROM s LEFT JOIN t ON true", True),
    ("SELECT v FROM s CROSS JOIN t", True),
    ("SELECT v FROM s [NOW]", True),
    ("SELECT v FROM s AS x [RANGE 1 DAY] WHERE v > 1", True),
    ("SELECT v FROM s [", True),
    ("ISTREAM(SELECT v FROM s)", True),
    ("SELECT RSTREAM(v) FROM s", True),
    ("SELECT v FROM s", False),
    ("SELECT v, w FROM s AS x WHERE v IN (1, 2)", False),
    ("SELECT arr[0] FROM s WHERE arr[now] = m['rows']", False),
    ("SELECT v FROM s WHERE extract(year FROM d) > 1 AND a IS DISTINCT FROM b, c", False),
    ("SELECT v FROM (SELECT * FROM s, t)", False),
    ("SELECT v FROM s LATERAL VIEW explode(m) z AS a, b", False),
    ("SELECT v FROM s GROUP BY a, b", False),
    ("SELECT v FROM s ORDER BY a, b", False),
    ("SELECT 's, t [NOW]' FROM s -- , t", False),
    ("SELECT istream FROM s", False),
    ("SELECT v FROM s WHERE 'x", False),
    ("SELECT", False),
    ("ISTREAM", False),
    ("", False),
]


@pytest.mark.parametrize(("text", "wanted"), IS_JOIN, ids=[text for text, _ in IS_JOIN])
def test_which_reader_is_for_it(text, wanted):
    assert is_join(text) is wanted


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
