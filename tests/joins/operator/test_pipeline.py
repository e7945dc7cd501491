"""A pipeline and its shortcut: two verbs, and the results of the pipeline alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.pipeline import results
from eddyline.joins.plan import JoinWork
from eddyline.state.rows import Rows, SortedRun

GRAPH = JoinGraph(tuple("rstu"), (frozenset("rs"), frozenset("st"), frozenset("tu")))
ORDERS = {"r": ("s", "t", "u"), "s": ("r", "t", "u"), "t": ("u", "s", "r"), "u": ("t", "s", "r")}


class Strides:
    """A shortcut that spares nothing: it joins so many windows at once."""

    def __init__(self, length):
        self.length, self.passes = length, []

    def passed(self, pipeline, position, joined):
        assert len(joined)
        self.passes.append((pipeline, position))

    def joined(self, pipeline, position, joined, through):
        assert self.passes[-1] == (pipeline, position)
        stop = min(position + self.length, 3)
        return through(joined, position, stop), stop


def joined(news, shortcut=None):
    work = JoinWork()
    tables = list(results(GRAPH, ORDERS, {}, news, work, shortcut))
    columns = [f"{name}.at" for name in GRAPH.inputs]
    bag = sorted(
        tuple(row.values()) for table in tables for row in table.select(columns).to_pylist()
    )
    return bag, {probe: (done.n_in, done.n_out) for probe, done in work.probes.items()}


@pytest.mark.parametrize(("length", "positions"), [(1, [0, 1, 2, 3]), (2, [0, 2, 3]), (3, [0, 3])])
def test_a_shortcut_sees_every_position_that_a_pipeline_reaches(length, positions):
    rng = np.random.default_rng(length)
    news = {}
    for name in GRAPH.inputs:
        at = np.arange(40)
        codes = {key: rng.integers(0, 6, at.size) for key in GRAPH.classes_of[name]}
        news[name] = SortedRun.from_rows(Rows(codes, at, at + 100, pa.table({"at": at})))
    shortcut = Strides(length)
    bag, probes = joined(news)
    seen_bag, seen_probes = joined(news, shortcut)
    assert seen_bag == bag
    # Without a shortcut, rows probe nothing while a window is empty.
    assert {probe: seen_probes[probe] for probe in probes} == probes
    assert {pipeline for pipeline, _ in probes} == {"u"}
    # Only the rows of the last input meet rows of all others.
    assert [at for name, at in shortcut.passes if name == "u"] == positions
    assert [at for name, at in shortcut.passes if name == "r"] == [0]
