"""What Spark says of expressions on rows of edge values, and what rules say of them, in few jobs.

Every test that holds eddyline's reading of SQL against Spark itself asks here. The expressions and
the edge values stand in ``tests/sql/texts``: a line for an expression, a line for a column.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import eddyline as el
from eddyline.query.conditions import NativeTest
from eddyline.rules.compile.program import compile_rules
from eddyline.spark.rules.binding import RuleBinder

ERRORS = (PySparkException, Py4JJavaError)
RAISES = "raises"
"""The answer of an expression that raises."""

N_ROWS = 12_000
"""Rows in which any two columns meet in every pair of their values."""

N_FIRST = 120
"""Rows in which every value of every column occurs; in the first of them all are NULL."""


def texts_of(name):
    """Return the lines of a file of texts."""
    lines = (Path(__file__).parent / "sql" / "texts" / name).read_text("utf-8").split("\n")
    return [line for line in lines if line]


def edge_columns():
    """Return type and values, as SQL, of each column of ``edges``."""
    lines = (line.split(" | ") for line in texts_of("edges.txt"))
    return {name: (kind, values.split("; ")) for name, kind, values in lines}


TYPES = {name: kind for name, (kind, _) in edge_columns().items()}


def edges(spark, columns=None, *, n_rows=N_ROWS, nullable=True):
    """Return rows of edge values with an ``id``; NULL is one of the values if it may be.

    Args:
        spark: the session.
        columns: names of ``edges.txt``; all by default.
        n_rows: the first ``N_FIRST`` hold every value, the others are drawn.
        nullable: otherwise the columns are NOT NULL.
    """
    known = edge_columns()
    made = [_column(name, *known[name], nullable) for name in columns or known]
    frame = spark.range(n_rows).coalesce(1).selectExpr("CAST(id AS int) AS id", *made)
    frame = frame.localCheckpoint()
    assert {each.nullable for each in frame.schema[1:]} == {nullable}
    return frame


def _column(name, kind, values, nullable):
    texts = ["NULL"] * nullable + values
    elements = ", ".join(f"CAST({text} AS {kind})" for text in texts)
    placed = f"IF(id < {N_FIRST}, id, xxhash64(id, '{name}'))"
    value = f"array({elements})[pmod({placed}, {len(texts)})]"
    return f"{value if nullable else f'coalesce({value}, CAST({values[0]} AS {kind}))'} AS {name}"


def answers(frame, texts, rows=None):
    """Return the answers of Spark by text and by the place of the row: a truth or ``RAISES``.

    The code that Spark compiles of its optimized plan is run row by row, so that an error costs
    the row it is raised on and no job.

    Args:
        frame: few rows, in one partition.
        texts: conditions.
        rows: the places of the rows on which each text is evaluated; all by default.
    """
    some = frame.sparkSession._jvm.scala.Some
    given = [some(row) for row in frame._jdf.queryExecution().executedPlan().executeCollect()]
    found = {}
    for text in texts:
        projections = _projections(frame, text)
        asked = range(len(given)) if rows is None else rows[text]
        found[text] = {row: _answer(projections, given[row]) for row in asked}
    return found


def where_says(frame, texts):
    """Return what WHERE says of each text, by the place of the row: a truth or ``RAISES``.

    Spark drops rows with NULL in columns that the condition needs. On the others it evaluates the
    condition from left to right. Arguments are as for ``answers``; NULL is None.
    """
    some = frame.sparkSession._jvm.scala.Some
    given = [some(row) for row in frame._jdf.queryExecution().executedPlan().executeCollect()]
    found = {}
    for text in texts:
        condition = _condition(frame, text)
        found[text] = {
            row: condition if isinstance(condition, bool) else _answer(condition, each)
            for row, each in enumerate(given)
        }
    return found


def _condition(frame, text):
    """Return what evaluates WHERE; or its only answer; or None if Spark raises when it plans."""
    compiled = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.expressions.codegen
    try:
        plan = frame.where(f"{text}\n")._jdf.queryExecution().optimizedPlan()
    except ERRORS:
        return None
    if plan.getClass().getSimpleName() != "Filter":
        return plan.getClass().getSimpleName() == "LogicalRDD"
    given = plan.child().output()
    return [compiled.GenerateMutableProjection.generate(plan.expressions(), given, False)]


def _projections(frame, text):
    """Return what evaluates a text, in steps; None if Spark raises as soon as it plans."""
    compiled = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.expressions.codegen
    steps = []
    try:
        plan = frame.selectExpr(f"({text}\n) AS c")._jdf.queryExecution().optimizedPlan()
    except ERRORS:
        return None
    while plan.getClass().getSimpleName() == "Project":
        given = plan.child().output()
        steps.append(compiled.GenerateMutableProjection.generate(plan.projectList(), given, True))
        plan = plan.child()
    assert plan.getClass().getSimpleName() == "LogicalRDD", plan.toString()
    return steps[::-1]


def _answer(projections, row):
    """Return the answer on ``Some(row)``: py4j confounds the classes of compiled projections."""
    if projections is None:
        return RAISES
    try:
        for each in projections:
            row = row.map(each)
    except ERRORS:
        return RAISES
    values = row.get()
    return None if values.isNullAt(0) else values.getBoolean(0)


@contextmanager
def silence(spark):
    """Let Spark say nothing of the many errors that it is asked to raise."""
    log = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    level = log.getLevel().toString()
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        spark.sparkContext.setLogLevel(level)


def spark_says(frame, texts):
    """Return for each row, by id, the texts that are true."""
    columns = [F.when(F.expr(text).cast("boolean"), F.lit(text)) for text in texts]
    found = frame.select("id", F.array_compact(F.array(*columns)).alias("_m")).collect()
    return {row["id"]: list(row["_m"]) for row in found}


def rules_say(frame, texts, **options):
    """Return for each row, by id, the texts that are true, as a set of rules says."""
    rules = el.RuleSet({text: text for text in texts}, **options)
    found = frame.transform(rules.matches("_m", keep_unmatched=True)).select("id", "_m").collect()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: list(row["_m"]) for row in found}


def differences(found, expected):
    """Return, for rows that have any, the texts that should not be true and those that should."""
    assert found.keys() == expected.keys()
    return {
        id_: (sorted({*found[id_]} - {*texts}), sorted({*texts} - {*found[id_]}))
        for id_, texts in expected.items()
        if found[id_] != texts
    }


def natives(frame, *texts):
    """Return the parts of rules that are left to Spark, each a column of its own."""
    nodes = (node for rule in _bound(frame, texts) for node in rule.tree.walk())
    return [node.sql for node in nodes if isinstance(node, NativeTest)]


def conditions(frame, *texts):
    """Return rules as conditions of one statement of Spark's; none if they cannot be one."""
    return compile_rules(_bound(frame, texts)).conditions


def _bound(frame, texts):
    _, sources = el.RuleSet({text: text for text in texts}).store.now()
    return RuleBinder().bind(frame, sources.values(), skips=False).rules
