"""When a run reads what has arrived: as eddyline's text, or as PySpark's keywords."""

from __future__ import annotations

import re
from typing import Any, TypedDict

from eddyline.errors import OptionError
from eddyline.query.cql import micros_in
from eddyline.query.query import check_span
from eddyline.registry import checked_text, unknown


class SparkTrigger(TypedDict, total=False):
    """A trigger as ``DataStreamWriter.trigger`` takes it."""

    availableNow: bool
    once: bool
    processingTime: str


ARGUMENTS = ("path", "format", "options", "checkpoint", "trigger", *SparkTrigger.__annotations__)
"""Arguments that each way of starting queries takes."""


def trigger_text(trigger: str | None, as_spark: SparkTrigger) -> str | None:
    """Return the trigger as a text, whichever way it was given; None if it was not.

    Raises:
        OptionError: more than one was given, or one that there is not.
    """
    given: dict[str, Any] = {
        name: value for name, value in as_spark.items() if value not in (None, False)
    }
    for name in as_spark:
        if name not in SparkTrigger.__annotations__:
            raise OptionError(_unknown(name), got=name)
    if len(given) + (trigger is not None) > 1:
        both = ", ".join([*(["trigger"] if trigger is not None else []), *given])
        msg = f"give one trigger, got {both}"
        raise OptionError(msg, got=both)
    if "processingTime" in given:
        return checked_text("processingTime", given["processingTime"])
    return "available_now" if given else trigger


def _unknown(name: str) -> str:
    if name == "name":
        return (
            "start takes no name: a run is called like its query, engine.query(…, name='…'), or "
            "its rules, el.RuleSet(…, name='…')"
        )
    return unknown("argument of start", name, ARGUMENTS)


def spark_trigger(text: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's trigger.

    Raises:
        OptionError: it is not one.
    """
    if text is None:
        return {"processingTime": "0 seconds"}
    if checked_text("trigger", text) in {"available_now", "once"}:
        return {"availableNow": True}
    check_span(f"trigger {text!r:.60}", micros_in(text), trigger=text)
    if re.fullmatch(r"\d+ ?(millisecond|second|minute|hour|day)s?", text):
        return {"processingTime": text}
    msg = f"unknown trigger {text!r}; use 'available_now', or an interval such as '5 seconds'"
    raise OptionError(msg, trigger=text)
