"""Segments of a DataFrame: what ``el.models.fit`` and ``el.models.read`` return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import plan, steps
from eddyline.models.condition_text import read_condition, read_expression, split_condition
from eddyline.models.lengths import read_length
from eddyline.registry import checked_text, unknown
from eddyline.spark.models import laying
from eddyline.spark.models.laying import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, DataFrameWriter

    from eddyline.models.plan import Node
    from eddyline.models.steps import Shape


class Segments:
    """Pieces of polynomials of time, by entity, that stand for the rows of a DataFrame.

    Methods return other segments, or a DataFrame of rows where they say so. Nothing runs before a
    DataFrame is used. Every value comes with ``err_<attribute>``: how far it may be from what the
    rows would give, in the attribute's unit.
    """

    def __init__(self, sources: Sequence[Source], node: Node) -> None:
        self._sources = tuple(sources)
        self._node = node

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity."""
        return self._node.shape.keys

    @property
    def attributes(self) -> tuple[str, ...]:
        """The modelled attributes."""
        return self._node.shape.attributes

    def to_df(self) -> DataFrame:
        """Return a row for each segment.

        Columns: the keys; ``origin``, ``lo`` and ``hi``, timestamps: a segment is valid on
        ``[lo, hi)``; ``is_point``, whether it is the one instant ``lo``; ``tomb``, whether it says
        that there is no model; ``coef_<attribute>``, the coefficients by ascending powers of
        seconds since ``origin``; ``err_<attribute>``.
        """
        return laying.laid(self._sources, self._node)

    @property
    def write(self) -> DataFrameWriter:
        """Spark's writer of the segments, such as ``segments.write.parquet(path)``."""
        return self.to_df().write

    def persist(self) -> Segments:
        """Return the same segments, which Spark keeps once they have been computed."""
        return self._of_df(self.to_df().persist(), self._node.shape)

    def where(self, condition: str) -> Segments:
        """Return the segments on the ranges of time on which a condition holds.

        Args:
            condition: comparisons of expressions over modelled attributes (``+ - *``, division by
                a constant, ``pow``, ``abs``, ``sqrt``, and ``d(x)``, the change of x per second),
                with AND, OR and NOT; joined to these by AND, conditions on keys, which leave
                entities out before anything is solved.

        Raises:
            QueryError: it cannot be read, or names what there is not; the message shows where.
            NotSupportedError: no comparison of polynomials says the same.

        Example:
            >>> segments.where("lat > 40.5 AND d(lat) > 0 AND vessel <> 7")  # doctest: +SKIP
        """
        text = checked_text("condition", condition)
        native, solved = split_condition(text, self.attributes, self.keys)
        sources, node = self._sources, self._node
        for each in native:
            sources = tuple(source.where(each) for source in sources)
        if solved is not None:
            node = plan.Unary(steps.Where(solved, " ".join(text.split())), node)
        return Segments(sources, node)

    def select(self, *names: str, **columns: str) -> Segments:
        """Return segments with other attributes.

        Args:
            *names: attributes that are kept.
            **columns: expressions over attributes by the names of new ones; sums, products, whole
                powers, ``d(x)``.

        Raises:
            QueryError: as for ``where``, or no attribute would be left.
            NotSupportedError: an expression is no polynomial.

        Example:
            >>> segments.select("lat", speed="d(lat)")  # doctest: +SKIP
        """
        texts = {**{self._attribute(each): each for each in names}, **columns}
        if not texts:
            msg = f"select needs an attribute; there are {', '.join(self.attributes)}"
            raise QueryError(msg)
        for name in texts:
            check_attribute(name, self.keys)
        read = {
            name: read_expression(checked_text(f"expression of {name!r}", text), self.attributes)
            for name, text in texts.items()
        }
        return self._with(steps.Project(read, texts))

    def join(
        self, other: Segments, on: str | None = None, *, names: Sequence[str] = ("left", "right")
    ) -> Segments:
        """Return the segments of two sides of the same entities, at the same instants.

        Args:
            other: segments with the same keys.
            on: a condition on both sides' attributes, which are called ``left.x`` and ``right.x``
                in it, and ``left_x`` and ``right_x`` in the result.
            names: what stands there instead of ``left`` and ``right``.

        Raises:
            QueryError: keys differ, or as for ``where``.

        Example:
            >>> fast.join(slow, "fast.price > slow.price", names=("fast", "slow"))
            ... # doctest: +SKIP
        """
        if not isinstance(other, Segments):
            msg = f"join takes segments, got {other!r:.60}"
            raise QueryError(msg, got=type(other).__name__)
        if [*self._types()] != [*other._types()]:
            msg = (
                "join takes segments of the same entities, whose keys and times have the same names"
                f" and types; got {_said(self._types())} and {_said(other._types())}"
            )
            raise QueryError(msg)
        left, right = _pair(names)
        sources = list(dict.fromkeys([*self._sources, *other._sources]))
        one, two = (
            plan.moved(each._node, [sources.index(source) for source in each._sources])
            for each in (self, other)
        )
        known = [f"{left}.{each}" for each in self.attributes]
        known += [f"{right}.{each}" for each in other.attributes]
        condition = None if on is None else read_condition(checked_text("condition", on), known)
        return Segments(sources, plan.SameEntity(one, two, (left, right), condition, on))

    def min(
        self,
        attribute: str,
        *,
        window: str | None = None,
        slide: str | None = None,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Return the least value of an attribute: over a window, or over entities.

        Args:
            attribute: what is compared.
            window: how long the window is that ends at each instant, such as ``10 minutes``; None
                is the least of all entities at each instant. A window that segments do not fill
                takes what there is.
            slide: the distance of the instants at which a value is wanted; None is segments, which
                have one at each.
            by: without a window, the keys by which entities are grouped; none is one group.

        Returns:
            Segments; with ``slide`` a DataFrame of the keys, ``time`` (when the window ends), the
            attribute and its ``err_<attribute>``.

        Raises:
            QueryError: there is no such attribute or key.
            OptionError: a length is none.
        """
        return self._extremum(attribute, window, slide, by, is_largest=False)

    def max(
        self,
        attribute: str,
        *,
        window: str | None = None,
        slide: str | None = None,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Return the greatest value of an attribute; as ``min``."""
        return self._extremum(attribute, window, slide, by, is_largest=True)

    def sum(
        self, *attributes: str, window: str, slide: str | None = None, covered: bool = False
    ) -> Any:
        """Return the integral of attributes over a window, in their unit times seconds.

        Args:
            *attributes: what is summed up; none is all.
            window: how long the window is that ends at each instant, such as ``10 minutes``.
            slide: as for ``min``.
            covered: whether a window counts that segments cover only in part.

        Returns:
            As ``min``.
        """
        return self._integral(attributes, window, slide, covered, is_average=False)

    def avg(
        self, *attributes: str, window: str, slide: str | None = None, covered: bool = False
    ) -> Any:
        """Return the average of attributes over a window, weighted by time; as ``sum``.

        With ``covered`` it is of the covered time; without ``slide`` there are then segments only
        where that does not change while the window moves on.
        """
        return self._integral(attributes, window, slide, covered, is_average=True)

    def sample(self, every: str) -> DataFrame:
        """Return the values at ticks, and of points at their instants.

        Args:
            every: the distance of ticks, which are the multiples of it since 1970.

        Returns:
            The keys, ``time``, each attribute and its ``err_<attribute>``.
        """
        return self._with(steps.Sample(read_length("every", every))).to_df()

    def changes(self) -> DataFrame:
        """Return a row for each range of time over which an entity has segments without a gap.

        Behind ``where`` these are when its condition becomes true, and until when it is.

        Returns:
            The keys, ``since`` and ``until`` (the same for a point), and the attributes and their
            ``err_<attribute>`` at ``since``.
        """
        return self._with(steps.Changes()).to_df()

    def __repr__(self) -> str:
        """Say what the segments are and how they come to be."""
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        told = [str(each.fit or "read") for each in self._sources]
        told += [str(each) for each in plan.parts(self._node) if not isinstance(each, plan.Input)]
        return f"<segments of {', '.join(self.attributes)}{keys}: {'; '.join(told)}>"

    # -- parts ----------------------------------------------------------------------------------

    def _extremum(
        self,
        attribute: str,
        window: str | None,
        slide: str | None,
        by: str | Sequence[str],
        *,
        is_largest: bool,
    ) -> Segments | DataFrame:
        name = self._attribute(attribute)
        kept = self if self.attributes == (name,) else self._with(steps.Project.onto(name))
        every = None if slide is None else read_length("slide", slide)
        groups = (by,) if isinstance(by, str) else tuple(by)
        if window is None:
            found = kept._envelope(groups, is_largest=is_largest)
            return found if every is None else found._with(steps.Sample(every)).to_df()
        if groups:
            msg = (
                "by groups entities at an instant, and a window is of one entity: first "
                f".max({name!r}, by=…), then .max({name!r}, window=…)"
            )
            raise NotSupportedError(msg, by=by)
        return kept._done(steps.Extremum(read_length("window", window), every, is_largest))

    def _envelope(self, by: tuple[str, ...], *, is_largest: bool) -> Segments:
        for each in by:
            if each not in self.keys:
                raise QueryError(unknown("key", each, self.keys), by=list(by))
        source = Source(self.to_df(), self._node.shape)
        step = steps.Envelope(by, is_largest)
        return self._of_df(laying.envelope(source.df, source, step), step.shape(source.shape))

    def _integral(
        self,
        attributes: Sequence[str],
        window: str,
        slide: str | None,
        covered: bool,
        *,
        is_average: bool,
    ) -> Segments | DataFrame:
        names = tuple(self._attribute(each) for each in attributes) or self.attributes
        kept = self if names == self.attributes else self._with(steps.Project.onto(*names))
        every = None if slide is None else read_length("slide", slide)
        width = read_length("window", window)
        return kept._done(steps.Integral(width, every, is_average, bool(covered)))

    def _done(self, step: steps.Step) -> Segments | DataFrame:
        made = self._with(step)
        return made if made._node.shape.kind == "segments" else made.to_df()

    def _with(self, step: steps.Step) -> Segments:
        return Segments(self._sources, plan.Unary(step, self._node))

    @staticmethod
    def _of_df(df: DataFrame, shape: Shape) -> Segments:
        return Segments([Source(df, shape)], plan.Input(0, shape))

    def _attribute(self, name: str) -> str:
        known = {each.lower(): each for each in self.attributes}
        if checked_text("attribute", name).lower() not in known:
            raise QueryError(unknown("modelled attribute", name, self.attributes), name=name)
        return known[name.lower()]

    def _types(self) -> list[tuple[str, str]]:
        (source, *_) = self._sources
        keys = [(each.name, each.dataType.simpleString()) for each in source.key_fields]
        return [*keys, ("lo", source.time_type.simpleString())]


def check_attribute(name: str, keys: Sequence[str]) -> None:
    """Check the name of an attribute.

    Raises:
        OptionError: it is that of a key, or of a column that results have.
    """
    taken = [*keys, steps.TIME, steps.SINCE, steps.UNTIL]
    if name in taken:
        msg = f"an attribute is called {name!r}, which results have beside it; give it another name"
        raise OptionError(msg, name=name)


def _pair(names: Sequence[str]) -> tuple[str, str]:
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        msg = f"names are two that differ, such as ('left', 'right'), got {names!r:.60}"
        raise OptionError(msg, names=names)
    for each in names:
        if not checked_text("name of a side", each).isidentifier():
            msg = f"the name of a side is a word, such as 'left', got {each!r}"
            raise OptionError(msg, names=names)
    return names[0], names[1]


def _said(types: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types)
