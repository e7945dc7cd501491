"""Pairs and values over entities of streams give, batch by batch, what all rows give at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import graph, steps
from eddyline.models.condition_text import read_condition
from eddyline.models.pairs import DifferentEntities
from eddyline.models.streaming import StreamInput, StreamPlan, check_streams
from eddyline.models.window_steps import AverageDistance, Envelope, Extremum
from tests.examples import examples
from tests.models.test_streaming import (
    DECLARED,
    DOOR,
    FIT,
    INPUT,
    SECOND,
    SHAPE,
    at_once,
    average,
    of,
    rows_of,
    shown,
    streamed,
    table_of,
    where,
)

X = of(steps.Project.onto("x"))


def pairs(text=None, left=INPUT, right=None, **more):
    names = [f"{side}.{name}" for side, each in (("a", left), ("b", right or left))
             for name in each.shape.attributes]  # fmt: skip
    condition = None if text is None else read_condition(text, names)
    step = DifferentEntities(
        ("a", "b"), condition, more.get("within", {}), more.get("whole", False), right is None
    )
    return graph.OtherEntities(left, right or left, step)


def over(node, text):
    return of(steps.Where(read_condition(text, node.shape.attributes), text), node)


def onto(node, *names):
    return of(steps.Project.onto(*names), node)


APART = AverageDistance({"a_x": "b_x"}, 5 * SECOND, 2 * SECOND, False)
TOP, BOTTOM = of(Envelope((), True), X), of(Envelope((), False), X)
NODES = {
    "pairs": pairs(),
    "near": of(steps.Changes(), pairs("a.x - b.x < 2 AND b.x - a.x < 2", within={"x": 2.0})),
    "of a part, sampled": of(steps.Sample(SECOND), pairs("a.x > b.x", of(where("y > 0")))),
    "of averages with what is": onto(pairs("a.x < b.x", of(average(3), X), INPUT), "a_x", "b_x"),
    "distance": of(APART, pairs(within={"x": 1.5}, whole=False)),
    "distance below": of(
        replace(APART, is_covered=True, below=3.0), pairs(within={"x": 3.0}, whole=True)
    ),
    "greatest": TOP,
    "least, of each": of(Envelope(("k",), False), of(steps.Project.onto("y"))),
    "changes of the greatest": of(steps.Changes(), over(TOP, "x > 1")),
    "of the greatest at ticks": of(Extremum(4 * SECOND, 2 * SECOND, False), TOP),
    "average of the greatest": of(average(4), of(Envelope((), True), of(average(2), X))),
    "between": of(steps.Changes(), graph.SameEntity(TOP, BOTTOM, ("a", "b"), None, None)),
    "farthest": of(Envelope(("a_k",), True), onto(pairs("a.x > b.x", INPUT, INPUT), "a_x")),
    "pairs of groups": pairs(None, of(Envelope(("k",), True), X)),
}


@examples(40)
@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("maker", [FIT, DECLARED, DOOR], ids=["fit", "declared", "door"])
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 100),
    cuts=st.lists(st.floats(0, 1), max_size=5),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_any_batches_give_what_all_rows_give_at_once(name, maker, seed, n, cuts, lateness):
    table = table_of(rows_of(seed, n), maker)
    rng = np.random.default_rng(seed + 1)
    node = NODES[name]
    check_streams(StreamPlan((StreamInput(maker, SHAPE),), node))
    found = streamed(table, maker, node, [int(each * n) for each in cuts], lateness, rng)
    assert shown(found) == shown(at_once(table, maker, node))
