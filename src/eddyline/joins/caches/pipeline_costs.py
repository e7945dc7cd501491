"""The costs of the joins of all pipelines as they are, or were, without caches."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from eddyline.joins.caches.cost_model import JUDGED, JoinEstimate, Stretch

if TYPE_CHECKING:
    from collections.abc import Collection

    from eddyline.joins.caches.prefix_invariant import Candidate
    from eddyline.joins.operator.probe_counts import JoinWork


class PipelineCosts:
    """Rates and costs of joins, from the batches in which no cache spared them."""

    def __init__(self) -> None:
        self._joins: dict[tuple[str, int], JoinEstimate] = {}
        self._rates: dict[str, deque[int]] = {}

    @property
    def are_known(self) -> bool:
        """Whether a batch was observed."""
        return bool(self._rates)

    @property
    def most_rows(self) -> float:
        """Mean number of rows that enter a pipeline in a batch, of the fullest one."""
        return max(map(self._rate, self._rates), default=0.0)

    def observe(
        self,
        pipeline: str,
        order: tuple[str, ...],
        n_rows: int,
        work: JoinWork,
        spared: Collection[int] = (),
        outdated: Collection[int] = (),
    ) -> None:
        """Take in the joins of a pipeline in a batch that ``n_rows`` rows entered.

        Joins at positions that a cache spared were not made; those at outdated positions are known
        to have changed since they were last seen.
        """
        self._rates.setdefault(pipeline, deque(maxlen=JUDGED)).append(n_rows)
        if not n_rows:
            return
        for at, other in enumerate(order):
            if at not in spared:
                done = work.probe(pipeline, other)
                known = self._joins.get((pipeline, at), JoinEstimate())
                window = 1 if at in outdated else JUDGED
                self._joins[pipeline, at] = known.observed(done.n_in, done.n_out, done.ns, window)

    def forget(self, pipelines: Collection[str]) -> None:
        """Forget the joins of pipelines whose order has changed."""
        self._joins = {at: each for at, each in self._joins.items() if at[0] not in pipelines}

    def stretch(self, pipeline: str, start: int, stop: int) -> Stretch:
        """Return the joins of a pipeline at positions ``[start, stop)``."""
        rows, costs = [self._rate(pipeline)], []
        for at in range(stop):
            join = self._joins.get((pipeline, at), JoinEstimate())
            costs.append(join.cost)
            rows.append(rows[-1] * join.fan_out)
        return Stretch(tuple(rows), tuple(costs)).part(start, stop)

    def spared_by(self, cache: Candidate) -> Stretch:
        """Return the joins that a cache spares."""
        return self.stretch(cache.pipeline, cache.start, cache.stop)

    def _rate(self, pipeline: str) -> float:
        """Return the mean number of rows that enter a pipeline in a batch."""
        counts = self._rates.get(pipeline)
        return sum(counts) / len(counts) if counts else 0.0
