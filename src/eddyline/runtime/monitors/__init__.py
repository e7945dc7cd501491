"""Monitors: they tell fresh evidence from stale, and decide when the policy is asked.

A monitor is one file with its options; the table is its registration. The name of a change detector
is a monitor too: that detector on every monitored statistic. Imports ``change/``, ``stats/`` and
the cost of an order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from eddyline.change import DETECTORS
from eddyline.errors import OptionError
from eddyline.registry import unknown
from eddyline.runtime.monitors.detectors import DetectorMonitorOptions
from eddyline.runtime.monitors.two_sample import TwoSampleOptions
from eddyline.runtime.monitors.window import WindowOptions

if TYPE_CHECKING:
    from eddyline.runtime.monitors.protocol import MonitorOptions

MONITORS: dict[str, type[MonitorOptions]] = {
    "window": WindowOptions,
    "two_sample": TwoSampleOptions,
}
"""Monitors besides the change detectors."""


def monitor(spec: Any) -> MonitorOptions:
    """Return the options of a monitor that is given by name, as a detector or as options.

    Args:
        spec: a name of ``MONITORS`` or of ``eddyline.change.DETECTORS``, the options object of
            either, or a detector of river.

    Raises:
        OptionError: the name is unknown, or the object is neither.

    >>> monitor("two_sample").z_score
    4.0
    """
    if isinstance(spec, str):
        if spec in MONITORS:
            return MONITORS[spec]()
        try:
            return DetectorMonitorOptions(detector=spec)
        except OptionError:
            if spec in DETECTORS:
                raise
            msg = unknown("monitor", spec, [*MONITORS, *DETECTORS])
            raise OptionError(msg, monitor=spec) from None
    if isinstance(spec, (*MONITORS.values(), DetectorMonitorOptions)):
        return cast("MonitorOptions", spec)
    return DetectorMonitorOptions(detector=spec)


__all__ = ["MONITORS", "monitor"]
