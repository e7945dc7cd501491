"""Output columns that Arrow computes: the values of Spark, or left to Spark."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from eddyline.errors import QueryError
from eddyline.query.steps import ProjectStep
from eddyline.spark.projection import ProjectOperator, picked_columns

pytestmark = pytest.mark.spark

SCHEMA = """b TINYINT, i INT, l BIGINT, j BIGINT, x DOUBLE, y DOUBLE, s STRING, t STRING, p BOOLEAN,
            d DATE, ts TIMESTAMP, q STRUCT<n: INT, z: DOUBLE>"""
INTS = [None, 0, 1, -1, 7, 100]
FLOATS = [None, 0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300, 5e-324]
TEXTS = [None, "", "a", "A", "ä", "é", "😀b", "a b"]


def rows_of(seed, *, extremes):
    """Return rows of all kinds of values; extremes are the greatest and least integers."""
    drawn = random.Random(seed)
    most = {name: 2 ** (bits - 1) for name, bits in {"b": 8, "i": 32, "l": 64, "j": 64}.items()}

    def integer(name):
        edge = [most[name] - 1, -most[name]] if extremes else []
        return drawn.choice([*INTS, *edge])

    def float_():
        return drawn.choice(FLOATS)

    return [
        (
            *(integer(name) for name in most),
            float_(),
            float_(),
            drawn.choice(TEXTS),
            drawn.choice(TEXTS),
            drawn.choice([None, True, False]),
            drawn.choice([None, date(1969, 12, 31), date(2026, 2, 1)]),
            drawn.choice([None, datetime(2026, 1, 1, 0, 0, 1, 5, UTC)]),
            drawn.choice([None, (integer("i"), float_()), (None, None)]),
        )
        for _ in range(200)
    ]


class Texts:
    """Draws expressions of each type."""

    def __init__(self, seed):
        self.drawn = random.Random(seed)

    def number(self, depth):
        one, other = self.drawn.choice(["number", "double"]), "number"
        leaf = ["b", "i", "l", "j", "q.n", "3", "-2", "0", "4294967296"]
        return self._of(
            depth,
            leaf,
            lambda: f"{self.number(depth - 1)} {self.drawn.choice('+-*')} {self.number(depth - 1)}",
            lambda: f"abs({self.number(depth - 1)})",
            lambda: f"-({self.number(depth - 1)})",
            lambda: f"length({self.text(depth - 1)})",
            lambda: self._chosen(depth, other),
            lambda: f"CAST({getattr(self, one)(0)} AS BIGINT)",
        )

    def double(self, depth):
        leaf = ["x", "y", "q.z", "1.5D", "0D", "-2.5D"]
        return self._of(
            depth,
            leaf,
            lambda: f"{self.double(depth - 1)} {self.drawn.choice('+-*')} {self.double(depth - 1)}",
            lambda: f"{self.double(depth - 1)} * {self.number(0)}",
            lambda: f"{self.double(depth - 1)} - 1.25",
            lambda: f"{self.double(0)} / {self.drawn.choice(['2', '4D', self.double(0)])}",
            lambda: f"{self.number(0)} / {self.drawn.choice(['2', self.number(0)])}",
            lambda: f"CAST({self.number(depth - 1)} AS DOUBLE)",
            lambda: f"abs({self.double(depth - 1)})",
            lambda: self._chosen(depth, "double"),
        )

    def text(self, depth):
        leaf = ["s", "t", "'k'", "''", "'ä'"]
        return self._of(
            depth,
            leaf,
            lambda: f"{self.text(depth - 1)} || {self.text(depth - 1)}",
            lambda: f"concat({self.text(0)}, '-', {self.text(depth - 1)})",
            lambda: f"CAST({self.number(0)} AS STRING)",
            lambda: self._chosen(depth, "text"),
        )

    def condition(self, depth):
        kind = self.drawn.choice(["number", "double", "text"])
        one, other, third = (getattr(self, kind)(max(0, depth - 1)) for _ in range(3))
        sign = self.drawn.choice(["=", "<>", "<", "<=", ">", ">="])
        return self._of(
            max(1, depth),
            ["p"],
            lambda: f"{one} {sign} {other}",
            lambda: f"{one} {sign} {other}",
            lambda: f"{one} IS {self.drawn.choice(['', 'NOT '])}NULL",
            lambda: f"{one} BETWEEN {other} AND {third}",
            lambda: f"{one} IN ({other}, {third})",
            lambda: f"NOT ({self.condition(depth - 1)})" if depth else "p",
            lambda: f"({self.condition(depth - 1)} AND {self.condition(0)})" if depth else "p",
            lambda: f"({self.condition(depth - 1)} OR {self.condition(0)})" if depth else "p",
            lambda: self.drawn.choice(["d = d", "ts >= ts", "d IS NULL"]),
        )

    def _chosen(self, depth, kind):
        one, other = (getattr(self, kind)(depth - 1) for _ in range(2))
        test = self.condition(0)
        forms = [
            f"CASE WHEN {test} THEN {one} WHEN p THEN {other} END",
            f"CASE WHEN {test} THEN {one} ELSE {other} END",
            f"if({test}, {one}, {other})",
            f"coalesce({one}, {other})",
            f"nvl({one}, {other})",
        ]
        return self.drawn.choice(forms)

    def _of(self, depth, leaf, *forms):
        if depth <= 0 or self.drawn.random() < 0.2:
            return self.drawn.choice(leaf)
        return f"({self.drawn.choice(forms)()})"


def shown(value):
    """Return a value that equals another one only if both are the same, NaN and -0.0 too."""
    return repr(value)


def answers_of_spark(rows, texts):
    """Return the values of each expression, or that it raises; one job unless one of them does."""
    try:
        columns = [f"{text} AS v{number}" for number, text in enumerate(texts)]
        found = rows.selectExpr(*columns).collect()
        return [[shown(row[number]) for row in found] for number in range(len(texts))]
    except PySparkException:
        if len(texts) == 1:
            return ["error"]
        half = len(texts) // 2
        return answers_of_spark(rows, texts[:half]) + answers_of_spark(rows, texts[half:])


def answers_of_arrow(picked, table):
    try:
        return [shown(value) for value in picked(table).column(0).to_pylist()]
    except QueryError:
        return "error"


@pytest.mark.large("Spark compiles sixty expressions, and again without those that raise")
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("extremes", [False, True])
def test_drawn_expressions_have_the_values_of_spark(spark, change, ansi, extremes):
    change(ansi=ansi)
    seed = f"{ansi} {extremes}"
    rows = spark.createDataFrame(rows_of(seed, extremes=extremes), StructType.fromDDL(SCHEMA))
    table = rows.toArrow()
    texts = Texts(seed)
    drawn = [
        getattr(texts, kind)(depth)
        for _ in range(8)
        for kind in ("number", "double", "text", "condition")
        for depth in (1, 3)
    ]
    computed = {}
    for text in dict.fromkeys(drawn):
        with suppress(PySparkException):
            like = rows.selectExpr(f"{text} AS v")
            if picked := picked_columns([f"{text} AS v"], rows.schema, like, ansi=ansi):
                computed[text] = picked
    assert len(computed) > 20
    wanted = answers_of_spark(rows, [*computed])
    for (text, picked), answer in zip(computed.items(), wanted, strict=True):
        assert answers_of_arrow(picked, table) == answer, text
    assert ("error" in wanted) == ansi


@pytest.mark.parametrize(
    "text",
    [
        "x + 1.5F",
        "CAST(x AS DECIMAL(10, 2))",
        "i * 1.5",
        "upper(s)",
        "round(x, 1)",
        "CAST(x AS BIGINT)",
        "CAST(x AS STRING)",
        "CAST(s AS INT)",
        "i % 2",
        "CASE i WHEN 1 THEN 2 END",
        "if(p, l + 1, 0)",
        "p AND 1 / i > 2",
        "x + l * l",
        "CAST(ts AS DATE)",
        "ts + INTERVAL 1 DAY",
        "rand()",
        "struct(i)",
        "length(CAST(s AS STRING COLLATE UTF8_LCASE))",
    ],
)
def test_what_arrow_may_compute_otherwise_is_left_to_spark(spark, text):
    rows = spark.createDataFrame([], StructType.fromDDL(SCHEMA))
    assert (
        picked_columns([f"{text} AS v"], rows.schema, rows.selectExpr(f"{text} AS v"), ansi=True)
        is None
    )


def test_text_with_a_collation_is_left_to_spark(spark):
    rows = spark.createDataFrame([("a",)], "s STRING COLLATE UTF8_LCASE")
    for text in ("s = 'A'", "CASE WHEN s = 'A' THEN 1 END", "length(s)"):
        like = rows.selectExpr(f"{text} AS v")
        assert picked_columns([f"{text} AS v"], rows.schema, like, ansi=True) is None


def test_an_error_names_the_column_and_says_what_helps(spark, change):
    change(ansi=True)
    rows = spark.createDataFrame([(2**62, 0.0)], "l BIGINT, x DOUBLE")
    for text, why in {"l * l": "overflow", "1 / x": "divide by zero"}.items():
        picked = picked_columns(
            [f"{text} AS v"], rows.schema, rows.selectExpr(f"{text} AS v"), ansi=True
        )
        with pytest.raises(QueryError, match=rf"output column .*{why}.*try_add"):
            picked(rows.toArrow())


def test_a_constant_is_in_each_row_and_in_none_of_no_rows(spark):
    rows = spark.range(3)
    picked = picked_columns(
        ["1 AS one", "'k' AS k"], rows.schema, spark.sql("SELECT 1 AS one, 'k' AS k"), ansi=True
    )
    assert picked(rows.toArrow()).to_pylist() == 3 * [{"one": 1, "k": "k"}]
    assert picked(rows.toArrow().slice(0, 0)).num_rows == 0
    assert isinstance(picked(pa.table({"id": pa.array([], pa.int64())})), pa.Table)


def test_ansi_mode_is_that_of_the_start(spark, change):
    """As it is of Spark's streams, whatever the session is set to before the first batch."""
    rows = spark.createDataFrame([(2**62,)], "l BIGINT")
    change(ansi=True)
    operator = ProjectOperator("q", ProjectStep("s", ("l * l AS v",)), rows)
    change(ansi=False)
    with pytest.raises(QueryError, match="overflow"):
        operator.arrow_step.result(rows.toArrow())
