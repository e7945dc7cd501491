"""The call of segments that bounds results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from eddyline.models import earth, steps
from eddyline.models.bounds import read_bounds
from eddyline.spark.models.arguments import attribute_of, read_said, read_split
from eddyline.spark.models.graphs import checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.spark.models.graphs import Graph


class WithBounds:
    """Segments of which bounds are asked."""

    _graph: Graph

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def within(
        self,
        bounds: Mapping[str, float | str],
        *,
        split: str = "equal",
        ranges: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the same segments, of models that are fitted as near as these bounds need.

        Bounds of results become bounds of what ``fit`` or ``declare`` models: of several, and of
        those that ``fit`` was given, the least counts. Inputs that are within theirs at every
        instant make results that are within these; which instants a condition selects is not
        bounded. Where bounds depend on how large values are, a batch DataFrame is read once for
        that when a DataFrame is made of the result; of a stream it has to be said.

        Args:
            bounds: for attributes how far values may be off: in the attribute's unit, or a share of
                the value, such as ``"1 %"``; for a position metres in any direction.
            split: how an error is shared by what a value is computed of: ``equal``, or
                ``gradient``, by how fast each changes; MACD ± 0.5 asks for a price ± 0.3.
            ranges: for attributes that are modelled the least and the greatest value of rows, and
                by ``d(x)`` those of the change of x per second, which ``gradient`` needs. They are
                taken to be a quarter wider, as models leave them a little. Results of rows outside
                may be off by more than their bounds, and their errors say so; a stream counts such
                rows.

        Raises:
            QueryError: there is no such attribute.
            OptionError: a bound or a range that is none, or a bound that no bounds of models are
                enough for: of a slope, of a share of what may be 0, of segments that were fitted
                before.

        Example:
            >>> lead = fast.join(slow).select(lead="left_price - right_price")  # doctest: +SKIP
            >>> lead.within({"lead": 0.5}).sample("2 s")  # doctest: +SKIP
            >>> live.select(force="m * a").within(  # doctest: +SKIP
            ...     {"force": 1.0}, ranges={"m": (0, 80), "a": (-10, 10)})
        """
        graph = self._graph
        shared = earth.of_track(read_bounds(bounds), graph.shape.attributes)
        asked = {attribute_of(graph, name): each for name, each in shared.items()}
        by_pace = read_split(split)
        said = read_said(graph, ranges or {}, by_pace=by_pace)
        step = steps.Within(asked, by_pace, ranges_said=said)
        return type(self)(checked(graph.then(step)))
