"""Plan of a query as a graph of boxes.

Boxes lie in layers. A panel has the properties of each. The nodes are the steps of the query.
Operators add entities (``report.sections.Entity``): exchange and windows stand between an operator
and its inputs, anything else beside them. Curves and numbers are those of the stream about the
system (``report.system``).

``graph_of`` places the boxes and finds what belongs to each; a template draws them as SVG. It names
no operator: a component of the records belongs to the step that it is named after, else to the last
step that does more than project.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.report.formatting import count, value_in
from eddyline.report.sections import SOURCES, Figure, Line, has_content
from eddyline.report.series import points_of
from eddyline.report.system import BATCH, values_of
from eddyline.runtime.journal import RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.report.formatting import Unit
    from eddyline.report.sections import Entity, Node, RunView, Section
    from eddyline.runtime.records import BatchRecord

BEFORE = ("exchange", "window")
"""Kinds of entities that rows pass on their way into an operator, in this order."""

MAX_POINTS = 200
"""Points of a curve: of more batches, the last of equally many."""

WIDTH, NARROW, HEIGHT = 152, 100, 60
"""Of a box (pixels); in a layer of many it is narrow."""

MANY = 3
"""Boxes of a layer from which on they are narrow."""

_GAP, _ROOM = 10, 26
"""Between the boxes of a layer, and between layers (pixels)."""

_CHAR = 7.2
"""Width of a character of a label (pixels)."""

SHOWN = (("n_results", "results"), ("n_kept", "kept"), ("n_rows", "rows"))
"""The number on a box: the first that is known of its entity."""

UNITS: tuple[tuple[str, Unit, str], ...] = (
    ("_ns", "ns", "Cost per row"),
    ("bytes", "bytes", "Size"),
    ("_frac", "share", "Share that is dropped"),
    ("place", "position", "Place in the order"),
    ("seconds", "number", "Seconds"),
    ("_s", "number", "Seconds"),
    ("", "number", "Rows and counts of a batch"),
)
"""Unit and title of the curves of a number, by the end of its name."""

_INSTANTS = "_us"
"""End of the names of instants, which are no curves."""

Values = dict[tuple[str, str], dict[str, float]]
"""Numbers by component and entity."""


@dataclass(frozen=True, slots=True)
class Box:
    """One entity of the graph."""

    key: str
    """Its place in addresses; the same after each batch."""
    kind: str
    name: str
    text: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = ()
    """The boxes that rows come from."""
    owns: tuple[tuple[str, str], ...] = ()
    """Its components and entities in the stream about the system."""
    number: str = ""
    figures: tuple[Figure, ...] = ()
    relation: str = ""
    """What the step makes, under that name."""
    shared_with: tuple[str, ...] = ()
    """Other queries for which it does the same work."""
    x: int = 0
    y: int = 0
    width: int = WIDTH

    def has(self, operator: str) -> bool:
        """Return whether it is the step that an operator runs."""
        stem, _, owner = operator.partition(" ")
        return stem.startswith(self.kind) and owner in ("", self.relation)

    @property
    def label(self) -> str:
        """Its name as far as there is room."""
        most = int((self.width - 16) / _CHAR)
        name = " ".join(self.name.split())
        return name if len(name) <= most else f"{name[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes and lines between them."""

    boxes: tuple[Box, ...] = ()
    lines: tuple[str, ...] = ()
    """As paths of SVG."""
    width: int = 0
    height: int = 0


def graph_of(view: RunView, sections: Sequence[Section], plans: Mapping[str, str]) -> Graph:
    """Return the graph of a query; an empty one where its steps are not known.

    Args:
        view: the query.
        sections: of its operators.
        plans: the plans in force in words, by component.
    """
    if not view.nodes:
        return Graph()
    batches = view.history.batches
    series = [(batch.batch_id, _values(batch)) for batch in _newest(view)]
    now = series[-1][1] if series else {}
    entities = [entity for section in sections for entity in section.entities]
    together = tuple(batches[-1].kept_by) if batches else ()
    boxes = _boxes(view, entities, {component for component, _ in now})
    shown = []
    for box in boxes:
        parts = [component for component, _ in box.owns]
        is_own = box.kind in ("project", "result") or (
            bool(parts) and all(component.endswith(f" of {view.query}") for component in parts)
        )
        shared = () if is_own else tuple(name for name in together if name != view.query)
        facts = (*box.facts, *_plan_facts(box, plans))
        shown.append(
            replace(
                box,
                facts=tuple(fact for fact in facts if fact[1]),
                number=_number(box, now),
                figures=tuple(_figures(box, series)),
                shared_with=shared,
            )
        )
    return _placed(shown)


def _newest(view: RunView) -> list[BatchRecord]:
    return [point.batches[-1] for point in points_of(view.history.batches, MAX_POINTS)]


def _values(batch: BatchRecord) -> Values:
    values: Values = defaultdict(dict)
    for component, entity, name, value in values_of(batch, is_mean=True):
        if not name.endswith(_INSTANTS) and name != "n_batches":
            values[component, entity][name] = value
    return dict(values)


# -- what there is ------------------------------------------------------------------------------


def _boxes(view: RunView, entities: Sequence[Entity], components: Iterable[str]) -> list[Box]:
    """Return the boxes of steps, of what operators add, and of the results."""
    homes: dict[str, list[str]] = defaultdict(list)
    for component in {*components, *(entity.component for entity in entities)} - {RUN}:
        homes[_home(component, view.nodes)].append(component)
    boxes: list[Box] = []
    for node in view.nodes:
        home_components = sorted(homes[node.id])
        added = [entity for entity in entities if entity.component in home_components]
        reads, between = _between(node, added)
        beside = [
            Box(
                f"{node.id}-{place}",
                entity.kind,
                entity.name,
                "",
                entity.facts,
                (),
                _parts_of(entity),
            )
            for place, entity in enumerate(added)
            if entity.kind not in BEFORE
        ]
        boxes += [*between, *beside]
        owned = tuple((component, component) for component in home_components)
        parts = tuple(
            (component, "") for component in home_components
        )  # those without a box of their own
        if node.kind == "stream" and sum(n.kind == "stream" for n in view.nodes) == 1:
            owned += ((RUN, BATCH),)
        label = _short(node)
        reads = (*reads, *(box.key for box in beside))
        step_box = Box(node.id, node.kind, label, node.text, (), reads, owned + parts)
        boxes.append(replace(step_box, relation=node.name))
    read = {maker for node in view.nodes for maker, _ in node.inputs}
    ends = tuple(node.id for node in view.nodes if node.id not in read)
    boxes.append(Box("result", "result", view.query, "", (), ends, ((RUN, BATCH),)))
    return boxes


def _between(node: Node, added: Sequence[Entity]) -> tuple[tuple[str, ...], list[Box]]:
    """Return what an operator reads, and the boxes that rows pass on their way into it."""
    ways = {name: maker for maker, name in node.inputs}
    boxes: list[Box] = []
    for kind in BEFORE:
        for place, entity in enumerate(added):
            if entity.kind != kind:
                continue
            inputs = [entity.input] if entity.input in ways else list(ways)
            key = f"{node.id}-{place}"
            reads = tuple(dict.fromkeys(ways[name] for name in inputs))
            boxes.append(Box(key, kind, entity.name, "", entity.facts, reads, _parts_of(entity)))
            ways |= dict.fromkeys(inputs, key)
    return tuple(dict.fromkeys(ways.values())), boxes


def _parts_of(entity: Entity) -> tuple[tuple[str, str], ...]:
    return ((entity.component, entity.name),)


def _short(node: Node) -> str:
    """Return a step without the words that its box says already."""
    if node.kind in SOURCES:
        return node.name
    head, _, rest = node.text.partition(" on " if node.kind == "join" else ": ")
    return rest or head.partition(" ")[2] or head


def _home(component: str, nodes: Sequence[Node]) -> str:
    """Return the node that a component of records belongs to."""
    stem, _, owner = component.partition(" of ")
    steps = [node for node in nodes if node.kind not in SOURCES]
    for node in steps:
        if node.kind == "filter" and stem in ("native", "arrow") and owner in ("", node.name):
            return node.id
        if stem.startswith((node.kind, "pipeline ") if node.kind == "join" else node.kind):
            return node.id
    if stem == "clock":
        return nodes[0].id
    doing = [node for node in steps if node.kind != "project"]
    return (doing or steps or nodes)[-1].id


# -- what is known of it ------------------------------------------------------------------------


def _plan_facts(box: Box, plans: Mapping[str, str]) -> list[tuple[str, str]]:
    components = [component for component, entity in box.owns if component == entity]
    return [
        ("plan" if len(components) == 1 else f"plan of {component}", plans[component])
        for component in components
        if component in plans
    ]


def _owned(box: Box, values: Values) -> dict[tuple[str, str], dict[str, float]]:
    """Return the numbers of a box; an empty entity stands for all parts of a component."""
    whole = [component for component, entity in box.owns if not entity]
    parts = {
        key: numbers for key, numbers in values.items() if key[0] in whole and key[0] != key[1]
    }
    return {key: values[key] for key in box.owns if key in values} | parts


def _number(box: Box, now: Values) -> str:
    if box.kind == "result":
        n_out = now.get((RUN, BATCH), {}).get("n_kept")
        return "" if n_out is None else f"{count(round(n_out))} out"
    numbers = [part for key, part in _owned(box, now).items() if key in box.owns]
    for name, word in SHOWN[-1:] if box.kind in SOURCES else SHOWN:
        for levels in numbers:
            if levels.get(name, 0) or (name != "n_rows" and name in levels):  # 0 rows: not counted
                return f"{count(round(levels[name]))} {word}"
    return ""


def _figures(box: Box, series: Sequence[tuple[int, Values]]) -> Iterable[Figure]:
    """Yield the curves of a box, one figure for each unit."""
    lines: dict[tuple[str, Unit, str], dict[str, list[float | None]]] = {}
    for place, (_, values) in enumerate(series):
        owned = _owned(box, values)
        is_one = len({key for key, _ in box.owns}) == 1
        for (component, entity), numbers in owned.items():
            for name, value in numbers.items():
                unit, title = next((u, t) for end, u, t in UNITS if name.endswith(end))
                is_part = (component, entity) not in box.owns
                line = entity if is_part else name if is_one else f"{component}: {name}"
                curves = lines.setdefault((title, unit, name if is_part else ""), {})
                curves.setdefault(line, [None] * len(series))[place] = value
    batch_ids = tuple(batch_id for batch_id, _ in series)
    for (title, unit, axis), by_name in lines.items():
        drawn = tuple(Line(name, tuple(values)) for name, values in by_name.items())
        figure = Figure(title, batch_ids, drawn, unit, axis=axis)
        if has_content(figure):
            yield figure


def rows_of_box(box: Box) -> list[tuple[str, str]]:
    """Return the newest numbers of a box in words."""
    rows = []
    for figure in box.figures:
        for line in figure.lines:
            value = next((number for number in reversed(line.values) if number is not None), None)
            unit = "count" if figure.unit in ("number", "position") else figure.unit
            if unit == "count" and value is not None and value != round(value):
                unit = "number"
            name = f"{line.name}: {figure.axis}" if figure.axis else line.name
            rows.append((name, value_in(unit, value)))
    return rows


# -- where it stands ----------------------------------------------------------------------------


def _placed(boxes: Sequence[Box]) -> Graph:
    """Place boxes in layers, from the streams down to the results."""
    by_key = {box.key: box for box in boxes}
    readers: dict[str, list[str]] = defaultdict(list)
    for box in boxes:
        for key in box.reads:
            readers[key].append(box.key)
    depth: dict[str, int] = {}
    for box in boxes:  # what a box reads stands before it
        depth[box.key] = 1 + max((depth[key] for key in box.reads), default=-1)
    for box in reversed(boxes):  # what reads nothing stands where it is read
        if not box.reads and readers[box.key]:
            depth[box.key] = min(depth[key] for key in readers[box.key]) - 1
    layers: dict[int, list[str]] = defaultdict(list)
    for box in boxes:
        layers[depth[box.key]].append(box.key)
    widest = max(map(len, layers.values()))
    width = NARROW if widest >= MANY else WIDTH
    whole = widest * (width + _GAP) - _GAP
    placed: dict[str, Box] = {}
    for level, layer in enumerate(sorted(layers)):
        keys = layers[layer]
        x_start = (whole - len(keys) * (width + _GAP) + _GAP) // 2
        for place, key in enumerate(keys):
            x, y = x_start + place * (width + _GAP), level * (HEIGHT + _ROOM)
            placed[key] = replace(by_key[key], x=x + 2, y=y + 2, width=width)
    lines = [_line(placed[key], placed[box.key]) for box in boxes for key in box.reads]
    return Graph(
        tuple(placed[box.key] for box in boxes),
        tuple(lines),
        whole + 4,
        len(layers) * (HEIGHT + _ROOM) - _ROOM + 4,
    )


def _line(start: Box, end: Box) -> str:
    x0, y0 = start.x + start.width // 2, start.y + HEIGHT
    x1, y1 = end.x + end.width // 2, end.y
    bend = max(8, (y1 - y0) // 2)
    return f"M{x0} {y0}C{x0} {y0 + bend} {x1} {y1 - bend} {x1} {y1 - 1}"
