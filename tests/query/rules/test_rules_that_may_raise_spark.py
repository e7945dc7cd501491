"""Rules that may raise, taken apart, against Spark itself: row by row, the same answer or error.

Where Spark gives an answer ours is the same, and never an error. Where Spark raises, ours raises
too if the rule hangs on what raises; a rule that does not (``n > 5 AND 1 / a > 2`` where n is NULL)
has its answer. Only where an operand is NULL may Spark raise without an error of ours, as it looks
at the operands one after the other.
"""

from __future__ import annotations

import logging
import math
import random
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException

from eddyline.errors import PredicateError
from eddyline.query.conditions import TRUE, And, Is, MayRaise, NativeTest, Not, Or
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.spark.rules.binding import looked_at
from tests.examples import examples
from tests.oracles.rules import possible

pytestmark = pytest.mark.spark

COLUMNS = {
    "t": "tinyint",
    "h": "smallint",
    "i": "int",
    "j": "int",
    "b": "bigint",
    "f": "float",
    "d": "double",
    "de": "decimal(10,2)",
    "w": "decimal(38,2)",
    "s": "string",
    "bo": "boolean",
}
EDGES = {
    "t": [None, 0, 1, -1, 2, 127, -128],
    "h": [None, 0, 1, -1, 3, 2**15 - 1, -(2**15)],
    "i": [None, 0, 1, -1, 2, 2**31 - 1, -(2**31)],
    "j": [None, 0, 1, -1, 5, 2**31 - 1, -(2**31)],
    "b": [None, 0, 1, -1, 3, 2**63 - 1, -(2**63)],
    "f": [None, 0.0, -0.0, 0.5, math.nan, math.inf, 3e38],
    "d": [None, 0.0, -0.0, 0.5, -1.5, math.nan, -math.inf, 1e308, 5e-324],
    "de": [None, Decimal("0.00"), Decimal("0.10"), Decimal("99999999.99"), Decimal("-1.00")],
    "w": [None, Decimal("0.00"), Decimal("1.50"), Decimal("9" * 36 + ".99")],
    "s": [
        None,
        "",
        "0",
        "5",
        " 5 ",
        "-1",
        "5.5",
        "x",
        "NaN",
        "1e3",
        "true",
        "99999999999",
        "2024-1-1",
    ],
    "bo": [None, True, False],
}
NUMBERS = tuple(each for each in COLUMNS if each not in ("s", "bo"))
TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "string")
CONSTANTS = ("0", "1", "-1", "2", "5", "0.5", "-1.5", "2e0", "127", "2147483647", "2147483648")

MAX_RAISING = 4
"""Rows on which something raises of which Spark is asked: each costs a job."""

columns = st.sampled_from([*NUMBERS, "i", "j", "b", "s"])
constants = st.sampled_from(CONSTANTS)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def wider(part):
    return st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from("+-*/%"), part | constants),
        st.builds("({} DIV {})".format, part, part | constants),
        st.builds("(- {})".format, part),
        st.builds("abs({})".format, part),
        st.builds("cast({} as {})".format, part, st.sampled_from(TYPES)),
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
rows = st.lists(
    st.tuples(*(st.sampled_from(values) for values in EDGES.values())), min_size=4, max_size=12
)


def errors(node):
    match node:
        case Not(part) | Is(part):
            yield from errors(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from errors(part)
        case MayRaise(_, error):
            yield error.operand.sql


def bound(frame, text):
    """Return a rule that is taken apart, or None; Spark may refuse it for its types."""
    try:
        rule = SqlRule(text, text).bind(COLUMNS, ansi=True)
        frame.selectExpr(f"({text}) AS r").schema  # noqa: B018 - is the analysis
    except (PySparkException, AnalysisException, ValueError):
        return None
    is_whole = isinstance(rule.tree, NativeTest) and rule.tree.sql == text
    return None if is_whole else rule


def answer(frame, text, number):
    """Return what Spark says of a rule on one row: True, False, None, or "raises"."""
    try:
        return frame.where(f"id = {number}").selectExpr(f"({text}) AS r").collect()[0][0]
    except PySparkException:
        return "raises"


def answers(frame, text, fine, raising):
    """Return what Spark says of a rule by row: of all on which nothing raises, and some others."""
    listed = ", ".join(map(str, fine)) or "-1"
    try:
        found = frame.where(f"id IN ({listed})").selectExpr("id", f"({text}) AS r").collect()
        said = {row["id"]: row["r"] for row in found}
    except PySparkException:  # one raises, where an operand is NULL
        said = {number: answer(frame, text, number) for number in fine}
    return said | {number: answer(frame, text, number) for number in raising[:MAX_RAISING]}


def fires(matcher, table, number):
    """Return whether the only rule of a program fires on a row, or "raises"."""
    batch = [table.column(name).combine_chunks().slice(number, 1) for name in table.column_names]
    try:
        return bool(len(matcher.match(batch, n_rows=1)[0].rules))
    except PredicateError:
        return "raises"


def faults(frame, rule, rows):
    """Return where a rule does not say what Spark says, and on how many rows it raised."""
    looks_at = list(dict.fromkeys(looked_at(rule.tree)))
    table = frame.selectExpr("id", *(f"{sql} AS o{n}" for n, sql in enumerate(looks_at)))
    table = table.orderBy("id").drop("id").toArrow().rename_columns(looks_at)
    values = table.to_pylist()
    raising = [n for n, row in enumerate(values) if any(row[sql] for sql in errors(rule.tree))]
    said = answers(frame, rule.text, sorted({*range(len(rows))} - {*raising}), raising)
    program = compile_rules([rule])
    table = table.select(program.columns)
    found, n_raised = [], 0
    for method in ("auto", "blocks", "every_row"):
        matcher = Matcher(program, plan_of(program, method=method))
        for number, spark_says in said.items():
            expected = spark_says is True
            if spark_says == "raises":
                may_be = possible(rule.tree, values[number])
                expected = "raises" if may_be & TRUE and may_be != TRUE else may_be == TRUE
                n_raised += expected == "raises"
                if number not in raising and None not in rows[number]:
                    found.append((rule.text, rows[number], "an error is not known", method))
            if (ours := fires(matcher, table, number)) != expected:
                found.append((rule.text, rows[number], spark_says, ours, method))
    return found, n_raised


@pytest.fixture(scope="module")
def silent(spark):
    """Spark without a word of the many errors that it is asked to raise."""
    log = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    level = log.getLevel().toString()
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    yield spark
    logging.disable(logging.NOTSET)
    spark.sparkContext.setLogLevel(level)


def frame_of(spark, rows, *, nullable=True):
    kinds = {"id": "int", **COLUMNS}
    made = spark.createDataFrame(
        [(number, *row) for number, row in enumerate(rows)],
        ", ".join(
            f"{name} {kind}{'' if nullable else ' NOT NULL'}" for name, kind in kinds.items()
        ),
    )
    return made.coalesce(1).cache()


CHOSEN = (
    *("i + j > 5", "NOT (i + j > 5)", "i - 1 BETWEEN 1 AND 9", "i * j IN (1, NULL)", "t + t = 2"),
    *("(i + j > 5) IS TRUE", "(i + j > 5) IS NOT FALSE", "i + j <=> 2", "bo AND i + j > 5"),
    *("bo OR NOT (i + j > 5)", "i / j > 2", "j <> 0 AND i / j > 2", "d / f > 2", "d % f < 1"),
    *("d + d > 5", "i DIV j = 1", "b DIV b = 1", "b DIV i > 1 OR bo", "(- t) > 1", "(- b) < 1"),
    *("abs(h) < 5", "cast(s AS int) > 3", "s > 1", "s IN (0, 5)", "s BETWEEN 0 AND 9", "bo AND s"),
    *("cast(s AS date) = '2024-01-01'", "cast(d AS int) > 1", "cast(s AS decimal(10,2)) > 0.5"),
    *("bo AND w + w > 5", "bo AND i + j > b", "bo AND b > i + j", "coalesce(i / j, 0) > 1"),
    *("CASE WHEN j <> 0 THEN i / j ELSE 0 END > 1", "if(bo, i + j, b * b) > 5", "b + 1 > 5"),
    *("(s || 'x') IS NULL AND i + j > 5", "i + j > 5 OR i + j < 5", "nullif(i + j, 1) = 2"),
)


NEVER = (
    *("j <> 0 AND i / j > 2", "d + d > 5", "CASE WHEN j <> 0 THEN i / j ELSE 0 END > 1"),
    "(s || 'x') IS NULL AND i + j > 5",
)
"""Rules that raise on no row, or on none of these."""


@pytest.mark.large
@pytest.mark.parametrize("nullable", [True, False], ids=["nullable", "not null"])
def test_chosen_rules_say_what_spark_says(silent, nullable):
    rng = random.Random(7)
    columns = [values if nullable else values[1:] for values in EDGES.values()]
    rows = [tuple(map(rng.choice, columns)) for _ in range(80)]
    frame = frame_of(silent, rows, nullable=nullable)
    rules = [bound(frame, text) for text in CHOSEN]
    whole = [text for text, rule in zip(CHOSEN, rules, strict=True) if rule is None]
    assert whole == ["bo AND w + w > 5"]
    for rule in rules:
        if rule is not None:
            found, n_raised = faults(frame, rule, rows)
            assert found == []
            assert (n_raised > 0) is (rule.text not in NEVER), rule.text


@examples(5, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(texts, min_size=8, max_size=8, unique=True), rows)
def test_drawn_rules_say_what_spark_says(silent, texts, rows):
    frame = frame_of(silent, rows)
    for text in texts:
        rule = bound(frame, text)
        assert rule is None or faults(frame, rule, rows)[0] == []
