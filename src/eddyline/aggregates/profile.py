"""What a batch showed of an aggregate: how much smaller its rows became as cells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AggregateProfile:
    """Rows and cells of a batch; profiles add up."""

    n_rows: int = 0
    """Rows that were aggregated."""
    n_cells: int = 0
    """Cells that they became, one for each group and slice."""
    n_read: int = 0
    """Cells of before that were read."""
    n_results: int = 0
    work_ns: int = 0
    """Time in which buckets computed results and kept cells (ns)."""
    n_bytes: int = 0
    """Size of the cells and of the results."""

    def merge(self, *others: AggregateProfile) -> AggregateProfile:
        """Return what several batches, or parts of one, showed together."""
        every = (self, *others)
        return AggregateProfile(
            sum(each.n_rows for each in every),
            sum(each.n_cells for each in every),
            sum(each.n_read for each in every),
            sum(each.n_results for each in every),
            sum(each.work_ns for each in every),
            sum(each.n_bytes for each in every),
        )

    @property
    def n_handled(self) -> int:
        """Cells and results that buckets handled."""
        return self.n_cells + self.n_read + self.n_results

    @property
    def rows_per_cell(self) -> float:
        """Rows that became one cell; nan if there was none."""
        return self.n_rows / self.n_cells if self.n_cells else float("nan")
