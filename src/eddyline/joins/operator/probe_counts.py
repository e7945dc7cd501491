"""What pipelines did: rows into and out of each join, and the time it took. Counts merge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Join = tuple[str, str]
"""The pipeline of which input, and which input its rows meet."""


@dataclass(slots=True)
class ProbeWork:
    """What the rows of one pipeline did at one window."""

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
    """What all pipelines of a join did."""

    probes: dict[Join, ProbeWork] = field(default_factory=dict)

    def of(self, pipeline: str, other: str) -> ProbeWork:
        """Return what was done at one join; counted into by the caller."""
        return self.probes.setdefault((pipeline, other), ProbeWork())

    @classmethod
    def together(cls, parts: Iterable[JoinWork]) -> JoinWork:
        """Return what several tasks or batches did."""
        whole = cls()
        for part in parts:
            for (pipeline, other), done in part.probes.items():
                whole.of(pipeline, other).add(done.n_in, done.n_out, done.ns)
        return whole
