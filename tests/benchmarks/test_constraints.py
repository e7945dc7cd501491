"""Streams of the constraints suite: they have the k that they say, and windows as in the source."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from benchmarks.constraints import discard as dropping
from benchmarks.constraints.data import EVERY_US, cut
from benchmarks.constraints.expressway import REPORT_S, SECOND_US, accidents, expressway_v1
from benchmarks.constraints.graphs import combined_v1, crossover_v1, oac_v1, rids_v1, two_roots_v1
from benchmarks.constraints.learned import compared

K, N = 50, 2_000

GRAPHS = {
    "rids": rids_v1(np.full(N, K)),
    "ca": two_roots_v1(np.full(N, K), is_ordered=False),
    "oap": two_roots_v1(np.full(N, K), is_ordered=True),
    "oac": oac_v1(np.full(N, K)),
    "combined": combined_v1(N),
    "crossover": crossover_v1(K, N),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_an_instant_is_the_number_of_an_arrival_and_children_have_keys(name):
    graph = GRAPHS[name]
    instants = np.concatenate([at for *_, at in graph.streams.values()])
    assert np.unique(instants).size == instants.size
    assert instants.max() < graph.n_arrivals * EVERY_US
    assert all((np.diff(at) > 0).all() for *_, at in graph.streams.values())
    for child, key in graph.keys.items():
        own = graph.streams[child][graph.join.classes_of[child].index(key)]
        assert np.unique(own).size == own.size


def test_windows_have_as_many_arrivals_as_bring_50_000_rows():
    assert GRAPHS["rids"].lengths == {
        "s1": 70_000 * EVERY_US,
        "s2": 350_000 * EVERY_US,
        "s3": 350_000 * EVERY_US,
    }
    assert GRAPHS["oac"].lengths["s1"] == 60_000 * EVERY_US


def test_children_come_up_to_k_of_their_stream_after_parents():
    a, b, at = GRAPHS["rids"].streams["s1"]
    for child, own in (("s2", a), ("s3", b)):
        keys, came = GRAPHS["rids"].streams[child]
        order = np.argsort(keys)
        places = np.minimum(np.searchsorted(keys[order], own), keys.size - 1)
        is_there = keys[order][places] == own
        distances = (came[order][places] - at)[is_there] / (7 * EVERY_US)
        assert 0.9 * K < distances.max() <= K


@pytest.mark.parametrize("name", ["ca", "oap"])
def test_rows_of_a_value_are_up_to_k_apart_and_behind_their_child(name):
    streams = GRAPHS[name].streams
    keys, at = streams["s1"]
    _, of = np.unique(keys, return_inverse=True)
    first, last = np.full(of.max() + 1, of.size), np.zeros(of.max() + 1, np.int64)
    np.minimum.at(first, of, np.arange(of.size))
    np.maximum.at(last, of, np.arange(of.size))
    assert 0.7 * K < (last - first).max() <= K + 5
    children, came = streams["s3"]
    born = dict(zip(children.tolist(), came.tolist(), strict=True))
    assert all(born.get(key, -1) < when for key, when in zip(keys.tolist(), at, strict=True))


def test_a_join_of_three_answers_alike_with_and_without_constraints():
    graph = rids_v1(np.full(600, 20))
    short = {name: length // 500 for name, length in graph.lengths.items()}
    batches = partial(cut, graph.streams, 30)
    on, _, found = compared(batches, short, keys=graph.keys, graph=graph.join, warm=5)
    assert found["n_results"] == sum(on.found) > 0


def test_cars_report_every_30_seconds_and_some_stop():
    seconds = list(expressway_v1(600, 150, seed=3))
    cars, at = (np.concatenate([getattr(each, name) for each in seconds]) for name in ("car", "at"))
    order = np.lexsort((at, cars))
    apart = np.diff(at[order])[np.diff(cars[order]) == 0]
    assert abs(apart - REPORT_S * SECOND_US).max() < SECOND_US
    numbers = np.concatenate([each.number for each in seconds])
    assert (numbers == numbers[0] + np.arange(numbers.size)).all()
    found = list(accidents(iter(seconds), seed=3))
    stopped = np.concatenate([each["t"][0] for each in found])
    assert stopped.size == np.unique(stopped).size > 0
    assert np.isin(stopped, numbers).all()
    assert (np.diff(np.concatenate([each["t"][1] for each in found])) >= 0).all()


def test_rows_that_are_dropped_cost_no_more_than_is_told():
    streams = dict(GRAPHS["rids"].streams)
    batches = cut(streams, GRAPHS["rids"].n_arrivals // 700)
    found = dropping.compared(batches, GRAPHS["rids"].join, GRAPHS["rids"].lengths)
    assert found["n_below"] == 0
    assert found["kept"][-1] < found["kept_off"][-1] / 2
    assert sum(found["missing"]) == 0
