"""."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eddyline.joins.operator.composites import SEED, Composites, widest_age
from eddyline.joins.operator.done_rows import MOST, WHOLE, LostCounts
from eddyline.state.dropped_rows import DroppedRows
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import JoinWork
    from eddyline.state.rows import SortedRun


class Way(Protocol):
    """The way of the new rows of an input through the windows of the others: a pipeline."""

    @property
    def graph(self) -> JoinGraph:
        """The join."""
        ...

    @property
    def name(self) -> str:
        """The input."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """The other inputs."""
        ...

    @property
    def windows(self) -> Mapping[str, Sequence[SortedRun]]:
        """The runs of each input."""
        ...

    @property
    def work(self) -> JoinWork:
        """The counts of all probes."""
        ...


@dataclass(slots=True)
class LostResults:
    """Counts what is missed in one bucket in one batch.

    Args:
        names: the inputs of which rows may be dropped.
    """

    names: Collection[str]
    dropped: dict[str, DroppedRows] = field(default_factory=dict)
    """By input, those of its rows that were dropped."""
    counts: dict[str, LostCounts] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self.counts = {name: LostCounts() for name in self.names}

    @property
    def may_be(self) -> bool:
        """Whether anything was dropped."""
        return any(each.slices for each in self.dropped.values())

    def found(self, joined: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> None:
        """Take note of results (one or more)."""
        for name, counts in self.counts.items():
            counts.n_found += len(joined)
            first = 0
            for run in windows[name]:
                age = widest_age(joined.rows[name], first, run.rows.starts, joined.starts)
                counts.widest = max(counts.widest, int(age))
                first += len(run)

    def missed(self, pipeline: Way, position: int, joined: Composites) -> None:
        """Count what is missed of the window at a position by the combinations that got there."""
        name = pipeline.order[position]
        if name not in self.dropped or not self.dropped[name].slices:
            return
        bound = (pipeline.name, *pipeline.order[:position])
        links = pipeline.graph.links(bound, name)
        codes = {key: joined.codes[key] for key in links}
        found = self.dropped[name].counted(codes, joined.starts, joined.ends)
        hit = np.flatnonzero(found.most)
        if not hit.size:
            return
        ghosts = joined.take(hit)
        most, about = found.most[hit].astype(np.float64), found.about[hit]
        for later in range(position + 1, len(pipeline.order)):
            at_most, perhaps = self._partners(pipeline, position, later, ghosts)
            most, about = most * at_most, about * perhaps
        counts = self.counts[name]
        counts.n_most = min(counts.n_most + _whole(most.sum()), MOST)
        counts.n_about += float(about.sum())
        newest = found.newest[hit]
        is_seen = (newest > ALWAYS) & (most > 0)
        if is_seen.any():
            counts.n_seen += int(is_seen.sum())
            ages = ghosts.starts[is_seen] - newest[is_seen]
            counts.widest_seen = max(counts.widest_seen, int(ages.max()))

    def _partners(
        self, pipeline: Way, position: int, later: int, ghosts: Composites
    ) -> tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]:
        """Return how many partners of a later window there are at most, and about how many.

        Args:
            pipeline: it is of.
            position: of the window whose partners were dropped.
            later: position of a window behind it.
            ghosts: the combinations before the one, without the dropped row.
        """
        graph, order = pipeline.graph, pipeline.order
        name, window = order[later], pipeline.windows[order[later]]
        dropped = self.dropped.get(name, DroppedRows(()))
        known = graph.links((pipeline.name, *order[:position]), name)
        if known:
            codes = {key: ghosts.codes[key] for key in known}
            kept = _counted(ghosts, name, window, known)
            gone = dropped.counted(codes, ghosts.starts, ghosts.ends)
            return kept + gone.most.astype(np.float64), kept + gone.about
        links = graph.links((pipeline.name, *order[:later]), name)
        kept_most = min(sum(run.most_alike(key) for run in window) for key in links)
        at_most = float(kept_most + dropped.most(links))
        done = [of for (_, other), of in pipeline.work.probes.items() if other == name]
        n_in = sum(each.n_in for each in done)
        mean = sum(each.n_out for each in done) / n_in if n_in else 1.0
        return at_most, min(mean, at_most)


def _counted(
    ghosts: Composites, name: str, window: Sequence[SortedRun], links: Sequence[int]
) -> NDArray[np.float64]:
    """Return how many rows of a window each of some combinations finds."""
    if not window:
        return np.zeros(len(ghosts))
    numbered = {SEED: np.arange(len(ghosts))}
    asked = Composites(numbered, ghosts.codes, ghosts.starts, ghosts.ends)
    found = asked.join(name, window, links, ())
    return np.bincount(found.rows[SEED], minlength=len(ghosts)).astype(np.float64)


def _whole(total: float) -> int:
    """Return a sum as a whole number that is not less."""
    return int(total) if total < WHOLE else int(min(total * (1 + 1e-9), MOST))
