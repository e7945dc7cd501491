"""A conjunction whose outcomes and times are made up: time passes only inside its predicates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from eddyline.data.outcomes import sampled_rows, seed_of
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate

BATCH_ROWS = 4096

OF_LOOP = ("window_rows", "min_fill", "warmup_prob")
"""Settings of a loop that are arguments of it, and no options of a query."""


def loop_of(names, settings, **more) -> FilterLoop:
    """Return a loop with some settings: options, and those of ``OF_LOOP``."""
    of_loop = {name: settings[name] for name in OF_LOOP if name in settings}
    options = {name: value for name, value in settings.items() if name not in OF_LOOP}
    return FilterLoop("arrow", names, FilterOptions.of(**options), **of_loop, **more)


@dataclass
class World:
    """F predicates over one boolean column each; predicate f takes fixed + per_row[f] * rows."""

    per_row_ns: list[float]
    pass_fracs: list[float]
    fixed_ns: float = 0.0
    seed: int = 0
    now_ns: float = 0.0
    spikes: dict[int, float] = field(default_factory=dict)
    """By number of the batch, how many times as long the first call of it takes."""

    def __post_init__(self):
        self.batch = 0
        self.entries = []
        self.profiles = []
        self.kept = []
        self.executor = ArrowExecutor(
            [predicate(self._fn(f), reads=[f"c{f}"], name=f"f{f}") for f in self.filters],
            [(f,) for f in self.filters],
            clock=lambda: int(self.now_ns),
        )

    @property
    def filters(self):
        return range(len(self.per_row_ns))

    def _fn(self, f):
        def passes(column):
            spent = self.fixed_ns + self.per_row_ns[f] * len(column)
            self.now_ns += spent * self.spikes.pop(self.batch, 1.0)
            return column

        return passes

    def loop(self, **settings) -> FilterLoop:
        # The time that policies take is not part of the world.
        return loop_of(self.executor.filter_ids, settings, clock=lambda: 0)

    def columns(self):
        rng = np.random.default_rng(seed_of(self.seed, self.batch))
        passes = rng.random((len(self.filters), BATCH_ROWS)) < np.array(self.pass_fracs)[:, None]
        return [pa.array(each) for each in passes], passes.all(axis=0)

    def run(self, loop: FilterLoop, n_batches: int, *, until=None) -> int:
        """Run batches, checking every answer; return how many were run."""
        for number in range(n_batches):
            if until is not None and loop.order == until:
                return number
            columns, expected = self.columns()
            prob = loop.batch_prob(
                BATCH_ROWS, (seed_of("chance", self.seed, self.batch) % 99991) / 99991
            )
            rows = sampled_rows(seed_of("rows", self.seed, self.batch), 0, BATCH_ROWS, prob)
            outcome = self.executor.run(columns, loop.order, loop.sample(rows, prob))
            np.testing.assert_array_equal(outcome.keep, expected)
            self.profiles.append(outcome.profile)
            self.entries += loop.step(outcome.profile, self.batch)
            self.batch += 1
        assert until is None or loop.order == until
        return n_batches
