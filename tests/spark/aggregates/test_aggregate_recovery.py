"""Aggregates that are stopped or run again give what an uninterrupted run gives.

Crashes at any point are in ``tests/spark/run/test_crashes.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.oracles.aggregate_strategies import aggregate_cases, over_cases
from tests.oracles.aggregates import differences
from tests.spark.aggregates.aggregate_streams import (
    ended,
    found,
    has_answers,
    query_of,
    settings,
    wanted,
    write_case,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


def is_cut(case):
    return len(case.batches) > 1 and has_answers(case)


CASES = st.one_of(aggregate_cases(), aggregate_cases(), over_cases()).filter(is_cut)
LATE_CASES = st.one_of(aggregate_cases(late=True), over_cases(late=True)).filter(is_cut)


def restarted(spark, case, folder, numbers_of_partitions):
    """Return the results of runs one after the other."""
    answer, checkpoint, past = [], str(folder / "ckpt"), 0
    for at, partitions in enumerate(numbers_of_partitions, 1):
        first, past = past, -(-len(case.batches) * at // len(numbers_of_partitions))
        if first == past:
            continue
        write_case(case, folder, first, past)
        with settings(spark, partitions=partitions):
            run = ended(query_of(spark, case, folder), checkpoint=checkpoint)
        answer += found(case, run.to_arrow())
    return answer


@pytest.mark.large
@given(
    case=st.one_of(CASES, LATE_CASES),
    partitions=st.one_of(st.just([2, 2]), st.permutations([1, 2, 5])),
)
@examples(24, phases=PHASES)
def test_a_restart_goes_on_with_the_same_or_other_partitions(spark, case, partitions):
    with tempfile.TemporaryDirectory() as folder:
        answer = restarted(spark, case, Path(folder), partitions)
    assert differences(answer, wanted(case)) == ([], []), (case, partitions)


@pytest.mark.large
@given(case=CASES)
@examples(8, phases=PHASES)
def test_a_batch_that_spark_runs_again_counts_once(spark, case):
    with tempfile.TemporaryDirectory() as name:
        folder, past = Path(name), len(case.batches) - 1
        where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
        write_case(case, folder, 0, past)
        for at, first in enumerate((past, past, len(case.batches))):
            if at == 1:
                write_case(case, folder, first)
            run = ended(query_of(spark, case, folder), sink="parquet", **where)
            if at < 2:
                forget(folder / "ckpt", run)
        answer = found(case, pq.read_table(folder / "out"))
    assert differences(answer, wanted(case)) == ([], []), case


def forget(checkpoint, run):
    """Make Spark run the last batch of a run again."""
    last = max(record.batch_id for record in run.records)
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "spark" / "commits" / name).unlink()
