"""The query file of a checkpoint: event times that an earlier version read in a time zone."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from eddyline.errors import StateError
from eddyline.query.identity import identity_of
from eddyline.query.select.reader import read_query
from eddyline.query.steps import steps
from eddyline.runtime.checkpoint import LEARNED, QUERY, QueryFile, resumed, write_query

TEXT = "SELECT a.v AS v FROM s AS a [RANGE 1 HOUR], s AS b [RANGE 1 HOUR] WHERE a.v = b.v"


def identity(kind, *, is_stateful=True):
    columns = {"s": {"ts": kind, "v": "bigint"}}
    made = steps(read_query(TEXT, columns, tables={}))
    return identity_of(
        TEXT, made, columns, {"s": "ts"}, is_stateful=is_stateful, legacy=f"{TEXT} #1"
    )


LOCAL = identity("timestamp_ntz")


def goes_on(folder, query, changed=None):
    return resumed(folder, query, changed, last_batch=4)


@pytest.fixture(params=["query.json", "state.json"])
def older(request, tmp_path):
    """A folder of an earlier version, which noted what the query means, or its text alone."""
    if request.param == QUERY:
        write_query(tmp_path, QueryFile(LOCAL))
        file = json.loads((tmp_path / QUERY).read_bytes())
        del file["query"]["wall_clocks"]
        (tmp_path / QUERY).write_text(json.dumps(file))
    else:
        saved = {"format": 3, "identity": LOCAL.legacy}
        (tmp_path / LEARNED).write_text(json.dumps(saved))
    return tmp_path


@pytest.mark.parametrize("changed", [None, "keep_state"])
def test_state_of_wall_clocks_in_a_time_zone_is_refused(older, changed):
    with pytest.raises(StateError, match=r"event times of s \(TIMESTAMP_NTZ\).*changed='reset'"):
        goes_on(older, LOCAL, changed)


def test_state_of_wall_clocks_in_a_time_zone_can_be_reset(older):
    found = goes_on(older, LOCAL, "reset")
    assert found.resets
    assert found.file.empty_until == 4
    assert found.changes == "event times of type TIMESTAMP_NTZ are wall clocks"
    write_query(older, found.file)
    assert not goes_on(older, LOCAL).resets
    assert not goes_on(older, LOCAL, "reset").resets


@pytest.mark.parametrize(
    "query", [identity("timestamp"), identity("timestamp_ntz", is_stateful=False)]
)
def test_other_queries_of_earlier_versions_go_on(tmp_path, query):
    assert query.wall_clocks == ()
    write_query(tmp_path, QueryFile(query))
    assert not goes_on(tmp_path, query).changes
    (tmp_path / QUERY).unlink()
    assert not goes_on(tmp_path, query).resets


def test_a_type_that_has_changed_is_told_as_that(tmp_path):
    write_query(tmp_path, QueryFile(identity("timestamp")))
    with pytest.raises(StateError, match="ts of s was timestamp and is timestamp_ntz"):
        goes_on(tmp_path, LOCAL)
    write_query(tmp_path, QueryFile(replace(LOCAL, wall_clocks=("s",))))
    assert not goes_on(tmp_path, LOCAL).changes
