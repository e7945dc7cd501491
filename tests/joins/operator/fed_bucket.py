"""A bucket that joins batch after batch: its state, what it found, and all rows that came."""

from __future__ import annotations

import msgspec
import numpy as np

from eddyline.joins.operator.bucket import BucketBatch
from eddyline.state.bucket_state import BucketState
from tests.joins.plans import place_in


class FedBucket:
    """A bucket of inputs with keys of one class; event time goes on by a µs for each row.

    Args:
        folder: where its runs are.
        seed: of rows.
        names: of the inputs.
        n: rows of each in a batch.
    """

    def __init__(self, folder, seed, names, *, n=40):
        self.place, self.rng, self.n = place_in(folder), np.random.default_rng(seed), n
        self.state, self.found, self.reports, self.at = BucketState(), [], [], 0
        self.every = {name: [] for name in names}
        """The key and the instant of each row, by input."""

    def join(self, plan, rows, *, n_lost=0):
        """Join a batch; so many tasks before the one that counts are lost, with their files."""
        for _ in range(n_lost):
            list(BucketBatch(plan, self.place, self.state).run(rows))
        task = BucketBatch(plan, self.place, self.state)
        self.found += task.run(rows)
        self.state = msgspec.json.decode(msgspec.json.encode(task.report.after), type=BucketState)
        self.reports.append(task.report)
        for name, each in rows.items():
            self.every[name] += zip(each.codes[0].tolist(), each.starts.tolist(), strict=True)
        self.at += self.n
