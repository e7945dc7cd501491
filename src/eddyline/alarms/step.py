"""The step of a query that makes segments of rows and finds where alarms hold on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from eddyline.alarms.alarm_set import AlarmSet  # noqa: TC001 - a field
from eddyline.errors import NotSupportedError
from eddyline.models.streams.plan import ModelStep


@dataclass(frozen=True, slots=True)
class AlarmStep(ModelStep):
    """Rows of a relation as segments, and when alarms of a set hold, as these are by then.

    The plan has the alarms of the moment when it was made; what identifies the query has not.
    """

    alarms: AlarmSet = field(kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.plan.is_early:
            msg = (
                "alarms are told once they are final, so that what a set asks may change while it "
                "runs; leave out results='early', or ask segments.where(…).changes()"
            )
            raise NotSupportedError(msg)

    def __str__(self) -> str:
        return f"{super(AlarmStep, self).__str__()}; alarms {self.alarms.name}"
