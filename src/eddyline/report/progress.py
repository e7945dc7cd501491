"""Records of a batch in words, for the progress.

Only this table of the room names operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.aggregates.loop import AggregateRecord
from eddyline.alarms.loop import AlarmRecord
from eddyline.joins.view import JoinRecord
from eddyline.models.streams.view import ModelRecord
from eddyline.report import aggregates, alarms, clock, joins, models, rules
from eddyline.report.series import order_lines
from eddyline.rules.view import RuleRecord
from eddyline.runtime.records import OrderRecord
from eddyline.sources.rejected import RejectedRecord, rejected_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eddyline.runtime.records import Record

LINES: dict[type[Any], Callable[[Any], tuple[str, ...]]] = {
    AggregateRecord: aggregates.lines,
    AlarmRecord: alarms.lines,
    clock.ClockRecord: clock.lines,
    JoinRecord: joins.lines,
    ModelRecord: models.lines,
    RejectedRecord: rejected_lines,
    RuleRecord: rules.lines,
}
"""Lines by the kind of record. Records of other kinds have no line; ``OrderRecord`` see below."""


def progress_lines(records: Iterable[Record], n_rows: int, seconds: float) -> tuple[str, ...]:
    """Return the plans in force and their newest figures in words.

    Args:
        records: the components of all operators after a batch.
        n_rows: input rows of the batch.
        seconds: its time (s).
    """
    texts: list[str] = []
    for record in records:
        if isinstance(record, OrderRecord):
            texts += order_lines([record], n_rows, seconds)
        elif (lines := LINES.get(type(record))) is not None:
            texts += lines(record)
    return tuple(texts)
