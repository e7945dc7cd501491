"""Rules over columns of every type mean on Spark what Spark means by them.

However Spark cuts the rows into partitions and Arrow batches, with ANSI on and off, and for texts
that are not valid UTF-8: Kafka's bytes cast to text are whatever was sent.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = {
    "tiny": ("tinyint", ["-128", "127", "0"]),
    "small": ("smallint", ["-32768", "32767", "1"]),
    "i": ("int", ["-2147483648", "2147483647", "0", "5"]),
    "l": ("bigint", ["-9223372036854775808", "9223372036854775807", "0", "5"]),
    "f": ("float", ["'NaN'", "'-0.0'", "0.0", "0.1", "'Infinity'", "'-Infinity'", "1e-45"]),
    "x": ("double", ["'NaN'", "'-0.0'", "0.0", "0.1", "'Infinity'", "1e308", "5e-324"]),
    "d2": ("decimal(18,2)", ["'9999999999999999.99'", "'-0.01'", "0", "'0.10'"]),
    "d18": ("decimal(18,18)", ["'0.999999999999999999'", "'-1E-18'", "0"]),
    "d38": ("decimal(38,10)", ["'9999999999999999999999999999.9999999999'", "0", "'-1.5'"]),
    "b": ("boolean", ["true", "false"]),
    "day": ("date", ["'0001-01-01'", "'1969-12-31'", "'1970-01-01'", "'9999-12-31'"]),
    "at": ("timestamp", ["'1969-12-31 23:59:59.999999'", "'2024-02-29 12:00:00'"]),
    "ntz": ("timestamp_ntz", ["'0001-01-01 00:00:00'", "'2024-02-29 12:00:00'"]),
    "span": ("interval day to second", ["INTERVAL '1 02:03:04.5' DAY TO SECOND"]),
    "months": ("interval year to month", ["INTERVAL '1-2' YEAR TO MONTH"]),
    "bin": ("binary", ["X''", "X'00FF'", "'abc'"]),
    "arr": ("array<int>", ["array()", "array(1, NULL)"]),
    "st": ("struct<a:int>", ["named_struct('a', 1)", "named_struct('a', NULL)"]),
    "mp": ("map<string,int>", ["map('k', 1)", "map()"]),
    "s": (
        "string",
        [
            *(
                "''",
                "'a'",
                "'AB'",
                "'ab'",
                "'İstanbul'",
                "'STRASSE'",
                "'Straße'",
                "'ΟΔΟΣ'",
                "'οδος'",
            ),
            *("'οδοσ'", "'a%b'", "'a_b'", "'😀'", "'K'", "'line\\nend'", "'a\\\\b'", "'é'", "'É'"),
            *("X'61FF62'", "X'C0AF'", "X'FF'", "X'C389FF'", "X'EDA080'", "X'610062'"),
            *("X'E08080'", "X'E282'", "X'F0808080'", "X'F4908080'", "X'F09F98'", "X'61E28262'"),
            *("X'C3'", "X'61C362'", "X'80BF'", "X'F5808080'", "X'C3A9'"),
        ],
    ),
    "c": ("char(3)", ["'ab'", "'abc'"]),
    "v": ("varchar(5)", ["'ab'", "'ab '"]),
}
NOT_TEXTS = ("arr", "st", "mp")
RULES = {
    **{f"{name} is null": f"{name} IS NULL" for name in COLUMNS},
    **{f"{name} is known": f"NOT ({name} IS NULL)" for name in COLUMNS},
    "tiny": "tiny < 127 AND tiny >= -128",
    "tiny far": "tiny < 1000",
    "small": "small IN (1, 32767, 99999)",
    "i": "i > 2147483646 OR i = 0",
    "l high": "l >= 9223372036854775807",
    "l low": "l <= -9223372036854775808",
    "l ne": "l <> 5",
    "l half": "l < 4.5",
    "f nan": "f > 1000",
    "f tenth": "f = 0.1D",
    "f zero": "f = 0",
    "x nan": "x = DOUBLE('NaN')",
    "x le": "x <= -0.0D",
    "x not": "NOT (x < 1)",
    "x in": "x IN (0, 0.1D)",
    "d2": "d2 >= 0.1",
    "d2 end": "d2 = 9999999999999999.99",
    "d18": "d18 < 0 OR d18 > 0.5",
    "d38": "d38 > 0",
    "d38 end": "d38 >= 9999999999999999999999999999.9999999999 OR d38 IN (-1.50, 7)",
    "d38 far": "d38 < 0.00000000005 OR d38 IS NULL",
    "b": "b",
    "b not": "NOT b",
    "b is": "b IS NOT TRUE",
    "day": "day < DATE '1970-01-01'",
    "day ends": "day IN (DATE '0001-01-01', DATE '9999-12-31')",
    "at": "at < TIMESTAMP '1970-01-01 00:00:00'",
    "at text": "at BETWEEN '1969-12-31 23:59:59.999999' AND DATE '1970-01-01'",
    "ntz": "ntz > TIMESTAMP_NTZ '1000-01-01 00:00:00'",
    "ntz in": "ntz IN (TIMESTAMP_NTZ '0001-01-01 00:00:00', DATE '2024-02-29')",
    "span": "span > INTERVAL '1' DAY",
    "bin": "bin = X'00FF'",
    "arr": "size(arr) > 0",
    "st": "st.a = 1",
    "mp": "mp['k'] = 1",
    "s empty": "s = ''",
    "s eq": "s = 'ab'",
    "s ne": "s <> 'ab'",
    "s in": "s IN ('a', 'É', '😀')",
    "s below": "s < 'b'",
    "s from": "s BETWEEN 'ab' AND 'é'",
    "s above": "s > '😀' OR s >= 'a😀'",
    "s lower below": "lower(s) <= 'k'",
    "v below": "v < 'b' AND c < 'b'",
    "s like": "s LIKE '%b'",
    "s one": "s LIKE '_'",
    "s two": "s LIKE '__'",
    "s mid": "s LIKE 'a_b'",
    "s escaped": "s LIKE 'a\\\\%b'",
    "s any": "s LIKE '%'",
    "s contains": "contains(s, 'a')",
    "s lower": "lower(s) = 'ab'",
    "s lower é": "lower(s) LIKE '%é%'",
    "s lower i": "lower(s) LIKE 'i%'",
    "s sigma": "lower(s) = 'οδος'",
    "s sharp": "lower(s) LIKE '%ß%'",
    "s kelvin": "lower(s) IN ('k', 'i')",
    "s ilike": "s ILIKE 'A%'",
    "s rlike": "s RLIKE '^a.b$'",
    "s starts": "startswith(s, 'a') AND NOT endswith(s, 'b')",
    "c": "c = 'ab'",
    "v": "v = 'ab' OR v LIKE '%'",
    "three": "(s LIKE 'a%') IS NOT TRUE AND (l > 0) IS NOT NULL",
    "all": "l > 0 AND s LIKE '%a%' AND x < 1 AND day < DATE '2000-01-01'",
    "always": "1 = 1",
    "never": "1 = 2",
    "unknown": "NULL",
    'it\'s "odd" `ü`': "s = 'é'",
}
LONGEST = max(len(values) for _, values in COLUMNS.values())


@pytest.fixture(scope="module")
def frame(spark):
    """One row per value and one of NULLs; each column goes round its own values."""
    rows = []
    for at in range(2 * LONGEST + 1):
        cells = []
        for number, (name, (kind, values)) in enumerate(COLUMNS.items()):
            value = None if at == 0 or (at + number) % 7 == 0 else values[at % len(values)]
            cells.append(f"CAST({value or 'NULL'} AS {kind}) AS {name}")
        rows.append(f"SELECT {at} AS id, {', '.join(cells)}")
    made = spark.sql(" UNION ALL ".join(rows)).repartition(1).localCheckpoint()
    assert made.count() == 2 * LONGEST + 1
    return made


def wanted(frame):
    columns = [F.when(F.expr(text).cast("boolean"), F.lit(name)) for name, text in RULES.items()]
    found = frame.select("id", F.array_compact(F.array(*columns)).alias("m")).collect()
    return {row["id"]: list(row["m"]) for row in found}


def got(frame, **options):
    rules = el.RuleSet(RULES, **options)
    found = frame.transform(rules.matches("m", keep_unmatched=True)).select("id", "m").collect()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: list(row["m"]) for row in found}


def differences(found, expected):
    """Return, per row that has any, the rules that should not be true and those that should."""
    assert found.keys() == expected.keys()
    return {
        id_: (sorted(set(found[id_]) - set(names)), sorted(set(names) - set(found[id_])))
        for id_, names in expected.items()
        if found[id_] != names
    }


@pytest.fixture
def settings(spark):
    """Set settings of the session for one test."""
    before = {}

    def change(**given):
        for name, value in given.items():
            key = {"ansi": "spark.sql.ansi.enabled", "batch": BATCH}[name]
            before.setdefault(key, spark.conf.get(key))
            spark.conf.set(key, str(value))

    yield change
    for key, value in before.items():
        spark.conf.set(key, value)


BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("method", ["auto", "blocks", "every_row"])
def test_every_type(frame, settings, ansi, method):
    settings(ansi=ansi)
    assert differences(got(frame, method=method), wanted(frame)) == {}


@pytest.mark.parametrize(
    ("batch", "partitions"),
    [(1, 1), (7, 5), pytest.param(10_000, 60, marks=pytest.mark.large), (1, 60)],
)
def test_batches_and_partitions(frame, settings, batch, partitions):
    settings(batch=batch)
    found = got(frame.repartition(partitions), sample_prob=0.5)
    assert differences(found, wanted(frame)) == {}


def test_no_rows(frame):
    assert got(frame.where("id < 0")) == {}


def test_a_text_that_is_half_a_character_is_refused(frame):
    with pytest.raises(QueryError, match="odd"):
        frame.transform(el.RuleSet({"odd": "s = '\ud800'"}).matches("m")).collect()
