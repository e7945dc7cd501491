"""What a SQL condition reads and what it may do wrong, without Spark."""

import pickle

import pytest

from eddyline.errors import NotSupportedError, QueryError
from eddyline.sql.analysis import analyse, resolve_columns

SCHEMA = {
    "i": "int",
    "b": "bigint",
    "ti": "tinyint",
    "d": "double",
    "de": "decimal(10,2)",
    "s": "string",
    "bo": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "xs": "array<int>",
    "m": "map<string,int>",
    "St": "struct<a:int,b:struct<c:string>>",
    "odd name": "int",
}


def read(text, *, ansi=True, name="p", qualifiers=("q",), **said):
    return analyse(text, SCHEMA, name=name, ansi=ansi, qualifiers=qualifiers, **said)


class TestColumns:
    @pytest.mark.parametrize(
        ("text", "columns"),
        [
            ("i > 5", ("i",)),
            ("d > i AND I < 3", ("d", "i")),
            ("`I` = `odd name`", ("i", "odd name")),
            ("st.A > 1", ("St",)),
            ("st.b.c = 'x'", ("St",)),
            ("q.i = q.st.a", ("i", "St")),
            ("m.k = 1 OR m['k'] = xs[i]", ("m", "xs", "i")),
            ("exists(xs, x -> x > i)", ("xs", "i")),
            ("array(i, b)[0] = 1", ("i", "b")),
            ("'i' = \"d\" AND s = 'x'", ("s",)),
            ("case when bo then i else ti end = 1", ("bo", "i", "ti")),
            ("timestampdiff(day, ts, now()) > 1", ("ts",)),
            ("current_date > dt", ("dt",)),
            ("s like any ('a', 'b')", ("s",)),
            ("substring(s from i for 2) = 'x'", ("s", "i")),
            ("1 = 1", ()),
        ],
    )
    def test_read(self, text, columns):
        assert read(text).columns == columns

    def test_a_column_wins_over_a_function_without_parentheses(self):
        found = analyse("user = 'x'", {"user": "string"}, name="p", ansi=True)
        assert found.columns == ("user",)

    @pytest.mark.parametrize(
        ("text", "says", "column"),
        [
            ("i > 1 AND dd > 2", "unknown column 'dd'; known: i, b,", 11),
            ("lenght > 1", "unknown column 'lenght'", 1),
            ("st2.a > 1", "unknown column 'st2'", 1),
            ("i = z.i", "unknown column 'z'", 5),
        ],
    )
    def test_an_unknown_one_is_shown(self, text, says, column):
        with pytest.raises(QueryError) as caught:
            read(text)
        assert says in caught.value.message
        assert caught.value.facts["column"] == column

    def test_a_close_name_is_offered(self):
        with pytest.raises(QueryError, match="did you mean 'odd name'"):
            read("`od name` = 1")

    def test_names_that_differ_in_case_only(self):
        both = {"a": "int", "A": "int", "b": "int"}
        assert analyse("A > 1", both, name="p", ansi=True).columns == ("A",)
        with pytest.raises(QueryError, match="column 'Aa' may be 'aA' or 'AA'"):
            analyse("Aa > 1", {"aA": "int", "AA": "int"}, name="p", ansi=True)


class TestChance:
    @pytest.mark.parametrize(
        "text", ["rand() < 0.1", "i > 1 AND uuid() = s", "s = input_file_name()", "RANDN(1) > 0"]
    )
    def test_functions_that_draw_lots(self, text):
        found = read(text)
        assert not found.is_deterministic
        assert found.reason.endswith("() is not deterministic")
        assert found.safe_text is None

    def test_one_value_per_batch_is_no_chance(self):
        assert read("ts > now() AND dt < current_date").is_deterministic

    def test_the_word_of_the_author_counts(self):
        assert read("rand() < 0.1", deterministic=True).is_deterministic
        found = read("i > 1", deterministic=False)
        assert (found.is_deterministic, found.reason) == (
            False,
            "it was declared not deterministic",
        )


SAFE = """
i > 5
s = 'x' AND i IN (1, 2)
i % 10 = 3
i / 2 > 1
ti + 1 > 3
60 * 60 * 24 > i
de * 1.1 > 5
dt >= '2024-01-31'
ts < '2024-01-31 10:00:00'
ts > now() - INTERVAL 1 DAY
upper(s) LIKE 'A%'
s RLIKE '^a+[0-9]{2,3}$'
length(s) BETWEEN 1 AND 3
coalesce(s, '') <> ''
case when i > 0 then s else 'x' end = 'y'
year(dt) = 2024 OR hour(ts) = 3
m['a'] = 1
size(xs) > 0
array_contains(xs, 1)
try_cast(s AS int) = 3
try_divide(i, ti) > 1
i = -2147483648
cast(i AS bigint) * 2 > 1
s IS NULL OR NOT bo
"""


@pytest.mark.parametrize("text", SAFE.strip().split("\n"))
def test_what_never_raises(text):
    found = read(text)
    assert (found.may_raise, found.reason, found.safe_text) == (False, "", None)


MAY_RAISE = [
    ("i / b > 2", "i / b divides by what may be 0"),
    ("i + 1 > 2", "i + 1 can overflow"),
    ("i * i > 2", "i * i can overflow"),
    ("-i > 2", "-i can overflow"),
    ("-ti > 2", "-ti can overflow"),
    ("-s > 2", "s is read as double"),
    ("-cast(i as decimal(38,2)) > 2", "is not known to be free of errors"),
    ("abs(i) > 2", "abs(i) can overflow"),
    ("s > 5", "s is read as bigint"),
    ("s > 2.5", "s is read as double"),
    ("s = dt", "s is read as date"),
    ("s IN (1, 2)", "s is read as bigint"),
    ("bo AND s", "s is read as boolean"),
    ("dt > '2024-02-30'", "'2024-02-30' is read as date"),
    ("cast(s AS int) = 3", "raises in ANSI mode on values that do not fit"),
    ("int(s) = 3", "int(s) raises in ANSI mode"),
    ("cast(b AS int) = 3", "raises in ANSI mode on values that do not fit"),
    ("cast(d AS int) = 3", "raises in ANSI mode on values that do not fit"),
    ("floor(d) > 1", "floor(d) can overflow"),
    ("xs[i] = 1", "xs[i] raises in ANSI mode if there is no such element"),
    ("year(s) = 2024", "s is read as date"),
    ("ts > '2024-01-01 10:00Z'", "is read as timestamp"),
    ("ts > '2024-01-01 24:00:00'", "is read as timestamp"),
    ("ts > s", "s is read as timestamp"),
    ("to_timestamp(s, 'yyyy') > ts", "is not known to be free of errors"),
    ("foo(i) = 1", "foo(i) is not known to be free of errors"),
    ("exists(xs, x -> 1 / x > 1)", "is not known to be free of errors"),
    ("s LIKE s", "raises if its pattern is not valid"),
    ("s LIKE 'x\\\\'", "raises if its pattern is not valid"),
    ("s RLIKE '(('", "raises if its pattern is not valid"),
    ("s RLIKE '{'", "raises if its pattern is not valid"),
    ("s RLIKE '[]x]'", "raises if its pattern is not valid"),
    ("s RLIKE 'a{9999999999999}'", "raises if its pattern is not valid"),
    ("b <> 0 AND i / b > 2", "i / b divides by what may be 0"),
]


@pytest.mark.parametrize(("text", "reason"), MAY_RAISE, ids=[text for text, _ in MAY_RAISE])
def test_what_may_raise_says_why(text, reason):
    found = read(text)
    assert found.may_raise
    assert reason in found.reason


@pytest.mark.parametrize("text", ["i / b > 2", "s > 5", "cast(s AS int) = 3", "xs[i] = 1"])
def test_without_ansi_mode_errors_are_null(text):
    assert not read(text, ansi=False).may_raise


@pytest.mark.parametrize("text", ["s RLIKE '(('", "foo(i) = 1"])
def test_other_errors_are_errors_in_any_mode(text):
    assert read(text, ansi=False).may_raise


def test_the_word_of_the_author_on_errors_counts():
    assert not read("foo(i) = 1", can_raise=False).may_raise
    found = read("i > 1", can_raise=True)
    assert (found.may_raise, found.reason) == (True, "it was declared to raise on some rows")


SAFE_FORMS = [
    ("i / b > 2", "coalesce((try_divide(`i`, `b`) > 2), `i` IS NOT NULL AND `b` IS NOT NULL)"),
    ("NOT (I + 1 > 2)", "coalesce((NOT (try_add(`i`, 1) > 2)), `i` IS NOT NULL)"),
    ("s > 5", "coalesce((try_cast(`s` AS bigint) > 5), `s` IS NOT NULL)"),
    (
        "s = i",
        "coalesce((try_cast(`s` AS bigint) = `i`), "
        "`s` IS NOT NULL AND try_cast(`s` AS bigint) IS NULL)",
    ),
    ("i + 1 IN (1, 2)", "coalesce((try_add(`i`, 1) IN (1, 2)), `i` IS NOT NULL)"),
    ("i - 1 BETWEEN 1 AND 2", "coalesce((try_subtract(`i`, 1) BETWEEN 1 AND 2), `i` IS NOT NULL)"),
    (
        "-i > 1",
        "coalesce(((- nullif(`i`, CAST('-2147483648' AS int))) > 1), `i` IS NOT NULL)",
    ),
    (
        "cast(try_cast(s AS bigint) AS int) > 1",
        "coalesce((try_cast(TRY_CAST(`s` AS BIGINT) AS INT) > 1), "
        "TRY_CAST(`s` AS BIGINT) IS NOT NULL)",
    ),
    (
        "i + 1 BETWEEN b AND d",
        "coalesce((try_add(`i`, 1) BETWEEN `b` AND `d`), "
        "`i` IS NOT NULL AND try_add(`i`, 1) IS NULL)",
    ),
    (
        'i / length(s || "x") > 1',
        'coalesce((try_divide(`i`, length((`s` || "x"))) > 1), '
        '`i` IS NOT NULL AND length((`s` || "x")) IS NOT NULL)',
    ),
    ("q.st.a + 1 > 2", "coalesce((try_add(`St`.`a`, 1) > 2), `St`.`a` IS NOT NULL)"),
]


@pytest.mark.parametrize(("text", "form"), SAFE_FORMS, ids=[text for text, _ in SAFE_FORMS])
def test_a_strict_condition_has_a_safe_form(text, form):
    assert read(text).safe_text == form


@pytest.mark.parametrize(
    "text",
    [
        "i / b > 2 OR bo",
        "i / b > 2 AND bo",
        "coalesce(i / b, 1) > 2",
        "i / b IS NULL",
        "i / b <=> 1",
        "5 BETWEEN i + 1 AND 7",
        "i + 1 IN (0, NULL)",
        "case when bo then i / b end > 1",
        "cast(d AS decimal(5,2)) > 1",
        "NOT s",
        "i / b = i < b",
    ],
)
def test_what_is_not_strict_has_none(text):
    found = read(text)
    assert found.may_raise
    assert found.safe_text is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("i + 1", "is not a condition: it is of type int (line 1, column 1)"),
            ("upper(s)", "is not a condition: it is of type string"),
            ("xs", "is not a condition: it is of type array<int>"),
            ("i > ", "an operand is missing near '>' (line 1, column 3)"),
            ("i > 1\n AND (b", "Expecting ) near 'b' (line 2, column 7)"),
            ("s = 'x", "a quote or a comment that is left open (line 1, column 5)"),
            ("i > 1; b > 2", "without a semicolon (line 1, column 6)"),
            ("i > 1 AS x", "near 'AS'"),
            ("SELECT 1", "near 'SELECT'"),
        ],
    )
    def test_what_is_no_condition(self, text, says):
        with pytest.raises(QueryError) as caught:
            read(text, name="p1")
        assert says in caught.value.message
        assert "predicate 'p1'" in caught.value.message

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("i > 1 AND sum(i) > 1", "the aggregate function sum() is not supported yet"),
            ("count(*) > 1", "the aggregate function count()"),
            ("any(bo)", "the aggregate function any()"),
            ("i IN (SELECT 1)", "a subquery"),
            ("EXISTS (SELECT 1)", "a subquery"),
            ("row_number() OVER (ORDER BY i) = 1", "a window function"),
            ("explode(xs) = 1", "the generator explode()"),
            ("i = :p", "a parameter"),
        ],
    )
    def test_what_needs_more_than_one_row(self, text, says):
        with pytest.raises(NotSupportedError) as caught:
            read(text)
        assert says in caught.value.message
        assert "line" in caught.value.facts


class TestExpressions:
    def test_an_expression_of_any_type(self):
        found = resolve_columns("upper(s)", SCHEMA, name="p", ansi=True)
        assert (found.columns, found.may_raise) == (("s",), False)
        assert resolve_columns("i / b", SCHEMA, name="p", ansi=True).may_raise

    def test_errors_name_the_predicate(self):
        with pytest.raises(QueryError, match="predicate 'p': unknown column 'z'"):
            resolve_columns("z", SCHEMA, name="p", ansi=True)


@pytest.mark.large
def test_a_long_chain_is_no_problem():
    text = " OR ".join(f"i = {n} AND s <> 'x{n}'" for n in range(2000))
    assert read(text).columns == ("i", "s")


def test_unknown_types_are_taken_with_care():
    columns = {"v": "variant", "w": "interval day to second", "u": "unknown"}
    assert analyse("v IS NOT NULL", columns, name="p", ansi=True).may_raise is False
    assert analyse("u > 1", columns, name="p", ansi=True).may_raise is True
    assert analyse("w = w", columns, name="p", ansi=True).may_raise is False


def test_what_is_known_survives_pickle():
    assert pickle.loads(pickle.dumps(read("s > 5"))) == read("s > 5")
