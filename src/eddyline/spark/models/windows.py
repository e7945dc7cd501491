"""Values over windows and over entities: what a caller gives, as the steps that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models import steps
from eddyline.models.lengths import read_length
from eddyline.models.window_steps import Envelope, Extremum, Integral
from eddyline.registry import unknown
from eddyline.spark.models.arguments import attribute_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.spark.models.graphs import Graph


def extremum(
    graph: Graph,
    attribute: str,
    window: str | None,
    slide: str | None,
    by: str | Sequence[str],
    *,
    is_largest: bool,
) -> Graph:
    """Return the least or greatest value of an attribute; arguments as of ``Segments.min``."""
    name = attribute_of(graph, attribute)
    kept = graph.onto(name)
    every = None if slide is None else read_length("slide", slide)
    groups = (by,) if isinstance(by, str) else tuple(by)
    for each in groups:
        if each not in graph.shape.keys:
            raise QueryError(unknown("key", each, graph.shape.keys), by=list(groups))
    if window is None:
        found = kept.over_entities(Envelope(groups, is_largest))
        return found if every is None else found.then(steps.Sample(every))
    if groups:
        msg = (
            "by groups entities at an instant, and a window is of one entity: first "
            f".max({name!r}, by=…), then .max({name!r}, window=…)"
        )
        raise NotSupportedError(msg, by=by)
    return kept.then(Extremum(read_length("window", window), every, is_largest))


def integral(
    graph: Graph,
    attributes: Sequence[str],
    window: str,
    slide: str | None,
    covered: bool,
    *,
    is_average: bool,
) -> Graph:
    """Return sums or averages of attributes over a window; arguments as of ``Segments.sum``."""
    names = tuple(attribute_of(graph, each) for each in attributes) or graph.shape.attributes
    every = None if slide is None else read_length("slide", slide)
    step = Integral(read_length("window", window), every, is_average, bool(covered))
    return graph.onto(*names).then(step)
