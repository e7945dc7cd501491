"""Look-up of named parts: the tables of policies, detectors, monitors and sinks.

A table is a visible dict literal in the package that owns the parts (``ORDERING_POLICIES`` in
``eddyline.ordering``). Other packages add to it with an entry point of the table's group; entry
points are read when a name is not in the table, never at import. ``package`` imports what only an
extra of eddyline installs.
"""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from eddyline.errors import OptionError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

MOST_SHOWN = 20
"""Known names that an error lists: a set has thousands of rules."""

_IN_NO_FOLDER = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]|%(?=[0-9A-Fa-f]{2})")

LONGEST_NAME = 200
"""Greatest length of a name that becomes a folder (bytes). File systems allow 255, and some names
get a suffix."""


def look_up(kind: str, table: Mapping[str, T], name: str, *, group: str) -> T:
    """Return the entry of that name.

    Args:
        kind: what the table holds, in words, for the error ("ordering policy").
        table: the built-in entries.
        name: the entry that is asked for.
        group: the entry-point group in which other packages offer more.

    Returns:
        The entry of the table, or the object that an installed package offers under the name.

    Raises:
        OptionError: nothing has that name; the message lists what is known and what is close.
        PluginError: an installed package offers the name but failed to load.
    """
    if checked_text(kind, name) in table:
        return table[name]
    offered = {point.name: point for point in entry_points(group=group)}
    if name not in offered:
        names = sorted({*table, *offered})
        raise OptionError(unknown(kind, name, names), name=name, known=names)
    try:
        entry: T = offered[name].load()
    except Exception as error:
        dist = offered[name].dist
        package = dist.name if dist else "an unknown package"
        msg = f"{kind} {name!r} of {package} failed to load: {type(error).__name__}: {error}"
        raise PluginError(msg, name=name, package=package) from error
    return entry


def package(name: str, needs: tuple[str, str]) -> Any:
    """Return an optional package.

    Args:
        name: of the package or of a module in it.
        needs: what needs it, and the extra that has it.

    Raises:
        PluginError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        needed, (what, extra) = name.partition(".")[0], needs
        msg = f"{what} needs the package {needed}; install it with: pip install 'eddyline[{extra}]'"
        raise PluginError(msg, package=needed) from error


def checked_text(what: str, value: Any) -> str:
    """Return a value that is a text, and not an empty one.

    Raises:
        OptionError: it is something else.
    """
    if not isinstance(value, str) or not value.strip():
        msg = f"the {what} is a text, got {value!r:.60}"
        raise OptionError(msg, got=type(value).__name__)
    return value


def folder_name(name: str) -> str:
    """Return the name of the folder that belongs to a query or a stream: one folder, and no path.

    Slashes, backslashes, control characters and the names of this folder and the one above are
    written as %XX; so is a % that would be read so. Other names stay as they are.

    >>> folder_name("slow pages, 2"), folder_name("../a"), folder_name(".."), folder_name("50%2F")
    ('slow pages, 2', '..%2Fa', '%2E%2E', '50%252F')
    """
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return _IN_NO_FOLDER.sub(lambda mark: f"%{ord(mark[0]):02X}", name)


def checked_folder_name(what: str, value: Any) -> str:
    """Return a name that a folder can have; see ``folder_name``.

    Raises:
        OptionError: it is no text, too long, or has half a character.
    """
    name = checked_text(what, value)
    try:
        size = len(folder_name(name).encode())
    except UnicodeEncodeError:
        msg = f"the {what} becomes the name of a folder, and {name!r:.60} has half a character"
        raise OptionError(msg, name=name) from None
    if size > LONGEST_NAME:
        msg = (
            f"the {what} becomes the name of a folder, and {name!r:.60} has {size} bytes; at most "
            f"{LONGEST_NAME} are possible"
        )
        raise OptionError(msg, name=name)
    return name


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """Word the error for a name that is not known, with the closest known name as a hint.

    >>> unknown("ordering policy", "a-greedy", ["a_greedy", "sweep"])
    "unknown ordering policy 'a-greedy'; known: a_greedy, sweep; did you mean 'a_greedy'?"
    >>> unknown("tag", "pii", [])
    "unknown tag 'pii'; there is none yet"
    """
    names = list(choices)
    if not names:
        return f"unknown {kind} {name!r}; there is none yet"
    rest = len(names) - MOST_SHOWN
    some = names if rest <= 0 else names[:MOST_SHOWN]
    shown = ", ".join(repr(text) if ", " in text else text for text in some)
    more = f" and {rest:,} more" if rest > 0 else ""
    close = hint(name, [(text, text) for text in names])
    return f"unknown {kind} {name!r}; known: {shown}{more}{close}"


def hint(name: str, choices: Iterable[tuple[str, str]]) -> str:
    """Return a hint at the known name that is closest in any case; empty if none is close.

    Known names come with how people see them.

    >>> hint("PROT", [("port", "s.port"), ("proto", "t.proto")])
    "; did you mean 't.proto'?"
    """
    name = str(name)
    folded = {text.lower(): shown for text, shown in reversed(list(choices))}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
