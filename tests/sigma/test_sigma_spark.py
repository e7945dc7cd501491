"""What only Spark decides: the conditions that rules hand to it, and what it makes of operands."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from sigma.rule import SigmaRule as PySigmaRule

import eddyline as el
from eddyline.query.conditions import IsNull, NativeTest, TextTest
from eddyline.sigma import read
from tests.oracles import sigma as reference_sigma

pytestmark = pytest.mark.spark

AT = [datetime(2024, 2, 29, 23, 59, 1), datetime(2021, 1, 3, 0, 5), None]
ROWS = [
    {"a": "Straße", "b": "STRASSE", "n": 5, "t": AT[0]},
    {"a": "C:\\Temp\\ÉVIL.exe", "b": "c:\\temp\\évil.exe", "n": 12, "t": AT[1]},
    {"a": "C:\\Temp", "b": "c:", "n": 5, "t": AT[2]},
    {"a": "5", "b": "5", "n": 5, "t": AT[0]},
    {"a": " 5.50 ", "b": "50", "n": None, "t": None},
    {"a": "9007199254740993", "b": None, "n": 9007199254740993, "t": AT[1]},
    {"a": "1e3", "b": "E3", "n": 1000, "t": None},
    {"a": "NaN", "b": "", "n": 0, "t": AT[0]},
    {"a": "5d", "b": "x5", "n": -1, "t": AT[0]},
    {"a": "2024-02-29 07:08:09", "b": "%", "n": 2024, "t": AT[0]},
    {"a": None, "b": "x", "n": 1, "t": None},
]
TYPES = {"a": "string", "b": "string", "n": "bigint", "t": "timestamp"}


@pytest.fixture(scope="module")
def frame(spark):
    values = [tuple(row.values()) for row in ROWS]
    return spark.createDataFrame(values, "a string, b string, n bigint, t timestamp").coalesce(1)


NATIVE = (
    *("a|fieldref: b", "a|fieldref|startswith: b", "a|fieldref|endswith: b"),
    *("a|fieldref|contains: b", "a|fieldref: n", "n|fieldref: a"),
    *("a|gt: 5", "a|gte: 5.5", "a|lt: 9007199254740994", "a|lte: 5"),
    *("t|minute: 59", "t|hour: 23", "t|day: 29", "t|week: 53", "t|month: 2", "t|year: 2021"),
    "a|hour: 7",
)


@pytest.mark.parametrize("ansi", [True, False])
def test_native_tests_agree_with_the_oracle(frame, rule_text, change, ansi):
    texts = {test: rule_text(f"selection: {{{test}}}") for test in NATIVE}
    trees = [read(text).sources[0].bind(TYPES, ansi=ansi).tree for text in texts.values()]
    assert {type(tree) for tree in trees} == {NativeTest}
    change(ansi=str(ansi).lower())
    rows = frame.selectExpr(*(f"{tree.sql} AS c" for tree in trees)).collect()
    for (test, text), *said in zip(texts.items(), *rows, strict=True):
        oracle = PySigmaRule.from_yaml(text)
        assert said == [reference_sigma.truth(oracle, row) for row in ROWS], test
        assert True in said, test


def test_paths_and_casts_are_what_spark_understands(spark, rule_text):
    frame = spark.sql(
        "SELECT named_struct('In ner', named_struct('b`c', 'deep')) AS S, map('k.e''y', 'v') AS m,"
        " X'61FF62' AS bin, true AS flag, 1.50BD AS dec, DATE'2024-02-29' AS day, 'x' AS `a.b`"
    )
    expected = {
        "m.k.e'y": "v",
        "m.none": None,
        "bin": "a\ufffdb",
        "flag": "true",
        "dec": "1.50",
        "day": "2024-02-29",
        "A.B": "x",
        "s.in ner.B`c": "deep",
    }
    columns, asked, wanted = dict(frame.dtypes), [], []
    for field, value in expected.items():
        for test, kind in ((f'{field}|contains": xyz*', TextTest), (f'{field}": null', IsNull)):
            text = rule_text(f'selection:\n  "{test}')
            tree = read(text).sources[0].bind(columns, ansi=True).tree
            assert isinstance(tree, kind), field
            is_null = kind is IsNull
            asked.append(f"{tree.operand.sql}{' IS NULL' * is_null} AS c")
            wanted.append(value is None if is_null else value)
    assert list(frame.selectExpr(*asked).first()) == wanted


def test_long_numbers_are_exact_as_sql():
    from eddyline.sigma.rule import _literal  # noqa: PLC0415 - the one place that writes SQL

    for number in (0, -5, 2**63, 0.1, 1e300, -1e-300, 123456789.125):
        assert re.fullmatch(r"-?[\d.]+(BD|(e[+-]\d+)?D)", _literal(number)), _literal(number)


HOSTILE = [
    "",
    "a\\" * 500_000 + "evil.EXE",
    "x" * 1_000_000,
    "İSTANBUL.exe",
    "istanbul.exe",
    "STRASSE",
    "straße",
    "ſecret",
    "\u212aerberos",
    "ΟΔΟΣ",
    "a\nb\r\nevil.exe",
    "\\udcff evil.exe",
    "\ufffd\ufeffevil.exe",
    "\x00evil.exe\x00",
    "100%_\\*?",
    "𝔘nicode \U0001f600 evil.exe",
    None,
]
ASKED = [
    "Image|endswith: '\\evil.exe'",
    "Image|endswith: 'evil.exe'",
    "Image|contains: EVIL",
    "Image|startswith: ISTANBUL",
    "Image|contains: 'i\u0307'",
    "Image: straße",
    "Image|contains: ss",
    "Image|startswith: K",
    "Image|startswith: s",
    "Image: 'οδος'",
    "Image|contains: '%_\\\\\\*\\?'",
    "Image: 'a?b*'",
    "Image|contains: '\\udcff'",
    'Image|contains: "\\U0001F600"',
    'Image|endswith: "\\0"',
    "Image|re: '(?s)^a.*exe$'",
    "Image|re|i: 'strasse|\u212a'",
    "Image|cased|startswith: ist",
    "Image: ''",
    "Image: null",
]


def test_hostile_texts_agree_with_the_oracle(spark, rule_text):
    texts = [
        rule_text(f"selection:\n  {each}").replace("55555555", f"{at:08}")
        for at, each in enumerate(ASKED)
    ]
    rules = el.sigma.load(texts)
    assert rules.skipped == ()
    oracles = {str(rule.id): rule for rule in map(PySigmaRule.from_yaml, texts)}
    rows = list(enumerate(HOSTILE))
    frame = spark.createDataFrame(rows, "id int, Image string")
    found = frame.transform(rules.matches("found", keep_unmatched=True)).collect()
    assert len(found) == len(HOSTILE)
    n_fired = 0
    for row in found:
        event = {"Image": HOSTILE[row["id"]]}
        expected = [name for name, each in oracles.items() if reference_sigma.truth(each, event)]
        assert row["found"] == expected, ascii(event)[:100]
        n_fired += len(expected)
    assert n_fired > len(ASKED)
