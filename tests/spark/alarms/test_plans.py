"""Plans of alarms on a stream: pinned, changed with each start, and restored."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import OptionError, PlanError
from tests.spark.alarms.test_alarms import TEXTS, alone
from tests.spark.models.test_streams import (
    N_FILES,
    copied,
    fitted,
    folder,
    shown,
    stream_of,
)

__all__ = ["folder"]

BOTH = {f"both {at}": f"x > {at} AND d(x) > {-0.1 * at} AND ship <> 9" for at in range(3)}
TEXT = "x > ? AND d(x) > ?"
WAYS = (("union", [0, 1]), ("unshared", [1, 0]), ("covered", [1, 0]), ("union", [1, 0]))


@pytest.mark.large
def test_pinned_plans_change_with_each_batch(spark, folder, tmp_path):
    texts = TEXTS | BOTH
    alarms, seen, said = el.AlarmSet(texts), tmp_path / "seen", []
    slots = TEXT.split(" AND ")
    for number in range(N_FILES):
        copied(folder, seen, [number])
        query = fitted(stream_of(spark, seen, 1), name="tracks").alarms(alarms)
        run = query.start(
            "parquet",
            path=str(tmp_path / "out"),
            checkpoint=str(tmp_path / "checkpoint"),
            trigger="available_now",
        )
        run.await_termination()
        said.append(run.explain())
        sharing, order = WAYS[number % len(WAYS)]
        plan = {TEXT: {"sharing": sharing, "order": [slots[at] for at in order]}}
        run.pin({"alarms": plan})  # in force from the next start on
        with pytest.raises(PlanError, match="sharing"):
            run.pin({"alarms": {TEXT: "union"}})
    found = shown(spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == alone(fitted(spark.read.parquet(str(folder))), texts)
    for text, (sharing, _) in zip(said[1:], WAYS, strict=False):
        assert sharing in text
        assert TEXT in text


def test_an_option_that_there_is_not_is_refused(spark, folder):
    segments = fitted(spark.read.parquet(str(folder)))
    with pytest.raises(OptionError, match="adaptive"):
        segments.alarms(el.AlarmSet(TEXTS), adaptiv=False)
    with pytest.raises(OptionError, match="option 'risk' is gone: plans are compared by their"):
        segments.alarms(el.AlarmSet(TEXTS), risk=2)
