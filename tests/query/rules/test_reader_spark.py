"""Rules read into trees against Spark itself, on rows of edge values, NULL included."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from eddyline.query.conditions import NativeTest, ValueTest
from eddyline.query.rules.sources import SqlRule
from eddyline.spark.rules.binding import RuleBinder, looked_at
from eddyline.sql.regexes import is_folded_alike, python_regex
from tests.examples import examples
from tests.oracles import rule_strategies
from tests.oracles.rules import truth
from tests.spark_says import edge_columns, edges, texts_of

pytestmark = pytest.mark.spark

RULES = texts_of("rules.sql")
COLUMNS = ("i", "b", "f", "d", "de", "s", "t", "bo", "dt", "ts", "xs", "st", "co")


@pytest.fixture(scope="module")
def frame(spark):
    return edges(spark, COLUMNS, n_rows=400)


def test_the_rows_hold_every_edge(frame):
    checks = [f"bool_or({name} IS NULL)" for name in COLUMNS]
    for name, (kind, values) in edge_columns().items():
        if name in COLUMNS:
            wanted = ", ".join(f"CAST({value} AS {kind})" for value in values)
            checks.append(f"size(array_except(array({wanted}), collect_list({name}))) = 0")
    found = frame.selectExpr(*checks).first()
    assert [check for check, is_there in zip(checks, found, strict=True) if not is_there] == []


def wrong_answers(frame, rules):
    """Return the rules whose trees do not say of each row what Spark says of the rule."""
    whole = [f"({rule.text}\n) AS r{n}" for n, rule in enumerate(rules)]
    wanted = list(dict.fromkeys(sql for rule in rules for sql in looked_at(rule.tree)))
    # Python would show a timestamp in the time zone of its machine.
    shown = {"`ts`": "unix_micros(ts)"}
    parts = [f"({shown.get(sql, sql)}\n) AS o{n}" for n, sql in enumerate(wanted)]
    wrong = {}
    for row in frame.selectExpr(*whole, *parts).collect():
        values = dict(zip(wanted, row[len(rules) :], strict=True))
        for answer, rule in zip(row, rules, strict=False):
            said = truth(rule.tree, values)
            if said is not answer:
                wrong[rule.text] = answer, said, rule.tree
            for test in rule.tree.walk():
                if isinstance(test, ValueTest) and truth(test, values) is True:
                    assert any(truth(need, values) for need in test.needs), test
    return wrong


@pytest.mark.large
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_trees_say_what_spark_says(frame, change, ansi):
    change(ansi=ansi)
    texts = RULES if ansi == "true" else [*RULES, *texts_of("rules_not_ansi.sql")]
    sources = [SqlRule(text, text) for text in dict.fromkeys(texts)]
    assert wrong_answers(frame, RuleBinder().bind(frame, sources, skips=False).rules) == {}


@examples(6, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # jobs are slow
@given(
    st.lists(rule_strategies.rule_texts(), min_size=15, max_size=30, unique=True),
    rule_strategies.rule_rows(),
)
def test_drawn_trees_say_what_spark_says(spark, texts, rows):
    columns = rule_strategies.COLUMNS
    rows = rows.rename_columns([name.strip("`") for name in rows.column_names])
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    frame = spark.createDataFrame(rows.select(list(columns)), schema).coalesce(1)
    assert dict(frame.dtypes) == columns
    rules = [SqlRule(text, text).bind(columns, ansi=True) for text in texts]
    assert wrong_answers(frame, rules) == {}


def test_most_rules_are_taken_apart(frame):
    columns = dict(frame.dtypes)
    trees = {text: SqlRule(text, text).bind(columns, ansi=True).tree for text in RULES}
    natives = [text for text, tree in trees.items() if isinstance(tree, NativeTest)]
    assert len(natives) < 0.35 * len(RULES), natives


@pytest.mark.large
def test_regexes_find_what_java_finds(spark):
    pieces = ["", "a", "b", "c", "d", "x", "A", "B", "\n", "\r", "\r\n", "\u0085", "\u2028", "é"]
    pieces += ["@z.", "1", " ", ".exe", "\\c", "😀", "\u212a", "\t", "\x0b", "\x1c", "٣"]
    texts = [a + b + c for a in pieces for b in pieces for c in pieces]
    frame = spark.createDataFrame(pa.table({"s": texts}))
    translated = {regex: python_regex(regex) for regex in texts_of("regexes.txt")}
    assert [regex for regex, found in translated.items() if found is None] == []
    answers = frame.selectExpr("s", *(f"s RLIKE r'{regex}' AS c" for regex in translated))
    wrong = [
        (regex, text, answer)
        for text, *found in answers.collect()
        for (regex, ours), answer in zip(translated.items(), found, strict=True)
        if (re.search(ours.pattern, text, ours.flags) is not None) != answer
    ]
    assert not wrong, wrong[:10]


@pytest.mark.large
def test_lower_case_is_the_same_but_for_new_letters(spark):
    """What ``is_folded_alike`` lets through is lowered alike; the rest is Unicode 15 and later."""
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    known = spark.range(1, 0x110000).where("id NOT BETWEEN 55296 AND 57343")
    known = known.selectExpr("decode(unhex(lpad(hex(id), 8, '0')), 'UTF-32') AS s")
    rows = known.selectExpr("s", "lower(s) AS l").where("s <> l").collect()
    lowered = {row["s"]: row["l"] for row in rows}
    assert len(lowered) > 1000
    differ = {char for char in points if char.lower() != lowered.get(char, char)}
    reached = {lowered.get(char, char) for char in differ} | {char.lower() for char in differ}
    assert [char for char in reached - differ if is_folded_alike((char,))] == []
    assert [char for char in differ if is_folded_alike((char,)) and char in reached] == []
