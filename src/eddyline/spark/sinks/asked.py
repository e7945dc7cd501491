"""Which sink is asked for, and with what: checked without Spark, also of a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eddyline.errors import OptionError
from eddyline.registry import look_up

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
