"""Segments that are read: those that overlap count by version, or are refused."""

from __future__ import annotations

import datetime as dt
import itertools
import random

import pytest

import eddyline as el
from eddyline.errors import QueryError

START = dt.datetime(2024, 3, 1)
COLUMNS = (
    "ship int, origin timestamp_ntz, lo timestamp_ntz, hi timestamp_ntz, is_point boolean, "
    "tomb boolean, coef_x array<double>, err_x double, said int"
)


def at(second):
    return START + dt.timedelta(seconds=second)


def row(ship, lo, hi, x, said=None):
    """Return a constant from one second to another, or a tombstone if there is no value."""
    coefs, error = (None, None) if x is None else ([float(x)], 0.0)
    return ship, None, at(lo), at(hi), lo == hi, x is None, coefs, error, said


def made(spark, rows, partitions=3):
    return spark.createDataFrame(rows, COLUMNS).repartition(partitions)


def shown(segments):
    """Return ranges in seconds and values, by ship."""
    return sorted(
        (
            (
                each.ship,
                (each.lo - START).total_seconds(),
                (each.hi - START).total_seconds(),
                *each.coef_x,
            )
            for each in segments.to_df().collect()
        ),
        key=repr,
    )


def oracle(rows):
    """Return what holds in each second: the row of the greatest version, a segment before none."""
    found = {}
    for ship, second in itertools.product({each[0] for each in rows}, range(40)):
        there = [
            (-1 if each[8] is None else each[8], not each[5], each[6])
            for each in rows
            if each[0] == ship and each[2] <= at(second) < each[3]
        ]
        if there and max(there, key=lambda each: each[:2])[1]:
            found[ship, second] = max(there, key=lambda each: each[:2])[2][0]
    return found


def written(seed):
    """Return segments and tombstones of some versions, in no order; some are there twice.

    Each seed has ships of its own, and the first one a ship without a name.
    """
    drawn, rows = random.Random(seed), []
    ships = (10 * seed + 1, 10 * seed + 2, 10 * seed + 3 if seed else None)
    for version, ship in itertools.product((None, 0, 2, 9), ships):
        second = drawn.randrange(5)
        while second < 30:
            end = second + drawn.randrange(1, 12)
            rows.append(row(ship, second, end, drawn.choice([None, 1, 2, 3]), version))
            second = end + drawn.choice([0, 0, 3])
        rows.append(row(ship, 3 * drawn.randrange(5), 17, None, version))
    rows += drawn.sample(rows, 5)
    drawn.shuffle(rows)
    return rows


@pytest.mark.large
def test_of_segments_that_overlap_the_greatest_version_counts(spark):
    rows = [each for seed in range(3) for each in written(seed)]
    segments = el.models.read(made(spark, rows), version="said")
    ticks = segments.sample("1 second").collect()
    assert {(each.ship, int((each.time - START).total_seconds())): each.x for each in ticks} == (
        oracle(rows)
    )
    assert len(ticks) == len(oracle(rows))
    own = [each for each in rows if each[0] in (2, 12, 22)]
    some = segments.where("ship IN (2, 12, 22)")
    pairs = some.join(segments, names=("a", "b")).sample("1 second").collect()
    assert len(pairs) == len(oracle(own)) > 0
    assert all(each.a_x == each.b_x for each in pairs)


def test_t11_and_what_is_taken_back(spark):
    rows = [row(1, 0, 10, 1, 0), row(1, 6, 12, 2, 1), row(2, 0, 10, 1, 0), row(2, 6, 8, 2, 1),
            row(2, 8, 10, None, 1), row(None, 5, 9, 1, 4), row(None, 6, 9, None, 5)]  # fmt: skip
    assert shown(el.models.read(made(spark, rows), version="said")) == [
        (1, 0.0, 6.0, 1.0), (1, 6.0, 12.0, 2.0), (2, 0.0, 6.0, 1.0), (2, 6.0, 8.0, 2.0),
        (None, 5.0, 6.0, 1.0),
    ]  # fmt: skip


@pytest.mark.large
def test_without_versions_segments_that_do_not_overlap_are_as_they_were(spark):
    rows = [row(1, 0, 10, 1), row(1, 10, 12, 2), row(2, 0, 10, 1), row(1, 15, 15, 3),
            row(2, 12, 14, None)]  # fmt: skip
    assert shown(el.models.read(made(spark, rows).drop("said"))) == [
        (1, 0.0, 10.0, 1.0), (1, 10.0, 12.0, 2.0), (1, 15.0, 15.0, 3.0), (2, 0.0, 10.0, 1.0),
    ]  # fmt: skip


@pytest.mark.large
@pytest.mark.parametrize("partitions", [1, 4])
def test_an_overlap_is_found_wherever_the_two_segments_are(spark, partitions):
    rows = [row(ship, 10 * n, 10 * n + 10, n) for n in range(6) for ship in (1, 2)]
    whole = made(spark, rows, partitions).drop("said")
    assert el.models.read(whole).to_df().count() == len(rows)
    by_time = whole.repartitionByRange(3, "lo")
    assert el.models.read(by_time).to_df().count() == len(rows)
    more = made(spark, [row(2, 25, 26, 0), row(3, 25, 26, 0)], 1).drop("said")
    for each in (whole, by_time):
        with pytest.raises(QueryError, match=r"ship = 2 overlap, \[.*00:00:20, .*00:00:25, "):
            el.models.read(each.union(more)).to_df()


def uses(segments):
    return [
        lambda: segments.where("ship = 1").sample("1 second"),
        lambda: segments.max("x").to_df(),
        lambda: segments.pairs("left.x < right.x").to_df(),
        lambda: segments.exact(segments.to_df(), time="lo"),
        segments.persist,
    ]


@pytest.mark.large
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(1, 0, 9, 1), row(2, 5, 12, 3), row(2, 0, 5, 1), row(2, 6, 7, 2)],
            r"segments of ship = 2 overlap, \[2024-03-01 00:00:05, 2024-03-01 00:00:12\) and "
            r"\[2024-03-01 00:00:06, 2024-03-01 00:00:07\), and nothing says .* version='…'",
        ),
        ([row(None, 0, 9, 1), row(None, 8, 8, 3)], "segments of ship = None overlap"),
        ([row(1, 0, 9, 1), row(1, 2, 3, None)], "segments of ship = 1 overlap"),
    ],
)
def test_what_overlaps_without_versions_is_refused(spark, rows, message):
    segments = el.models.read(made(spark, rows).drop("said"))
    with pytest.raises(QueryError, match=message):
        segments.to_df()


@pytest.mark.large
def test_what_overlaps_is_refused_wherever_it_is_used(spark):
    rows = [row(1, 0, 9, 1), row(1, 2, 3, None)]
    for use in uses(el.models.read(made(spark, rows).drop("said"))):
        with pytest.raises(QueryError, match="segments of ship = 1 overlap"):
            use()


@pytest.mark.large
def test_what_overlaps_in_one_version_is_refused(spark):
    rows = [row(1, 0, 9, 1, 3), row(1, 8, 12, 3, 3), row(1, 4, 5, 1, 7)]
    segments = el.models.read(made(spark, rows), version="said")
    with pytest.raises(QueryError, match=r"ship = 1 overlap.*as 'said' is 3 in both"):
        segments.to_df()
    whole = made(spark, rows).drop("ship")
    with pytest.raises(QueryError, match="segments overlap"):
        el.models.read(whole, version="said").to_df()


def test_versions_are_whole_numbers_of_a_column(spark):
    rows = made(spark, [row(1, 0, 9, 1, 3)])
    with pytest.raises(QueryError, match="unknown version 'sad'"):
        el.models.read(rows, version="sad")
    with pytest.raises(QueryError, match="version 'said' is of type double; give whole numbers"):
        el.models.read(rows.withColumn("said", rows.said.cast("double")), version="said")
    assert el.models.read(rows).keys == ("ship", "said")


@pytest.mark.large
def test_sql_reads_segments_with_the_marks_of_early_results(spark):
    rows = [row(1, 0, 10, 1, 0), row(1, 6, 12, 2, 1), row(1, 9, 12, None, 2)]
    early = made(spark, rows).selectExpr("* EXCEPT (said)", "said AS version", "true AS validated")
    engine = el.Engine(spark)
    engine.table("kept", early)
    engine.table("twice", early.drop("version", "validated"))
    found = engine.query("SELECT ship, x FROM kept MODEL SEGMENTS SAMPLE EVERY 2 SECONDS").to_df()
    assert [each.x for each in found.orderBy("time").collect()] == [1, 1, 1, 2, 2]
    with pytest.raises(QueryError, match=r"ship = 1 overlap.*\(line 1, column 42\)"):
        engine.query("SELECT ship, x FROM twice MODEL SEGMENTS SAMPLE EVERY 2 SECONDS")
