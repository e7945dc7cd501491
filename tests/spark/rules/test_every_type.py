"""Rules over columns of every type mean on Spark what Spark means by them.

However Spark cuts the rows into partitions and Arrow batches, with ANSI on and off, and for texts
that are not valid UTF-8: Kafka's bytes cast to text are whatever was sent.
"""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import QueryError
from tests.spark_says import (
    N_FIRST,
    TYPES,
    conditions,
    differences,
    edges,
    rules_say,
    spark_says,
    texts_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RULES = [
    *(f"{name} IS NULL" for name in TYPES),
    *(f"NOT ({name} IS NULL)" for name in TYPES),
    *texts_of("rules_on_every_type.sql"),
]


@pytest.fixture(scope="module")
def frame(spark):
    return edges(spark, n_rows=N_FIRST + 40)


@pytest.fixture(scope="module")
def expected(frame):
    """What Spark says, in ANSI mode."""
    return spark_says(frame, RULES)


@pytest.fixture(scope="module")
def lenient(spark, frame):
    """What Spark says without ANSI."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        return spark_says(frame, RULES)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.parametrize("method", ["auto", "blocks", "every_row"])
def test_every_type(frame, expected, method):
    assert differences(rules_say(frame, RULES, method=method), expected) == {}


@pytest.mark.large
@pytest.mark.parametrize("method", ["auto", "blocks", "every_row"])
def test_every_type_without_ansi(frame, lenient, change, method):
    change(ansi="false")
    assert differences(rules_say(frame, RULES, method=method), lenient) == {}


@pytest.mark.large("compiles a statement for each 16 or 64 rules")
@pytest.mark.parametrize(("ansi", "size"), [("true", 16), ("true", 64), ("false", 64)])
def test_every_type_in_statements_of_spark(frame, expected, lenient, change, ansi, size):
    """Both as a person would write it and, of many, cut; whatever may raise is left out."""
    change(ansi=ansi)
    free = [text for text in RULES if conditions(frame, text)]
    assert len(free) > 0.9 * len(RULES)
    said = expected if ansi == "true" else lenient
    answers = {id_: set(texts) for id_, texts in said.items()}
    for start in range(0, len(free), size):
        part = free[start : start + size]
        want = {id_: [each for each in part if each in own] for id_, own in answers.items()}
        assert differences(rules_say(frame, part, method="statement"), want) == {}


@pytest.mark.large
@pytest.mark.parametrize(("batch", "partitions"), [(1, 1), (7, 5), (10_000, 60)])
def test_batches_and_partitions(frame, expected, change, batch, partitions):
    change(batch=batch)
    found = rules_say(frame.repartition(partitions), RULES, sample_prob=0.5)
    assert differences(found, expected) == {}


def test_no_rows(frame):
    assert rules_say(frame.where("id < 0"), RULES) == {}


def test_a_text_that_is_half_a_character_is_refused(frame):
    with pytest.raises(QueryError, match="odd"):
        frame.transform(el.RuleSet({"odd": "u = '\ud800'"}).matches("_m")).collect()
