"""Values over time of a few groups: what tasks mark, and what the driver keeps."""

from __future__ import annotations

import numpy as np

from eddyline.aggregates.samples import (
    MOST_COUNTED,
    MOST_GROUPS,
    MOST_MARKED,
    MOST_POINTS,
    GroupSamples,
    Marks,
    Point,
)


def codes_of(**n):
    return np.repeat([int(code[1:]) for code in n], list(n.values()))


def test_marks_are_of_watched_groups_and_few():
    codes = codes_of(g1=3, g2=100, g5=1, g7=2)
    marks = Marks((2, 5, 6), bucket=9)
    places = marks.of(codes)
    assert sorted(codes[places]) == [*MOST_MARKED * [2], 5]
    assert {3, 102, 103} <= {*places.tolist()}  # the first and the last of 2; the one of 5
    assert marks.busiest == {2: 100, 1: 3, 7: 2, 5: 1, 6: 0}
    marks.of(codes_of(g2=1))
    assert marks.busiest[2] == 101
    assert not marks.of(codes[:0]).size


def test_the_first_buckets_mark_their_busiest_group():
    codes = codes_of(g1=3, g2=5)
    assert codes[Marks((), bucket=0).of(codes)].tolist() == 5 * [2]
    assert not Marks((), bucket=MOST_GROUPS).of(codes).size


def taken(samples, **n):
    found = {int(code[1:]): count for code, count in n.items()}
    samples.take([found], [])
    return samples.watched


def test_groups_with_most_results_are_watched():
    samples = GroupSamples(["COUNT(*)"])
    assert taken(samples, g1=9, g2=8, g3=7, g4=6, g5=5) == (1, 2, 3, 4)
    assert taken(samples, g5=7) == (1, 2, 3, 4)  # 12 are not twice as many as 6
    assert taken(samples, g5=1) == (1, 2, 3, 5)


def test_what_is_kept_is_bounded():
    samples = GroupSamples(["COUNT(*)"])
    for batch in range(300):
        busiest = dict.fromkeys(range(batch, batch + 4), 1) | {7: 2}
        marked = [
            (7, "seven", Point(2 * batch + 1, (1.0,))),
            (7, "seven", Point(2 * batch, (0.0,))),
        ]
        samples.take([busiest], [*marked, (10_000 + batch, "other", Point(batch, (None,)))])
    (seven,) = samples.series()
    assert seven.name == "seven"
    assert [point.instant for point in seven.points] == list(range(600 - MOST_POINTS, 600))
    assert len(samples._n) <= MOST_COUNTED
