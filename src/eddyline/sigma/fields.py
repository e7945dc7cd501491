"""Finds the fields of rules among the columns of events.

A field is a column by its exact name, else by its name in any case, else a path of names with
dots into a struct or map. What is not found is NULL for every event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eddyline.query.conditions import Operand
from eddyline.sql.parsing import quoted
from eddyline.sql.rendering import string_literal
from eddyline.sql.types import STRING, nested_parts, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.sql.types import SqlType

_NESTED = ("array", "map", "struct", "interval", "other")
"""Families of types whose values are neither texts nor numbers."""


_ELASTIC = {
    "CommandLine": "process.command_line",
    "CurrentDirectory": "process.working_directory",
    "DestinationHostname": "destination.domain",
    "DestinationIp": "destination.ip",
    "DestinationPort": "destination.port",
    "EventID": "event.code",
    "Image": "process.executable",
    "ImageLoaded": "file.path",
    "OriginalFileName": "process.pe.original_file_name",
    "ParentCommandLine": "process.parent.command_line",
    "ParentImage": "process.parent.executable",
    "ParentProcessId": "process.parent.pid",
    "ProcessId": "process.pid",
    "QueryName": "dns.question.name",
    "SourceIp": "source.ip",
    "SourcePort": "source.port",
    "TargetFilename": "file.path",
    "TargetObject": "registry.path",
    "User": "user.name",
}
"""Names of Elastic's common schema for fields of Sigma's taxonomy."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value of events: a column, or what a path into one leads to."""

    sql: str
    type_text: str
    """As Spark writes it, names of fields in their own case."""
    column: str

    @property
    def type(self) -> SqlType:
        """The type."""
        return parse_type(self.type_text)

    @property
    def is_nested(self) -> bool:
        """Whether it is neither a text nor a number, boolean or time."""
        return self.type.family in _NESTED

    @property
    def operand(self) -> Operand:
        """The value as it is."""
        return _operand(self.sql, self.type_text, self.column)

    @property
    def as_text(self) -> Operand:
        """The value as a text."""
        family = self.type.family
        if family == "string":
            return self.operand
        cast = f"CAST({self.sql} AS STRING)"
        # Bytes need not be a text, and text that is not UTF-8 cannot leave the JVM.
        sql = f"make_valid_utf8({cast})" if family == "binary" else cast
        return _operand(sql, STRING.text, self.column)


@lru_cache(maxsize=1 << 14)
def _operand(sql: str, type_text: str, column: str) -> Operand:
    """Return an operand; thousands of rules have the same few."""
    return Operand(sql, parse_type(type_text), (column,))


class Columns:
    """The columns of events, by the names that rules give them."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._found: dict[str, Found | None] = {}
        self._folded: dict[str, str] = {}
        for name in columns:
            self._folded.setdefault(name.lower(), name)

    def find(self, field: str) -> Found | None:
        """Return the value of a field, or None if events lack it."""
        if field not in self._found:
            self._found[field] = self._searched(field)
        return self._found[field]

    def _searched(self, field: str) -> Found | None:
        name = self._spelled(field)
        if name is None:
            return self._along(field)
        found = Found(quoted(name), self._columns[name], name)
        return None if found.type.family == "null" else found

    def texts(self) -> list[Found]:
        """Return every column that is a text, and every text within a struct."""
        found = []
        for name, kind in self._columns.items():
            found += list(_texts_within(Found(quoted(name), kind, name)))
        return found

    def numbers(self) -> list[Found]:
        """Return every column that is a number."""
        columns = [Found(quoted(name), kind, name) for name, kind in self._columns.items()]
        return [found for found in columns if found.type.is_numeric]

    def _spelled(self, name: str) -> str | None:
        return name if name in self._columns else self._folded.get(name.lower())

    def _along(self, path: str) -> Found | None:
        """Return the value at a path: the longest column name that starts it goes first."""
        names = path.split(".")
        for n_first in range(len(names) - 1, 0, -1):
            column = self._spelled(".".join(names[:n_first]))
            if column is not None:
                within = Found(quoted(column), self._columns[column], column)
                return _within(within, names[n_first:])
        return None


def _within(found: Found, names: list[str]) -> Found | None:
    """Return the value at a path of names within a struct or map."""
    if not names:
        return None if found.type.family == "null" else found
    if found.type.family == "map":
        key, value = nested_parts(found.type_text)
        if parse_type(key).family != "string":
            return None
        # A key may have dots itself.
        name = string_literal(".".join(names))
        return Found(f"try_element_at({found.sql}, {name})", value, found.column)
    if found.type.family != "struct":
        return None
    fields = _fields(found.type_text)
    for n_first in range(len(names), 0, -1):
        wanted = ".".join(names[:n_first])
        for name, kind in sorted(fields.items(), key=lambda field: field[0] != wanted):
            if name.lower() == wanted.lower():
                inner = Found(f"{found.sql}.{quoted(name)}", kind, found.column)
                return _within(inner, names[n_first:])
    return None


def _texts_within(found: Found) -> Iterator[Found]:
    if found.type.family == "string":
        yield found
    elif found.type.family == "struct":
        for name, kind in _fields(found.type_text).items():
            yield from _texts_within(
                Found(f"{found.sql}.{quoted(name)}", kind, found.column),
            )


def _fields(struct: str) -> dict[str, str]:
    """Return name and type of each field.

    >>> _fields("struct<Image:string,at:struct<x:int,y:decimal(3,1)>>")
    {'Image': 'string', 'at': 'struct<x:int,y:decimal(3,1)>'}
    """
    pairs = (part.partition(":") for part in nested_parts(struct))
    return {name.strip("` "): kind for name, _, kind in pairs}


def likely_columns(fields: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the likely columns of fields that events lack, by field.

    A column is likely if its path ends with the name of the field (case and separators ignored), or
    is that name in Elastic's common schema.

    >>> likely_columns(["Image", "User", "x"], {"process": "struct<executable:string>",
    ...     "data": "struct<user_:string,im:int>"})
    {'Image': 'process.executable', 'User': 'data.user_'}
    """
    by_end: dict[str, str] = {}
    for name, kind in columns.items():
        for path in _paths(name, kind):
            parts = path.split(".")
            for start in range(len(parts)):
                end = "".join(map(_folded, parts[start:]))
                if end not in by_end or len(path) < len(by_end[end]):
                    by_end[end] = path
    found = {}
    for field in fields:
        names = (field, _ELASTIC.get(field, ""))
        likely = next((by_end[_folded(each)] for each in names if _folded(each) in by_end), None)
        if likely is not None:
            found[field] = likely
    return found


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _paths(path: str, kind: str) -> Iterator[str]:
    """Yield the paths to the values of a column, inside its structs."""
    if parse_type(kind).family != "struct":
        yield path
        return
    for name, inner in _fields(kind).items():
        yield from _paths(f"{path}.{name}", inner)
