"""On two executors with processes of their own, of which one dies or is slow, answers stay.

They are compared with those that DuckDB finds, which runs in local mode agree with
(``test_crashes.py``, ``test_shared_queries.py``).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.processes import Process
from tests.spark.run import clustered, lives

pytestmark = [
    pytest.mark.spark,
    pytest.mark.large("starts a cluster of Spark"),
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("soon_started"),
]


@pytest.fixture(params=sorted(clustered.FAULTS))
def done(request, tmp_path):
    """Run all kinds on a cluster with faults; return their folder, and what went wrong by kind."""
    lives.write(tmp_path, clustered.N_BATCHES)
    process = Process("-m", clustered.__name__, tmp_path, request.param)
    said = dict(line.split(": ") for line in process.finish(1500).splitlines())
    return request.param, tmp_path, {kind: told.split(", ") for kind, told in said.items()}


def rows_of(folder):
    """Return the rows that the sink wrote, each batch into a folder of its own."""
    files = sorted(folder.glob("*/*.parquet"))
    return lives.rows_in(pa.concat_tables(map(pq.read_table, files)))


def test_answers_are_those_of_one_process(done):
    fault, place, faults = done
    kinds = clustered.KINDS_TRIED[fault]
    assert list(faults) == kinds
    for number, kind in enumerate(kinds):
        wanted = lives.KINDS[kind].wanted(clustered.N_BATCHES)["q"]
        assert rows_of(place / f"{number}" / "out" / "q") == wanted, kind
        assert wanted, kind
        if fault == "kills":
            assert faults[kind] == ["killed executor", "killed worker"]
        else:
            slow = {told.replace("slow", "copied") for told in faults[kind] if "slow" in told}
            assert slow, kind
            assert slow - set(faults[kind]) == set(), "a slow task was not copied"
