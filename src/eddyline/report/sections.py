"""Sections: what people see of a query, as values.

A module of this room makes the sections of an operator, from the operator's view and the batches so
far. Terminal, page and JSON render sections. Cells, tiles and lines hold numbers; the renderer
writes a number by its unit (``formatting.value_in``). An unknown value is None or NaN. Texts are
plain: the renderer puts each on one line and escapes it.

``sections_json`` turns sections into plain values, such as those that a checkpoint keeps, and
``sections_of`` reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from eddyline.errors import StateError
from eddyline.report.formatting import Unit, finite
from eddyline.runtime.records import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.report.formatting import Wordings


Mark = Literal["line", "points", "area"]


MAX_COLOURS = 8
"""Lines of a figure that have a colour of their own, the first ones; the others are muted."""


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence or several."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Texts of one kind, each on a line of its own."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names, and what is known by each."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    unit: Unit = "text"
    shows_values: bool = False
    """Whether its cells hold values of rows; see ``without_values``."""


def columns(text: str) -> tuple[Column, ...]:
    """Return columns from their titles, each with its unit behind a colon if it is no text.

    >>> [(each.title, each.unit) for each in columns("input, size: bytes")]
    [('input', 'text'), ('size', 'bytes')]
    """
    pairs = (column.partition(": ") for column in text.split(", "))
    return tuple(Column(title, cast("Unit", unit or "text")) for title, _, unit in pairs)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with all of its rows; who renders it limits them."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    """Stands above it on a page."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure."""

    name: str
    values: tuple[float | None, ...]
    """One for each batch that the figure draws."""
    is_muted: bool = False
    """Whether it is there for comparison."""
    details: tuple[str, ...] = ()
    """One for each value: stands beside it where a reader points at it."""
    at: tuple[int | None, ...] = ()
    """Instants of its own (µs), one for each value, in the order in which they are drawn; it is
    interrupted where a value is None. Empty: those of the figure."""
    mark: Mark = "line"
    """How it is drawn: as a line, as points, or as the area that it goes around."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Values over the batches of a run; only pages draw it."""

    title: str
    batch_ids: tuple[int, ...]
    """The batches, or the instants, at which values are drawn."""
    lines: tuple[Line, ...]
    """Colours go by place: figures of the same lines have the same colours."""
    unit: Unit
    """Unit of the values."""
    marks: tuple[int, ...] = ()
    """The batches that were the first under another plan."""
    note: str = ""
    is_half: bool = False
    """Whether a wide page may draw it beside another."""
    axis: str = ""
    """What its values are."""
    is_timed: bool = False
    """Whether values are drawn at instants of event time (µs), and not at batches. Such values may
    be less than 0."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number for the head of a page."""

    name: str
    value: float | None
    unit: Unit
    detail: str = ""


Part = Text | Items | Facts | Table | Figure


@dataclass(frozen=True, slots=True)
class Entity:
    """A part of an operator in the graph of the plan, such as a window or a cache."""

    kind: str
    """``exchange`` and ``window`` stand before their operator, any other beside it."""
    name: str
    """As the stream about the system calls it."""
    component: str
    """Of records: the operator that it is of."""
    facts: tuple[tuple[str, str], ...] = ()
    """Its properties that no record has as numbers."""
    input: str = ""
    """The input of the operator that it is of; empty: it is of all inputs."""


SOURCES = ("stream", "table")
"""Kinds of nodes that are no steps."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a query in the graph of its plan; the kinds of ``SOURCES`` are what it reads."""

    id: str
    kind: str
    """``stream``, ``table``, or the kind of the step, such as ``filter``."""
    name: str
    """The relation that it makes, or reads."""
    text: str
    """The step in words."""
    inputs: tuple[tuple[str, str], ...] = ()
    """The nodes that it reads, by id, and what it calls each."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of an explanation; without a title it leads the others."""

    title: str
    parts: tuple[Part, ...] = ()
    tiles: tuple[Tile, ...] = ()
    is_aside: bool = False
    """Whether it only helps to read the others: pages fold it up, terminals leave it out."""
    shows_values: bool = False
    """Whether its parts hold values of rows, or results; see ``without_values``."""
    wordings: Wordings = field(default_factory=dict, compare=False)
    """The operator's words for its decisions, for whoever renders the journal."""
    entities: tuple[Entity, ...] = ()
    """Parts of the operator that the graph of the plan shows."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole run: what a page is made of."""

    query: str
    """Name of the query."""
    text: str
    """The query as the user wrote it."""
    steps: tuple[str, ...] = ()
    """Its steps, line by line."""
    history: History = field(default_factory=History)
    sections: tuple[Section, ...] = ()
    """The explanations of its operators."""
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    """The same steps as a graph."""


NOTES = "notes"


def notes(texts: Sequence[str]) -> list[Section]:
    """Return other things worth knowing, if there are any."""
    return [Section(NOTES, (Items(tuple(texts)),))] if texts else []


def arranged(sections: Iterable[Section]) -> list[Section]:
    """Return the sections of several operators as one explanation.

    What leads comes first, notes and what helps to read come last, each once. Parts and sections
    without content are left out.
    """
    by_key: dict[tuple[int, str | int], Section] = {}
    for place, section in enumerate(sections):
        parts = (known(part) for part in section.parts if has_content(part))
        shown = replace(section, parts=tuple(parts))
        if not (shown.parts or shown.tiles or shown.wordings or shown.entities):
            continue
        rank = 3 if shown.is_aside else {"": 0, NOTES: 2}.get(shown.title, 1)
        key = (rank, place if rank == 1 else shown.title)
        before = by_key.get(key, replace(shown, parts=(), tiles=(), wordings={}, entities=()))
        by_key[key] = replace(
            shown,
            parts=_merged(before.parts, shown.parts),
            tiles=(*before.tiles, *shown.tiles),
            wordings={**before.wordings, **shown.wordings},
            entities=(*before.entities, *shown.entities),
        )
    return [by_key[key] for key in sorted(by_key, key=lambda key: key[0])]


def has_content(part: Part) -> bool:
    """Tell whether a part has anything to show: a figure of which nothing was measured has not."""
    match part:
        case Figure(lines=lines):
            return any(finite(value) is not None for line in lines for value in line.values)
        case Table(rows=content) | Text(content) | Items(content) | Facts(content):
            return bool(content)


def known(part: Part) -> Part:
    """Return a part as it is; of a table the columns of which some number is known, and texts."""
    if not isinstance(part, Table):
        return part
    kept = [
        place
        for place, column in enumerate(part.columns)
        if column.unit == "text" or any(finite(row[place]) is not None for row in part.rows)
    ]
    rows = tuple(tuple(row[place] for place in kept) for row in part.rows)
    return replace(part, columns=tuple(part.columns[place] for place in kept), rows=rows)


def _merged(before: tuple[Part, ...], parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts behind others, without those that are there; items go on in one list."""
    merged = list(before)
    for part in parts:
        if merged and isinstance(part, Items) and isinstance(last := merged[-1], Items):
            merged[-1] = Items(tuple(dict.fromkeys((*last.texts, *part.texts))))
        elif part not in merged:
            merged.append(part)
    return tuple(merged)


HIDDEN = "hidden"
"""Stands for a value of a row that is not shown."""


def without_values(sections: Iterable[Section], advice: str) -> list[Section]:
    """Return sections without the values of rows in them, for readers who need not see data.

    Args:
        sections: of operators, which mark what holds values.
        advice: what shows them; stands where they were.
    """
    note = Text(f"Values of rows are hidden; {advice} shows them.")
    return [
        replace(section, parts=(note,), tiles=(), entities=())
        if section.shows_values
        else replace(section, parts=tuple(map(_without_values, section.parts)))
        for section in sections
    ]


def _without_values(part: Part) -> Part:
    """Return a part as it is; of a table, cells that hold values of rows are hidden."""
    if not isinstance(part, Table) or not any(column.shows_values for column in part.columns):
        return part
    rows = (
        tuple(
            HIDDEN if column.shows_values else cell
            for column, cell in zip(part.columns, row, strict=True)
        )
        for row in part.rows
    )
    shown = tuple(
        replace(column, unit="text") if column.shows_values else column for column in part.columns
    )
    return replace(part, columns=shown, rows=tuple(rows))


def sections_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return sections as plain values (JSON), None for what is not known.

    >>> sections_json([Section("a", (Table((Column("x", "share"),), ((float("nan"),),)),))])[0][
    ...     "parts"
    ... ][0]["rows"]
    [[None]]
    """
    return [_plain(section) for section in sections]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, str | int | None):
        return value
    kind = {"kind": type(value).__name__.lower()} if isinstance(value, Part) else {}
    names = (member.name for member in fields(value) if member.compare)
    return kind | {name: _plain(getattr(value, name)) for name in names}


PARTS = {kind.__name__.lower(): kind for kind in (Text, Items, Facts, Table, Figure)}
"""The kinds of parts by the names that they have as plain values."""

INNER = {"columns": Column, "lines": Line, "tiles": Tile, "entities": Entity}
"""The values within others, by the name of their field."""


def sections_of(plain: Iterable[Mapping[str, Any]]) -> list[Section]:
    """Return sections from plain values; the words of operators for decisions are not among them.

    Fields of later versions are passed over.

    >>> sections_of([{"title": "a", "parts": [{"kind": "text", "text": "b"}]}])[0].parts
    (Text(text='b'),)

    Raises:
        StateError: they are no sections.
    """
    try:
        return [_instance(Section, section) for section in plain]
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"an explanation cannot be read: {error}; the run writes it anew when it goes on"
        raise StateError(msg) from error


def nodes_of_plain(plain: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """Return nodes from plain values; raises StateError if they are none."""
    try:
        return tuple(_instance(Node, node) for node in plain)
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"the steps cannot be read: {error}; the run writes them anew when it goes on"
        raise StateError(msg) from error


def _instance(kind: Any, plain: Mapping[str, Any]) -> Any:
    names = {member.name for member in fields(kind)}
    return kind(**{name: _value(name, value) for name, value in plain.items() if name in names})


def _value(name: str, value: Any) -> Any:
    if name == "parts":
        return tuple(_instance(PARTS[part["kind"]], part) for part in value)
    if name in INNER:
        return tuple(_instance(INNER[name], item) for item in value)
    return _frozen(value)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
