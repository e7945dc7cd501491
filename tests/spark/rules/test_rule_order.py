"""Rules over the order of texts, and over decimals of many digits, as Spark means them."""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.sql.rendering import string_literal
from tests.spark_says import differences, natives, rules_say, spark_says

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PIECES = ("", "\0", "a", "A", "ab", "b", "z", "~", "\x7f", "é", "ß", "\uffff", "😀", " ", "'", "\\")
"""``\uffff`` and ``😀`` stand in one order by bytes and in the other by halves of UTF-16."""

SIGNS = ("=", "<>", "<", "<=", ">", ">=")
UNSCALED = (
    *(0, 1, 5, 10, 10**10, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 10**18, 10**19),
    *(10**37, 10**38 - 1),
)
DECIMALS = {
    "w0": (38, 0),
    "w10": (38, 10),
    "w38": (38, 38),
    "n19": (19, 0),
    "n20": (20, 2),
    "n18": (18, 2),
}


def drawn_word(rng):
    """Return a text of few pieces."""
    return "".join(rng.choices(PIECES, k=rng.randint(0, 3)))


def drawn_text_rule(rng):
    """Return a rule over the order of texts."""
    operand = rng.choice(["s", "s", "s", "lower(s)", "s || 'b'"])
    a, b = (string_literal(drawn_word(rng)) for _ in range(2))
    forms = [f"{operand} {sign} {a}" for sign in SIGNS]
    forms += [f"{a} {sign} {operand}" for sign in SIGNS]
    forms += [f"{operand} BETWEEN {a} AND {b}", f"{operand} NOT BETWEEN {a} AND {b}"]
    forms += [f"{operand} IN ({a}, {b}, NULL)", f"NOT ({operand} < {a} OR {operand} > {b})"]
    forms += [f"{operand} >= {a} AND {operand} < {b}", f"({operand} < {a}) IS NULL"]
    return rng.choice([*forms, f"({operand} > {a}) IS DISTINCT FROM TRUE"])


def number(unscaled, scale):
    """Return a literal of so many digits behind the point."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = f".{digits[-scale:]}" if scale else ""
    return f"{'-' if unscaled < 0 else ''}{digits[: len(digits) - scale]}{point}"


def drawn_decimal_rule(rng):
    """Return a rule over decimals; constants may have another scale than the column."""
    column = rng.choice(sorted(DECIMALS))
    scales = [0, 0, 2, DECIMALS[column][1]]
    a, b, c = (
        number(rng.choice([-1, 1]) * rng.choice(UNSCALED), rng.choice(scales)) for _ in range(3)
    )
    forms = [f"{column} {sign} {a}" for sign in SIGNS]
    forms += [f"{column} BETWEEN {a} AND {b}", f"{column} NOT IN ({a}, {b}, {c})"]
    return rng.choice([*forms, f"{column} IN ({a}, {b}, NULL)", f"{a} < {column}"])


@pytest.mark.large
@pytest.mark.parametrize("method", ["auto", "blocks", "witnesses"])
def test_texts_by_their_order(spark, method):
    rng = random.Random(method)
    values = [None, *(drawn_word(rng) for _ in range(200))]
    frame = spark.createDataFrame(pa.table({"id": range(len(values)), "s": values}))
    texts = list(dict.fromkeys(drawn_text_rule(rng) for _ in range(200)))
    said = rules_say(frame, texts, method=method)
    assert differences(said, spark_says(frame, texts)) == {}


def test_duckdb_orders_texts_alike():
    """So the order is that of bytes, and not only what one engine makes of it."""
    plain = [each for each in PIECES if each != "\0"]
    words = pa.table({"s": sorted({a + b for a in plain for b in plain})})
    with duckdb.connect() as connection:
        connection.register("words", words)
        pairs = "SELECT x.s, y.s, x.s < y.s FROM words AS x CROSS JOIN words AS y"
        for one, other, is_less in connection.execute(pairs).fetchall():
            assert is_less == (one.encode() < other.encode())


@pytest.mark.large
@pytest.mark.parametrize(
    ("ansi", "method"),
    [("true", "auto"), ("false", "auto"), ("false", "blocks"), ("true", "witnesses")],
)
def test_decimals_of_many_digits(decimals, change, ansi, method):
    change(ansi=ansi)
    rng = random.Random(f"{ansi} {method}")
    texts = list(dict.fromkeys(drawn_decimal_rule(rng) for _ in range(150)))
    said = rules_say(decimals, texts, method=method)
    assert differences(said, spark_says(decimals, texts)) == {}


@pytest.fixture(scope="module")
def decimals(spark):
    """Rows at and next to the constants; NULL where a value has too many digits for its column."""
    near = sorted({sign * (each + d) for each in UNSCALED for d in (-1, 0, 1) for sign in (-1, 1)})
    columns = {
        name: [
            Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
            if len(str(abs(n))) <= precision
            else None
            for n in (*near, 10**40)
        ]
        for name, (precision, scale) in DECIMALS.items()
    }
    types = {name: pa.decimal128(*size) for name, size in DECIMALS.items()}
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    return spark.createDataFrame(pa.table({"id": range(len(near) + 1), **arrays}))


@pytest.mark.large
def test_two_hundred_rules_are_one_attribute(spark, decimals):
    words = [f"{chr(97 + n % 26)}{n}" for n in range(200)]
    frame = spark.createDataFrame([(n, word) for n, word in enumerate(words)], "id long, s string")
    by_order = {f"r{n}": f"s {SIGNS[2 + n % 4]} '{word}'" for n, word in enumerate(words)}
    wide = {f"r{n}": f"w10 {SIGNS[2 + n % 4]} {n}.{n}" for n in range(200)}
    for rules, rows, name in ((by_order, frame, "`s`"), (wide, decimals, "`w10`")):
        shared = el.RuleSet(rules)
        rows.transform(shared.any()).collect()
        (attribute,) = shared.facts().constructs
        assert (attribute.name, attribute.n_rules) == (name, 200)
        assert natives(rows, *rules.values()) == []


@pytest.mark.large
def test_what_spark_negates_it_rounds(decimals):
    digits = f"1{'2' * 36}3"
    minus = [f"-{digits}", f"- {digits}", f"-({digits})", f"-cast({digits} as decimal(38,0))"]
    texts = [f"w0 {sign} {each}" for each in minus for sign in ("<", "=", ">=")]
    rows = decimals.selectExpr("id", f"coalesce(w0 - w0, 0) - {digits}BD AS w0")
    rows = rows.union(rows.sparkSession.sql(f"SELECT -1L, CAST(-({digits}) AS DECIMAL(38,0))"))
    rows = rows.selectExpr("id", "CAST(w0 AS DECIMAL(38,0)) AS w0")
    assert len(rows.select("w0").distinct().collect()) == 2
    assert rules_say(rows, texts) == spark_says(rows, texts)
    assert natives(rows, texts[0]) == []
    assert all(natives(rows, text) for text in texts[6:])


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_where_no_type_has_all_digits_spark_rounds(decimals, change, ansi):
    far = 10**37
    texts = ["w0 > 0.5", "w0 <= 0.5", "0.4 < w0", "w0 <=> 0.5", "w0 IN (0, 0.5)", "n18 > -0.004"]
    texts += [f"n18 NOT IN (0, -{far})", f"n18 BETWEEN 0.00 AND {far}", "w38 < 1", "w38 <> 0"]
    change(ansi=ansi)
    assert rules_say(decimals, texts) == spark_says(decimals, texts)
    assert natives(decimals, "w0 > 0.5")
    assert natives(decimals, f"n18 IN (0, {far})")
    assert natives(decimals, "n18 IN (0, 0.005)") == []


def test_what_is_left_to_spark(spark):
    frame = spark.sql(
        "SELECT 'a' s, 'a' COLLATE UTF8_LCASE co, CAST(1 AS DECIMAL(38,0)) w, "
        "CAST(1 AS DECIMAL(20,2)) n"
    )
    assert natives(frame, "s < 'b'") == natives(frame, "n > 0.005") == []
    assert natives(frame, f"s BETWEEN {string_literal(chr(0))} AND 'a' OR s > '😀'") == []
    assert natives(frame, "co < 'b'")
    assert natives(frame, "s COLLATE UNICODE < 'b'")
    assert natives(frame, "w > 0.5")  # Spark rounds the constant: the digits do not fit
    assert natives(frame, "n > 1e0")
