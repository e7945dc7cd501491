"""A bucket that joins batch after batch: its state, what it found, and all rows that came."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa

from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import BatchPlan, merged_counts
from eddyline.state.bucket_state import BucketState
from eddyline.state.rows import ALWAYS
from tests.joins.plans import place_in

LENGTH = 1_000
"""Of all windows (µs)."""


class FedBucket:
    """A bucket of inputs with keys of one class; event time goes on by a µs for each row.

    Args:
        graph: the join.
        folder: where its runs are.
        seed: of rows.
        n: rows of each in a batch.
    """

    def __init__(self, graph, folder, seed, *, n=40):
        self.graph, self.place, self.n = graph, place_in(folder), n
        self.rng = np.random.default_rng(seed)
        self.state, self.found, self.reports, self.at = BucketState(), [], [], 0
        self.every = {name: [] for name in graph.inputs}
        """The key and the instant of each row, by input."""

    def rows(self):
        """The rows of the next batch, by input."""
        raise NotImplementedError

    def plan(self, **how):
        """How the next batch is joined: windows let go of what is behind the batch before."""
        names = self.graph.inputs
        horizons = dict.fromkeys(names, self.at - 1 if self.at else ALWAYS)
        lengths = dict.fromkeys(names, LENGTH)
        return BatchPlan(0, self.graph, written_orders(self.graph), lengths, {}, horizons, **how)

    def join(self, plan, *, n_lost=0):
        """Join a batch; so many tasks before the one that counts are lost, with their files."""
        rows = self.rows()
        for _ in range(n_lost):
            list(BucketBatch(plan, self.place, self.state).run(rows))
        task = BucketBatch(plan, self.place, self.state)
        self.found += task.run(rows)
        self.state = msgspec.json.decode(msgspec.json.encode(task.report.after), type=BucketState)
        self.reports.append(task.report)
        self.came(rows)

    def came(self, rows):
        """Take note of the rows of a batch."""
        for name, each in rows.items():
            self.every[name] += zip(each.codes[0].tolist(), each.starts.tolist(), strict=True)
        self.at += self.n

    def got(self):
        """All results so far: the instants of their rows, each with how often it came."""
        table = pa.concat_tables(self.found)
        columns = [table[f"{name}.at"].to_pylist() for name in self.graph.inputs]
        return Counter(zip(*columns, strict=True))

    def wanted(self):
        """All results, found row by row."""
        first, *others = self.graph.inputs
        by_key = {name: {} for name in self.graph.inputs}
        for name, keys in by_key.items():
            for key, at in self.every[name]:
                keys.setdefault(key, []).append(at)
        found = Counter()
        for key, mine in by_key[first].items():
            parts = [(at,) for at in mine]
            for name in others:
                parts = [(*one, at) for one in parts for at in by_key[name].get(key, ())]
            found.update(each for each in parts if max(each) - min(each) <= LENGTH)
        return found

    def n_hot(self, name):
        """How many rows of an input are hot."""
        return sum(file.n_rows for file in self.state.runs.get(name, ()))

    def counts(self, rule, name):
        """The counts of an input by a rule, in all batches."""
        return merged_counts((each.done for each in self.reports), rule)[name]
