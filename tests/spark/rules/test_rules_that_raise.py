"""A rule, or a conjunct, raises only where Spark's WHERE of it alone does.

Drawn conditions have operands that raise under AND, OR, NOT, CASE, IF, COALESCE and IN. Spark drops
rows with NULL in a column that the condition needs, evaluates the others from left to right, and
says of each row: true, not true, or an error. Then what such rules share, and how errors read.
"""

from __future__ import annotations

import random

import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import eddyline as el
from eddyline.errors import QueryError
from tests.examples import are_few
from tests.spark_says import RAISES, differences, edges, natives, rules_say, silence, where_says

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_TEXTS, N_ROWS = 60, 60

COLUMNS = ["i", "ti", "b", "d", "s", "bo"]

OPERANDS = (
    *("i", "ti", "b", "-ti", "-i", "-b", "i + 1", "ti - 1", "abs(ti)", "i / ti", "i % ti"),
    *("b * 2", "CAST(s AS INT)", "CAST(b AS TINYINT)", "length(s)", "i DIV ti", "CAST(d AS INT)"),
    *("coalesce(i, -ti)", "nullif(ti, 0)", "abs(-ti)", "IF(i > 0, -ti, i)", "array(i)[ti]"),
)
CONSTANTS = ("0", "1", "-1", "127", "128", "-129", "2147483648", "5L", "NULL", "1.5", "'7'", "1e10")
OTHERS = (
    *("TRUE", "FALSE", "NULL", "s LIKE '%x%'", "s RLIKE '(a|b)+x'", "CAST(s AS BOOLEAN)", "bo"),
    *("(i, s) IN ((1, 'x'), (0, '7'))", "to_date(s) > DATE '2020-01-01'", "s = i", "s > 1"),
)


def drawn(draw, depth):
    """Return a condition of some depth."""
    if depth <= 0:
        return _leaf(draw)

    def part():
        return drawn(draw, depth - draw.randint(1, 2))

    forms = (
        *("({}) AND ({})", "({}) OR ({})", "({}) AND ({})", "({}) OR ({})", "NOT ({})"),
        *("CASE WHEN {} THEN {} ELSE {} END", "IF({}, {}, {})", "coalesce({}, {})"),
        *("({}) IS NOT TRUE", "({}) IS NULL", "({}) = ({})"),
    )
    form = draw.choice(forms)
    return form.format(*(part() for _ in range(form.count("{}"))))


def _leaf(draw):
    operand, other = draw.choice(OPERANDS), draw.choice(OPERANDS)
    constants = draw.sample(CONSTANTS, 3)
    sign = draw.choice(["<", "<=", "=", "<>", ">", "<=>"])
    return draw.choice(
        [
            f"{operand} {sign} {constants[0]}",
            f"{operand} {sign} {constants[0]}",
            f"{operand} {sign} {other}",
            f"{operand} IN ({', '.join(constants)})",
            f"{operand} BETWEEN {constants[0]} AND {constants[1]}",
            f"{operand} IS NULL",
            draw.choice(OTHERS),
        ]
    )


def test_a_condition_with_the_same_operand_twice_does_not_raise_before_it_is_reached(spark):
    """A projection would compute ``-b8`` beforehand, as it is there twice."""
    rows = [(0, 1, "x", -128), (1, 5, "y", 3)]
    frame = spark.createDataFrame(rows, "id int, i int, s string, b8 tinyint")
    text = "(i, s) IN ((1, 'x'), (2, 'y')) OR NOT (i = 1) AND (-b8 > 5L OR -b8 < 0L)"
    assert rules_say(frame, [text]) == {0: [text], 1: [text]}


def test_rules_of_one_set_do_not_raise_for_each_other(spark):
    """Each rule computes ``-b8`` where it gets there, not because another rule has it, too."""
    frame = spark.createDataFrame([(0, 1, -128)], "id int, i int, b8 tinyint")
    texts = [f"i > 1 AND (i, 2) IN ((1, 2)) AND -b8 > {n}" for n in range(3)]
    assert rules_say(frame, [*texts, "i = 1"]) == {0: ["i = 1"]}


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("(b * 2 = -i) AND (abs(ti) IN (-129, 5L, 127))", (0, None, 1, 2**62, 1.0, "x")),
        (
            "(b * 2 < 128 AND CAST(d AS INT) IN (127, NULL, -129)) OR (CASE WHEN -ti > 128 "
            "THEN -b BETWEEN 1.5 AND 2147483648 ELSE CAST(s AS INT) > NULL END)",
            (0, 1, 1, None, float("-inf"), "x"),
        ),
        (
            "((NULL) IS NOT TRUE) = (NOT ((coalesce(i, -ti) IS NULL) OR (b * 2 = i + 1)))",
            (0, None, 1, 2**62, 1.0, "x"),
        ),
    ],
)
def test_a_rule_does_not_raise_on_a_row_that_where_drops_for_a_null(spark, text, row):
    frame = spark.createDataFrame([row], "id int, i int, ti tinyint, b bigint, d double, s string")
    frame = frame.localCheckpoint()
    assert natives(frame, text) == [text], "Spark evaluates the rule as a whole"
    assert frame.where(text).count() == 0
    assert rules_say(frame, [text]) == {0: []}


@pytest.mark.large
@pytest.mark.parametrize("seed", [2] if are_few() else [2, 3])
def test_drawn_rules_raise_only_where_where_does(spark, seed):
    draw = random.Random(seed)
    texts = list(dict.fromkeys(drawn(draw, draw.randint(1, 4)) for _ in range(N_TEXTS)))
    frame = edges(spark, COLUMNS, n_rows=N_ROWS)
    with silence(spark):
        said = where_says(frame, texts)
    rules, wanted = [], {row: [] for row in range(N_ROWS)}
    for text, rows in said.items():
        answered = [str(row) for row, answer in rows.items() if answer != RAISES]
        if answered:
            rules.append(f"id IN ({', '.join(answered)}) AND ({text})")
            for row in (row for row, answer in rows.items() if answer is True):
                wanted[row].append(rules[-1])
    assert len(rules) > N_TEXTS / 2
    assert any(RAISES in rows.values() and True in rows.values() for rows in said.values())
    assert differences(rules_say(frame, rules), wanted) == {}


# -- what they share, and how errors read ---------------------------------------------------------

MOST = 2**31 - 1


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(0, 1, 2, "1"), (1, MOST, 1, "x"), (2, 10, 0, None), (3, None, 5, "7"), (4, 3, 3, "9")]
    return spark.createDataFrame(rows, "id int, a int, b int, s string").coalesce(1)


def found(frame, rules):
    rows = frame.transform(rules.matches()).collect()
    return {row["id"]: list(row["matches"]) for row in rows}


def test_guarded_rules_share_their_attributes_and_do_not_raise(frame):
    texts = {f"sum {k}": f"a < 1000 AND a + b > {k}" for k in range(20)}
    texts |= {
        "ratio": "b <> 0 AND a / b > 0.9",
        "number": "s <> 'x' AND cast(s AS int) > 5",
        "not": "id <> 1 AND NOT (a + b > 5)",
    }
    rules = el.RuleSet(texts)
    wanted = {
        0: ["sum 0", "sum 1", "sum 2", "not"],
        1: ["ratio"],
        2: [f"sum {k}" for k in range(10)],
        3: ["number"],
        4: [f"sum {k}" for k in range(6)] + ["ratio", "number"],
    }
    assert found(frame, rules) == wanted
    view = rules.facts()
    assert view.natives == ()
    assert [each.name for each in view.constructs].count("try_add(`a`, `b`)") == 1
    assert {each.name for each in view.constructs if each.kind == "errors"} == {
        "errors of a + b",
        "errors of a / b",
        "errors of CAST(s AS INT)",
    }


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a + b > 5", "{'a': 2147483647, 'b': 1}"),
        ("NOT (a + b > 5)", "{'a': 2147483647, 'b': 1}"),
        ("a / b BETWEEN 1 AND 2", "{'a': 10, 'b': 0}"),
        ("cast(s AS int) > 5 OR a IS NULL", "{'s': 'x'}"),
    ],
)
def test_the_error_names_rule_row_and_remedy(frame, text, row):
    rules = el.RuleSet({"fine": "a > 2", "bad": text})
    with pytest.raises(Exception, match=r"rule 'bad'.*on which it hangs.*use try_") as caught:
        found(frame, rules)
    assert row in str(caught.value)
    with pytest.raises(PySparkException):
        frame.where(text).collect()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("struct(true)", "rule 'bad' is not a condition: struct.* is of type struct<col1:boolean>"),
        ("map('a', true)", "rule 'bad' is not a condition: map.* is of type map<string,boolean>"),
        ("thre(b)", "rule 'bad': .* unknown function 'thre'; did you mean 'there'"),
        ("lenght(s) > 1", "rule 'bad': .* unknown function 'lenght'; did you mean 'length'"),
    ],
)
def test_what_is_no_condition_is_refused_before_a_row_is_met(frame, text, says):
    there = el.predicate(lambda b: pc.not_equal(b, 0), reads=["b"])
    rules = el.RuleSet({"fine": "a > 2", "bad": text}, functions={"there": there})
    with pytest.raises(QueryError, match=says):
        frame.transform(rules.matches())


def test_beside_a_python_predicate(frame):
    asked = el.predicate(lambda b: pc.not_equal(b, 0), reads=["b"], name="there")
    rules = el.RuleSet({"both": "there() AND a / b > 0.9"}, functions={"there": asked})
    assert found(frame, rules) == {1: ["both"], 4: ["both"]}


@pytest.mark.large
def test_without_ansi_nothing_raises(spark, frame):
    before = spark.conf.get("spark.sql.ansi.enabled")
    rules = el.RuleSet({"sum": "a + b < 0", "ratio": "NOT (a / b > 1)", "number": "s > 5"})
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        wanted = {0: ["ratio"], 1: ["sum"], 3: ["number"], 4: ["ratio", "number"]}
        assert found(frame, rules) == wanted
        assert not any(each.kind == "errors" for each in rules.facts().constructs)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
