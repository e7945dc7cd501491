"""Rules that may raise, as trees: a form that gives NULL, and its error, shared by all rules."""

from __future__ import annotations

import pytest

from eddyline.query.conditions import (
    And,
    Compare,
    FunctionTest,
    Is,
    MayRaise,
    NativeTest,
    Not,
    OneOf,
    Or,
)
from eddyline.query.predicates import SqlPredicate, predicate
from eddyline.query.rules.sources import PredicateRule, SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.sql.types import parse_type

COLUMNS = {
    "a": "int",
    "b": "int",
    "t": "tinyint",
    "big": "bigint",
    "d": "double",
    "f": "float",
    "s": "string",
    "bo": "boolean",
    "de": "decimal(10,2)",
}


def read(text, functions=None, *, ansi=True):
    return SqlRule("r", text, functions or {}).bind(COLUMNS, ansi=ansi).tree


@pytest.mark.parametrize(
    ("text", "form", "kind"),
    [
        ("a + b > 5", "try_add(`a`, `b`)", "int"),
        ("5 < a + b", "try_add(`a`, `b`)", "int"),
        ("a - 1 > 5", "try_subtract(`a`, 1)", "int"),
        ("t + t > 5", "try_add(`t`, `t`)", "tinyint"),
        ("t * a > 5", "try_multiply(`t`, `a`)", "int"),
        ("a * big > 5", "try_multiply(`a`, `big`)", "bigint"),
        ("a / b > 5", "try_divide(`a`, `b`)", "double"),
        ("a % b > 5", "try_mod(`a`, `b`)", "int"),
        ("mod(a, b) > 5", "try_mod(`a`, `b`)", "int"),
        ("a div b > 5", "(`a` DIV nullif(`b`, 0))", "bigint"),
        (
            "big div b > 5",
            "if(`big` = CAST('-9223372036854775808' AS bigint) AND `b` = -1, NULL, "
            "(`big` DIV nullif(`b`, 0)))",
            "bigint",
        ),
        ("-t > 5", "(- nullif(`t`, CAST('-128' AS tinyint)))", "tinyint"),
        ("abs(a) > 5", "abs(nullif(`a`, CAST('-2147483648' AS int)))", "int"),
        ("(a + b) * 2 > 5", "try_multiply(try_add(`a`, `b`), 2)", "int"),
        ("a / (d + 1) > 5", "try_divide(`a`, (`d` + 1))", "double"),
        ("length(s) / a > 5", "try_divide(length(`s`), `a`)", "double"),
        ("cast(s as int) > 5", "try_cast(`s` AS INT)", "int"),
        ("s > 5", "try_cast(`s` AS BIGINT)", "bigint"),
        ("s + a > 5", "try_add(try_cast(`s` AS bigint), `a`)", "bigint"),
        ("round(a / b, 1) > 5", "round(try_divide(`a`, `b`), 1)", "double"),
        ("nullif(a + b, 1) > 5", "nullif(try_add(`a`, `b`), 1)", "int"),
        (
            "case when bo then a / b else d end > 5",
            "CASE WHEN `bo` THEN try_divide(`a`, `b`) ELSE `d` END",
            "double",
        ),
    ],
)
def test_what_may_raise_is_looked_at_in_a_form_that_gives_null(text, form, kind):
    tree = read(text)
    assert isinstance(tree, MayRaise)
    assert isinstance(tree.test, Compare)
    assert (tree.test.operand.sql, tree.test.op, tree.test.value) == (form, ">", 5)
    assert tree.test.operand.type.text == parse_type(kind).text
    assert not isinstance(read(text, ansi=False), MayRaise)


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("a + b > 5", "(`a` IS NOT NULL AND `b` IS NOT NULL AND try_add(`a`, `b`) IS NULL)"),
        ("a + 1 > 5", "(`a` IS NOT NULL AND try_add(`a`, 1) IS NULL)"),
        (
            "a / nullif(b, 1) > 5",
            "(`a` IS NOT NULL AND nullif(`b`, 1) IS NOT NULL AND "
            "try_divide(`a`, nullif(`b`, 1)) IS NULL)",
        ),
        (
            "if(bo, a / b, 0) > 5",
            "CASE WHEN `bo` THEN (`a` IS NOT NULL AND `b` IS NOT NULL AND "
            "try_divide(`a`, `b`) IS NULL) ELSE FALSE END",
        ),
        (
            "coalesce(a / b, 0) > 5",
            "(`a` IS NOT NULL AND `b` IS NOT NULL AND try_divide(`a`, `b`) IS NULL)",
        ),
    ],
)
def test_an_error_is_where_all_is_there_and_the_form_is_null(text, raised):
    sql = read(text).error.operand.sql
    assert sql.startswith(f"CASE WHEN {raised} THEN to_json(named_struct(")


def test_the_error_is_told_by_every_test():
    either = read("a + b between 1 and 9 or a + b in (20, 30) or not (a + b = 40)")
    parts = [*either.parts[0].parts, either.parts[1], either.parts[2].part]
    assert isinstance(either, Or)
    assert len({part.error for part in parts}) == 1
    assert [type(part.test) for part in parts] == [Compare, Compare, OneOf, Compare]
    same = read("a + b <=> 5")
    assert isinstance(same, Is)
    assert isinstance(same.part, MayRaise)
    assert read("(a + b > 5) is true") == Is(read("a + b > 5"), 1)
    error = read("A  +  B > 5").error
    assert (error.text, error.advice) == ("A + B", "try_add")
    assert error.reason == "A + B can overflow, which raises in ANSI mode"


@predicate("a")
def odd(a):
    return [value % 2 == 1 for value in a.to_pylist()]


def test_beside_others():
    tree = read("bo and odd() and a / b > 2", {"odd": odd})
    assert isinstance(tree, And)
    assert tree.parts[1:] == (FunctionTest(odd), read("a / b > 2"))
    given = (SqlPredicate("a > 5"), SqlPredicate("a / b > 2"), odd)
    both = PredicateRule("q", given).bind(COLUMNS, ansi=True).tree
    assert both == And((read("a > 5"), read("a / b > 2"), FunctionTest(odd)))
    as_boolean = read("bo and not s").parts[1].part
    assert as_boolean.test == NativeTest("try_cast(`s` AS boolean)", ("s",))
    two_sided = read("bo and a + b > d").parts[1]
    assert two_sided.test.sql == "(try_add(`a`, `b`) > `d`)"
    # Two columns of one rule would come of it, where the rule itself is one.
    assert read("a + b > d") == NativeTest("a + b > d", ("a", "b", "d"))


def test_a_form_that_a_user_writes_is_another_test():
    tree = read("try_add(a, b) is null or a + b > 5")
    assert not isinstance(tree.parts[0], MayRaise)
    assert tree.parts[0].operand == tree.parts[1].test.operand


@pytest.mark.parametrize(
    "text",
    [
        "a + b > 2147483647",  # of all these Spark may know the answer without a + b
        "a + b = 5.5",
        "a + b > 1000 * 3e9",
        "a + b <=> 99999999999",
        "t + t in (1, 200)",
        "f % f > 0.1",
        "(a + b) is null",
        "(a + b > 5) is null",
        "a + b <=> null",
        "coalesce(a + b, 0) is not null",
        "pmod(a, b) > 1",
        "greatest(a + b, 1) > 5",
        "coalesce(1, a + b) > 5",
        "a + b in (1, big)",
        "a + b between 1 and d",
        "case when a + b > 5 then a else b end = 1",
        "cast(d as decimal(5,2)) > 1",
        "1 / 0 > 1",
        "-cast(a as decimal(38,2)) > d",
    ],
)
def test_what_has_no_exact_form_stays_whole(text):
    tree = read(f"({text}) or bo")
    assert tree == NativeTest(f"({text}) or bo", tree.columns)
    assert tree.reason
    assert Not(tree) != tree


def test_many_rules_share_one_attribute():
    texts = {f"r{k}": f"a + b > {k}" for k in range(200)}
    rules = [SqlRule(name, text).bind(COLUMNS, ansi=True) for name, text in texts.items()]
    program = compile_rules(rules)
    assert program.natives == ()
    assert sorted(program.columns) == sorted(
        [rules[0].tree.test.operand.sql, rules[0].tree.error.operand.sql]
    )
    assert len(program.externals) == 1
