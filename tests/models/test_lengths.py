"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta
from math import inf, nan

import pytest

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import read_length

LONGEST = 3_652_500 * 86_400


@pytest.mark.parametrize("length", ["3652500 days", timedelta(days=3_652_500), LONGEST])
def test_the_longest_length_is_read(length):
    assert read_length("horizon", length) == LONGEST * 1_000_000


@pytest.mark.parametrize(
    "length",
    [
        "3652501 days",
        "3652500 days 1 microsecond",
        timedelta.max,
        LONGEST + 1,
        1e300,
        "9" * 4_500 + " days",
    ],
)
def test_longer_lengths_are_refused_by_what_they_are(length):
    with pytest.raises(
        OptionError, match=r"horizon .* is too long; the longest time is 3652500 DAYS"
    ):
        read_length("horizon", length)


@pytest.mark.parametrize("length", [0, -1, inf, nan, True, "0 seconds", "-1 day", "soon", None])
def test_what_is_no_length_is_refused(length):
    with pytest.raises(OptionError, match="horizon is an interval such as '10 minutes'"):
        read_length("horizon", length)
