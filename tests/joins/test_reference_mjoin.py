"""The tuple-at-a-time MJoin on the worked examples of the specification, and against no caches."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.testing.reference_mjoin import Cache, Store, TupleMJoin, is_closed

E1_COLUMNS = {"R1": ("A",), "R2": ("A", "B"), "R3": ("B",)}
E2_PIPELINES = {"R1": ("R2", "R3"), "R2": ("R3", "R1"), "R3": ("R2", "R1")}
E2_CACHE = Cache("R1", 1, 2)
E2_STORE = Store(frozenset({"R2", "R3"}), ("A",))

E5_PIPELINES = {
    1: (2, 3, 4, 5, 6),
    2: (1, 3, 5, 4, 6),
    3: (2, 1, 4, 5, 6),
    4: (5, 1, 2, 3, 6),
    5: (4, 2, 3, 1, 6),
    6: (2, 1, 4, 5, 3),
}


def flat(elements):
    """Return ``<1,1,2,2>`` of each element with its sign."""
    return [(sign, tuple(value for row in rows for value in row)) for sign, rows in elements]


def e1(*caches):
    join = TupleMJoin(E1_COLUMNS, E2_PIPELINES, caches)
    join.windows |= {"R2": [(1, 2), (1, 3), (2, 3)], "R3": [(2,)]}
    return join


def entries(join, store=E2_STORE):
    """Return what a store holds: R2 and R3 of each row, by the one value of the key."""
    return {
        key[0]: [(*row["R2"], *row["R3"]) for row in rows]
        for key, rows in join.stores[store].items()
    }


def test_e1_an_insertion_runs_through_the_pipeline_and_into_its_window():
    join = e1()
    assert flat(join.process("R1", (1,))) == [("+", (1, 1, 2, 2))]
    assert join.windows["R1"] == [(1,)]
    assert join.n_probes == 1 + 2  # one row meets R2, two composites meet R3


def test_e2_a_cache_step_by_step():
    join = e1(E2_CACHE)
    assert entries(join) == {}

    assert flat(join.process("R1", (1,))) == [("+", (1, 1, 2, 2))]
    assert (join.n_misses, entries(join)) == (1, {1: [(1, 2, 2)]})

    n_probes = join.n_probes
    assert flat(join.process("R1", (1,))) == [("+", (1, 1, 2, 2))]
    assert (join.n_misses, join.n_hits, join.n_probes) == (1, 1, n_probes)

    assert flat(join.process("R3", (3,))) == [("+", (1, 1, 3, 3))] * 2
    assert entries(join) == {1: [(1, 2, 2), (1, 3, 3)]}  # nothing is known of key 2

    assert flat(join.process("R1", (1,))) == [("+", (1, 1, 2, 2)), ("+", (1, 1, 3, 3))]
    assert join.n_hits == 2

    assert flat(join.process("R3", (2,), "-")) == [("-", (1, 1, 2, 2))] * 3
    assert entries(join) == {1: [(1, 3, 3)]}

    assert flat(join.process("R1", (2,))) == [("+", (2, 2, 3, 3))]
    assert (join.n_misses, entries(join)) == (2, {1: [(1, 3, 3)], 2: [(2, 3, 3)]})

    assert join.process("R1", (9,)) == []
    assert (join.n_misses, entries(join)[9]) == (3, [])
    assert join.process("R1", (9,)) == []
    assert (join.n_misses, join.n_hits) == (3, 3)


def test_e3_only_a_segment_with_the_prefix_invariant_may_be_cached():
    e1(Cache("R1", 1, 2))
    with pytest.raises(ValueError, match=r"breaks the prefix invariant: \['R1', 'R2'\]"):
        e1(Cache("R3", 1, 2))


def test_e5_closed_sets_of_the_six_way_join():
    sets = [frozenset(each) for size in range(2, 6) for each in combinations(E5_PIPELINES, size)]
    closed = [set(each) for each in sets if is_closed(E5_PIPELINES, each)]
    assert closed == [{1, 2}, {4, 5}, {1, 2, 3}, {1, 2, 3, 4, 5}]


E5_CANDIDATES = (
    *((1, 3, 4), (2, 3, 4), (3, 3, 4), (6, 3, 4), (3, 1, 2), (4, 2, 3), (6, 1, 2)),
    *((4, 2, 4), (5, 2, 4), (6, 1, 5)),
)


def six_way(*caches):
    named = {f"R{i}": tuple(f"R{j}" for j in order) for i, order in E5_PIPELINES.items()}
    columns = dict.fromkeys(named, ("A",))
    return TupleMJoin(columns, named, [Cache(f"R{i}", j, k) for i, j, k in caches])


def test_e5_the_executor_takes_the_ten_candidates_and_no_other_segment():
    taken = []
    for i, j, k in product(range(1, 7), range(1, 6), range(1, 6)):
        try:
            six_way((i, j, k))
        except ValueError:
            continue
        taken.append((i, j, k))
    assert sorted(taken) == sorted(E5_CANDIDATES)


def test_e5_caches_of_one_segment_and_key_share_a_store():
    assert len(six_way((3, 1, 2), (4, 2, 3), (6, 1, 2)).stores) == 1
    assert len(six_way((4, 2, 4), (5, 2, 4)).stores) == 1
    assert len(six_way((1, 3, 4), (2, 3, 4), (3, 3, 4), (6, 3, 4)).stores) == 1
    assert len(six_way((3, 1, 2), (3, 3, 4), (4, 2, 4), (6, 1, 5)).stores) == 4


def test_e5_one_pipeline_warms_the_store_of_the_others():
    join = six_way((3, 1, 2), (6, 1, 2))
    for name in ("R1", "R2", "R4", "R5"):
        join.process(name, ("x",))
    join.process("R3", ("x",))
    assert (join.n_misses, join.n_hits) == (1, 0)
    assert len(join.process("R6", ("x",))) == 1
    assert (join.n_misses, join.n_hits) == (1, 1)


def test_segments_of_one_pipeline_may_not_overlap():
    with pytest.raises(ValueError, match="overlaps"):
        six_way((6, 1, 2), (6, 1, 5))
    six_way((6, 1, 2), (6, 3, 4))


def test_h4_a_store_is_kept_up_by_rows_that_later_windows_drop():
    join = TupleMJoin(E1_COLUMNS, E2_PIPELINES, [E2_CACHE])
    join.windows["R3"].append((2,))
    assert join.process("R1", (5,)) == []
    assert entries(join) == {5: []}
    assert join.process("R1", (5,), "-") == []
    assert join.process("R2", (5, 2)) == []  # R1 is empty, so nothing comes of it, but:
    assert entries(join) == {5: [(5, 2, 2)]}
    n_misses = join.n_misses
    assert flat(join.process("R1", (5,))) == [("+", (5, 5, 2, 2))]
    assert join.n_misses == n_misses


def three_way():
    columns = dict.fromkeys(("1", "2", "3"), ("A",))
    pipelines = {"1": ("2", "3"), "2": ("3", "1"), "3": ("2", "1")}
    return TupleMJoin(columns, pipelines, [Cache("1", 1, 2)])


def test_h5_another_pipelines_order_may_break_a_cache():
    join = three_way()
    join.process("1", ("x",))
    assert list(join.stores.values()) == [{("x",): []}]
    join.reorder("3", ("1", "2"))
    assert (join.caches, join.stores) == ([], {})
    join.process("2", ("x",))
    assert len(join.process("3", ("x",))) == 1
    assert len(join.process("1", ("x",))) == 1


def test_h5_an_order_that_keeps_the_segment_closed_keeps_the_cache():
    join = six_way((4, 2, 4), (6, 1, 2))
    join.process("R4", ("x",))
    join.reorder("R3", ("R1", "R2", "R6", "R4", "R5"))
    assert join.caches == [Cache("R4", 2, 4), Cache("R6", 1, 2)]
    join.reorder("R6", ("R2", "R1", "R4", "R5", "R3"))  # its own caches go, whatever the order
    assert join.caches == [Cache("R4", 2, 4)]
    assert [store.windows for store in join.stores] == [{"R1", "R2", "R3"}]
    with pytest.raises(ValueError, match="no order of the windows other than R3"):
        join.reorder("R3", ("R1", "R2"))


def test_rows_with_null_keys_join_nothing_and_are_in_no_entry():
    join = e1(E2_CACHE)
    join.process("R1", (None,))
    join.process("R2", (None, 2))
    assert (join.process("R1", (None,)), entries(join)) == ([], {})
    assert join.process("R1", (None,), "-") == []


def test_only_rows_that_are_there_leave():
    with pytest.raises(ValueError, match="R1 does not hold"):
        e1().process("R1", (1,), "-")


# H6: whatever is cached, the results of each element are those of the MJoin without caches.


@st.composite
def plans(draw):
    """Return columns of 3 to 5 windows, connected pipelines, and legal caches."""
    n = draw(st.integers(3, 5))
    names = [f"R{i}" for i in range(n)]
    columns: dict[str, set] = {name: set() for name in names}
    shared = draw(st.booleans())
    links = [(draw(st.sampled_from(names[:at])), names[at]) for at in range(1, n)]
    if draw(st.booleans()):
        links.append(tuple(draw(st.permutations(names))[:2]))
    for at, pair in enumerate(links):
        for name in pair:
            columns[name].add("A" if shared else f"A{at}")
    ordered = {name: tuple(sorted(each)) for name, each in columns.items()}
    pipelines = {name: draw(orders(name, ordered)) for name in names}
    legal = [
        Cache(name, first, last)
        for name in names
        for first, last in combinations(range(1, n), 2)
        if is_closed(pipelines, frozenset(pipelines[name][first - 1 : last]))
    ]
    caches: list[Cache] = []
    for each in draw(st.permutations(legal)) if legal else []:
        if not any(
            each.pipeline == one.pipeline and each.first <= one.last and one.first <= each.last
            for one in caches
        ):
            caches.append(each)
    return ordered, pipelines, caches


@st.composite
def orders(draw, name, columns):
    """Return an order of the others without Cartesian products; often the first names first."""
    order: list[str] = []
    while len(order) < len(columns) - 1:
        known = {column for each in (name, *order) for column in columns[each]}
        near = [
            other
            for other in columns
            if other not in (name, *order) and not known.isdisjoint(columns[other])
        ]
        order.append(draw(st.sampled_from(near)))
    return tuple(order)


@given(plans(), st.data())
def test_h6_caches_never_change_the_results(plan, data):
    columns, pipelines, caches = plan
    plain, cached = TupleMJoin(columns, pipelines), TupleMJoin(columns, pipelines, caches)
    rng = data.draw(st.randoms(use_true_random=True))
    names = list(columns)
    for _ in range(60):
        name = rng.choice(names)
        held = plain.windows[name]
        if held and rng.random() < 0.4:
            element = (name, rng.choice(held), "-")
        else:
            values = tuple(rng.choice([1, 1, 2, 2, 3, None]) for _ in columns[name])
            element = (name, values, "+")
        expected = Counter(plain.process(*element))
        found = Counter(cached.process(*element, profiled=rng.random() < 0.1))
        assert found == expected
        if rng.random() < 0.1:
            for stored in cached.stores.values():
                for key in [key for key in stored if rng.random() < 0.5]:
                    del stored[key]
        if rng.random() < 0.02:
            moved = rng.choice(names)
            others = [each for each in names if each != moved]
            cached.reorder(moved, rng.sample(others, len(others)))
        assert_entries_are_whole(cached)


def assert_entries_are_whole(join):
    """Every entry is the join of its windows where the key is that of the entry."""
    for store, stored in join.stores.items():
        names = [name for name in join.columns if name in store.windows]
        for key, rows in stored.items():
            expected: Counter = Counter()
            for combination in product(*(join.windows[name] for name in names)):
                values: dict = dict(zip(store.key, key, strict=True))
                for name, row in zip(names, combination, strict=True):
                    pairs = list(zip(join.columns[name], row, strict=True))
                    if any(value is None or values.get(c, value) != value for c, value in pairs):
                        break
                    values |= dict(pairs)
                else:
                    expected[combination] += 1
            assert Counter(tuple(row[name] for name in names) for row in rows) == expected


def test_h6_caches_are_drawn_and_hit():
    n_hits = []

    @given(plans())
    def look(plan):
        columns, pipelines, caches = plan
        join = TupleMJoin(columns, pipelines, caches)
        for name, _ in product(columns, range(2)):
            join.process(name, (1,) * len(columns[name]))
        n_hits.append(join.n_hits)

    look()
    assert sum(each > 0 for each in n_hits) > len(n_hits) / 4
