"""Counts of the probes of pipelines: rows in and out, and time. Counts merge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Join = tuple[str, str]
"""A probe: the input of the pipeline, and the input whose window is probed."""


@dataclass(slots=True)
class ProbeWork:
    """The work of the rows of one pipeline at one window."""

    n_in: int = 0
    """Rows, or combinations of rows, that were looked up."""
    n_out: int = 0
    """Combinations with a row of the window that were found."""
    ns: int = 0
    """Time that it took (ns)."""

    def add(self, n_in: int, n_out: int, ns: int) -> None:
        """Count one look-up of many rows."""
        self.n_in += n_in
        self.n_out += n_out
        self.ns += ns


@dataclass(slots=True)
class JoinWork:
    """The work of all pipelines of a join."""

    probes: dict[Join, ProbeWork] = field(default_factory=dict)

    def probe(self, pipeline: str, other: str) -> ProbeWork:
        """Return the counts of one probe; the caller may add to them."""
        return self.probes.setdefault((pipeline, other), ProbeWork())

    def without(self, pipelines: Collection[str]) -> JoinWork:
        """Return the counts of all pipelines but some, such as those that begin another order."""
        return JoinWork(
            {join: done for join, done in self.probes.items() if join[0] not in pipelines}
        )

    @classmethod
    def merge(cls, parts: Iterable[JoinWork]) -> JoinWork:
        """Return the sum of several tasks or batches."""
        whole = cls()
        for part in parts:
            for (pipeline, other), done in part.probes.items():
                whole.probe(pipeline, other).add(done.n_in, done.n_out, done.ns)
        return whole
