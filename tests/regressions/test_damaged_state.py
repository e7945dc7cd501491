"""A damaged state.json was restored, and the stream died of it some batches later.

Weights without codes, costs of half of the filters, ``true`` for a filter and open blocks that drop
more than they have went through; an infinity where a whole number stands raised OverflowError
instead of the StateError that drops the state.
"""

import json
import math

import msgspec
import numpy as np
import pytest

from eddyline.data.arrays import pack
from eddyline.errors import StateError
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.routing.table import Attribute
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

FILTERS = ("p", "q", "r")


def loop():
    options = FilterOptions(monitor="cusum")
    return FilterLoop(
        "arrow", FILTERS, options, attributes=(Attribute("a", "number", "a"),), thinks_freely=True
    )


def learned():
    rng = np.random.default_rng(0)
    taught = loop()
    for _ in range(4):
        drops = rng.random((120, 3)) < 0.4
        costs = CostSums.of_calls(np.full(3, 120.0), np.full(3, 5000.0))
        taught.step(FilterProfile.of_sample(FILTERS, drops, prob=0.5, costs=costs))
    return json.loads(json.dumps(msgspec.to_builtins(taught.snapshot())))


DAMAGE = {
    "half of the weights": lambda s: s["window"][0]["weights"].pop(),
    "costs without a row": lambda s: s["window"][0]["costs"].pop(),
    "costs of two filters": lambda s: [row.pop() for row in s["window"][0]["costs"]],
    "a cost that is none": lambda s: s["window"][0]["costs"][2].__setitem__(0, math.nan),
    "a basis that is no order": lambda s: s["window"][0].update(basis=[[1], 2, 3]),
    "true for a filter": lambda s: s.update(order=[0.0, True, 2]),
    "drops more than it has": lambda s: s["monitor"]["blocks"].update(
        dropped=pack(np.full((3, 3), 99.0))
    ),
    "rows without end": lambda s: s["monitor"]["blocks"].update(reached=pack(np.full(3, 1e9))),
    "rows of two filters": lambda s: s["monitor"]["blocks"].update(reached=pack(np.zeros(2))),
    "whole numbers of rows": lambda s: s["monitor"]["blocks"].update(
        reached=pack(np.zeros(3, np.int64))
    ),
    "no array": lambda s: s["monitor"]["blocks"].update(reached=[0.0] * 3),
    "more out than in": lambda s: s["monitor"]["main"].update(
        counts=pack(np.array([[0.0] * 3, [1.0] * 3]))
    ),
    "one thing more": lambda s: s["monitor"].update(more=1),
    "endless batches": lambda s: s["routes"].update(n_batches=math.inf),
    "too many tuples": lambda s: s["monitor"].update(n_tuples=2**70),
}


def test_the_state_itself_is_restored():
    loop().restore(learned())


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_state_is_refused(damage):
    state = learned()
    damage(state)
    with pytest.raises(StateError, match="damaged"):
        loop().restore(state)
