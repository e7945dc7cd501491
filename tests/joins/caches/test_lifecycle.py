from __future__ import annotations

import pickle
import random

from eddyline.joins.caches.choice import CacheStates, State, Worths
from eddyline.joins.caches.prefix_invariant import are_compatible, candidates, prefix_invariant
from tests.joins.plans import (
    E5,
    SIX,
    each_seed,
    find,
    on_one_attribute,
    orders,
    random_graph,
    random_order,
    random_orders,
)

FOUND = prefix_invariant(SIX, E5)
ROOT, INNER, OTHER = (find(FOUND, "6", *windows) for windows in ("12345", "12", "45"))
FOUR_45 = [each for each in FOUND if each.store == OTHER.store]


def worth(found=FOUND, benefit=10.0, cost=1.0, **changed):
    """Every candidate is worth the same, but for those that are named by what they spare."""
    benefits = dict.fromkeys(found, benefit)
    benefits |= {each: changed[_name(each)] for each in found if _name(each) in changed}
    return Worths(benefits, {each.store: cost for each in found})


def _name(each):
    return f"in{each.pipeline}_{''.join(sorted(each.store.windows))}"


def choosing(*chosen):
    return lambda worths: [each for each in chosen if each in worths.benefits]


def never(worths):
    raise AssertionError


def settled(*used, found=FOUND, **changed):
    return CacheStates.initial(found).step(worth(found, **changed), choosing(*used), is_due=False)


def test_all_start_profiled_and_wait_until_all_are_measured():
    start = CacheStates.initial(FOUND)
    assert set(start.states.values()) == {State.PROFILED}
    some = worth().among(FOUND[1:])
    assert start.step(some, never, is_due=True) == start
    after = start.step(worth(), choosing(ROOT), is_due=False)
    assert after.used == (ROOT,)
    assert set(after.which(State.UNUSED)) == set(FOUND) - {ROOT}
    assert not after.is_measuring
    assert after.kept == (ROOT.store,)


def test_a_bad_cache_goes_at_once_and_a_good_one_comes_when_it_is_time():
    before = settled(ROOT)
    after = before.step(worth(in6_12345=0.5), never, is_due=False)
    assert after.states[ROOT] is State.UNUSED
    assert not after.kept
    assert after.step(worth(), never, is_due=False) == after
    again = after.step(worth(), choosing(ROOT), is_due=True)
    assert again.used == (ROOT,)


def test_a_cache_is_not_judged_before_it_is_measured():
    before = settled(ROOT)
    unknown = worth(in6_12345=-1).among(set(FOUND) - {ROOT})
    assert before.step(unknown, never, is_due=False) == before


def test_caches_that_share_a_store_stand_together():
    before = settled(*FOUR_45)
    # Each alone is worth less than the store; together they are not.
    same = before.step(worth(benefit=0.3), never, is_due=False)
    assert set(same.used) == set(FOUR_45)
    gone = before.step(worth(benefit=0.2), never, is_due=False)
    assert not gone.used
    one = before.step(worth(benefit=5.0, in1_45=-0.1), never, is_due=False)
    assert set(FOUR_45) - set(one.used) == {find(FOUND, "1", *"45")}
    # What the bad one loses is not held against the others.
    most = before.step(worth(benefit=0.4, in1_45=-9), never, is_due=False)
    assert len(most.used) == 3


def test_a_store_is_not_judged_by_some_of_its_caches():
    before = settled(*FOUR_45)
    some = worth(benefit=0.1).among(set(FOUND) - {FOUR_45[0]})
    assert before.step(some, never, is_due=False) == before


def test_a_used_cache_makes_room_only_for_what_it_hides():
    # 6 has {1,2} and {4,5} inside {1..5}; 4 has {1,2} inside {1,2,3}.
    four = find(FOUND, "4", *"123")
    inside_four = find(FOUND, "4", *"12")
    before = settled(ROOT, OTHER_ONLY := find(FOUND, "1", *"45"), four)
    nothing_new = worth().among([])
    during = before.step(nothing_new, never, is_due=True)
    assert during.is_measuring
    assert during.states[ROOT] is State.PROFILED
    assert during.states[four] is State.PROFILED
    assert during.states[OTHER_ONLY] is State.USED
    assert during.states[inside_four] is State.PROFILED
    # The stores of the two are kept consistent, so that they do not start cold.
    assert during.paused == {ROOT, four}
    assert set(during.kept) == {ROOT.store, four.store, OTHER_ONLY.store}
    assert during.step(nothing_new, never, is_due=True) == during


def test_what_has_not_moved_is_not_chosen_again():
    before = settled(ROOT)
    during = before.step(Worths(), never, is_due=True)
    after = during.step(worth(benefit=11.9, cost=0.81), never, is_due=False)
    assert after == before
    chosen = during.step(worth(benefit=12.1), choosing(INNER), is_due=False)
    assert chosen.used == (INNER,)
    dearer = during.step(worth(cost=1.21), choosing(INNER), is_due=False)
    assert dearer.used == (INNER,)


def test_slow_drifts_add_up():
    states = settled(ROOT)
    for benefit in (11.0, 11.9):
        states = states.step(worth(benefit=benefit), never, is_due=True)
        assert states.used == (ROOT,)
    assert states.step(worth(benefit=12.5), choosing(INNER), is_due=True).used == (INNER,)


def test_how_much_has_to_change_is_an_option():
    before = settled(ROOT)
    step = before.step(worth(benefit=10.6), choosing(INNER), is_due=True, change_frac=0.05)
    assert step.used == (INNER,)
    assert before.step(worth(benefit=10.6), never, is_due=True).used == (ROOT,)


def test_after_a_loss_caches_are_chosen_anew():
    # Hardly any change, but what was inside the lost one may pay now.
    before = settled(ROOT, in6_12345=1.05)
    lost = before.step(worth(in6_12345=0.95), never, is_due=False)
    assert not lost.used
    after = lost.step(worth(in6_12345=0.95), choosing(INNER), is_due=True)
    assert after.used == (INNER,)


def test_only_what_is_in_play_can_be_chosen():
    during = settled(ROOT, FOUR_45[0]).step(Worths(), never, is_due=True)
    seen = []
    after = during.step(
        worth(in1_45=-1), lambda worths: seen.append(set(worths.benefits)) or [], is_due=False
    )
    assert seen == [set(FOUND) - {FOUR_45[0]}]
    assert not after.used


def test_states_travel():
    states = settled(ROOT).step(Worths(), never, is_due=True)
    assert pickle.loads(pickle.dumps(states)) == states


H5 = orders(_1="23", _2="31", _3="21")


def test_h5_a_reorder_drops_caches_of_other_pipelines_whose_taps_it_moves():
    graph = on_one_attribute(3)
    (cache,) = found = prefix_invariant(graph, H5)
    before = settled(cache, found=found)
    assert before.used == (cache,)
    other = {**H5, "3": ("1", "2")}
    after = before.reordered({"3"}, prefix_invariant(graph, other))
    assert not after.states
    assert not after.kept
    # With caches that have partners, it is another one: its changes are seen elsewhere now.
    supported = before.reordered({"3"}, candidates(graph, other, budget=3))
    assert not supported.used
    assert set(supported.states.values()) == {State.PROFILED}


def test_a_reorder_behind_or_inside_a_closed_set_keeps_caches_of_other_pipelines():
    in_one, in_six = find(FOUND, "1", *"45"), find(FOUND, "6", *"45")
    before = settled(in_one, in_six)
    other = {**E5, "4": ("5", "2", "1", "3", "6"), "6": ("2", "1", "5", "4", "3")}
    after = before.reordered({"4", "6"}, prefix_invariant(SIX, other))
    assert after.used == (in_one,)
    assert all(
        state is State.PROFILED for each, state in after.states.items() if each.pipeline in "46"
    )
    assert not after.is_measuring


def test_after_a_reorder_new_candidates_wait_for_their_time():
    before = settled(find(FOUND, "1", *"45"))
    found = prefix_invariant(SIX, E5)
    after = before.reordered({"6"}, found)
    assert after.step(worth(), never, is_due=False) == after
    assert after.step(worth(), choosing(ROOT), is_due=True).used == (ROOT,)


def test_a_reorder_forgets_what_was_paused_in_its_pipeline():
    four = find(FOUND, "4", *"123")
    during = settled(ROOT, four).step(Worths(), never, is_due=True)
    assert during.reordered({"6"}, FOUND).paused == {four}
    assert during.reordered({"6"}, FOUND).is_measuring


@each_seed(200)
def test_caches_in_use_are_sound_whatever_happens(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 6))
    pipelines = random_orders(rng, graph)
    states = CacheStates.initial(candidates(graph, pipelines, budget=6))

    def choose(worths):
        chosen = []
        for each in rng.sample(list(worths.benefits), len(worths.benefits)):
            if all(are_compatible(each, other) for other in chosen):
                chosen.append(each)
        return chosen

    for _ in range(30):
        if rng.random() < 0.2:
            name = rng.choice(graph.inputs)
            was = pipelines[name]
            pipelines = {**pipelines, name: random_order(rng, graph, name)}
            moved = {name} if pipelines[name] != was else set()
            states = states.reordered(moved, candidates(graph, pipelines, budget=6))
        worths = Worths(
            {each: rng.uniform(-1, 10) for each in states.states if rng.random() < 0.9},
            {each.store: rng.uniform(0, 3) for each in states.states},
        )
        states = states.step(worths, choose, is_due=rng.random() < 0.3)
        for each in (*states.used, *states.paused):
            assert each.store.windows == set(pipelines[each.pipeline][each.start : each.stop])
            for name in each.store.closed:
                assert {name, *pipelines[name][: each.store.tap]} == each.store.closed
            assert all(are_compatible(each, o) for o in states.used if o != each)
        assert all(states.states[each] is State.PROFILED for each in states.paused)
