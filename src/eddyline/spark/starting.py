"""Arguments of ``start``, checked without Spark.

They are triggers and sinks, also of a script. A trigger says when a run reads what has arrived: as
eddyline's text, or as PySpark's keywords. A sink is asked for by its name, with arguments of its
own; ``sinks.sinks`` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from eddyline.errors import OptionError
from eddyline.query.query import check_span
from eddyline.query.script import SINK_ARGUMENTS
from eddyline.query.spans import micros_in
from eddyline.registry import checked_text, look_up, unknown


class SparkTrigger(TypedDict, total=False):
    """A trigger as ``DataStreamWriter.trigger`` takes it."""

    availableNow: bool
    once: bool
    processingTime: str


class Others(SparkTrigger, total=False):
    """Arguments of ``start`` of some sinks, and a trigger as ``DataStreamWriter`` takes it."""

    servers: str
    topic: str
    key: str | Sequence[str]
    value: str
    tasks: int
    timeout: str
    settings: Mapping[str, Any]
    table: str
    catalog: str | Mapping[str, str]
    storage: Mapping[str, str]
    mode: str
    on: str | Sequence[str]
    newest_by: str
    partition_by: str | Sequence[str]


ARGUMENTS = ("path", "format", "options", "checkpoint", "trigger", *SparkTrigger.__annotations__)
"""Arguments that each way of starting queries takes."""


def of_sink(others: Others) -> dict[str, Any]:
    """Return the arguments of a sink among those of ``start``."""
    names = others.keys() - SparkTrigger.__annotations__.keys()
    return {name: value for name, value in others.items() if name in names}


def trigger_text(trigger: str | None, others: Others) -> str | None:
    """Return the trigger as a text, whichever way it was given; None if it was not.

    Raises:
        OptionError: more than one was given.
    """
    triggers: dict[str, Any] = {
        name: value
        for name, value in others.items()
        if name in SparkTrigger.__annotations__ and value not in (None, False)
    }
    if len(triggers) + (trigger is not None) > 1:
        both = ", ".join([*(["trigger"] if trigger is not None else []), *triggers])
        msg = f"give one trigger, got {both}"
        raise OptionError(msg, got=both)
    if "processingTime" in triggers:
        return checked_text("processingTime", triggers["processingTime"])
    return "available_now" if triggers else trigger


def _unknown(name: str, of_sink: Iterable[str]) -> str:
    if name == "name":
        return (
            "start takes no name: a run is called like its query, engine.query(…, name='…'), or "
            "its rules, el.RuleSet(…, name='…')"
        )
    return unknown("argument of start", name, dict.fromkeys((*ARGUMENTS, *of_sink)))


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

NAMES = tuple(SINK_ARGUMENTS)
"""Sinks that there are without any other package."""

GROUP = "eddyline.sinks"
"""Entry points by which other packages offer sinks."""

_EXAMPLES = {
    "path": "'out/'",
    "format": "'delta'",
    "servers": "'host:9092'",
    "topic": "'results'",
    "table": "'db.out'",
    "catalog": "{'uri': '…'}",
}
"""Values of arguments that errors show."""


def check_sink(sink: Any, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of ``sinks.sink_of``.

    Args:
        sink: its name, or a function.
        arguments: those of ``start`` that are of the sink; None: not given.

    Raises:
        OptionError: an unknown sink or argument, or arguments that are missing or have no use.
    """
    values = {name: value for name, value in arguments.items() if value is not None}
    options = values.get("options")
    if options is not None and not isinstance(options, Mapping):
        msg = f"options of a sink are a mapping such as {{'compression': 'zstd'}}, got {options!r}"
        raise OptionError(msg, options=options)
    needed, others = ((), ()) if callable(sink) else _arguments_of(sink)
    shown = "a function" if callable(sink) else repr(sink)
    if "format" in values and "format" not in needed:
        kind = values["format"]
        msg = f"sink {shown} takes no format; write start('format', format={kind!r})"
        raise OptionError(msg, format=kind)
    takers = _takers()
    for name, value in values.items():
        if name in (*needed, *others):
            continue
        if name not in takers:
            raise OptionError(_unknown(name, (*needed, *others)), got=name)
        msg = f"sink {shown} takes no {name}, got {value!r}; sinks that do: "
        raise OptionError(msg + ", ".join(takers[name]), **{name: value})
    for name in needed:
        if name not in values:
            example = ", ".join(f"{argument}={_EXAMPLES[argument]}" for argument in needed)
            article = "" if name.endswith("s") else "a "
            msg = f"sink {shown} needs {article}{name}: start({shown}, {example})"
            raise OptionError(msg, sink=sink)


def _takers() -> dict[str, list[str]]:
    """Return the sinks that take an argument, by its name."""
    takers: dict[str, list[str]] = {}
    for sink, (needed, others) in SINK_ARGUMENTS.items():
        for name in (*needed, *others):
            takers.setdefault(name, []).append(sink)
    return takers


def _arguments_of(sink: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments that a sink needs, and those that it may take.

    A sink of another package has the names of the latter in its attribute ``arguments``.

    Raises:
        OptionError: there is no such sink.
    """
    try:
        offered = look_up("sink", dict.fromkeys(NAMES), sink, group=GROUP)
    except OptionError as error:
        if not isinstance(sink, str):
            raise
        msg = (
            f"{error.message}; a data source of Spark is written by "
            f"start('format', format={sink!r}, path='out/')"
        )
        raise OptionError(msg, **error.facts) from None
    return SINK_ARGUMENTS.get(sink, ((), tuple(getattr(offered, "arguments", ()))))
