"""Models of a stream as they stand, for people, and what is saved of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from eddyline.errors import StateError
from eddyline.models.fitting import FitReport
from eddyline.models.streaming import COMPONENT
from eddyline.runtime.records import Numbers


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """How models stand after a batch."""

    n_rows: int
    """Rows that segments stand for."""
    n_segments: int
    n_waiting: int
    """Rows of which no segment is final yet."""
    n_bytes: int
    """Size of what is kept (bytes)."""
    n_kept: int = 0
    """Segments that later results look back at."""
    n_dropped: int = 0
    """Of the rows, those that declared models predicted near enough."""
    n_broken: int = 0
    """Declared models that a row broke."""
    n_outside: int = 0
    """Rows with values that they were said not to have."""
    component: str = COMPONENT
    plan: None = None

    def numbers(self, n_rows: int) -> Numbers:
        """Return what is kept; its rows and segments are of all batches, and so no counts."""
        n_kept = self.n_waiting + self.n_kept
        kept = {"n_kept": n_kept, "n_waiting": self.n_waiting, "n_bytes": self.n_bytes}
        every = {"n_rows_in_all": self.n_rows, "n_segments_in_all": self.n_segments}
        every |= {"n_dropped_in_all": self.n_dropped, "n_broken_in_all": self.n_broken}
        every |= {"n_outside_in_all": self.n_outside}
        return Numbers({"n_rows": n_rows}, kept | every)

    def with_earlier(self, earlier: ModelRecord, share: float) -> ModelRecord:  # noqa: ARG002
        """Return one record for several batches: the last one, for all counts go on."""
        return self


@dataclass(frozen=True, slots=True)
class ModelView:
    """Models as they stand."""

    name: str
    step: str
    """What is fitted and solved, in words."""
    total: FitReport
    """Of all batches of the run."""
    n_results: int
    n_waiting: int
    n_kept: int
    """Segments that later results look back at."""
    n_bytes: int
    bounds: str = ""
    """The bounds that results were given, and those in which inputs are, in words."""
    notes: tuple[str, ...] = ()

    @property
    def record(self) -> ModelRecord:
        """The record after a batch."""
        total = self.total
        return ModelRecord(
            total.n_rows, total.n_segments, self.n_waiting, self.n_bytes, self.n_kept,
            total.n_dropped, total.n_broken, total.n_outside,
        )  # fmt: skip


class ModelCounts(msgspec.Struct, forbid_unknown_fields=True):
    """What is saved: the counts so far."""

    n_rows: int = 0
    n_segments: int = 0
    n_without: int = 0
    n_conflicts: int = 0
    fitters: dict[str, int] = {}
    n_results: int = 0
    n_dropped: int = 0
    n_broken: int = 0
    n_outside: int = 0

    @classmethod
    def of(cls, total: FitReport, n_results: int) -> ModelCounts:
        """Return the counts of all batches."""
        return cls(
            total.n_rows,
            total.n_segments,
            total.n_without,
            total.n_conflicts,
            dict(total.fitters),
            n_results,
            total.n_dropped,
            total.n_broken,
            total.n_outside,
        )

    @classmethod
    def read(cls, state: object) -> ModelCounts:
        """Return counts that were saved.

        Raises:
            StateError: they are damaged.
        """
        try:
            return msgspec.convert(state, cls)
        except msgspec.ValidationError as error:
            msg = f"what is known of models cannot be read: {error}"
            raise StateError(msg) from error

    @property
    def total(self) -> FitReport:
        """The counts of fits."""
        return FitReport(
            self.n_rows, self.n_segments, self.n_without, self.n_conflicts, self.fitters,
            self.n_dropped, self.n_broken, self.n_outside,
        )  # fmt: skip
