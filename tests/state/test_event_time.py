"""How far event time of several streams is."""

from __future__ import annotations

import pytest

from eddyline.state.event_time import EventTime
from eddyline.state.rows import ALWAYS, FOREVER


@pytest.mark.parametrize(
    ("lateness", "latest", "reached"),
    [
        ({"s": 5}, {"s": 100}, (100, 95)),
        ({"s": 5, "t": 60}, {"s": 100, "t": 90}, (100, 30)),
        ({"s": 5, "t": 60}, {"s": 100}, (100, None)),
        ({"s": 5}, {}, (None, None)),
        ({"s": 5}, {"s": ALWAYS}, (None, None)),
        ({"s": FOREVER}, {"s": 100}, (100, None)),
        ({}, {}, (None, None)),
    ],
)
def test_the_watermark_is_that_of_the_stream_that_is_furthest_behind(lateness, latest, reached):
    assert EventTime(lateness).reached(latest) == reached


def test_the_watermark_never_goes_back():
    assert EventTime({"s": 50}, {"s": 90}).reached({"s": 100}) == (100, 90)
