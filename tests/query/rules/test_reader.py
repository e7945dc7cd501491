from __future__ import annotations

import pickle
from datetime import date
from decimal import Decimal

import duckdb
import pyarrow.compute as pc
import pytest
from hypothesis import find, given

import eddyline as el
from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    IsNull,
    NativeTest,
    Not,
    OneOf,
    Operand,
    Or,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import SqlPredicate, predicate, sql_predicate
from eddyline.query.rules.sources import PredicateRule, SqlRule, rule_source
from eddyline.sql.literals import Moment
from eddyline.sql.regexes import Wild
from eddyline.sql.types import parse_type
from tests.oracles import rule_strategies
from tests.oracles.rules import truth

COLUMNS = {
    "i": "int",
    "b": "bigint",
    "d": "double",
    "f": "float",
    "de": "decimal(10,2)",
    "wide": "decimal(30,2)",
    "s": "string",
    "t": "string",
    "co": "string collate UTF8_LCASE",
    "ch": "char(4)",
    "bo": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "tn": "timestamp_ntz",
    "xs": "array<int>",
    "st": "struct<a:int,b:string>",
    "odd name": "int",
}
ANY = Wild("%")


def of(name, sql=None):
    return Operand(sql or f"`{name}`", parse_type(COLUMNS[name]), (name,))


INT, B, D, F, DE, S, T, BO = map(of, ("i", "b", "d", "f", "de", "s", "t", "bo"))
DT, TS, TN = map(of, ("dt", "ts", "tn"))


def read(text, functions=None, ansi=True):
    return SqlRule("r", text, functions or {}).bind(COLUMNS, ansi=ansi).tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("i > 5", Compare(INT, ">", 5)),
        ("5 >= I", Compare(INT, "<=", 5)),
        ("i == -5", Compare(INT, "=", -5)),
        ("i <> 5", Not(Compare(INT, "=", 5))),
        ("i between 1 and 5", And((Compare(INT, ">=", 1), Compare(INT, "<=", 5)))),
        ("i not between 1 and null", Not(And((Compare(INT, ">=", 1), Constant(None))))),
        ("i in (1, 2, 2)", OneOf(INT, (1, 2))),
        ("i in (7)", Compare(INT, "=", 7)),
        ("i not in (1, null)", Not(Or((Compare(INT, "=", 1), Constant(None))))),
        ("i in (null)", Constant(None)),
        ("i = 5.0", Compare(INT, "=", 5)),
        ("i > 0.5", Compare(INT, ">", Decimal("0.5"))),
        ("b = 5L", Compare(B, "=", 5)),
        ("b > 1e3", Compare(B, ">", 1000)),
        ("d = 5", Compare(D, "=", 5.0)),
        ("d < 0.1", Compare(D, "<", 0.1)),
        ("d > 1.5D", Compare(D, ">", 1.5)),
        ("f = 0.1", Compare(F, "=", 0.1)),
        ("de >= 1.50", Compare(DE, ">=", Decimal("1.5"))),
        ("wide > 1", Compare(of("wide"), ">", 1)),
        (
            "wide < -cast(1234567890123456789012345678.91 as decimal(30,2))",
            Compare(of("wide"), "<", Decimal("-1234567890123456789012345678.91")),
        ),
        ("wide in (1.005, 2)", OneOf(of("wide"), (Decimal("1.005"), 2))),
        ("s < 'b'", Compare(S, "<", "b")),
        ("'b' <= s", Compare(S, ">=", "b")),
        ("s between 'a' and 'b'", And((Compare(S, ">=", "a"), Compare(S, "<=", "b")))),
        ("lower(s) > 'b'", Compare(of("s", "lower(`s`)"), ">", "b")),
        ("i is null", IsNull(INT)),
        ("i is not null", Not(IsNull(INT))),
        ("isnotnull(s)", Not(IsNull(S))),
        ("i <=> 5", Is(Compare(INT, "=", 5), TRUE)),
        ("null <=> i", IsNull(INT)),
        ("i is distinct from 5", Is(Compare(INT, "=", 5), FALSE | UNKNOWN)),
        ("i is distinct from null", Not(IsNull(INT))),
        ("i = null", Constant(None)),
        ("true", Constant(True)),
        ("not null", Not(Constant(None))),
        ("bo", Compare(BO, "=", True)),
        ("bo = false", Not(Compare(BO, "=", True))),
        ("bo <> false", Not(Not(Compare(BO, "=", True)))),
        ("bo is not true", Not(Is(Compare(BO, "=", True), TRUE))),
        ("bo is unknown", IsNull(BO)),
        ("(i > 5) is unknown", Is(Compare(INT, ">", 5), UNKNOWN)),
        ("dt >= '2024-01-31'", Compare(DT, ">=", date(2024, 1, 31))),
        ("dt = date '2024-01-31'", Compare(DT, "=", date(2024, 1, 31))),
        ("ts > '2024-01-31'", Compare(TS, ">", Moment("2024-01-31"))),
        ("timestamp '2024-01-31' > ts", Compare(TS, "<", Moment("2024-01-31"))),
        ("ts = date '2024-01-31'", Compare(TS, "=", Moment("2024-01-31", "date"))),
        (
            "ts in (timestamp_ntz '2024-01-31', '2024-01-31')",
            OneOf(TS, (Moment("2024-01-31", "timestamp_ntz"), Moment("2024-01-31"))),
        ),
        ("tn >= '1970-01-01 00:00:01'", Compare(TN, ">=", 1_000_000)),
        ("tn < date '1969-12-31'", Compare(TN, "<", -86_400_000_000)),
        ("tn = timestamp_ntz '1970-01-01T00:00'", Compare(TN, "=", 0)),
        ("s = 'it''s'", Compare(S, "=", "it's")),
        ("s in ('a', \"b\")", OneOf(S, ("a", "b"))),
        ("s like 'a%'", TextTest(S, ("a", ANY))),
        (r"s like 'a\%_'", TextTest(S, ("a%", Wild("_")))),
        ("s not like 'a!%' escape '!'", Not(TextTest(S, ("a%",)))),
        ("s ilike '%AB%'", TextTest(S, (ANY, "ab", ANY), folded=True)),
        ("s like any ('a%', 'b')", Or((TextTest(S, ("a", ANY)), TextTest(S, ("b",))))),
        ("s not like all ('a', 'b')", And((Not(TextTest(S, ("a",))), Not(TextTest(S, ("b",)))))),
        ("contains(s, 'a%')", TextTest(S, (ANY, "a%", ANY))),
        ("startswith(s, '')", TextTest(S, (ANY,))),
        ("endswith(lower(s), 'x')", TextTest(S, (ANY, "x"), folded=True)),
        ("lower(s) = 'ab'", TextTest(S, ("ab",), folded=True)),
        ("lower(s) = ''", TextTest(S, (), folded=True)),
        (
            "lower(s) in ('a', 'B', 'c')",
            Or((TextTest(S, ("a",), folded=True), TextTest(S, ("c",), folded=True))),
        ),
        ("lower(s) = 'AB'", Compare(of("s", "lower(`s`)"), "=", "AB")),
        ("lower(s) like 'A%'", TextTest(of("s", "lower(`s`)"), ("A", ANY))),
        ("s rlike 'a.c'", NativeTest("(`s` RLIKE 'a.c')", ("s",))),
        (
            "s rlike '(?i)ab+'",
            ValueTest(S, "regex", "ab+", 258, (TextTest(S, (ANY, "ab", ANY), folded=True),)),
        ),
        ("r.i > 5", Compare(Operand("`r`.`i`", INT.type, ("i",)), ">", 5)),
        ("st.a = 5", Compare(Operand("`st`.`a`", INT.type, ("st",)), "=", 5)),
        ("`odd name` = 5", Compare(of("odd name"), "=", 5)),
    ],
)
def test_constructs(text, tree):
    assert read(text) == tree


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("S  <  t", "(`s` < `t`)"),
        ("co < 'b'", "(`co` < 'b')"),
        ("ch between 'a' and 'b'", "(`ch` BETWEEN 'a' AND 'b')"),
        ("s < '\ud800'", "(`s` < '\ud800')"),
        ("ts > now()", "(`ts` > now())"),
        ("xs is null", "(`xs` IS NULL)"),
        ("co = 'a'", "(`co` = 'a')"),
        ("lower(co) = 'a'", "(lower(`co`) = 'a')"),
        ("ch = 'a'", "(`ch` = 'a')"),
        ("wide > 1e0", "(`wide` > 1e0)"),
        ("b = 9007199254740992e0", "(`b` = 9007199254740992e0)"),
        ("b > 9223372036854775808", "(`b` > 9223372036854775808)"),
        ("d in (0, 1)", "(`d` IN (0, 1))"),
        ("f = 16777217", "(`f` = 16777217)"),
        ("i = b", "(`i` = `b`)"),
        ("s ilike '%ɤ%'", "(`s` ILIKE '%ɤ%')"),
        ("s rlike '\\\\bword'", "(`s` RLIKE '\\\\bword')"),
        ("if(bo, i > 1, false)", "if(`bo`, (`i` > 1), FALSE)"),
        ("i between 1 and b", "(`i` BETWEEN 1 AND `b`)"),
    ],
)
def test_what_spark_must_decide_stays_there_as_a_leaf(text, sql):
    tree = read(f"({text}) or i = 1")
    assert isinstance(tree, Or)
    assert tree.parts[0].sql == sql
    assert tree.parts[1] == Compare(INT, "=", 1)


@pytest.mark.parametrize("operand", ["{}", "lower({})", "concat({}, 'b')"])
def test_spark_compares_what_a_cast_gives_a_collation(operand):
    text = operand.format("CAST(s AS STRING COLLATE UTF8_LCASE)")
    tree = read(f"{text} = 'A'")
    assert isinstance(tree, NativeTest)
    assert tree.columns == ("s",)


@pytest.mark.parametrize(
    "text",
    [
        "wide * wide > 2 or i = 1",
        "(i / b) is null or i = 1",
        "greatest(i / b, 1) > 2 or i = 1",
        "case when i / b > 2 then bo else false end or i = 1",
        "rand() > 0.5 or i = 1",
        "i | 2 & 1 = 3 or i = 1",
        "unknown_function(i) or i = 1",
        "trim(both 'x' from s) = '' or i = 1",
        "s rlike t or i = 1",
        "i = 1 or wide * wide > 2 -- a comment",
        "s = '${name}' or i = 1",
    ],
)
def test_what_is_not_sure_stays_whole_as_it_was_written(text):
    tree = read(text)
    assert isinstance(tree, NativeTest)
    assert tree.sql == text.removesuffix(" -- a comment")


def test_without_ansi_what_would_raise_is_a_leaf_of_spark():
    tree = read("i / b > 2 or i = 1", ansi=False)
    assert tree == Or((Compare(tree.parts[0].operand, ">", 2.0), Compare(INT, "=", 1)))
    assert tree.parts[0].operand.sql == "(`i` / `b`)"


def test_equal_expressions_have_equal_texts():
    one = read("LENGTH( s )>3").operand
    two = read("3 < length(`S`)").operand
    assert one == two
    assert one.sql == "length(`s`)"


@predicate("i", "s")
def odd(i, s):
    return pc.greater(pc.utf8_length(s), i)


FUNCTIONS = {"odd": odd}


def test_python_predicates_in_text():
    assert read("odd(i, s)", FUNCTIONS) == FunctionTest(odd)
    assert read("ODD() or odd(*)", FUNCTIONS) == Or((FunctionTest(odd), FunctionTest(odd)))
    tree = read("not odd(`odd name`, lower(S)) and (odd(i,s)) is not true", FUNCTIONS)
    first, second = tree.parts
    assert first.part.predicate.reads == ("odd name", "lower(`s`)")
    assert second == Not(Is(FunctionTest(odd), TRUE))
    assert read("odd() = false", FUNCTIONS) == Not(FunctionTest(odd))
    assert read("odd() is null", FUNCTIONS) == Is(FunctionTest(odd), UNKNOWN)


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("i > 1 and odd(i)", "takes 2 argument", 11),
        ("odd(i / b, s)", "try_divide", 5),
        ("odd(rand(), s)", "not deterministic", 5),
        ("odd(odd(), s)", "as an argument", 5),
        ("coalesce(odd(), true)", "inside a larger expression", 10),
        ("bo in (odd(), false)", "inside a larger expression", 8),
        ("odd() and wide * wide > 2", "try_cast", 1),
        ("odd() and rand() > 1", "not deterministic", 1),
        ("odd(i, nope)", "unknown column 'nope'", 8),
    ],
)
def test_python_predicates_where_they_cannot_be(text, said, column):
    with pytest.raises(QueryError, match=said) as caught:
        read(text, FUNCTIONS)
    assert caught.value.facts["column"] == column
    assert "rule 'r'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ("i > 1\n AND ss = 'x'", "unknown column 'ss'.*did you mean 's'", 2, 6),
        ("i > ", "operand is missing", 1, 3),
        ("i + 1", "not a condition.*int", 1, 1),
        ("s", "not a condition.*string", 1, 1),
        ("bo and i", "not a condition.*int", 1, 8),
        ("i in (select 1)", "subquery", 1, 1),
        ("bo or sum(i) > 1", "aggregate", 1, 7),
    ],
)
def test_errors_name_the_rule_and_the_place(text, said, line, column):
    with pytest.raises(QueryError, match=said) as caught:
        SqlRule("my rule", text).bind(COLUMNS, ansi=True)
    assert "my rule" in str(caught.value)
    assert (caught.value.facts["line"], caught.value.facts["column"]) == (line, column)
    assert "^" in str(caught.value)


def test_nothing_and_too_much_are_refused_by_name():
    with pytest.raises(QueryError, match="rule 'r' is empty"):
        read(" ")
    with pytest.raises(QueryError, match="rule 'r' is nested 3000 levels deep"):
        read("(" * 3000 + "bo" + ")" * 3000)


@pytest.mark.large
def test_many_alternatives_are_no_problem():
    tree = read(" or ".join(f"i = {n}" for n in range(3000)))
    assert len(tree.parts) == 3000


def test_a_rule_of_what_was_given():
    text = rule_source("a", el.Rule("i > 5", level="high"))
    info = {"title": None, "level": "high", "tags": ()}
    assert (text.name, text.text, text.info) == ("a", "i > 5", info)
    assert pickle.loads(pickle.dumps(text)) == text
    sql = rule_source("b", sql_predicate("i > 5", name="other"))
    assert sql.bind(COLUMNS, ansi=True).tree == Compare(INT, ">", 5)
    function = rule_source("c", ~odd)
    bound = function.bind(COLUMNS, ansi=True)
    assert (bound.name, bound.tree, bound.text) == ("c", Not(FunctionTest(odd)), "NOT odd(i, s)")
    with pytest.raises(QueryError, match=r"rule 'd'.*got int"):
        rule_source("d", 5)
    with pytest.raises(QueryError, match=r"rule 'e'.*'no/0'"):
        rule_source("e", predicate(lambda x: x, reads=["no/0"])).bind({"no": "int"}, ansi=True)


def test_conjunctions():
    assert PredicateRule("q", ()).bind(COLUMNS, ansi=True).tree == Constant(True)
    both = PredicateRule("q", (SqlPredicate("i > 5"), odd)).bind(COLUMNS, ansi=True)
    assert both.tree == And((Compare(INT, ">", 5), FunctionTest(odd)))
    assert both.text == "(i > 5) AND (odd(i, s))"
    risky = (SqlPredicate("i > 5 or bo"), SqlPredicate("wide * wide > 2"))
    whole = PredicateRule("q", risky).bind(COLUMNS, ansi=True).tree
    assert whole == NativeTest("(i > 5 or bo\n) AND (wide * wide > 2\n)", ("i", "bo", "wide"))
    with pytest.raises(NotSupportedError, match=r"odd.*wide \* wide > 2"):
        PredicateRule("q", (*risky, odd)).bind(COLUMNS, ansi=True)


def test_the_authors_word_counts():
    promised = SqlPredicate("b <> 0 and i / b > 2", can_raise=False)
    tree = PredicateRule("q", (promised, odd)).bind(COLUMNS, ansi=True).tree
    assert tree == And((NativeTest("b <> 0 and i / b > 2", ("b", "i")), FunctionTest(odd)))
    for said in ({"can_raise": True}, {"deterministic": False}):
        one = rule_source("q", SqlPredicate("i > 5", **said)).bind(COLUMNS, ansi=True)
        assert one.tree == NativeTest("i > 5", ("i",))


def operands(node):
    match node:
        case NativeTest(sql):
            yield sql
        case Not(part) | Is(part):
            yield from operands(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from operands(part)
        case Constant():
            return
        case _:
            yield node.operand.sql


def on_duckdb(texts, rows):
    spelt = [text.replace("`", '"').replace("\\'", "''") for text in texts]
    columns = ", ".join(f"({text}) AS c{n}" for n, text in enumerate(spelt))
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.sql(f"SELECT {columns} FROM rows").fetchall()


@given(rule_strategies.rule_texts(), rule_strategies.rule_rows())
def test_trees_say_what_duckdb_says(text, rows):
    rows = rows.rename_columns([name.strip("`") for name in rows.column_names])
    rows = rows.select(list(rule_strategies.COLUMNS))
    tree = SqlRule("r", text).bind(rule_strategies.COLUMNS, ansi=True).tree
    wanted = list(dict.fromkeys(operands(tree)))
    for said, *values in on_duckdb([text, *wanted], rows):
        assert truth(tree, dict(zip(wanted, values, strict=True))) is said


@pytest.mark.large
def test_the_drawn_texts_are_taken_apart():
    for kind in (Compare, OneOf, TextTest, IsNull, NativeTest, And, Or, Not, Is, Constant):
        assert find(
            rule_strategies.rule_texts(),
            lambda text, kind=kind: (
                f"{kind.__name__}("
                in repr(SqlRule("r", text).bind(rule_strategies.COLUMNS, ansi=True).tree)
            ),
        )
