"""Rules that may raise, taken apart, against Spark itself: row by row, the same answer or error.

Where Spark gives an answer ours is the same, and never an error. Where Spark raises, ours raises
too if the rule hangs on what raises; a rule that does not (``n > 5 AND 1 / a > 2`` where n is NULL)
has its answer. Only where an operand is NULL may Spark raise without an error of ours, as it looks
at the operands one after the other.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from eddyline.errors import PredicateError
from eddyline.query.conditions import TRUE, NativeTest, Raise
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.spark.rules.binding import looked_at
from tests.examples import examples
from tests.oracles.rules import possible
from tests.spark_says import N_FIRST, RAISES, TYPES, answers, edges, silence, texts_of

pytestmark = pytest.mark.spark

COLUMNS = ("ti", "h", "i", "j", "b", "f", "d", "de", "w", "s", "bo")
NUMBERS = COLUMNS[:-2]
CASTS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "string")
CONSTANTS = ("0", "1", "-1", "2", "5", "0.5", "-1.5", "2e0", "127", "2147483647", "2147483648")

METHODS = ("auto", "blocks", "every_row")

MAX_RAISING = 6
"""Rows on which a rule raises that Spark is asked about: an error takes milliseconds."""

NEVER = (
    *("j <> 0 AND i / j > 2", "d + d > 5", "CASE WHEN j <> 0 THEN i / j ELSE 0 END > 1"),
    "(s || 'x') IS NULL AND i + j > 5",
)
"""Rules that raise on no row, or on none of these."""

columns = st.sampled_from([*NUMBERS, "i", "j", "b", "s"])
constants = st.sampled_from(CONSTANTS)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def wider(part):
    return st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from("+-*/%"), part | constants),
        st.builds("({} DIV {})".format, part, part | constants),
        st.builds("(- {})".format, part),
        st.builds("abs({})".format, part),
        st.builds("cast({} as {})".format, part, st.sampled_from(CASTS)),
        st.builds("try_cast({} as int)".format, part),
        st.builds("nullif({}, {})".format, part, constants),
        st.builds("coalesce({}, {})".format, part, constants),
        st.builds("round({} / {}, 1)".format, part, part),
        st.builds("CASE WHEN {} <> 0 THEN {} ELSE 0 END".format, columns, part),
        st.builds("if(bo, {}, {})".format, part, part),
        st.builds("mod({}, {})".format, part, part),
    )


expressions = st.recursive(columns, wider, max_leaves=3)
leaves = st.one_of(
    st.builds("{} {} {}".format, expressions, signs, constants),
    st.builds("{} {} {}".format, expressions, signs, constants),
    st.builds("{} {} {}".format, constants, signs, expressions),
    st.builds("{} {} {}".format, expressions, signs, expressions),
    st.builds("{} BETWEEN {} AND {}".format, expressions, constants, constants),
    st.builds("{} NOT BETWEEN {} AND NULL".format, expressions, constants),
    st.builds("{} IN ({}, {})".format, expressions, constants, constants),
    st.builds("{} NOT IN ({}, NULL)".format, expressions, constants),
    st.builds("{} IS NULL".format, expressions),
    st.builds("{} <=> {}".format, expressions, constants),
    st.builds("cast({} as string) LIKE '{}%'".format, expressions, st.sampled_from("-15")),
    st.sampled_from(["bo", "s", "s = 'x'", "i > 1", "cast(s as boolean)", "s BETWEEN 0 AND 9"]),
)


def joined(part):
    return st.one_of(
        st.builds("({}) AND ({})".format, part, part),
        st.builds("({}) OR ({})".format, part, part),
        st.builds("NOT ({})".format, part),
        st.builds("({}) IS {}".format, part, st.sampled_from(["TRUE", "NOT FALSE", "NULL"])),
        st.builds("({}) = {}".format, part, st.sampled_from(["TRUE", "FALSE"])),
    )


texts = st.recursive(leaves, joined, max_leaves=4)


def bound(frame, text):
    """Return a rule that is taken apart, or None; Spark may refuse it for its types."""
    try:
        rule = SqlRule(text, text).bind({name: TYPES[name] for name in COLUMNS}, ansi=True)
        frame.selectExpr(f"({text}) AS r").schema  # noqa: B018 - is the analysis
    except (PySparkException, ValueError):
        return None
    is_whole = isinstance(rule.tree, NativeTest) and rule.tree.sql == text
    return None if is_whole else rule


def fires(matcher, table):
    """Return for each row whether the only rule of a program fires, or ``RAISES``.

    Rows are asked one by one if one of them raises.
    """
    batch = [column.combine_chunks() for column in table.columns]
    try:
        rows = matcher.match(batch, n_rows=table.num_rows)[0].rows
    except PredicateError:
        if table.num_rows == 1:
            return [RAISES]
        return [fires(matcher, table.slice(n, 1))[0] for n in range(table.num_rows)]
    return np.isin(np.arange(table.num_rows), rows).tolist()


def faults(frame, rules):
    """Return where rules do not say what Spark says, and on how many rows each raised."""
    looks_at = list(dict.fromkeys(sql for rule in rules for sql in looked_at(rule.tree)))
    has_null = " OR ".join(f"{name} IS NULL" for name in COLUMNS)
    columns = [f"{sql} AS c" for sql in looks_at]
    table = frame.selectExpr(*columns, f"{has_null} AS c").toArrow()
    table = table.rename_columns([*looks_at, "has_null"])
    rows = table.to_pylist()
    raising = {rule.text: _raising(rule, rows) for rule in rules}
    asked = {t: sorted({*range(len(rows))} - {*some[MAX_RAISING:]}) for t, some in raising.items()}
    said_by_spark = answers(frame, list(asked), asked)
    found, n_raised = [], {}
    for rule in rules:
        text, said = rule.text, said_by_spark[rule.text]
        expected = {n: _expected(rule, rows[n], answer) for n, answer in said.items()}
        n_raised[text] = sum(each == RAISES for each in expected.values())
        for n, answer in said.items():
            if answer == RAISES and n not in raising[text] and not rows[n]["has_null"]:
                found.append((text, n, "an error is not known"))
        program = compile_rules([rule])
        given = table.select(program.columns)
        raises = [n for n in said if expected[n] == RAISES]
        answered = [n for n in said if expected[n] != RAISES]
        for method in METHODS:
            matcher = Matcher(program, plan_of(program, method=method))
            ours = {}
            for some in filter(None, (answered, raises)):
                ours |= zip(some, fires(matcher, given.take(some)), strict=True)
            found += [(text, n, method) for n in said if ours[n] != expected[n]]
    return found, n_raised


def _raising(rule, rows):
    """Return the places of the rows on which an expression of a rule raises."""
    errors = [each.operand.sql for each in rule.tree.walk() if isinstance(each, Raise)]
    return [place for place, row in enumerate(rows) if any(row[sql] for sql in errors)]


def _expected(rule, row, answer):
    """Return whether a rule fires on a row; one that does not hang on an error has its answer."""
    if answer != RAISES:
        return answer is True
    may_be = possible(rule.tree, row)
    return RAISES if may_be & TRUE and may_be != TRUE else may_be == TRUE


@pytest.fixture(scope="module")
def silent(spark):
    with silence(spark):
        yield spark


@pytest.mark.large
@pytest.mark.parametrize("nullable", [True, False], ids=["nullable", "not null"])
def test_chosen_rules_say_what_spark_says(silent, nullable):
    rows = edges(silent, COLUMNS, n_rows=N_FIRST + 90, nullable=nullable)
    frame = rows.where(f"id >= {N_FIRST}").localCheckpoint()
    texts = texts_of("rules_that_may_raise.sql")
    rules = {text: bound(frame, text) for text in texts}
    assert [text for text, rule in rules.items() if rule is None] == ["bo AND w + w > 5"]
    found, n_raised = faults(frame, [rule for rule in rules.values() if rule])
    assert found == []
    assert {text for text, n_rows in n_raised.items() if not n_rows} == {*NEVER}


@pytest.mark.large
@examples(20, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # jobs are slow
@given(drawn=st.lists(texts, min_size=8, max_size=8, unique=True), place=st.integers(0, 1_000))
def test_drawn_rules_say_what_spark_says(silent, frame, drawn, place):
    first = N_FIRST + place
    some = frame.where(f"id BETWEEN {first} AND {first} + 12").localCheckpoint()
    rules = [rule for rule in (bound(some, text) for text in drawn) if rule]
    assert not rules or faults(some, rules)[0] == []


@pytest.fixture(scope="module")
def frame(silent):
    return edges(silent, COLUMNS, n_rows=N_FIRST + 1_020)
