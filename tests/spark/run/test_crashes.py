"""A run that ends at any point of a batch goes on from there: no row is lost or doubled.

Processes that are killed are in ``test_kill_and_restart.py``.
"""

from __future__ import annotations

import random

import pytest

from eddyline.joins import tables
from eddyline.models.streams.plan import SharedModelStep
from eddyline.query.steps import MemberFilterStep, SharedAggregateStep, SharedJoinStep
from eddyline.spark.operators import OPERATORS
from tests import examples
from tests.spark.run import lives
from tests.spark.run.crashes import FILE_IS_GONE, LEAVE_FILES, OF_SINKS, OF_STATE, Crashes
from tests.spark.run.lives import KINDS, LATE_ID, rows_of, write

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.* came too late"),
]


N_BATCHES = 8 if examples.are_few() else lives.N_BATCHES
"""More than lives that end, each of which ends at most one batch."""


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    write(folder, N_BATCHES)
    return folder


@pytest.fixture
def crashes(streams, tmp_path, monkeypatch, name):
    """With few examples each kind ends at a sixth of the points, the next one at another.

    Tables drop rows of batches as small as these, too, and joins return products.
    """
    monkeypatch.setattr(tables, "LEAST_DROPPED", 1)
    monkeypatch.setattr(tables, "LEAST", 1)
    monkeypatch.setattr(tables, "PAYS_ABOVE", 0.5)
    for each in "st":
        (tmp_path / each).symlink_to(streams / each)
    part = (6, [*KINDS].index(name)) if examples.are_few() else (1, 0)
    return Crashes(monkeypatch, tmp_path, random.Random(7), part)


@pytest.mark.large
def test_every_operator_has_a_kind(spark, streams):
    """Those of queries that run together are made when these are started."""
    made = {type(step) for kind in KINDS.values() for step in kind.all_steps(spark, streams)}
    shared = {SharedAggregateStep, SharedModelStep, SharedJoinStep, MemberFilterStep}
    assert made >= OPERATORS.keys() - shared


@pytest.mark.large("starts each query once for each point at which it crashes")
@pytest.mark.parametrize("name", KINDS)
def test_no_row_is_lost_or_doubled_after_a_crash_at_any_point(spark, crashes, tmp_path, name):
    kind = KINDS[name]
    wanted, runs = kind.wanted(N_BATCHES), []
    assert all(wanted.values())

    def start():
        runs[:] = kind.start(spark, tmp_path)
        return runs

    while crashes.live(start):
        assert not kind.unknown(tmp_path, wanted), crashes.points
    points = OF_SINKS | (OF_STATE if kind.late else set())
    ends = {each for each in points if crashes.ends_at(each)}
    assert set(crashes.points) >= (ends if ends & LEAVE_FILES else ends - {FILE_IS_GONE})
    assert kind.written(tmp_path) == wanted, crashes.points
    for each in kind.late:
        of = [stream for stream in "st" if stream in each.replace("u", "s")]
        ids = [id for n in range(N_BATCHES) for s in of for id in rows_of(s, n)["id"].to_pylist()]
        run = runs[0].shared.run if hasattr(runs[0], "shared") else runs[0]
        late, known = run.late_rows(each), sorted(id for id in ids if id >= LATE_ID)
        assert late.num_rows == len(known), crashes.points
        if "id" in late.column_names:  # set operations have no columns but their own
            assert sorted(late["id"].to_pylist()) == known, crashes.points
    if name == "sums over a join by key":
        assert runs[0].plan()["products"] == tables.PRODUCTS
    if "constraints" in kind.options:
        tiers = runs[0].plan()["constraints"]
        assert any(tiers.values()), tiers  # hot for so many µs
    crashes.check_nothing_is_left()
