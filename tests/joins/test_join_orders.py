"""Learned orders of joins: near the best fixed order, always legal, kept over a restart."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count, permutations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from eddyline.data import outcomes as outcome
from eddyline.errors import OptionError, StateError
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.pipeline import results
from eddyline.joins.orders import pipelines as orders
from eddyline.joins.orders.pipelines import Growth, JoinLoop, written_orders
from eddyline.joins.orders.probe_order import has_cycle, way_filters
from eddyline.joins.orders.probe_profiling import DropSample, drop_samples
from eddyline.joins.plan import BucketReport, CacheReport, JoinProfile, JoinWork, ProbeWork
from eddyline.options import JoinOptions
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.state.rows import Rows, SortedRun
from eddyline.stats.costs import CostSums
from tests.joins.plans import closed_outwards

NAMES = ("r", "s", "t", "u", "w")
STAR = JoinGraph(NAMES, tuple(frozenset({"r", name}) for name in NAMES[1:]))
E4 = JoinGraph(tuple("123456"), tuple(map(frozenset, ("12", "13", "34", "35", "56"))))
TRIANGLE = JoinGraph(tuple("rst"), tuple(map(frozenset, ("rs", "rt", "st"))))
EXACT = AGreedyOptions(hysteresis=1.0, min_fill=1, min_gain=0.0, prior_tuples=0.0)
N_KEYS = 200


def sample_of(filters, drops, *, costs=None, prob=1.0, n_partners=None, pairs=None):
    drops = np.asarray(drops, bool).reshape(-1, len(filters.filters))
    n_filters = drops.shape[1]
    costs = CostSums.of_rows(len(drops), np.ones(n_filters)) if costs is None else costs
    found = (~drops).sum(axis=0) if n_partners is None else np.asarray(n_partners)
    return DropSample(filters, outcome.pack(drops), prob, costs, found, pairs or {})


def saved(loop):
    """What a loop has learned, on its way through a file."""
    return msgspec.json.decode(msgspec.json.encode(loop.snapshot()))


def step(loop, samples, batch_id, ns=10**12):
    """Let a loop learn from samples, in a batch that pays for their profile unless said."""
    return loop.step(JoinProfile(tuple(samples), ns=ns), batch_id)


# -- a star whose windows have known shares of partners -------------------------------------------


def run_of(codes, payload=None):
    n = next(iter(codes.values())).size
    table = pa.table({"at": np.arange(n)} if payload is None else payload)
    return SortedRun.from_rows(Rows(codes, np.zeros(n, np.int64), np.full(n, 10), table))


class Star:
    """New rows of the root, and windows in which a share of the keys has so many partners each."""

    def __init__(self, windows, seed=0):
        rng = np.random.default_rng(seed)
        self.windows = {}
        for key, (frac, n_partners) in enumerate(windows):
            kept = rng.permutation(N_KEYS)[: round(frac * N_KEYS)]
            self.windows[NAMES[key + 1]] = [run_of({key: np.repeat(kept, n_partners)})]
        self.rng = rng

    def news(self, n=2000):
        codes = {key: self.rng.integers(0, N_KEYS, n) for key in range(4)}
        return {"r": run_of(codes)}


def n_probes(star, order, news):
    """Look-ups of the pipeline of the root in an order."""
    work = JoinWork()
    orders = {"r": order}
    for _ in results(STAR, orders, star.windows, news, work):
        pass
    return sum(done.n_in for done in work.probes.values())


def run_batches(loop, star, n_batches, first=0):
    entries = []
    ticks = count(0, 1000)  # every window takes the same time
    for batch_id in range(first, first + n_batches):
        news = star.news()
        probing = loop.probing()
        found = drop_samples(probing, STAR, star.windows, news, batch_id, clock=lambda: next(ticks))
        entries += step(loop, found, batch_id)
    return entries


def best(star, news):
    return min(n_probes(star, order, news) for order in permutations(NAMES[1:]))


DRAWN = [
    [(0.9, 1), (0.6, 1), (0.3, 1), (0.1, 1)],
    [(0.1, 1), (0.5, 1), (0.95, 1), (1.0, 1)],
    [(0.5, 2), (0.5, 1), (0.8, 1), (0.2, 1)],
    [(0.5, 40), (0.9, 1), (0.95, 1), (0.7, 1)],
    [(1.0, 5), (0.8, 3), (0.9, 1), (0.6, 2)],
    [(0.9, 10), (1.0, 2), (1.0, 4), (1.0, 3)],
]


@pytest.mark.large
@pytest.mark.parametrize("windows", DRAWN, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_the_learned_order_is_near_the_best_from_any_order(windows, seed):
    random.Random(seed).shuffle(windows := list(windows))
    star = Star(windows, seed)
    loop = JoinLoop(STAR, JoinOptions(seed=seed))
    run_batches(loop, star, 6)
    news = star.news()
    assert n_probes(star, loop.plan["r"], news) <= 1.1 * best(star, news)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (3, 4), (0, 3), (5, 1)])
def test_a_drift_is_followed(before, after):
    loop = JoinLoop(STAR, JoinOptions())
    run_batches(loop, Star(DRAWN[before]), 8)
    star = Star(DRAWN[after], seed=1)
    entries = run_batches(loop, star, 12, first=8)
    news = star.news()
    assert n_probes(star, loop.plan["r"], news) <= 1.1 * best(star, news)
    (*_, change) = [entry for entry in entries if entry.event == "order"]
    assert change.component == "pipeline r"
    assert change.after == list(loop.plan["r"])
    assert set(change.before) == set(NAMES[1:])
    assert change.batch_id >= 8


def python_orders_hold_still_where_nothing_changes():
    loop = JoinLoop(STAR, JoinOptions())
    star = Star([(0.5, 1), (0.5, 1), (0.9, 2), (0.9, 2)])
    run_batches(loop, star, 6)
    entries = run_batches(loop, star, 30, first=6)
    assert len([entry for entry in entries if entry.event == "order"]) <= 1


# -- orders ----------------------------------------------------------------------------------------


def test_e4_the_order_of_the_filters_gives_that_of_the_windows(monkeypatch):
    monkeypatch.setattr(orders, "WINDOW_ROWS", 100)
    """A-Greedy ranks F3, F2, F1, F4, F5; the pipeline is 3, 4, 2, 5, 6."""
    filters = way_filters(E4, "1")
    drops = np.zeros((100, 5), bool)
    drops[:60, 2] = True  # 3-4
    drops[:40, 1] = True  # 3: never where 4 does not
    drops[:40, 3:] = True
    drops[60:80, 0] = True  # 2
    drops[80:90, 3:] = True  # 5
    drops[90:95, 4] = True  # 6
    drops = closed_outwards(filters, drops)
    loop = JoinLoop(E4, JoinOptions(policy=EXACT))
    (entry,) = [
        entry for entry in step(loop, [sample_of(filters, drops)], 4) if entry.event == "order"
    ]
    assert loop.plan["1"] == tuple("34256")
    assert (entry.batch_id, entry.component) == (4, "pipeline 1")
    assert (entry.before, entry.after) == (list("23456"), list("34256"))
    (record,) = [each for each in loop.records() if each.component == "pipeline 1"]
    assert [record.filter_ids[at] for at in record.order] == list("34256")
    assert record.cost_ns < record.as_written_ns


def test_e7_probes_of_the_core_example(monkeypatch):
    """Tuples 2, 4, 7, 2, 5, 4 in the profile: the greedy order is F3, F1, F2, F4."""
    graph = JoinGraph(tuple("x1234"), tuple(frozenset({"x", f}) for f in "1234"))
    filters = way_filters(graph, "x")
    dropped_by = {2: "3", 4: "234", 7: "1", 5: "124"}
    drops = [[f in dropped_by[value] for f in "1234"] for value in (2, 4, 7, 2, 5, 4)]
    monkeypatch.setattr(orders, "WINDOW_ROWS", 6)
    loop = JoinLoop(graph, JoinOptions(policy=EXACT, monitor="window"))
    step(loop, [sample_of(filters, drops)], 0)
    assert loop.plan["x"] == tuple("3124")
    assert loop.pipelines["x"].drop_fracs() == pytest.approx(
        {"1": 2 / 6, "2": 3 / 6, "3": 4 / 6, "4": 3 / 6}
    )


def test_windows_that_give_many_partners_come_last():
    filters = way_filters(STAR, "r")
    drops = np.zeros((200, 4), bool)
    drops[:120, 0] = True  # drops most, but the others get 50 rows each
    drops[120:160, 1] = True
    drops[160:170, 2] = True
    sample = sample_of(filters, drops, n_partners=[80 * 50, 160, 190, 600])
    loop = JoinLoop(STAR, JoinOptions())
    entries = step(loop, [sample], 0)
    assert loop.plan["r"] == ("t", "u", "w", "s")
    evidence = entries[-1].evidence["combinations_per_row"]
    assert evidence == {"s": 20.0, "t": 0.8, "u": 0.95, "w": 3.0}
    record = next(r for r in loop.records() if r.component == "pipeline r")
    assert np.isnan([record.cost_ns, record.as_written_ns]).all(), "combinations are in neither"
    assert np.isfinite(record.drop_fracs).all()


def test_ways_are_weighed_by_what_they_add_for_a_look_up():
    graph = JoinGraph(tuple("rabc"), tuple(map(frozenset, ("ra", "ab", "rc"))))
    filters = way_filters(graph, "r")
    assert ["".join(each.way) for each in filters.filters] == ["a", "ab", "c"]
    growth = Growth(filters)
    # a makes 10 of a row and b keeps half of them: 4 more for 11 look-ups, c 2 more for one.
    growth.count([sample_of(filters, np.zeros((10, 3)), n_partners=[100, 50, 30])])
    assert growth.last == (1, 2, 0)
    assert filters.order(growth.ranking((0, 1, 2))) == ("a", "b", "c")


def random_graph(rng, n):
    names = tuple("abcdefg"[:n])
    classes = [{names[rng.randrange(at)], names[at]} for at in range(1, n)]
    if rng.random() < 0.4:
        rng.choice(classes).add(rng.choice(names))
    if rng.random() < 0.4:
        classes.append(set(rng.sample(names, 2)))
    return JoinGraph(names, tuple(map(frozenset, classes)))


@pytest.mark.large
@pytest.mark.parametrize("seed", range(100))
def test_orders_are_always_legal_and_survive_a_restart(seed, monkeypatch):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    graph = random_graph(rng, rng.randint(2, 6))
    monkeypatch.setattr(orders, "WINDOW_ROWS", rng.choice([1, 50, 1000]))
    options = JoinOptions(seed=seed)
    loop = JoinLoop(graph, options)
    for batch_id in range(25):
        probing = loop.probing()
        samples = []
        for name, filters in probing.ways.items() if probing else ():
            n = len(filters.filters)
            drops = closed_outwards(filters, numbers.random((60, n)) < numbers.random(n))
            found = (~drops).sum(axis=0) * numbers.integers(1, 4, n)
            pairs = {
                other: (int(numbers.integers(0, 50)), 100)
                for other in probing.neighbours.get(name, ())
            }
            samples.append(sample_of(filters, drops, n_partners=found, pairs=pairs))
        before = {name: list(order) for name, order in loop.plan.items()}
        for entry in step(loop, samples, batch_id):
            if entry.event == "order":
                name = entry.component.removeprefix("pipeline ")
                assert before[name] == entry.before
                before[name] = entry.after
        assert before == {name: list(order) for name, order in loop.plan.items()}
        for name, order in loop.plan.items():
            assert len(order) == len(graph.inputs) - 1
            assert graph.is_legal(name, order)
    again = JoinLoop(graph, options)
    again.restore(saved(loop))
    assert again.plan == loop.plan
    assert again.snapshot() == loop.snapshot()
    assert again.probing() == loop.probing()


def test_two_tasks_count_equally(monkeypatch):
    monkeypatch.setattr(orders, "WINDOW_ROWS", 200)
    filters = way_filters(STAR, "r")
    one = sample_of(filters, np.tile([True, False, False, False], (300, 1)))
    other = sample_of(filters, np.tile([False, True, True, True], (300, 1)))
    loops = [JoinLoop(STAR, JoinOptions()) for _ in range(2)]
    for samples, loop in zip([[one, other], [other, one]], loops, strict=True):
        step(loop, samples, 0)
        fracs = loop.pipelines["r"].drop_fracs()
        assert fracs == {"s": 0.5, "t": 0.5, "u": 0.5, "w": 0.5}


def test_profiling_keeps_to_its_share_of_the_time(monkeypatch):
    """A batch of 100 ms pays for 2 ms of profiling, which takes 5."""
    filters = way_filters(STAR, "r")
    drops = np.random.default_rng(0).random((400, 4)) < 0.5
    monkeypatch.setattr(orders, "WINDOW_ROWS", 500)
    loop = JoinLoop(STAR, JoinOptions())
    profiled = []
    for batch_id in range(40):
        probing = loop.probing()
        samples = []
        if probing is not None and "r" in probing.ways:
            samples = [replace(sample_of(filters, drops), ns=5_000_000)]
            profiled.append(batch_id)
        step(loop, samples, batch_id, ns=100_000_000)
    assert profiled == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39]


def test_a_slow_batch_stops_profiling_for_a_while_only():
    filters = way_filters(STAR, "r")
    loop = JoinLoop(STAR, JoinOptions())
    few = sample_of(filters, np.ones((50, 4)))
    step(loop, [replace(few, ns=10**9)], 0, ns=100_000_000)
    assert set(loop.probing().ways) == set(NAMES)  # too little is known of any
    for batch_id in range(2):
        step(loop, [replace(few, ns=10**9)], batch_id, ns=100_000_000)
    assert "r" not in loop.probing().ways
    skipped = 0
    while "r" not in loop.probing().ways:
        step(loop, [], skipped, ns=100_000_000)
        skipped += 1
    assert skipped == 8


def test_samples_of_other_ways_say_nothing():
    loop = JoinLoop(STAR, JoinOptions())
    graph = JoinGraph(NAMES, tuple(map(frozenset, ("rs", "st", "tu", "uw"))))
    filters = way_filters(graph, "r")
    assert step(loop, [sample_of(filters, np.ones((500, 4)))], 0) == []
    assert step(loop, [sample_of(way_filters(STAR, "r"), np.zeros((0, 4)))], 1) == []
    assert loop.pipelines["r"].drop_fracs() == {}
    assert np.isnan(loop.records()[0].cost_ns)


# -- cycles ----------------------------------------------------------------------------------------


def test_which_joins_have_a_cycle():
    assert has_cycle(TRIANGLE)
    assert not has_cycle(STAR)
    assert not has_cycle(JoinGraph(tuple("rst"), (frozenset("rst"),)))
    assert has_cycle(JoinGraph(tuple("rst"), (frozenset("rst"), frozenset("st"))))
    assert not has_cycle(
        JoinGraph(tuple("rst"), (frozenset("rs"), frozenset("st"), frozenset("r")))
    )


def pair_samples(loop, fracs):
    """Samples of every pipeline in which pairs are joined with these fractions."""
    probing = loop.probing()
    return [
        sample_of(
            filters,
            np.zeros((10, len(filters.filters))),
            pairs={
                other: (fracs["".join(sorted(name + other))], 1000)
                for other in probing.neighbours[name]
            },
        )
        for name, filters in probing.ways.items()
    ]


def test_the_tree_follows_the_pickiest_pairs_and_does_not_thrash():
    loop = JoinLoop(TRIANGLE, JoinOptions())
    assert loop.plan == {"r": ("s", "t"), "s": ("r", "t"), "t": ("r", "s")}
    entries = step(loop, pair_samples(loop, {"rs": 500, "rt": 10, "st": 20}), 0)
    tree, *orders = entries
    assert (tree.component, tree.event, tree.after) == ("join", "tree", ["r-t", "s-t", "r-s"])
    assert tree.evidence["pass_fracs"] == {"r-t": 0.01, "s-t": 0.02, "r-s": 0.5}
    assert {entry.component: entry.after for entry in orders} == {
        "pipeline r": ["t", "s"],
        "pipeline s": ["t", "r"],
    }
    assert loop.plan == {"r": ("t", "s"), "s": ("t", "r"), "t": ("r", "s")}
    changes = [
        batch_id
        for batch_id in range(1, 31)
        if step(
            loop,
            pair_samples(loop, {"rs": 1 + 999 * (batch_id % 2), "rt": 500, "st": 20}),
            batch_id,
        )
    ]
    assert len(changes) <= 3
    assert all(batch_id % 10 == 0 for batch_id in changes)


def test_pairs_that_are_about_as_picky_do_not_change_the_tree():
    loop = JoinLoop(TRIANGLE, JoinOptions())
    step(loop, pair_samples(loop, {"rs": 100, "rt": 110, "st": 500}), 0)
    before = loop.probing()
    for batch_id in range(1, 25):
        entries = step(loop, pair_samples(loop, {"rs": 130, "rt": 100, "st": 500}), batch_id)
        assert entries == []
    assert loop.probing() == before


def test_silence_is_no_evidence():
    loop = JoinLoop(TRIANGLE, JoinOptions())
    step(loop, pair_samples(loop, {"rs": 0, "rt": 110, "st": 500}), 0)
    counted = dict(loop.pairs)
    for batch_id in range(1, 30):
        assert step(loop, [], batch_id) == []
    assert loop.pairs == counted


def test_the_tree_waits_until_all_pairs_were_counted():
    loop = JoinLoop(TRIANGLE, JoinOptions())
    fracs = {"rs": 500, "rt": 10, "st": 20}
    few = [each for each in pair_samples(loop, fracs) if each.filters.pipeline == "r"]
    assert step(loop, few, 0) == []
    assert step(loop, pair_samples(loop, fracs), 1) != []


# -- switched off, restored ------------------------------------------------------------------------


def test_switched_off_orders_stay_as_written():
    learned = JoinLoop(STAR, JoinOptions())
    star = Star(DRAWN[0])
    run_batches(learned, star, 5)
    assert learned.plan != written_orders(STAR)
    loop = JoinLoop(STAR, JoinOptions(adaptive=False))
    assert loop.probing() is None
    loop.restore(learned.snapshot())
    filters = way_filters(STAR, "r")
    assert step(loop, [sample_of(filters, np.tile([False, False, False, True], (500, 1)))], 0) == []
    assert loop.plan == written_orders(STAR)
    assert loop.records() == ()
    assert loop.pipelines["r"].drop_fracs() == {}


def test_joins_of_two_have_nothing_to_learn():
    two = JoinGraph(("r", "s"), (frozenset("rs"), frozenset("rs")))
    loop = JoinLoop(two, JoinOptions())
    assert loop.probing() is None
    again = JoinLoop(two, JoinOptions())
    again.restore(loop.snapshot())
    assert again.plan == {"r": ("s",), "s": ("r",)}


def test_the_policy_and_the_monitor_are_checked():
    two = JoinGraph(("r", "s"), (frozenset("rs"),))
    with pytest.raises(OptionError, match="a_greedy"):
        JoinLoop(two, JoinOptions(policy="a_gredy"))
    with pytest.raises(OptionError, match="two_sample"):
        JoinLoop(STAR, JoinOptions(monitor="two_samples"))


def broken(state, *path, value):
    *before, last = path
    at = state
    for key in before:
        at = at[key]
    at[last] = value
    return state


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("inputs",), ["r", "s"]),
        (("orders",), {}),
        (("orders", "r"), ["s", "s", "t", "u"]),
        (("orders", "s"), ["t", "r", "u", "w"]),
        (("orders", "r"), ["s", "t", "u", "w", "w"]),
        (("tree",), 3),
        (("tree",), [["r", "x", 0.5]]),
        (("pipelines",), None),
        (("pipelines", "r", "growth"), [[1.0], [1.0], []]),
        (("pipelines", "r", "growth", "n_rows"), [1.0]),
        (("pipelines", "r", "growth", "last"), [9]),
        (("pipelines", "r", "growth", "n_found"), [1.0, 1.0, 1.0, -1.0]),
        (("pipelines", "r", "loop", "order"), [0, 0, 1, 2]),
        (("pipelines", "r", "loop"), {}),
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(path, value):
    learned = JoinLoop(STAR, JoinOptions())
    run_batches(learned, Star(DRAWN[0]), 3)
    state = broken(saved(learned), *path, value=value)
    with pytest.raises(StateError, match="empty checkpoint"):
        JoinLoop(STAR, JoinOptions()).restore(state)


def test_profiles_of_buckets_merge_in_any_order():
    def report(bucket):
        made = BucketReport(bucket, ns=10 + bucket)
        made.work.probe("r", "s").add(3, bucket, 5)
        made.caches = CacheReport(profile_ns=7) if bucket else None
        return made

    merged = JoinProfile.from_reports(map(report, range(3)))
    assert (merged.n_buckets, merged.ns, merged.caches.profile_ns) == (3, 33, 14)
    assert merged.work.probes == {("r", "s"): ProbeWork(9, 3, 15)}
    assert JoinProfile.from_reports(map(report, (2, 0, 1))) == merged
