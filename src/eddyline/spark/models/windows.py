"""Values over windows and over entities: what a caller gives, as the steps that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import steps
from eddyline.models.lengths import read_length
from eddyline.models.window_steps import Envelope, Extremum, Integral, OverEntities, Total
from eddyline.registry import unknown
from eddyline.spark.models.arguments import attribute_of, attributes_of

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
    kept, every = graph.onto(name), _every(slide)
    groups = _groups(graph, by, window, f"{'max' if is_largest else 'min'}({name!r}, ")
    if window is None:
        return _over_entities(kept, Envelope(groups, is_largest), every)
    return kept.then(Extremum(read_length("window", window), every, is_largest))


def integral(
    graph: Graph,
    attributes: Sequence[str],
    window: str | None,
    slide: str | None,
    covered: bool,
    by: str | Sequence[str],
    *,
    is_average: bool,
) -> Graph:
    """Return sums or averages of attributes; arguments as of ``Segments.sum``."""
    names = attributes_of(graph, attributes) or graph.shape.attributes
    kept, every = graph.onto(*names), _every(slide)
    called = ", ".join(map(repr, attributes))
    groups = _groups(
        graph, by, window, f"{'avg' if is_average else 'sum'}({called}{', ' * bool(called)}"
    )
    if window is None:
        if covered:
            msg = "covered is of windows, and there is none: leave it out, or give a window"
            raise OptionError(msg, covered=covered)
        return _over_entities(kept, Total(groups, is_average), every)
    return kept.then(Integral(read_length("window", window), every, is_average, bool(covered)))


def _every(slide: str | None) -> int | None:
    return None if slide is None else read_length("slide", slide)


def _over_entities(graph: Graph, step: OverEntities, every: int | None) -> Graph:
    found = graph.over_entities(step)
    return found if every is None else found.then(steps.Sample(every))


def _groups(
    graph: Graph, by: str | Sequence[str], window: str | None, call: str
) -> tuple[str, ...]:
    """Return the keys of groups; ``call`` is how what is asked begins.

    Raises:
        QueryError: there is no such key.
        NotSupportedError: there are groups and a window.
    """
    groups = (by,) if isinstance(by, str) else tuple(by)
    for each in groups:
        if each not in graph.shape.keys:
            raise QueryError(unknown("key", each, graph.shape.keys), by=list(groups))
    if groups and window is not None:
        msg = (
            "by groups entities at an instant, and a window is of one entity: first "
            f".{call}by=…), then .{call}window=…)"
        )
        raise NotSupportedError(msg, by=by)
    return groups
