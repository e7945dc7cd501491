"""Rules over points in time mean what Spark means by them, in every time zone of a session."""

from __future__ import annotations

import datetime as dt
import random

import pytest

import eddyline as el
from eddyline.spark.rules.binding import RuleBinder
from tests.oracles.rules import truth
from tests.spark_says import differences, natives, rules_say, spark_says

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "America/Toronto", "Pacific/Apia")
"""A gap and an overlap; half an hour; a gap at 00:01 that spans midnight; a day that is missing."""

WALLS = (
    *("2024-03-10 01:59:59.999999", "2024-03-10 02:00:00", "2024-03-10 02:30:00"),
    *("2024-03-10 03:00:00", "2024-03-10 03:30:00", "2024-11-03 00:59:59.999999"),
    *("2024-11-03 01:00:00", "2024-11-03 01:30:00", "2024-11-03 02:00:00", "2024-11-03 06:30:00"),
    *("1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1883-11-18 12:00:00"),
    *("1919-03-30 23:45:00", "1919-03-31 00:00:00", "1919-03-31 00:30:00", "2011-12-30 12:00:00"),
    *("1582-10-10 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
)
SHORT = ("2024-03-10", "2024-03-10 02:30", "2024-03-10T02:30:00", "1969-12-31", "1919-03-31")
ZONED = ("2024-03-10 07:00:00Z", "2024-11-03T01:30:00.5-05:00", "1970-01-01 05:30:00+05:30")
TEXTS = tuple(f"'{text}'" for text in (*WALLS, *SHORT, *ZONED))
DAYS = tuple(f"DATE '{text[:10]}'" for text in WALLS)
LTZ = tuple(f"{name} {text}" for name in ("TIMESTAMP", "TIMESTAMP_LTZ") for text in TEXTS)
NTZ = tuple(f"TIMESTAMP_NTZ '{text}'" for text in (*WALLS, *SHORT))
MICROS = (-(2**63), 2**63 - 1, -62_167_219_200_000_001, 253_402_300_800_000_000)
"""Rows that Python has no name for."""

MIXED = (
    "at IN ('2024-03-10 01:59:59.999999', TIMESTAMP '1970-01-01 05:30:00+05:30', "
    "TIMESTAMP_LTZ '2024-11-03 02:00:00')"
)
"""Where TIMESTAMP means TIMESTAMP_NTZ, a literal with a zone is a TIMESTAMP_LTZ, a cast is not."""

FORMS = (
    *("{c} = {v}", "{c} <> {v}", "{c} < {v}", "{c} <= {v}", "{c} > {v}", "{c} >= {v}", "{v} < {c}"),
    *("{c} BETWEEN {v} AND {v}", "{c} NOT BETWEEN {v} AND {v}", "{c} IN ({v}, {v}, {v})"),
    *("{c} NOT IN ({v}, NULL)", "{c} <=> {v}", "{c} IS DISTINCT FROM {v}", "NOT {c} > {v}"),
    *("{c} > {v} OR {c} IS NULL", "{c} > {v} AND {c} <= {v}"),
)


def rows_in(spark, extra=MICROS):
    """Return rows at, just before and just after the constants, in the zone of the session."""
    walls = ", ".join(f"('{text}')" for text in (*WALLS, *SHORT))
    far = ", ".join(f"({micros}L)" for micros in extra)
    return spark.sql(
        f"""
        WITH walls AS (
            SELECT CAST(col1 AS TIMESTAMP_LTZ) AS at, CAST(col1 AS TIMESTAMP_NTZ) AS wall
            FROM VALUES {walls}
        ), near AS (
            SELECT timestamp_micros(unix_micros(at) + step) AS at, wall + INTERVAL 0.000001 SECOND
                * step AS wall
            FROM walls CROSS JOIN (VALUES (-1), (0), (1)) AS steps (step)
        )
        SELECT monotonically_increasing_id() AS id, *, named_struct('at', at) AS st FROM (
            SELECT at, wall FROM near
            UNION ALL SELECT timestamp_micros(col1), NULL FROM VALUES {far}
            UNION ALL SELECT NULL, NULL
        )"""
    ).coalesce(1)


def constants_for(column):
    """Return constants that a column is compared with in its own type."""
    return (*TEXTS, *DAYS, *NTZ, *LTZ) if column != "wall" else (*TEXTS, *DAYS, *NTZ)


def drawn_rules(rng, n_rules):
    """Return rules over columns and constants at random."""
    texts = []
    for _ in range(n_rules):
        column = rng.choice(["at", "wall", "st.at"])
        text = rng.choice(FORMS).replace("{c}", column)
        while "{v}" in text:
            text = text.replace("{v}", rng.choice(constants_for(column)), 1)
        texts.append(text)
    return list(dict.fromkeys(texts))


OTHERS = (
    *(("true", "TIMESTAMP_NTZ", "blocks"), ("false", "TIMESTAMP_NTZ", "auto")),
    *(("false", "TIMESTAMP_LTZ", "witnesses"), ("false", "TIMESTAMP_LTZ", "auto")),
    ("true", "TIMESTAMP_NTZ", "witnesses"),
)
"""ANSI, the meaning of TIMESTAMP, and the method, beside what a session has by default."""

USUAL = ("true", "TIMESTAMP_LTZ", "auto")

CASES = [
    *((zone, *other) for zone, other in zip(ZONES, OTHERS, strict=True)),
    *((zone, *USUAL) for zone in ("UTC", "America/New_York", "Pacific/Apia")),
]
"""Every zone with timestamps that have one."""


@pytest.mark.large
@pytest.mark.parametrize(("zone", "ansi", "timestamps", "method"), CASES)
def test_rules_say_what_spark_says(spark, change, zone, ansi, timestamps, method):
    """Every constant, and rules that are drawn."""
    change(zone=zone, ansi=ansi, timestamps=timestamps)
    frame = rows_in(spark).localCheckpoint()
    assert frame.count() == 3 * len((*WALLS, *SHORT)) + len(MICROS) + 1
    texts = [f"{column} <= {each}" for column in ("at", "wall") for each in constants_for(column)]
    texts += drawn_rules(random.Random(f"{zone} {ansi}"), 150)
    texts.append(MIXED)
    texts = list(dict.fromkeys(texts))
    said = rules_say(frame, texts, method=method)
    assert differences(said, spark_says(frame, texts)) == {}


@pytest.mark.large
def test_two_hundred_rules_are_one_attribute(spark, change):
    change(zone="America/New_York")
    frame = rows_in(spark)
    given_texts = {
        f"r{n}": f"at {'>' if n % 2 else '<='} TIMESTAMP '2024-{1 + n % 12:02}-{1 + n % 28:02} "
        f"{n % 24:02}:{n % 60:02}:{n % 59:02}'"
        for n in range(200)
    }
    rules = el.RuleSet(given_texts)
    frame.transform(rules.any()).select("id").collect()
    (attribute,) = rules.facts().constructs
    n_times = len({text.partition("TIMESTAMP")[2] for text in given_texts.values()})
    # A region per gap between constants, one after the last, and one for NULL.
    assert (attribute.name, attribute.n_rules, attribute.n_tests) == ("`at`", 200, n_times + 2)
    assert natives(frame, *given_texts.values()) == []


def test_what_is_shared_and_what_is_left_to_spark(spark, change):
    frame = rows_in(spark)
    shared = ["at > '2024-01-01'", "at > DATE '2024-01-01'", "at IN ('2024-01-01', NULL)"]
    shared += ["wall > '2024-01-01'", "wall = TIMESTAMP_NTZ '2024-01-01'", "at IS NULL"]
    assert natives(frame, *shared) == []
    # Spark reads the column in the zone, where hours are missing and come twice.
    assert natives(frame, "wall > TIMESTAMP '2024-01-01'")
    assert natives(frame, "wall > '2024-01-01 00:00:00Z'")
    assert natives(frame, "at > wall")
    assert natives(frame, "at > now()")
    assert natives(frame, "at > 'today'")
    change(ansi="false")
    assert natives(frame, "at IN ('2024-01-01')")  # as texts
    assert natives(frame, "at > 'no time'")
    assert natives(frame, "at > '2024-01-01'") == []


@pytest.mark.large
def test_another_zone_is_another_meaning(spark, change):
    frame = rows_in(spark).localCheckpoint()
    rules = el.RuleSet({"r": "at >= TIMESTAMP '2024-03-10 03:00:00'"})
    seen = set()
    for zone in ZONES:
        change(zone=zone)
        found = frame.transform(rules.any()).select("id").collect()
        assert found == frame.where("at >= TIMESTAMP '2024-03-10 03:00:00'").select("id").collect()
        seen.add(len(found))
    assert len(seen) > 1


@pytest.mark.large
def test_a_running_set_takes_in_new_constants(spark):
    frame = rows_in(spark).localCheckpoint()
    rules = el.RuleSet({"a": "at > '2024-03-10'"})
    frame.transform(rules.any()).select("id").collect()
    rules.add("b", "at <= '2024-03-10' AND at > '1970-01-01'")
    rules.replace("a", "at IS NULL")
    kept = frame.where("at IS NULL OR (at <= '2024-03-10' AND at > '1970-01-01')").select("id")
    assert frame.transform(rules.any()).select("id").collect() == kept.collect()


@pytest.mark.large
def test_moments_in_a_tree_are_what_the_session_says(spark, change):
    change(zone="Asia/Kolkata")
    frame = rows_in(spark)
    _, sources = el.RuleSet({"r": "NOT at IN ('1970-01-01 05:30:00')"}).store.now()
    (rule,) = RuleBinder().bind(frame, sources.values(), skips=False).rules
    assert rule.tree.part.value == 0
    assert truth(rule.tree, {"`at`": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}) is False
