"""Join graphs, pipelines and problems of the thesis' examples, and random ones."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.caches.prefix_invariant import by_store, candidates
from eddyline.joins.caches.selection import CacheProblem
from eddyline.joins.graph import JoinGraph
from eddyline.state.grid import N_BINS, Grid, Split, bins_of
from eddyline.state.manifest import ManifestFolder


def each_seed(n):
    """Run a test with so many seeds, fifty to a case; an error says its seed."""

    def decorated(test):
        @pytest.mark.parametrize("seeds", [range(at, min(at + 50, n)) for at in range(0, n, 50)])
        def runs(seeds):
            for seed in seeds:
                try:
                    test(seed)
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise

        runs.__name__, runs.__doc__ = test.__name__, test.__doc__
        return runs

    return decorated


Q3 = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
"""R(A), S(A, B), T(B)."""


def on_one_attribute(n):
    """All inputs are joined on one attribute; they are named 1, 2, …."""
    names = tuple(str(i + 1) for i in range(n))
    return JoinGraph(names, (frozenset(names),))


def orders(**texts):
    """``orders(_1="23")`` is the pipeline of input 1."""
    return {name.strip("_"): tuple(text) for name, text in texts.items()}


SIX = on_one_attribute(6)
E5 = orders(_1="23456", _2="13546", _3="21456", _4="51236", _5="42316", _6="21453")
E6 = {**E5, "6": tuple("23451")}


def by_number(found):
    """The candidates as (i, j, k), counted from 1 as the thesis does."""
    return {(int(each.pipeline), each.start + 1, each.stop) for each in found}


def find(found, pipeline, *windows):
    """The candidate of a pipeline with those windows."""
    (each,) = (
        each
        for each in found
        if each.pipeline == pipeline and each.store.windows == frozenset(windows)
    )
    return each


def random_graph(rng: random.Random, n):
    """A tree of edges, or of one attribute for some, and perhaps a cycle."""
    names = tuple(str(i + 1) for i in range(n))
    classes = []
    for at in range(1, n):
        joined = rng.choice(names[:at])
        of = next((each for each in classes if joined in each and rng.random() < 0.4), None)
        if of:
            of.add(names[at])
        else:
            classes.append({joined, names[at]})
    if rng.random() < 0.3:
        classes.append(set(rng.sample(names, 2)))
    return JoinGraph(names, tuple(map(frozenset, classes)))


def random_order(rng: random.Random, graph, name):
    """An order without a Cartesian product."""
    order = []
    while len(order) < len(graph.inputs) - 1:
        order.append(rng.choice(sorted(graph.reachable([name, *order]))))
    return tuple(order)


def random_orders(rng: random.Random, graph):
    """Pipelines of which many begin alike."""
    ranks = {name: rng.random() for name in graph.inputs}

    def alike(name):
        order = []
        while len(order) < len(graph.inputs) - 1:
            order.append(min(graph.reachable([name, *order]), key=ranks.__getitem__))
        return tuple(order)

    return {
        name: alike(name) if rng.random() < 0.7 else random_order(rng, graph, name)
        for name in graph.inputs
    }


def random_problem(rng: random.Random, found, pipelines):
    """Worths such that some caches pay and others do not; small whole numbers make ties likely."""
    whole = rng.random() < 0.3
    draw = (
        (lambda most: float(rng.randint(0, int(most))))
        if whole
        else (lambda most: rng.random() * most)
    )
    works = {name: tuple(draw(10) for _ in order) for name, order in pipelines.items()}
    benefits = {
        each: sum(works[each.pipeline][each.start : each.stop]) - draw(20) for each in found
    }
    costs = {store: draw(12) for store in by_store(found)}
    return CacheProblem(benefits, costs, works)


def some_problem(seed, sizes=(4, 5, 6), budget=0, most=12):
    """A random problem with few enough candidates to try all sets."""
    rng = random.Random(seed)
    while True:
        graph = random_graph(rng, rng.choice(sizes))
        pipelines = random_orders(rng, graph)
        found = candidates(graph, pipelines, budget)
        if 0 < len(found) <= most:
            return random_problem(rng, found, pipelines)


def closed_outwards(filters, drops):
    """Which filters drop, given those that were found to ((R, F)): the ways through them, too."""
    closed = drops.copy()
    for at in filters.outwards:
        if (parent := filters.parents[at]) is not None:
            closed[:, at] |= closed[:, parent]
    return closed


@st.composite
def split_grids(draw, graph, timed=None, codes=(0, 1, 7, -5, 2**63 - 1)):
    """Return grids of a few buckets that split bins of some codes, in any way that is possible."""
    shape, splits = [], []
    for key, members in enumerate(graph.classes):
        size = draw(st.sampled_from([1, 2, 3, 4, 6] if len(graph.classes) < 3 else [1, 2, 3]))
        shape.append(size)
        can_be_cut = sorted(members if timed is None else members & set(timed))
        hot = st.sampled_from(sorted(set(bins_of(np.array(codes)).tolist())))
        for at in draw(st.sets(hot, max_size=3)):
            sides = []
            for name in draw(st.permutations(can_be_cut)):
                left = size // int(np.prod([n for _, n in sides]))
                n = draw(st.sampled_from([n for n in range(1, left + 1) if N_BINS % n == 0]))
                sides += [(name, n)] if n > 1 else []
            splits += [Split(key, at, tuple(sides))] if sides else []
    return Grid(tuple(shape), tuple(splits))


def place_in(folder):
    """Where an operator keeps its files in a folder of state."""
    return ManifestFolder(fs.LocalFileSystem(), str(folder)).place("join")
