"""A rule, or a conjunct, raises only where Spark's WHERE of it alone does.

Drawn conditions have operands that raise under AND, OR, NOT, CASE, IF, COALESCE and IN. Spark drops
rows with NULL in a column that the condition needs, evaluates the others from left to right, and
says of each row: true, not true, or an error.
"""

from __future__ import annotations

import random

import pytest

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
