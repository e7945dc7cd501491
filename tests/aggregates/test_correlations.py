"""Correlations in one bucket against their definition: random matches, ties, cuts, lateness."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from eddyline.aggregates.cells import CHECK, CODE
from eddyline.aggregates.correlations import CorrelationBatch
from eddyline.aggregates.plan import AggregatePlan, BucketState, Partials
from eddyline.query.correlations import (
    ALERT,
    CARRIED,
    EVENT,
    FRACTION,
    KEY,
    KINDS,
    MASK,
    PLACE,
    TEXT,
    WHOLE,
    Correlation,
    Reference,
)
from eddyline.query.query import UNBOUNDED
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.aggregates.slow import place_in
from tests.oracles.correlations import Alert, Match, alerts

N_RULES = 3
RULES = tuple(Reference(f"r{at}", ()) for at in range(N_RULES))
PROGRAMS = [(0, 1, -1), (0, 1, 2, -2, -3, -1), (0, 1, -2, 2, -1), (0, -3)]


def correlation(kind, rng, length=None):
    """Return a correlation of a kind, drawn."""
    ops = rng.choice([["gte"], ["gte"], ["gt"], ["lte"], ["lt"], ["eq"], ["neq"], ["gt", "lte"]])
    highest = {"value_sum": 40, "value_avg": 12, "value_percentile": 12}.get(kind, 4)
    low = rng.randint(1, highest)
    tests = tuple((op, low + (at and rng.randint(1, highest))) for at, op in enumerate(ops))
    program = rng.choice(PROGRAMS) if kind == "temporal" and rng.random() < 0.4 else ()
    return Correlation(
        kind,
        kind,
        RULES,
        length or rng.choice([0, 1, 5, 20]),
        () if program else tests,
        program,
        percentile=rng.choice([0, 25, 50, 90, 100]),
    )


def drawn(rng, n, span=60):
    """Return matches in the order of their times, with ties."""
    found = []
    for _ in range(n):
        key = (rng.choice(["a", "b", "c"]),)
        places = frozenset(rng.sample(range(N_RULES), rng.choice([1, 1, 2])))
        number = rng.choice([None, Fraction(rng.randint(-30, 120), 10), Fraction(7)])
        carried = rng.choice([None, "x", "y"])
        text = rng.choice([None, "u", "v", "w"])
        found.append(Match(rng.randrange(span), key, places, text, number, carried))
    return sorted(found, key=lambda each: each.time)


def rows_of(placed):
    """Return matches with the places of their correlations as rows of a bucket."""
    codes = np.array([hash((place, each.key)) for place, each in placed], np.int64)
    times = np.array([each.time for _, each in placed], np.int64)
    numbers = [None if each.number is None else math.floor(each.number) for _, each in placed]
    parts = [None if each.number is None else int((each.number % 1) * 10**9) for _, each in placed]
    payload = pa.table(
        {
            PLACE: pa.array([place for place, _ in placed], pa.int32()),
            MASK: pa.array([sum(1 << at for at in each.places) for _, each in placed]),
            KEY: pa.array([list(each.key) for _, each in placed], pa.list_(pa.string())),
            TEXT: pa.array([each.text for _, each in placed], pa.string()),
            WHOLE: pa.array(numbers, pa.int64()),
            FRACTION: pa.array(parts, pa.int64()),
            CARRIED: pa.array([each.carried for _, each in placed], pa.string()),
            EVENT: pa.nulls(len(placed)),
            ALERT: pa.nulls(len(placed)),
            "ts": pa.array(times),
        }
    )
    return Rows({CODE: codes, CHECK: codes + 1}, times, times, payload)


def found_in(table):
    """Return the alerts of a table by the place of their correlation."""
    for row in table.to_pylist():
        told = row[ALERT]
        facts = told["first"], told["events"], told["value"], row[CARRIED]
        yield row[PLACE], Alert(row["ts"], tuple(row[KEY]), *facts)


def answered(correlations, batches, folder, lateness):
    """Return the alerts of each correlation over batches, and the matches that were not late."""
    place = place_in(folder)
    state, latest, before = BucketState(), ALWAYS, ALWAYS
    found = {at: [] for at in range(len(correlations))}
    timely = {at: [] for at in range(len(correlations))}
    for batch in [*batches, None]:
        rows = [each for each in batch or [] if each[1].time >= before]
        for at, each in rows:
            timely[at].append(each)
        latest = max([latest, *(each.time for _, each in batch or [])])
        after = FOREVER if batch is None else latest - lateness if latest != ALWAYS else ALWAYS
        placed = tuple(enumerate(correlations))
        plan = AggregatePlan(before, after, (), Partials({}), UNBOUNDED, correlations=placed)
        task = CorrelationBatch(plan, place, state, 0)
        for table in task.run(rows_of(rows) if rows else None):
            for at, alert in found_in(table):
                found[at].append(alert)
        state, before = task.report.after, after
    return found, timely


def same(got, wanted):
    """Compare alerts, their values as floats."""
    got = sorted(got, key=lambda each: (each.time, each.key))
    facts = [(a.time, a.key, a.first, a.events, a.carried) for a in got]
    assert facts == [(a.time, a.key, a.first, a.events, a.carried) for a in wanted]
    values = [a.value for a in wanted]
    assert [a.value for a in got] == pytest.approx(values, rel=1e-12, nan_ok=True)


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_a_correlation_is_its_definition_whatever_the_batches(kind, seed, tmp_path):
    rng = random.Random(f"{kind} {seed}")
    correlations = [correlation(kind, rng), correlation(kind, rng)]
    matches = drawn(rng, rng.choice([5, 40, 120]))
    placed = [(rng.randrange(2), each) for each in matches]
    lateness = rng.choice([0, 0, 5])
    # Disorder beyond the lateness makes some of them late.
    placed.sort(key=lambda each: each[1].time + rng.uniform(0, rng.choice([0, 4, 9])))
    cuts = sorted(rng.randrange(len(placed) + 1) for _ in range(rng.choice([0, 3, 12])))
    batches = [placed[low:high] for low, high in zip([0, *cuts], [*cuts, len(placed)], strict=True)]
    found, timely = answered(correlations, batches, tmp_path, lateness)
    for at, each in enumerate(correlations):
        same(found[at], alerts(each, timely[at]))


def test_every_kind_gives_alerts_in_these_streams():
    # Else the test above would compare nothing with nothing.
    for kind in KINDS:
        rng = random.Random(kind)
        n = sum(len(alerts(correlation(kind, rng), drawn(rng, 60))) for _ in range(20))
        assert n > 20, kind


def test_all_kinds_share_a_bucket(tmp_path):
    rng = random.Random(3)
    correlations = [correlation(kind, rng, length=length) for kind in KINDS for length in (3, 15)]
    matches = drawn(rng, 200, span=100)
    placed = [(at, each) for each in matches for at in range(len(correlations))]
    found, _ = answered(correlations, [placed[:900], placed[900:950], placed[950:]], tmp_path, 0)
    for at, each in enumerate(correlations):
        same(found[at], alerts(each, matches))


def test_sums_are_exact_beyond_64_bits(tmp_path):
    big = 2**62
    rule = Correlation("s", "value_sum", RULES, 100, (("gte", big),))
    numbers = [Fraction(big - 1), Fraction(big), -Fraction(big), Fraction(9, 10), Fraction(1, 10)]
    matches = [Match(at, ("a",), frozenset([0]), number=x) for at, x in enumerate(numbers)]
    found, _ = answered([rule], [[(0, each)] for each in matches], tmp_path, 0)
    same(found[0], alerts(rule, matches))
    assert [each.time for each in found[0]] == [1, 4]


@pytest.mark.large
def test_what_is_kept_ends_with_the_timespan(tmp_path):
    rule = Correlation("c", "event_count", RULES, 10, (("gte", 2),))
    place = place_in(tmp_path)
    state, before = BucketState(), ALWAYS
    for time in range(0, 1_000, 5):
        rows = rows_of([(0, Match(time, ("a",), frozenset([0])))])
        placed = ((0, rule),)
        plan = AggregatePlan(before, time, (), Partials({}), UNBOUNDED, correlations=placed)
        task = CorrelationBatch(plan, place, state, 0)
        list(task.run(rows))
        state, before = task.report.after, time
        assert sum(file.n_rows for file in state.files) <= 8
