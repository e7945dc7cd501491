"""Classes of the rows of an input with orders of their own: the same results, and less work."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from itertools import permutations
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.errors import PlanError, StateError
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.pipeline import results
from eddyline.joins.orders.classes import Readable, can_route
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.orders.probe_order import way_filters
from eddyline.joins.orders.probe_profiling import ClassOrders, RowAttribute, drop_samples
from eddyline.joins.plan import JoinProfile, JoinWork
from eddyline.options import JoinOptions
from eddyline.routing.learning import Cells, Outcomes, greedy_orders
from eddyline.routing.table import Partition, RouteTable, candidates
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun
from eddyline.stats.profile import PartnerSample
from tests.joins.operator.test_bucket import Operator, bag, is_supported
from tests.oracles import joins as oracle
from tests.oracles.join_strategies import join_cases

# -- any classes, any orders ----------------------------------------------------------------------


def points(values):
    """Cuts between some values, or bins for them."""
    return st.sets(st.sampled_from(values), max_size=4).map(lambda each: tuple(sorted(each)))


@st.composite
def tables(draw, name):
    """Any bins of a column, in any groups."""
    kind = draw(st.sampled_from(["values", "ranges", "hash"]))
    some = points([-1.0, 0.0, 0.5, 1.0, 2.0, 7.0, float("inf")])
    n_hash = draw(st.integers(1, 3)) if kind == "hash" else 0
    part = Partition(name, kind, () if n_hash else draw(some), n_hash)
    n_groups = draw(st.integers(1, 4))
    groups = [draw(st.integers(0, n_groups - 1)) for _ in range(part.n_bins)]
    return RouteTable(part, ((0,),) * n_groups, tuple(groups))


class RoutedOperator(Operator):
    """Rows of each input take orders by any of its columns, others in each batch."""

    def how(self):
        classes = {}
        for each in self.query.inputs:
            columns = [of for of in self.case.columns[each.stream] if of != "ts"]
            key = self.draw(st.sampled_from([None, *self.graph.classes_of[each.name]]))
            name = self.draw(st.sampled_from(columns))
            table = self.draw(tables(name))
            orders = tuple(self.orders()[each.name] for _ in range(table.n_groups))
            classes[each.name] = ClassOrders(table, RowAttribute(name, key), orders)
        return {"classes": classes}


@pytest.mark.large("joins many random cases by an oracle")
@given(case=join_cases().filter(is_supported), data=st.data())
def test_any_classes_and_any_order_of_each_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = RoutedOperator(case, data.draw, folder)
        for number, arrived in enumerate(case.batches or [{}]):
            operator.batch(arrived, is_first=number == 0)
        assert operator.results() == bag(oracle.results(case.query, case.tables, case.times))


DAY, AT = dt.date(1970, 1, 3), dt.datetime(2020, 1, 1)
COLUMNS = {
    "whole": (pa.int64(), [3, None, 3]),
    "small": (pa.int8(), [1, None, 2]),
    "real": (pa.float64(), [0.5, None, float("nan")]),
    "flag": (pa.bool_(), [True, None, False]),
    "day": (pa.date32(), [DAY, None, DAY]),
    "price": (pa.decimal128(9, 2), [Decimal("1.25"), None, Decimal(2)]),
    "name": (pa.string(), ["a", None, "ab"]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("n_chunks", [1, 2])
def test_values_are_numbers_and_nan_for_null(name, n_chunks):
    kind, values = COLUMNS[name]
    column = pa.chunked_array([pa.array(values, kind)] * n_chunks)
    codes = {0: np.arange(len(column))}
    rows = Rows(codes, codes[0], codes[0], pa.table({name: column}))
    found = RowAttribute(name).values(rows)
    assert found.dtype == np.float64
    assert np.isnan(found[1])
    texts = RowAttribute(name).texts(rows)
    if name == "name":
        assert texts == {found[0]: "a", found[2]: "ab"}
        assert found[0] != found[2]
    else:
        wanted = {"day": [2.0], "flag": [1.0], "price": [1.25]}.get(name, values[:1])
        np.testing.assert_array_equal(found[:1], wanted)
        assert texts == {}
    nothing = Rows({0: codes[0][:0]}, codes[0][:0], codes[0][:0], rows.payload.slice(0, 0))
    assert RowAttribute(name).values(nothing).tolist() == []


# -- learning -------------------------------------------------------------------------------------

NAMES = ("s", "t", "u", "w")
STAR = JoinGraph(NAMES, tuple(frozenset({"s", name}) for name in NAMES[1:]))
N_KEYS, N_CLASSES = 100, 3
TYPES = {"kind": "string", "noise": "bigint", "late": "bigint"}


class Star:
    """Rows of s in classes: a class finds ``partners[class][window]`` rows in a window on average.

    A key of a window has one partner, or many: which key a row has is its luck and its class's.
    """

    def __init__(self, partners, *, n_many=6, seed=0):
        self.partners, self.n_many = np.array(partners), n_many
        self.rng = np.random.default_rng(seed)
        self.windows = {"s": ()}
        for key, name in enumerate(NAMES[1:]):
            once = np.arange(N_KEYS)
            codes = np.concatenate([once, np.repeat(N_KEYS + once, n_many)])
            self.windows[name] = [self.run({key: codes}, {"at": np.arange(codes.size)}, ALWAYS)]

    def run(self, codes, payload, start=0):
        n = next(iter(codes.values())).size
        starts = np.full(n, start, np.int64)
        return SortedRun.from_rows(Rows(codes, starts, np.full(n, FOREVER), pa.table(payload)))

    def news(self, n=20_000):
        kinds = self.rng.integers(0, N_CLASSES, n)
        means = self.partners[kinds]
        chance = self.rng.random(means.shape)
        many = np.clip((means - 1) / (self.n_many - 1), 0, 1)
        group = np.where(chance < many, 1, np.where(chance < np.minimum(means, 1), 0, 2))
        codes = self.rng.integers(0, N_KEYS, means.shape) + N_KEYS * group
        payload = {
            "kind": pa.array(np.array(["a", "b", "c"])[kinds]),
            "noise": self.rng.integers(0, 9, n),
            "late": np.arange(n),
        }
        return {"s": self.run({key: codes[:, key] for key in range(3)}, payload)}


DROPPING = [[0.05, 1, 1], [1, 0.05, 1], [1, 1, 0.05]]
"""In each class another window drops."""
GROWING = [[6, 0.1, 1], [0.1, 6, 1], [1, 1, 0.1]]
"""In two classes one window multiplies rows, and another one drops them."""
ALIKE = [[0.3, 0.6, 0.9]] * 3


def readable():
    attributes = candidates(TYPES, 8)
    return {"s": Readable(attributes, tuple(RowAttribute(each.name) for each in attributes))}


def loop_of(**options):
    return JoinLoop(
        STAR, JoinOptions(**{"routing": True, **options}), frozenset(NAMES[1:]), readable()
    )


def joined(loop, star, news, *, ns_per_combination=2000, call_ns=0):
    """Join a batch as the loop says; its results, and its work at a price for each combination."""
    work, classes = JoinWork(), loop.classes
    found = list(results(STAR, loop.plan, star.windows, news, work, classes=classes))
    for done in work.probes.values():
        done.ns = call_ns + ns_per_combination * (done.n_in + done.n_out) // 2
    return found, work


def n_looked_up(work):
    return sum(done.n_in for done in work.probes.values())


def live(loop, star, n_batches, *, n_rows=20_000, first=0, **prices):
    """Batches of a loop; the journal, and the look-ups per row in each."""
    journal, looked_up = [], []
    for batch_id in range(first, first + n_batches):
        news = star.news(n_rows)
        _, work = joined(loop, star, news, **prices)
        looked_up.append(n_looked_up(work) / n_rows)
        samples = drop_samples(loop.probing(), STAR, star.windows, news, batch_id)
        journal += loop.step(JoinProfile(tuple(samples), work, ns=10**12), batch_id)
    return [each for each in journal if each.event == "routes"], looked_up


def least(partners, order):
    """Look-ups per row of a class in an order, windows being independent."""
    return 1 + sum(np.prod([partners[at] for at in order[:n]]) for n in range(1, len(order)))


def best_single(star):
    totals = [
        np.mean([least(each, order) for each in star.partners]) for order in permutations(range(3))
    ]
    return min(totals)


def best_by_class(star):
    return np.mean(
        [min(least(each, order) for order in permutations(range(3))) for each in star.partners]
    )


@pytest.mark.parametrize("partners", [DROPPING, GROWING], ids=["drops", "fan-out"])
@pytest.mark.parametrize("seed", range(3))
def test_each_class_gets_its_order(partners, seed):
    star, loop = Star(partners, seed=seed), loop_of(seed=seed)
    journal, looked_up = live(loop, star, 8)
    assert journal[0].component == "routes s"
    assert journal[0].after["by"] == ["kind"]
    assert loop.routes["s"].routed_by == ("kind",)
    assert looked_up[-1] < 1.1 * best_by_class(star)
    assert looked_up[-1] < 0.8 * best_single(star)
    rows = [each.rows for each in loop.routes["s"].views(loop.plan["s"])]
    assert rows[0] == "other rows"
    assert all(each.startswith("kind ") for each in rows[1:])
    assert {"'", "a", "b", "c"} & set("".join(rows[1:]).replace("kind in", ""))


def test_classes_form_among_streams_alone():
    star, loop = Star(GROWING), JoinLoop(STAR, JoinOptions(routing=True), readable=readable())
    for name in NAMES[1:]:  # rows of streams have an event time
        (run,) = star.windows[name]
        star.windows[name] = [star.run(run.rows.codes, {"at": np.arange(len(run))}, start=0)]
    journal, looked_up = live(loop, star, 8)
    assert journal[0].after["by"] == ["kind"]
    assert looked_up[-1] < 1.1 * best_by_class(star)


def test_results_are_those_of_one_order():
    star, loop = Star(GROWING), loop_of()
    live(loop, star, 5)
    assert loop.classes
    news, single = star.news(3000), loop_of(routing=False)

    def rows(loop):
        whole = pa.concat_tables(joined(loop, star, news)[0])
        return sorted(zip(*(column.to_pylist() for column in whole.columns), strict=True))

    assert rows(loop) == rows(single)


@pytest.mark.large("learns from 500,000 rows")
def test_the_router_is_left_out_where_nothing_differs_or_calls_cost_more():
    journal, _ = live(loop := loop_of(), Star(ALIKE), 8)
    assert not journal
    assert not loop.classes
    # The calls for other orders take longer than a batch of few rows.
    journal, _ = live(loop := loop_of(), Star(DROPPING), 12, n_rows=150)
    assert not journal
    # What looks dear is the call, which each class makes anew.
    prices = {"ns_per_combination": 20, "call_ns": 300_000}
    journal, _ = live(loop := loop_of(), Star(DROPPING), 8, n_rows=4_000, **prices)
    assert not journal
    journal, _ = live(loop := loop_of(routing=False), Star(DROPPING), 4)
    assert not journal
    assert not loop.routes


def test_classes_that_go_are_let_go():
    star, loop = Star(DROPPING), loop_of()
    live(loop, star, 5)
    assert loop.classes
    star.partners = np.array(ALIKE)
    journal, looked_up = live(loop, star, 8, first=5)
    assert journal[-1].after is None
    assert looked_up[-1] < 1.05 * best_single(star)


def test_a_window_does_not_tell_classes_by_its_own_key():
    star, loop = Star(ALIKE), loop_of()
    keys = {0: frozenset({"noise"})}
    columns = replace(readable()["s"], keys=keys)
    loop = JoinLoop(STAR, JoinOptions(routing=True), frozenset(NAMES[1:]), {"s": columns})
    own = loop.routes["s"].loop._router._subject.own
    assert own[:, 1].tolist() == [True, False, False]
    assert star.windows


def test_classes_outlive_a_restart():
    def lived(restarts):
        star, loop = Star(GROWING, seed=3), loop_of(seed=3)
        journal, looked_up = [], []
        for first in range(0, 9, 3):
            found = live(loop, star, 3, first=first)
            journal += found[0]
            looked_up += found[1]
            if restarts and loop.classes:
                saved = msgspec.json.decode(msgspec.json.encode(loop.snapshot()))
                before, loop = loop.classes, loop_of(seed=3)
                loop.restore(saved)
                assert loop.classes == before
        return looked_up

    with_restart, without = lived(restarts=True), lived(restarts=False)
    assert with_restart[-1] == pytest.approx(without[-1], rel=0.05)


def test_damaged_classes_are_refused():
    star, loop = Star(DROPPING), loop_of()
    live(loop, star, 4)
    saved = msgspec.json.decode(msgspec.json.encode(loop.snapshot()))
    for table in ({}, {"partition": 3}, {"partition": {"attribute": "kind"}}):
        saved["routes"]["s"]["table"] = table | {"orders": [[0, 0, 1]], "groups": [0]}
        if table:
            with pytest.raises(StateError, match="damaged"):
                loop_of().restore(saved)
    # Saved by a version without classes.
    del saved["routes"]
    loop = loop_of()
    loop.restore(saved)
    assert not loop.classes


# -- what a person holds --------------------------------------------------------------------------


def test_classes_can_be_pinned():
    star, loop = Star(DROPPING), loop_of()
    live(loop, star, 5)
    routes = loop.routes["s"]
    plan = msgspec.json.decode(msgspec.json.encode(routes.plan))
    assert plan == routes.plan
    assert routes.is_possible(plan)
    assert routes.in_words(plan)["by"] == ["kind"]
    routes.hold(None)
    journal, _ = live(loop, star, 4, first=5)
    assert not journal
    assert not loop.classes
    routes.hold(plan)
    assert loop.classes["s"].attribute.name == "kind"
    wrong = [
        {**plan, "orders": [["t", "t", "u"]]},
        {**plan, "groups": [0]},
        {**plan, "partition": {**plan["partition"], "attribute": "nothing"}},
        "kind",
        [1],
        {},
    ]
    for each in wrong:
        with pytest.raises(PlanError, match="routes s"):
            routes.hold(each)


def test_a_pinned_order_is_of_all_classes():
    star, loop = Star(DROPPING), loop_of()
    live(loop, star, 5)
    assert loop.classes
    pipeline = loop.pipelines["s"]
    assert pipeline.why_unlogged == "classes of rows have orders of their own"
    pipeline.hold(pipeline.plan)
    assert not loop.classes
    journal, _ = live(loop, star, 4, first=5)
    assert not journal
    pipeline.release()
    live(loop, star, 4, first=9)
    assert loop.classes
    # Who holds all plans as they are holds classes, too.
    for each in loop.choices:
        each.hold(each.plan)
    assert loop.classes


# -- where there are classes ----------------------------------------------------------------------


def test_rows_are_routed_where_each_way_has_one_window():
    chain = JoinGraph(tuple("stu"), (frozenset("st"), frozenset("tu")))
    one_key = JoinGraph(tuple("stu"), (frozenset("stu"),))
    triangle = JoinGraph(tuple("stu"), tuple(map(frozenset, ("st", "tu", "su"))))
    can = {
        "root of a star": can_route(way_filters(STAR, "s")),
        "leaf of a star": can_route(way_filters(STAR, "t")),
        "one key": can_route(way_filters(one_key, "s")),
        "end of a chain": can_route(way_filters(chain, "s")),
        "middle of a chain": can_route(way_filters(chain, "t")),
    }
    assert can == {
        "root of a star": True,
        "leaf of a star": True,
        "one key": True,
        "end of a chain": False,
        "middle of a chain": True,
    }
    every = {name: readable()["s"] for name in "stu"}
    assert not JoinLoop(triangle, JoinOptions(routing=True), readable=every).routes
    assert set(JoinLoop(one_key, JoinOptions(routing=True), readable=every).routes) == set("stu")
    assert not JoinLoop(one_key, JoinOptions(routing=True, adaptive=False), readable=every).routes


@given(st.data())
def test_costs_are_those_of_following_each_row(data):
    n_rows, n_windows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    shape = st.lists(st.integers(0, 4), min_size=n_windows, max_size=n_windows)
    partners = np.array([data.draw(shape) for _ in range(n_rows)], np.uint8)
    costs = np.array([data.draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(n_windows)])
    sample = PartnerSample(("a",), np.zeros((n_rows, 1)), partners, np.ones(n_rows))
    outcomes = Outcomes.of_sample(sample, n_windows)
    orders = np.array(list(permutations(range(n_windows))))
    found = outcomes.costs(orders, costs)[outcomes.of_row]

    def followed(row, order):
        total, n = 0.0, 1
        for window in order:
            total, n = total + n * costs[window], n * int(row[window])
        return total

    wanted = np.array([[followed(row, order) for order in orders] for row in partners])
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(outcomes.least_costs(costs)[outcomes.of_row], wanted.min(axis=1))
    one = Cells.from_outcomes(np.zeros(n_rows, np.intp), outcomes)
    losses, weights = outcomes.losses[one.code], one.sums(outcomes.weights)
    (greedy,) = greedy_orders(one, losses, weights, np.zeros((1, n_windows)), costs)
    assert sorted(greedy.tolist()) == list(range(n_windows))
    if n_rows == 1:  # the greedy order of one row is its best
        assert wanted[0, orders.tolist().index(greedy.tolist())] == pytest.approx(wanted.min())
