"""What steps give is estimated, measured and put right, and joins ask what costs least."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from eddyline.errors import StateError
from eddyline.estimates.filters import Estimate
from eddyline.estimates.histograms import CoefHistogram
from eddyline.models import graph
from eddyline.models.entities.kept import CODE
from eddyline.models.planning.choice import AskingChoice
from eddyline.models.planning.expected import (
    MAX_GROUPS,
    JoinCost,
    JoinCounts,
    ModelProfile,
    SideCost,
)
from eddyline.models.planning.watching import Watching
from eddyline.models.segments import Keyed, Segments
from eddyline.models.solving.text import read_condition
from eddyline.models.steps import Envelope, Extremum, Integral, Project, Shape, Total, Where
from eddyline.options import ModelOptions
from tests.examples import examples
from tests.models.batches import FIT, SECOND, at_once, rows_of, shown, streamed, table_of

SHAPE = Shape(("k",), ("x", "y"))
LEFT, RIGHT = graph.Input(0, SHAPE), graph.Input(1, SHAPE)
N, N_ENTITIES = 4_000, 20


def join(text):
    names = ["a.x", "a.y", "b.x", "b.y"]
    return graph.SameEntity(LEFT, RIGHT, ("a", "b"), read_condition(text, names), text)


def lines(seed, n=N, n_entities=N_ENTITIES, shift=0):
    """Return lines of ten seconds that follow each other in each entity; x and y from 0 to 100."""
    rng = np.random.default_rng(seed)
    keys = np.repeat(np.arange(n_entities), n // n_entities)
    lo = (np.tile(np.arange(n // n_entities), n_entities) * 10 + shift) * SECOND
    flags, errors = np.zeros(n, np.bool_), np.zeros(n)
    coefs = {
        name: np.stack([rng.uniform(0, 100, n), rng.uniform(-1, 1, n)], axis=1) for name in "xy"
    }
    segments = Segments(
        keys, lo, lo, lo + 10 * SECOND, flags, flags, coefs, {"x": errors, "y": errors}
    )
    names = pa.table({CODE: pa.array(np.arange(n_entities)), "k": pa.array(np.arange(n_entities))})
    return Keyed(segments, names)


def profile_of(node, inputs, samples=True):
    """Return what was seen, with prices that do not depend on the machine."""
    watch = Watching(samples=samples)
    graph.run(node, inputs, watch)
    found = watch.taken()
    joins = {
        text: JoinCounts(
            {
                name: structs.replace(side, ns=20.0 * side.n_asked)
                for name, side in each.sides.items()
            },
            each.n_pairs,
            500.0 * each.n_pairs,
            each.n_in,
        )
        for text, each in found.joins.items()
    }
    return replace(found, joins=joins, sample_ns=1e6)


def learned(node, n_batches, choice=None, **changed):
    """Run batches, and return the choice and what it decided."""
    choice = AskingChoice(ModelOptions(), node) if choice is None else choice
    entries = []
    for number in range(n_batches):
        inputs = [lines(2 * number, **changed), lines(2 * number + 1, shift=4, **changed)]
        profile = profile_of(choice.planned(node), inputs, choice.wants_sample)
        entries += choice.step(profile, 1e9, number)
    return choice, entries


# -- what joins ask -----------------------------------------------------------------------------

shares = st.floats(0.001, 1.0)


@given(
    sides=st.tuples(*[st.tuples(shares, st.floats(1, 1e3), shares, shares)] * 2),
    n_pairs=st.floats(0.1, 50),
    pair_ns=st.floats(1, 1e4),
    is_same=st.booleans(),
)
def test_the_way_that_is_chosen_costs_least_of_all(sides, n_pairs, pair_ns, is_same):
    known = {
        name: SideCost(n, ns, Estimate.exactly(left), Estimate.exactly(entities))
        for name, (n, ns, left, entities) in zip("ab", sides, strict=True)
    }
    join = JoinCost(known, n_pairs, pair_ns, is_same)

    def cost(way):
        total, came, pairs = 0.0, 1.0, n_pairs
        for name in way:
            n, ns, left, entities = dict(zip("ab", sides, strict=True))[name]
            total += n * came * ns
            pairs *= left
            came = entities if is_same else 1.0
        return total + pairs * pair_ns

    every = [way for size in range(3) for way in itertools.permutations("ab", size)]
    chosen = min(join.ways(), key=lambda way: join.cost(way).value)
    assert join.cost(chosen).value == pytest.approx(cost(chosen))
    assert cost(chosen) == pytest.approx(min(map(cost, every)))


def test_a_side_is_asked_while_that_pays_and_it_is_journaled_with_what_came_true():
    node = join("a.x > 95 AND b.x > -50 AND a.y > b.y")
    choice, entries = learned(node, 4)
    assert choice.ways == {str(node): ("a",)}
    (asked, came_true) = entries
    assert (asked.event, asked.before, asked.after) == ("asked", "by sample", ["a"])
    assert asked.evidence["left"]["a"] == pytest.approx(0.1, abs=0.05)
    assert asked.evidence["left"]["b"] == 1.0
    assert came_true.event == "came_true"
    estimated = came_true.evidence["estimated_ns"]
    assert came_true.evidence["came_true_ns"] == pytest.approx(estimated, rel=0.1)
    (view,) = choice.views()
    assert [each.name for each in view.sides] == ["a", "b"]
    assert view.sides[0].left == pytest.approx(view.sides[0].estimate.value, abs=0.03)
    assert (view.way, view.sides[1].left) == ("asks a", None)


def test_what_is_asked_follows_what_is_left():
    node = join("a.x > 95 AND a.y > b.y")
    choice, _ = learned(node, 3)
    assert choice.ways == {str(node): ("a",)}

    def higher(keyed):
        keyed.segments.coefs["x"][:, 0] += 100
        return keyed

    for number in range(12):
        inputs = [higher(lines(number, 1_000)), lines(number + 50, 1_000, shift=4)]
        choice.step(profile_of(choice.planned(node), inputs, choice.wants_sample), 1e9, number)
    assert choice.ways == {str(node): ()}
    assert choice.best() == choice.ways
    # Nobody asks any more: histograms say when that would pay again.
    for number in range(16):
        inputs = [lines(number, 1_000), lines(number + 50, 1_000, shift=4)]
        choice.step(profile_of(choice.planned(node), inputs, choice.wants_sample), 1e9, number)
    assert choice.ways == {str(node): ("a",)}


def test_a_plan_may_be_pinned_and_what_is_none_is_refused():
    node = join("a.x > 95 AND b.x > 95 AND a.y > b.y")
    choice, _ = learned(node, 1, n=1_000)
    for plan in ({"no join": []}, {str(node): ["c"]}, {str(node): ["a", "a"]}, {str(node): 1}, []):
        assert not choice.is_possible(plan)
    choice.hold({str(node): ["b", "a"]})
    choice, entries = learned(node, 4, choice)
    assert (choice.ways, entries) == ({str(node): ("b", "a")}, [])
    assert choice.plan == {str(node): ["b", "a"]}
    choice.adopt({str(node): "by sample"})
    assert choice.ways == {}


def test_it_goes_on_from_what_was_saved_and_damage_is_told():
    node = join("a.x > 95 AND a.y > b.y")
    choice, _ = learned(node, 4)
    saved = msgspec.json.decode(msgspec.json.encode(choice.snapshot()))
    again = AskingChoice(ModelOptions(), node)
    again.restore(saved)
    assert again.ways == choice.ways == {str(node): ("a",)}
    assert msgspec.json.encode(again.snapshot()) == msgspec.json.encode(choice.snapshot())
    other = AskingChoice(ModelOptions(), join("b.x > 95"))
    other.restore(saved)
    assert other.ways == {}
    for damaged in ({**saved, "coefs": {"x": {}}}, {**saved, "new": 1}, 3):
        with pytest.raises(StateError, match="damaged"):
            AskingChoice(ModelOptions(), node).restore(damaged)


def test_nothing_is_sampled_beyond_the_budget_or_if_it_is_switched_off():
    node = join("a.x > 95 AND a.y > b.y")
    inputs = [lines(0), lines(1)]
    dear, cheap = AskingChoice(ModelOptions(), node), AskingChoice(ModelOptions(), node)
    assert dear.wants_sample
    dear.step(profile_of(node, inputs), 49e6, 0)  # of which sampling took 1
    cheap.step(profile_of(node, inputs), 51e6, 0)
    assert (dear.wants_sample, cheap.wants_sample) == (False, True)
    off = AskingChoice(ModelOptions(adaptive=False), node)
    assert not off.wants_sample
    assert off.step(profile_of(node, [lines(0), lines(1)]), 1.0, 1) == []
    assert (off.ways, off.steps()) == ({}, ())


# -- what steps give ----------------------------------------------------------------------------

X = graph.Unary(Project.onto("x"), LEFT)
STEPS = {
    "where": (graph.Unary(Where(read_condition("x > 60 AND y < 30", ["x", "y"]), "w"), LEFT), 0.3),
    "or": (graph.Unary(Where(read_condition("x > 90 OR y < 5", ["x", "y"]), "w"), LEFT), 0.3),
    "join": (join("a.x < b.x"), 0.2),
    "join of parts": (join("a.x < b.x AND a.y > 70 AND b.y < 50"), 0.3),
    "sum": (graph.Unary(Total((), is_average=False), X), 0.05),
    "greatest of entities": (graph.Unary(Envelope((), is_largest=True), X), 0.6),
    "greatest of a minute": (graph.Unary(Extremum(60 * SECOND, None, True), X), 0.6),
    "greatest at ticks": (graph.Unary(Extremum(60 * SECOND, 2 * SECOND, True), X), 0.1),
    "average": (graph.Unary(Integral(63 * SECOND, None, True, False), X), 0.3),
}


def test_an_entity_that_is_long_gone_makes_room_for_others():
    def seen(*entities):
        held = CoefHistogram.from_coefs(np.array([[1.0]]), np.ones(1))
        return ModelProfile(groups={"greatest": dict.fromkeys(entities, held)})

    known = seen(*range(MAX_GROUPS))
    for _ in range(100):
        known = known.decayed(0.5, 0.8).merged(seen(4, 7))
    assert list(known.groups["greatest"]) == [4, 7]


@pytest.mark.parametrize("name", STEPS)
def test_what_steps_give_is_estimated_and_put_right(name):
    node, most = STEPS[name]
    choice = AskingChoice(ModelOptions(), node)
    off = []
    for number in range(4):
        inputs = [lines(2 * number, 2_000), lines(2 * number + 1, 2_000, shift=4)]
        choice.step(profile_of(node, inputs), 1e9, number)
        *_, view = choice.steps()
        off.append(view.estimate.value / view.gave - 1.0)
        assert view.estimate.low <= view.estimate.value <= view.estimate.high
    assert abs(off[0]) < most  # as it comes
    assert abs(off[-1]) < 0.15  # put right by what came true


# -- answers ------------------------------------------------------------------------------------


@examples(8)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), cut=st.floats(0, 1))
def test_streams_give_the_same_whatever_joins_ask(seed, n, cut):
    text = "a.x > 1 AND b.y < 2 AND a.x > b.y"
    node = graph.SameEntity(
        LEFT, LEFT, ("a", "b"), read_condition(text, ["a.x", "a.y", "b.x", "b.y"]), text
    )
    table = table_of(rows_of(seed, n), FIT)
    wanted = shown(at_once(table, FIT, node))
    asks = [(), ("a",), ("b", "a")][seed % 3]
    rng = np.random.default_rng(seed)
    found = streamed(table, FIT, graph.asking(node, {str(node): asks}), [int(cut * n)], 0, rng)
    assert Counter(map(repr, shown(found))) == Counter(map(repr, wanted))
