"""An operator around a pipeline of the old protocol, until rules and joins have the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.spark.operator import Laid, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Observed

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
        more = self.pipeline.rule_record(), self.pipeline.join_record()
        return (*self.pipeline.records(), *(each for each in more if each is not None))

    def view(self, last_change: JournalEntry | None) -> Any:
        """Forward."""
        return self.pipeline.view(last_change)

    def snapshot(self) -> Any:
        """Forward."""
        return self.pipeline.snapshot()

    def restore(self, state: Any) -> None:
        """Forward."""
        self.pipeline.restore(state)
