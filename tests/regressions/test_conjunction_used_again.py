"""A conjunction that was used before: under other settings, and after a copy.

Bound while ANSI mode was off, ``10 / a > 0`` was still taken for free of errors when it was on,
and raised on rows that another predicate drops. And a conjunction could be pickled or copied only
before its first use. ``explain`` waited a second for each DataFrame that never ran.
"""

import copy
import pickle
import time

import pytest

import eddyline as el

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([(0,), (5,)], "a int")


@pytest.mark.large
def test_ansi_mode_is_switched_on_between_two_uses(spark, frame):
    keep = el.all_of("10 / a > 0", "a > 3", read_sample=False)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert frame.transform(keep).count() == 1
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    assert frame.transform(keep).count() == 1
    assert [each.name for each in keep.facts().pinned] == ["10 / a > 0"]


def test_copies_of_a_used_conjunction(frame):
    keep = el.all_of("a > 3", "a < 100", name="mine")
    assert frame.transform(keep).count() == 1
    for again in (copy.deepcopy(keep), pickle.loads(pickle.dumps(keep))):
        assert again.name == "mine"
        assert frame.transform(again).count() == 1


def test_explain_waits_once_for_all_that_never_ran(frame):
    always = el.predicate(lambda a: a.is_valid(), reads=["a"])
    keep = el.all_of("a > 3", always)
    for _ in range(8):
        frame.transform(keep)
    started = time.monotonic()
    keep.explain()
    assert time.monotonic() - started < 5.0
