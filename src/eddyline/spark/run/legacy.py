"""An operator around a pipeline of the old protocol, until rules and joins have the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.spark.operator import Laid, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History
    from eddyline.spark.operator import Batch, Observed
    from eddyline.watch.sections import Section

WAIT_S = 10.0


class LegacyOperator(Operator):
    """Forwards to a pipeline.

    Args:
        name: of the operator.
        pipeline: of the old protocol.
    """

    def __init__(self, name: str, pipeline: Any) -> None:
        self.name = name
        self.pipeline = pipeline
        self._reports: list[Any] = []

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Forward."""
        self.pipeline.prepare(df, batch_id=batch.id, is_first=batch.is_first)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        """Forward."""
        result, self._reports = self.pipeline.apply_batch(
            df, batch_id=batch.id, expected_rows=batch.expected_rows
        )
        return Laid(result)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Forward."""
        self.pipeline.learn(self._reports, timeout_s=WAIT_S)
        return list(self.pipeline.take_entries())

    def take_entries(self) -> list[JournalEntry]:
        """Forward."""
        return list(self.pipeline.take_entries())

    def plan(self) -> Any:
        """Forward."""
        return self.pipeline.plan()

    def records(self) -> tuple[Any, ...]:
        """Forward."""
        return tuple(self.pipeline.records())

    def lines(self) -> tuple[str, ...]:
        """Forward."""
        return tuple(self.pipeline.lines())

    def sections(self, history: History) -> list[Section]:
        """Forward."""
        return list(self.pipeline.sections(history))

    def view(self) -> Any:
        """Forward."""
        return self.pipeline.view()

    def snapshot(self) -> Any:
        """Forward."""
        return self.pipeline.snapshot()

    def restore(self, state: Any) -> None:
        """Forward."""
        self.pipeline.restore(state)
