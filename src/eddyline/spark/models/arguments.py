"""What a caller gives to segments, read and checked: attributes, sides, conditions on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.errors import OptionError, QueryError
from eddyline.models import earth, steps
from eddyline.models.assumed import read_ranges
from eddyline.models.condition_text import read_attributes, read_condition
from eddyline.models.rows import COEF, ERR, RESERVED
from eddyline.registry import checked_text, unknown
from eddyline.spark.models.graphs import whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.models.conditions import Condition
    from eddyline.models.expressions import Expression
    from eddyline.models.ranges import Range
    from eddyline.spark.models.graphs import Graph

_PREFIXES = (COEF, ERR)
SPLITS = ("equal", "gradient")
"""How an error is shared by what a value is computed of."""


def check_attribute(name: str, keys: Sequence[str]) -> None:
    """Check the name of an attribute.

    Raises:
        OptionError: it is that of a key, or of a column that segments or results have, whatever
            the case; such are ``err_x`` and ``coef_x`` for any x.
    """
    taken = [*keys, steps.TIME, steps.SINCE, steps.UNTIL, *RESERVED]
    if name.lower() in map(str.lower, taken):
        msg = f"an attribute is called {name!r}, which results have beside it; give it another name"
        raise OptionError(msg, name=name)
    if name.lower().startswith(_PREFIXES):
        msg = (
            f"an attribute is called {name!r}, and segments have columns that begin with {COEF} "
            f"and {ERR}, its coefficients and its error; give it another name"
        )
        raise OptionError(msg, name=name)


def read_columns(graph: Graph, names: Sequence[str], columns: Mapping[str, str]) -> steps.Project:
    """Return the step that makes attributes of those that a graph has.

    Args:
        graph: has the attributes.
        names: of those that are kept.
        columns: expressions by the names of new attributes.

    Raises:
        QueryError: an expression cannot be read, or no attribute would be left.
        NotSupportedError: an expression is no polynomial.
        OptionError: a name that results have themselves, or two that differ only in case.
    """
    attributes = graph.shape.attributes
    texts: dict[str, str] = {}
    for each in names:
        place = earth.position_of(checked_text("attribute", each), attributes)
        texts |= (
            dict(zip(place, place, strict=True)) if place else {attribute_of(graph, each): each}
        )
    texts |= columns
    if not texts:
        msg = f"select needs an attribute; there are {', '.join(attributes)}"
        raise QueryError(msg)
    seen: set[str] = set()
    for name in texts:
        check_attribute(name, graph.shape.keys)
        if name.lower() in seen:
            msg = f"two attributes are called {name!r}, whatever the case; give one another name"
            raise OptionError(msg, name=name)
        seen.add(name.lower())
    read: dict[str, Expression] = {}
    said: dict[str, str] = {}
    for name, text in texts.items():
        found = read_attributes(name, checked_text(f"expression of {name!r}", text), attributes)
        read |= found
        said |= {each: f"{each} of {text}" if len(found) > 1 else text for each in found}
    earth.outputs(tuple(read))
    return steps.Project(read, said)


def read_pair(names: Sequence[str]) -> tuple[str, str]:
    """Return the names of two sides.

    Raises:
        OptionError: they are not two words that differ, or the names of attributes behind them
            would be those of other columns.
    """
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        msg = f"names are two that differ, such as ('left', 'right'), got {names!r:.60}"
        raise OptionError(msg, names=names)
    for each in names:
        if not checked_text("name of a side", each).isidentifier():
            msg = f"the name of a side is a word, such as 'left', got {each!r}"
            raise OptionError(msg, names=names)
        if f"{each}_".lower().startswith(_PREFIXES):
            msg = (
                f"a side is called {each!r}, and {each}_x would be a column of segments; rename it"
            )
            raise OptionError(msg, names=names)
    return names[0], names[1]


def read_split(given: str) -> bool:
    """Return whether shares of an error are by how fast inputs change.

    Raises:
        OptionError: it is no way to share.
    """
    if given not in SPLITS:
        raise OptionError(unknown("split", str(given), SPLITS), split=given)
    return given == "gradient"


def read_said(graph: Graph, given: Mapping[str, Any], *, by_pace: bool) -> dict[str, Range]:
    """Return the ranges that modelled attributes are said to be in; case does not matter.

    Raises:
        OptionError: one is no range, or lacks that of its change.
        QueryError: nothing is modelled by that name.
    """
    roots, _ = whole(graph)
    names = [name for each in roots if each.maker for name in each.shape.attributes]
    known = {each.lower(): each for each in names}
    found = {}
    for name, each in read_ranges(given, by_pace=by_pace).items():
        if name.lower() not in known:
            raise QueryError(unknown("modelled attribute", name, names), name=name)
        found[known[name.lower()]] = each
    return found


def attribute_of(graph: Graph, name: str) -> str:
    """Return the attribute that a name says; case does not matter.

    Raises:
        QueryError: there is none.
    """
    attributes = graph.shape.attributes
    known = {each.lower(): each for each in attributes}
    if checked_text("attribute", name).lower() not in known:
        raise QueryError(unknown("modelled attribute", name, attributes), name=name)
    return known[name.lower()]


def attributes_of(graph: Graph, names: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes behind names; a position has three. Errors as above."""
    attributes = graph.shape.attributes
    found = [
        earth.position_of(checked_text("attribute", name), attributes)
        or (attribute_of(graph, name),)
        for name in names
    ]
    return tuple(dict.fromkeys(each for group in found for each in group))


def read_on(
    text: str | None, sides: tuple[Graph, Graph], names: tuple[str, str]
) -> Condition | None:
    """Return the condition on the attributes of two sides, which are called ``left.x``.

    Raises:
        QueryError: it cannot be read, or names what there is not.
        NotSupportedError: no comparison of polynomials says the same.
    """
    known = [
        f"{name}.{each}"
        for name, side in zip(names, sides, strict=True)
        for each in side.shape.attributes
    ]
    return None if text is None else read_condition(checked_text("condition", text), known)


def check_same(one: Graph, other: Graph, what: str) -> None:
    """Check that two are segments of the same kind of entities.

    Raises:
        QueryError: keys and times differ.
    """
    mine, its = one.types, other.types
    if mine != its:
        msg = (
            f"{what} takes segments whose keys and times have the same names and types; got "
            f"{_said(mine)} and {_said(its)}"
        )
        raise QueryError(msg)


def _said(types: Sequence[tuple[str, str]]) -> str:
    """Return columns and their types in words."""
    return ", ".join(f"{name} {kind}" for name, kind in types)
