"""XJoins as contestants: the same answers, and work that is counted as that of pipelines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.joins import runs as join_runs
from benchmarks.joins.trees import run_tree, told, trees

from eddyline.joins.graph import JoinGraph

NAMES = ("r", "s", "t", "u")


def arrivals(n_rows=600, n_keys=12, length=60, names=NAMES, seed=0):
    rng = np.random.default_rng(seed)
    graph = JoinGraph(names, (frozenset(names),))
    orders = {name: tuple(other for other in names if other != name) for name in names}
    of = rng.integers(0, len(names), n_rows)
    codes = rng.integers(0, n_keys, (1, n_rows))
    lengths = {name: length + 10 * at for at, name in enumerate(names)}
    return join_runs.Arrivals(graph, orders, of, codes, lengths)


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (2, 1), (3, 3), (4, 15), (5, 105)])
def test_every_tree_is_there_once(n, expected):
    found = [told(tree) for tree in trees([str(at) for at in range(n)])]
    assert len(found) == len(set(found)) == expected


@pytest.mark.parametrize(("n_rows", "batch_rows"), [(100, 1), (600, 50), (600, 600)])
def test_every_tree_finds_what_pipelines_find(n_rows, batch_rows):
    given = arrivals(n_rows=n_rows)
    plain = join_runs.run(given, batch_rows)
    assert plain.n_results > 0
    for tree in trees(NAMES):
        done = run_tree(given, batch_rows, tree)
        assert (done.n_results, done.checks) == (plain.n_results, plain.checks), told(tree)


def test_of_two_inputs_a_tree_takes_what_pipelines_take():
    given = arrivals(names=("r", "s"))
    plain = join_runs.run(given, 50)
    assert run_tree(given, 50, ("r", "s")).works == plain.works


def test_what_a_node_keeps_is_paid_for():
    """One row each of r, s, t: r ⋈ s is found, kept, and found by t; nothing kept, no look-up."""
    given = arrivals(names=("r", "s", "t"))
    given = replace(given, of=np.array([0, 1, 2]), codes=np.zeros((1, 3), np.int64))
    done = run_tree(given, 1, (("r", "s"), "t"))
    # r finds s empty; s looks r up, finds it, keeps that; t looks r ⋈ s up, finds it.
    assert done.works == [0, 1 + 1 + 1, 1 + 1]
    assert done.n_results == 1
