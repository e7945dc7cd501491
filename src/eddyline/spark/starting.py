"""Arguments of ``start`` that are checked without Spark: triggers and sinks, also of a script.

A trigger says when a run reads what has arrived: as eddyline's text, or as PySpark's keywords. A
sink is asked for by its name, with a path, a format and options; ``sinks.sinks`` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from eddyline.errors import OptionError
from eddyline.query.cql import micros_in
from eddyline.query.query import check_span
from eddyline.registry import checked_text, look_up, unknown


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


FILES = ("parquet", "orc", "json", "csv")
"""Sinks that write files to a path; they take options of Spark's writer."""

NAMES = (*FILES, "format", "memory", "console")
"""Sinks that there are without any other package."""

GROUP = "eddyline.sinks"
"""Entry points by which other packages offer sinks."""


def check_sink(sink: Any, path: Any, kind: Any, options: Any) -> None:
    """Check the arguments of ``sinks.sink_of``.

    Raises:
        OptionError: an unknown name, or a path, format or options that are missing or have no use.
    """
    if options is not None and not isinstance(options, Mapping):
        msg = f"options of a sink are a mapping such as {{'compression': 'zstd'}}, got {options!r}"
        raise OptionError(msg, options=options)
    if not callable(sink):
        _check_name(sink)
    said = "a function" if callable(sink) else repr(sink)
    if sink == "format":
        if kind is None:
            msg = "sink 'format' needs a format: start('format', format='delta', path='out/')"
            raise OptionError(msg, sink=sink)
        return
    if kind is not None:
        msg = f"sink {said} takes no format; write start('format', format={kind!r})"
        raise OptionError(msg, format=kind)
    if sink in FILES:
        if path is None:
            msg = f"sink {said} needs a path: start({said}, path='out/')"
            raise OptionError(msg, sink=sink)
        return
    for what, given in (("path", path), ("options", options)):
        if given is not None:
            msg = f"sink {said} takes no {what}, got {given!r}; sinks that do: {', '.join(FILES)}"
            raise OptionError(msg, **{what: given})


def _check_name(sink: Any) -> None:
    try:
        look_up("sink", dict.fromkeys(NAMES), sink, group=GROUP)
    except OptionError as error:
        if not isinstance(sink, str):
            raise
        msg = (
            f"{error.message}; a data source of Spark is written by "
            f"start('format', format={sink!r}, path='out/')"
        )
        raise OptionError(msg, **error.facts) from None
