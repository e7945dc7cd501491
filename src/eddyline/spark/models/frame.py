"""Segments of a DataFrame: what ``el.models.fit`` and ``el.models.read`` return.

A ``Segments`` has a graph (``graphs``), and each call returns other segments with one more step in
it, or rows: a DataFrame of a batch, a query of a stream. Nothing runs before a DataFrame is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models import graph, steps
from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.bounds import Bound, read_bounds, read_length
from eddyline.models.fitting.splits import EQUAL, read_split
from eddyline.models.revisions import BOUNDS
from eddyline.models.segments import micros_of
from eddyline.models.solving import earth, expressions
from eddyline.models.solving.text import split_condition
from eddyline.models.steps import TIME, AverageDistance, DifferentEntities
from eddyline.models.streams.plan import Sketch, StreamInput, StreamPlan
from eddyline.models.streams.view import pictures
from eddyline.options import in_range
from eddyline.registry import checked_text
from eddyline.report.html import check_packages, write_report
from eddyline.report.models import drawn
from eddyline.report.sections import RunView, Section, Text
from eddyline.spark.alarms.asking import WithAlarms
from eddyline.spark.models import graphs
from eddyline.spark.models.graphs import (
    Graph,
    attribute_of,
    attributes_of,
    check_same,
    checked,
    key_numbers,
    precise,
    read_columns,
    read_on,
    read_pair,
    read_said,
    told,
)
from eddyline.spark.models.laying import Source, as_modelled, rows_to_fit
from eddyline.spark.models.queries import exact_rows, query_of, rows_of
from eddyline.spark.relation import micros_of as micros_column
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter

    from eddyline.models.fitting.splits import Split, SplitFunction
    from eddyline.spark.query import Query

MOST_TIMES = 20
"""Segments and results that are drawn for each row, at most."""
_RANK = "__rank"


class Segments(WithAlarms):
    """Pieces of polynomials of time, by entity, that stand for the rows of a DataFrame.

    Methods return other segments, or a DataFrame of rows where they say so. Nothing runs before a
    DataFrame is used, but for the job that looks for overlaps of segments that are read. Of a
    stream they return a query instead of a DataFrame, to be started. Every value comes with
    ``err_<attribute>``: how far it may be from what the rows would give, in the attribute's unit.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity."""
        return self._graph.shape.keys

    @property
    def attributes(self) -> tuple[str, ...]:
        """The modelled attributes."""
        return self._graph.shape.attributes

    def to_df(self) -> DataFrame:
        """Return a row for each segment.

        Columns: the keys; ``origin``, ``lo`` and ``hi``, timestamps: a segment is valid on
        ``[lo, hi)``; ``is_point``, whether it is the one instant ``lo``; ``tomb``, whether it says
        that there is no model; ``coef_<attribute>``, the coefficients by ascending powers of
        seconds since ``origin``; ``err_<attribute>``.

        Raises:
            NotSupportedError: they are of a stream; ``query`` starts it.
        """
        return self._graph.df

    def query(self) -> Query:
        """Return the segments of a stream as a query: ``.start(…)``; its rows as of ``to_df``."""
        return query_of(self._graph)

    @property
    def write(self) -> DataFrameWriter:
        """Spark's writer of the segments, such as ``segments.write.parquet(path)``.

        Columns are those of ``to_df``; ``origin`` is NULL where it is ``lo``, which takes no room.
        """
        return self.to_df().withColumn("origin", F.nullif("origin", "lo")).write

    def persist(self) -> Segments:
        """Return the same segments, which Spark keeps once they have been computed."""
        kept = self._graph.laid
        return Segments(Graph.from_source(replace(kept, df=kept.df.persist())))

    def where(self, condition: str) -> Segments:
        """Return the segments on the ranges of time on which a condition holds.

        Args:
            condition: comparisons of expressions over modelled attributes (``+ - *``, division by
                a constant, ``pow``, ``abs``, ``sqrt``, ``d(x)``, the change of x per second, and
                of positions ``speed(track)``, ``distance(track, 47.6, -122.3)``, ``lat(track)``,
                ``lon(track)``, ``east`` and ``north`` of a place), with AND, OR and NOT; joined to
                these by AND, conditions on keys, which leave entities out before anything is
                solved. Keys that are numbers may stand beside attributes: ``x > most``.

        Raises:
            QueryError: it cannot be read, or names what there is not; the message shows where.
            NotSupportedError: no comparison of polynomials says the same.

        Example:
            >>> segments.where("lat > 40.5 AND d(lat) > 0 AND vessel <> 7")  # doctest: +SKIP
        """
        text = checked_text("condition", condition)
        native, solved = split_condition(text, self.attributes, self.keys, mixes=True)
        graph = self._graph
        for key_condition in native:
            graph = graph.of_entities(key_condition)
        if solved is not None:
            keys = key_numbers(graph, text, expressions.attributes(solved))
            graph = graph.then(steps.Where(solved, text, keys))
        return Segments(graph)

    def select(self, *names: str, **columns: str) -> Segments:
        """Return segments with other attributes.

        Args:
            *names: attributes that are kept; ``"track"`` is a position.
            **columns: expressions over attributes, and keys that are numbers, by the names of new
                ones; sums, products, whole powers, ``d(x)``, and a speed or a distance of positions
                alone.

        Raises:
            QueryError: as for ``where``, or no attribute would be left.
            NotSupportedError: an expression is no polynomial.
            OptionError: a name that results have themselves, such as ``err_lat`` or ``lo``.

        Example:
            >>> segments.select("lat", speed="d(lat)")  # doctest: +SKIP
        """
        return Segments(self._graph.then(read_columns(self._graph, names, columns)))

    def within(
        self,
        bounds: Mapping[str, float | str],
        *,
        split: str | SplitFunction | Split = "equal",
        ranges: Mapping[str, Any] | None = None,
    ) -> Segments:
        """Return the same segments, of models that are fitted as near as these bounds need.

        Bounds of results become bounds of what ``fit`` or ``declare`` models: of several, and of
        those that ``fit`` was given, the least counts. Inputs that are within theirs at every
        instant make results that are within these; which instants a condition selects is not
        bounded. Where bounds depend on how large values are, a batch DataFrame is read once for
        that when a DataFrame is made of the result; of a stream it has to be said.

        Args:
            bounds: for attributes how far values may be off: in the attribute's unit, or a share of
                the value, such as ``"1 %"``; for a position metres in any direction.
            split: how an error is shared by what a value is computed of: ``equal``,
                ``gradient``, by how fast each changes, the name of one of an installed package, or
                a function of the parts that returns their shares, see
                ``eddyline.models.fitting.splits``; MACD ± 0.5 asks for a price ± 0.3.
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
        asked = {attribute_of(graph, name): bound for name, bound in shared.items()}
        shares = read_split(split)
        value_ranges = read_said(graph, ranges or {}, by_pace=shares.needs_pace)
        step = steps.Within(asked, shares, ranges_said=value_ranges)
        return Segments(checked(graph.then(step)))

    def exact(self, rows: DataFrame | None = None, *, time: str | None = None) -> DataFrame | Query:
        """Return the rows that satisfy the conditions of ``where``, exactly as without models.

        These are the rows of the DataFrame for which SQL says that the conditions are true, with
        all of its columns, NaN and several rows of an instant as they are. Of segments that are
        kept (``persist``, ``read``) models say which rows need not be read: a job is run at once
        that finds where their errors leave it open, and the first time also for which rows errors
        do not hold. Where segments would have to be made first, and of a stream, rows are filtered.

        Args:
            rows: the DataFrame that the segments stand for; None: the one they were made of.
            time: its column of timestamps, if it is given.

        Raises:
            QueryError: it is not known what the segments stand for, or rows have other columns.
            NotSupportedError: something is computed that rows have not, as ``d(x)``; ``sqrt``.

        Example:
            >>> el.models.read("s/").where("lat > 40.5").exact(df, time="ts")  # doctest: +SKIP
        """
        return exact_rows(self._graph, rows, time)

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
        right = self._side(other, "join")
        two = read_pair(names)
        condition = read_on(on, (self._graph, right), two)
        return Segments(self._graph.with_same(right, two, condition, on))

    def pairs(
        self,
        on: str | None = None,
        *,
        other: Segments | None = None,
        within: Mapping[str, float] | None = None,
        whole: bool = False,
        names: Sequence[str] = ("left", "right"),
    ) -> Segments:
        """Return the segments of pairs of different entities, at the same instants.

        Args:
            on: a condition on both sides' attributes, called as for ``join``.
            other: the other side, with the same keys; without it both are these segments, and each
                pair comes once: the one of lesser keys is on the left.
            within: for an attribute of both by how much the two differ at most where results are
                wanted; entities that never come so near are not paired, which saves most of the
                work.
            whole: whether pairs that at some time may come so near are returned for all the time
                that they share, as averages over windows need them.
            names: as for ``join``.

        Returns:
            Segments whose keys are ``left_<key>`` and ``right_<key>``.

        Raises:
            QueryError: as for ``join``, or there is no such attribute.
            OptionError: a distance that is none.
        """
        beside = None if other is None else self._side(other, "pairs")
        two, right = read_pair(names), self._graph if beside is None else beside
        near = {
            axis: Bound.of(name, most).value
            for name, most in (within or {}).items()
            for axis in attributes_of(self._graph, (name,))
        }
        for axis in near:
            attribute_of(right, axis)
        condition = read_on(on, (self._graph, right), two)
        step = DifferentEntities(two, condition, near, bool(whole), other is None)
        return Segments(self._graph.with_others(beside, step))

    def near(
        self,
        distance: float,
        *attributes: str,
        other: Segments | None = None,
        names: Sequence[str] = ("left", "right"),
    ) -> Segments:
        """Return pairs of different entities where they are nearer to each other than a distance.

        Args:
            distance: in the attributes' unit, which is the same for all.
            *attributes: the coordinates, such as ``"x", "y"``; none are those of ``track``.
            other: as for ``pairs``.
            names: as for ``pairs``.

        Example:
            >>> ships.near(500, "x", "y").changes().show()  # doctest: +SKIP
        """
        most = Bound.of("distance", distance).value
        axes = attributes_of(self._graph, attributes) or earth.position_of(
            earth.TRACK, self.attributes
        )
        if axes is None:
            msg = f"near needs coordinates, such as near({distance}, 'x', 'y')"
            raise QueryError(msg)
        one, two = read_pair(names)
        names_of_axes = map(quoted, axes)
        squares = " + ".join(f"pow({one}.{axis} - {two}.{axis}, 2)" for axis in names_of_axes)
        return self.pairs(
            f"{squares} < {most!r} * {most!r}",
            other=other,
            within=dict.fromkeys(axes, most),
            names=names,
        )

    def avg_distance(
        self,
        *attributes: str,
        window: str,
        slide: str,
        covered: bool = False,
        below: float | None = None,
        within: float | None = None,
        names: Sequence[str] = ("left", "right"),
    ) -> DataFrame | Query:
        """Return the average distance of pairs over a window; of segments of lines.

        Args:
            *attributes: the coordinates of both, such as ``"x", "y"`` of segments with ``left_x``,
                ``right_x``, ``left_y`` and ``right_y``; none are those of ``track``.
            window: as for ``avg``.
            slide: as for ``avg``.
            covered: as for ``avg``.
            below: only averages that are less; windows in which a pair is never so near are left
                out before anything is computed of them.
            within: how far averages may be off, in the attributes' unit; see ``Segments.within``.
            names: as for ``pairs``.

        Returns:
            The keys, ``time``, ``distance`` and ``err_distance``.

        Raises:
            QueryError: there is no such attribute.
            OptionError: a distance that is none.
            NotSupportedError: when it runs, for an attribute of a degree above 1.

        Example:
            >>> pairs = ships.pairs(within={"x": 1000, "y": 1000}, whole=True)  # doctest: +SKIP
            >>> far = pairs.avg_distance("x", "y", window="10 minutes", slide="10 seconds")
            ... # doctest: +SKIP
        """
        (one, two), graph = read_pair(names), self._graph
        sides = [
            attributes_of(graph, [f"{side}_{attribute}" for attribute in attributes])
            or earth.position_of(f"{side}_{earth.TRACK}", graph.shape.attributes)
            or ()
            for side in (one, two)
        ]
        axes = dict(zip(*sides, strict=True)) if all(sides) else {}
        if not axes:
            msg = "avg_distance needs coordinates, such as avg_distance('x', 'y', …)"
            raise QueryError(msg)
        width, every = read_length("window", window), read_length("slide", slide)
        most = None if below is None else Bound.of("below", below).value
        step = AverageDistance(axes, width, every, bool(covered), most)
        if within is not None:
            asked = {"distance": Bound.of("distance", within)}
            graph = checked(graph.then(steps.Within(step.back(asked, {}, split=EQUAL))))
        return rows_of(graph.then(step))

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
        return _done(graphs.extremum(self._graph, attribute, window, slide, by, is_largest=False))

    def max(
        self,
        attribute: str,
        *,
        window: str | None = None,
        slide: str | None = None,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Return the greatest value of an attribute; as ``min``."""
        return _done(graphs.extremum(self._graph, attribute, window, slide, by, is_largest=True))

    def sum(
        self,
        *attributes: str,
        window: str | None = None,
        slide: str | None = None,
        covered: bool = False,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Return the sum of attributes: their integral over a window, or over entities.

        Args:
            *attributes: what is summed up; none is all.
            window: how long the window is that ends at each instant, such as ``10 minutes``; the
                sum is in the attribute's unit times seconds. None is the sum of the values of all
                entities that have one at each instant.
            slide: as for ``min``.
            covered: whether a window counts that segments cover only in part, until it has passed
                the last one.
            by: as for ``min``.

        Returns:
            As ``min``.

        Raises:
            QueryError: as for ``min``.
            OptionError: as for ``min``, or ``covered`` without a window.
        """
        return _done(
            graphs.integral(self._graph, attributes, window, slide, covered, by, is_average=False)
        )

    def avg(
        self,
        *attributes: str,
        window: str | None = None,
        slide: str | None = None,
        covered: bool = False,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Return the average of attributes: over a window, weighted by time, or over entities.

        Arguments are those of ``sum``. With ``covered`` it is of the covered time; without
        ``slide`` there are then segments only where that does not change while the window moves on.
        """
        return _done(
            graphs.integral(self._graph, attributes, window, slide, covered, by, is_average=True)
        )

    def sample(self, every: str) -> DataFrame | Query:
        """Return the values at ticks, and of points at their instants.

        Args:
            every: the distance of ticks, which are the multiples of it since 1970.

        Returns:
            The keys, ``time``, each attribute and its ``err_<attribute>``.
        """
        return rows_of(self._graph.then(steps.Sample(read_length("every", every))))

    def changes(self) -> DataFrame | Query:
        """Return a row for each range of time over which an entity has segments without a gap.

        Behind ``where`` these are when its condition becomes true, and until when it is.

        Returns:
            The keys, ``since`` and ``until`` (the same for a point), and the attributes and their
            ``err_<attribute>`` at ``since``.
        """
        return rows_of(self._graph.then(steps.Changes()))

    def __repr__(self) -> str:
        """Say what the segments are and how they come to be."""
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"<segments of {', '.join(self.attributes)}{keys}: {told(self._graph)}>"

    def _side(self, other: Segments, what: str) -> Graph:
        if not isinstance(other, Segments):
            raise QueryError(f"{what} takes segments, got {other!r:.60}", got=type(other).__name__)
        check_same(self._graph, other._graph, what)
        return other._graph

    def report(self, path: str | Path, *, entities: int = 3, rows: int = 200) -> Path:
        """Write an HTML page that draws some entities: rows, segments, their bound, the results.

        The entities are those of the least hash of their keys, so they are the same every time;
        ``where("ship IN (3, 4)")`` before it says which. Of each the newest rows are drawn. This
        runs a few jobs. A stream has its page from the run: ``run.report(path)``.

        Args:
            path: the file to write; missing folders are made.
            entities: how many entities are drawn, 1 to 20.
            rows: how many rows of each, 1 to 10,000.

        Returns:
            The path of the file.

        Raises:
            EddylineError: the extra ``report`` is not installed.
            NotSupportedError: they are of a stream, of pairs, or of values over entities.
            OptionError: a number that is none of these.
            SourceError: the file cannot be written.

        Example:
            >>> segments.where("ship = 3 AND x > 1500").report("ship3.html")  # doctest: +SKIP
        """
        how = _Options(entities, rows)
        check_packages()
        _check(self._graph)
        fitted = precise(self._graph)
        sources, node = fitted.placed
        plan = StreamPlan(
            tuple(StreamInput(source.maker, source.shape) for source in sources), node
        )
        sketch = _sketch(sources, plan, how)
        sections = drawn(pictures(sketch, plan))
        caption = f"{len(sketch.codes)} entities are drawn, with their newest {rows} rows at most."
        view = RunView(
            f"segments of {', '.join(fitted.shape.attributes)}",
            told(self._graph),
            sections=(Section("", (Text(caption),)), *sections),
        )
        return write_report(view, path)


def _done(graph: Graph) -> Segments | DataFrame | Query:
    return Segments(graph) if graph.shape.kind == "segments" else rows_of(graph)


# -- the page --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Options:
    """Limits on what is drawn."""

    entities: int
    rows: int

    def __post_init__(self) -> None:
        in_range(self, "entities", 1, 20)
        in_range(self, "rows", 1, 10_000)


def _check(query_graph: Graph) -> None:
    """Refuse segments that are not of one entity each, of a batch DataFrame."""
    if query_graph.is_streaming:
        msg = "a stream is drawn by its run: query.start(…).report(path)"
        raise NotSupportedError(msg)
    if any(map(graph.is_crossing, graph.parts(query_graph.node))):
        msg = (
            "report draws single entities, and these results are of several: report the segments "
            "that they are made of, or persist() them to draw the segments alone"
        )
        raise NotSupportedError(msg)


def _sketch(sources: Sequence[Source], plan: StreamPlan, how: _Options) -> Sketch:
    """Return what is drawn: a job for the entities, and one for each table."""
    code = f"xxhash64({', '.join(map(quoted, plan.keys))})" if plan.keys else "0L"
    first = sources[0].df.selectExpr(f"{code} AS {CODE}").distinct().orderBy(CODE)
    few = [row[0] for row in first.limit(how.entities).collect()]
    if not few:
        return Sketch()
    condition = f"{code} IN ({', '.join(f'{entity}L' for entity in few)})"
    taken = [source.where(condition) for source in sources]
    rows = {
        number: _newest(df, code, time, how.rows)
        for number, source in enumerate(taken)
        for df, time in _rows_of(source, condition)
    }
    instants = [micros_of(table.column(plan.row_times[number])) for number, table in rows.items()]
    since = min((int(micros.min()) for micros in instants if len(micros)), default=None)
    most = MOST_TIMES * how.rows
    segments = {
        number: _newest(_behind(source.segments, "hi", since), code, "lo", most)
        for number, source in enumerate(taken)
    }
    if isinstance(plan.node, graph.Input):
        return Sketch(rows, segments)
    results, (begins, ends) = as_modelled(taken, plan.node), BOUNDS[plan.node.shape.kind]
    return Sketch(rows, segments, _newest(_behind(results, ends, since), code, begins, most))


def _rows_of(source: Source, condition: str) -> Iterator[tuple[DataFrame, str]]:
    """Yield the rows that segments stand for with their column of time, if they are known."""
    if source.maker is not None:
        yield rows_to_fit(source.df, source.maker), source.maker.time
    elif source.raw is not None and TIME not in source.shape.keys:
        columns = source.raw.columns
        values = [
            f"{columns.get(name, f'CAST({quoted(name)} AS DOUBLE)')} AS {quoted(name)}"
            for name in source.shape.attributes
        ]
        keys = [*map(quoted, source.shape.keys), f"{quoted(source.raw.time)} AS {TIME}"]
        yield (
            source.raw.df.where(condition).selectExpr(*keys, *values).where("time IS NOT NULL"),
            TIME,
        )


def _behind(df: DataFrame, time: str, since: int | None) -> DataFrame:
    """Return what is not over before an instant (µs)."""
    return df if since is None else df.where(micros_column(df, time, "segments") >= since)


def _newest(df: DataFrame, code: str, time: str, n: int) -> pa.Table:
    """Return the last rows of each entity, with ``CODE``."""
    order = Window.partitionBy(CODE).orderBy(F.col(quoted(time)).desc())
    coded = df.selectExpr("*", f"{code} AS {CODE}").withColumn(_RANK, F.row_number().over(order))
    return coded.where(f"{_RANK} <= {n}").drop(_RANK).orderBy(CODE, quoted(time)).toArrow()
