"""``MODEL`` in SQL on Spark: recipes as steps.

Steps read streams, or rows of tables.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import timedelta
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eddyline.errors import EddylineError, NotSupportedError, OptionError, QueryError
from eddyline.models.solving.earth import TRACK
from eddyline.models.solving.text import has_root
from eddyline.models.sql.reader import read_model_query
from eddyline.models.sql.scope import Call, Made, made_in
from eddyline.options import FilterOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.select.statement import identifier
from eddyline.query.steps import RESULT, FilterStep, ProjectStep, ReadStep, inlined
from eddyline.spark.analysis import column_types, refused, unlogged
from eddyline.spark.filters.conjunction import all_of
from eddyline.spark.models.fitting import declare, fit, read
from eddyline.spark.models.frame import Segments
from eddyline.spark.relation import Relation
from eddyline.sql.parsing import at, on_one_line, place, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eddyline.models.sql.exact import ExactPart, ExactQuery
    from eddyline.models.sql.scope import ModelQuery, Node
    from eddyline.query.predicates import Predicate
    from eddyline.query.select.statement import Statement
    from eddyline.query.steps import Step
    from eddyline.spark.query import Catalog, Query


def model_steps(
    selects: Sequence[Statement], known: Catalog, options: Mapping[str, Any]
) -> tuple[str, list[Step], dict[str, Relation]]:
    """Return what a query of models does.

    Args:
        selects: of the query.
        known: streams, tables and functions by name.
        options: of the query, for predicates on rows of tables.

    Returns:
        The name of its first stream or table, its steps, and the relations that they read: over
        tables, what models give is one, computed when it is read.

    Raises:
        QueryError: it cannot be understood; the message shows where.
        NotSupportedError: it asks for what models do not answer, of streams or at all.
        OptionError: a bound or an option that is none, or a stream's models without MAX GAP.
    """
    return _Planned(selects, known, options).steps()


def rows_of_models(
    selects: Sequence[Statement], known: Catalog, asked: ExactQuery
) -> dict[str, Relation]:
    """Return the rows that segments that are kept leave for a query with EXACT, by their table.

    Where they leave it open whether its conditions hold, a job is run to find out, see
    ``Segments.exact``. Other models are checked, and none are made.

    Raises:
        EddylineError: as of ``model_steps``.
    """
    planned = _Planned(selects, known, {})
    found = {each.made.stream: planned.rows_of(each) for each in asked.parts}
    return {name: rows for name, rows in found.items() if rows is not None}


JOINED = "__joined"
"""The column that says whether a row is joined with a row of each table; also with a number: of
one."""


class _Planned:
    def __init__(
        self, selects: Sequence[Statement], known: Catalog, options: Mapping[str, Any]
    ) -> None:
        self._selects, self._known, self._options = selects, known, options
        self._text = selects[0].text
        self._sources: list[tuple[Made, Segments, DataFrame]] = []
        """What segments are made of, the segments, and the rows."""
        self._joined: dict[Made, Relation] = {}
        self._is_early = False
        """Whether results are asked for before they are final; of ``EXACT``, never."""

    @cached_property
    def _query(self) -> ModelQuery:
        known = self._known
        columns = {name: column_types(each.df) for name, each in known.relations.items()}
        columns |= {name: made.columns for name, made in known.results.items()}
        names = {name: list(each) for name, each in columns.items()}
        return read_model_query(self._selects, names, known.times, known.functions)

    def steps(self) -> tuple[str, list[Step], dict[str, Relation]]:
        """Return the stem of the query's name, its steps, and the relations that they read."""
        mades = [*made_in(self._query.node)]
        streams = [each for each in mades if self._is_stream(each.stream)]
        stem = (streams or mades)[0].stream
        early = self._query.early_at
        self._is_early = early is not None
        if streams:
            self._check_streams(streams)
            found, own = self._of_streams(stem)
            return stem, [*found, *self._after(stem)], own
        if early is not None:
            message = "EARLY is of streams; of tables all results are final: leave it out"
            raise self._at(OptionError(message), early)
        plain = on_one_line(self._text).encode()
        name = f"models of {stem} {hashlib.blake2b(plain, digest_size=3).hexdigest()}"
        found = self._built(self._query.node)
        with self._placed(self._query.node.start):
            rows = found.to_df() if isinstance(found, Segments) else found
        first = ReadStep(name, _models_of(stem))
        return stem, [first, *self._after(stem)], {name: Relation(rows)}

    def _after(self, stem: str) -> list[Step]:
        """Return what is done with the rows of results."""
        name, query = _models_of(stem), self._query
        kept = [FilterStep(name, tuple(map(SqlPredicate, query.having)))] if query.having else []
        return [*kept, ProjectStep(name, query.projections, RESULT)]

    def rows_of(self, asked: ExactPart) -> Relation | None:
        """Return the rows that kept segments leave for conditions; None if there are none."""
        made = asked.made
        if made.read:
            self._check_kept(made)
        segments = self.source(made)
        if not made.read:
            return None
        for each in asked.conditions:
            # Others are asked of the rows that are left, as these are, too.
            with suppress(QueryError):
                segments = segments if has_root(each) else segments.where(each)
        result = self._known.results.get(made.rows)
        rows = self._known.relations[made.rows].df if result is None else result.to_df()
        with self._placed(made.start):
            found = segments.exact(rows, time=made.time)
        assert isinstance(found, DataFrame)
        return Relation(found)

    def _check_kept(self, made: Made) -> None:
        for name in (made.stream, made.rows):
            if self._is_stream(name):
                message = (
                    f"MODEL SEGMENTS OF reads segments and their rows from tables; {name!r} is a "
                    "stream"
                )
                raise self._at(NotSupportedError(message), made.start)

    # -- streams ----------------------------------------------------------------------------------

    def _relation(self, made: Made) -> Relation:
        """Return the stream or table of a source, with what is joined to its rows."""
        relation = self._known.relations[made.stream]
        if not made.tables:
            return relation
        if made not in self._joined:
            self._joined[made] = replace(relation, df=self._with_tables(made, relation.df))
        return self._joined[made]

    def _with_tables(self, made: Made, rows: DataFrame) -> DataFrame:
        """Return rows with the columns of tables that are joined to them.

        All rows stay, as they tell the time; ``JOINED`` says which have a row of each table.
        """
        found = rows.alias(made.name)
        columns, flags = [f"{quoted(made.name)}.*"], []
        for number, each in enumerate(made.tables):
            if self._is_stream(each.table):
                message = (
                    f"{each.table!r} is a stream without MODEL; a model is joined with another "
                    "model, or with a table"
                )
                raise self._at(NotSupportedError(message), each.start)
            relation = self._known.relations.get(each.table)
            if rows.isStreaming and relation is not None and relation.refresh is not None:
                message = (
                    f"table {each.table!r} is refreshed, and a model is joined with a table that "
                    "does not change; leave out refresh=…"
                )
                raise self._at(NotSupportedError(message), each.start)
            result = self._known.results.get(each.table)
            table = self._known.relations[each.table].df if result is None else result.to_df()
            flag = f"{JOINED}{number}"
            right = table.withColumn(flag, F.lit(True)).alias(each.name)
            asked = " AND ".join(f"({text})" for text in each.conditions) or "true"
            try:
                with unlogged():
                    found = found.join(right, F.expr(asked), "left")
            except AnalysisException as error:
                named = self._at(refused(f"the join with {each.name}", error), each.start)
                raise named from error
            name = quoted(each.name)
            columns += [f"{name}.{quoted(own)} AS {quoted(key)}" for own, key in each.columns]
            flags.append(f"{quoted(flag)} IS NOT NULL")
        return found.selectExpr(*columns, f"{' AND '.join(flags)} AS {JOINED}")

    def _is_stream(self, name: str) -> bool:
        made = self._known.results.get(name)
        return name in self._known.streams if made is None else bool(made.streams)

    def _check_streams(self, mades: Sequence[Made]) -> None:
        """Refuse segments of streams, and fits without what a gap is."""
        for each in mades:
            if each.read and self._known.times.get(each.stream) != "lo":
                message = (
                    f"segments of the stream {each.stream!r} are ordered by lo: engine.stream("
                    f"{each.stream!r}, …, time='lo')"
                )
                raise self._at(QueryError(message), each.start)
            if each.bounds and each.max_gap_us is None:
                message = (
                    "models of a stream need MAX GAP, such as MAX GAP 10 MINUTES: after so long "
                    "without a row the last segment of an entity is over"
                )
                raise self._at(OptionError(message), each.start)

    def _of_streams(self, stem: str) -> tuple[list[Step], dict[str, Relation]]:
        """Return the steps that make the rows of results of streams, and what they read."""
        found = self._built(self._query.node)
        first = next(made for made, _, _ in self._sources if self._is_stream(made.stream))
        with self._placed(first.start, first.places):
            query = found.query() if isinstance(found, Segments) else found
        mades = {id(rows): made for made, _, rows in self._sources}
        names: dict[str, str] = {}
        steps: list[Step] = []
        own: dict[str, Relation] = {}
        for old, relation in query.relations.items():
            # What is asked of keys is a step that leaves rows out; these here are for analysis.
            made = mades.get(id(relation.df))
            assert made is not None or not relation.df.isStreaming
            wanted = old if made is None else identifier(made.name)
            names[old] = name = _not_in(names.values(), wanted)
            inner: list[Step] = [ReadStep(old, name)]
            reads: Mapping[str, Relation] = {old: relation}
            if made is not None:
                result = self._known.results.get(made.stream)
                inner = [ReadStep(made.stream, name)]
                reads = {made.stream: self._relation(made)} if result is None else result.relations
                inner = inner if result is None else inlined(result.steps, name)
            renamed = {
                each: each if own.get(each, other) is other else _not_in(own, each)
                for each, other in reads.items()
            }
            own |= {renamed[each]: other for each, other in reads.items()}
            steps += [
                replace(each, stream=renamed[each.stream]) if isinstance(each, ReadStep) else each
                for each in inner
            ]
            predicates = [] if made is None else self._predicates(made)
            steps += [FilterStep(name, tuple(predicates))] if predicates else []
        out = {RESULT: _models_of(stem)}
        steps += (
            each.renamed(lambda old: out.get(old) or names.get(old, old))
            for each in query.steps
            if not isinstance(each, ReadStep)
        )
        return steps, own

    # -- segments ---------------------------------------------------------------------------------

    def _built(self, node: Node) -> Any:
        """Return segments, or rows, by the calls of a recipe."""
        if isinstance(node, Made):
            return self.source(node)
        arguments = [self._value(each) for each in node.arguments]
        named = {name: self._value(each) for name, each in node.named.items()}
        of = self._built(node.of)
        with self._placed(node.start):
            return _called(of, node, arguments, named)

    def _value(self, given: Any) -> Any:
        return self._built(given) if isinstance(given, Made | Call) else given

    def source(self, made: Made) -> Segments:
        """Return the segments of a source; of equal ones, the same."""
        for each, known, _ in self._sources:
            if each == made:
                return known
        rows = self._rows(made)
        with self._placed(made.start, made.places):
            segments = self._made(made, rows)
        self._sources.append((made, segments, rows))
        return segments

    def _rows(self, made: Made) -> DataFrame:
        """Return the rows of a source; those of a stream for analysis only."""
        result, predicates = self._known.results.get(made.stream), self._predicates(made)
        if result is not None and made.tables:
            message = (
                f"{made.stream!r} has the results of a query; a table is joined to a stream "
                "itself, before its rows are modelled: join it in that query"
            )
            raise self._at(NotSupportedError(message), made.tables[0].start)
        if self._is_stream(made.stream):
            if result is None:
                # Of two conditions on the rows of one stream there are two inputs.
                return self._relation(made).df.select("*")
            return _as_stream(result)
        df = self._relation(made).df if result is None else result.to_df()
        known = {each.name for each in fields(FilterOptions)}
        own = {name: each for name, each in self._options.items() if name in known}
        return df.transform(all_of(*predicates, **own)) if predicates else df

    @staticmethod
    def _predicates(made: Made) -> list[Predicate]:
        """Return what rows have to fulfil before they become segments."""
        joined = [SqlPredicate(JOINED)] if made.tables else []
        return [*joined, *made.predicates]

    def _made(self, made: Made, rows: DataFrame) -> Segments:
        results = "early" if rows.isStreaming and self._is_early else "final"
        if made.read:
            return read(rows, results=results)
        if made.equations:
            given = made.horizon_us
            horizon = None if given is None else timedelta(microseconds=given)
            model = dict(made.equations)
            return declare(
                rows,
                key=made.keys,
                time=made.time,
                model=model,
                horizon=horizon,
                within=dict(made.near) or None,
                results=results,
            )
        gap = None if made.max_gap_us is None else timedelta(microseconds=made.max_gap_us)
        within = {name: bound for name, bound in made.bounds if bound}
        others = [name for name, bound in made.bounds if not bound]
        if made.track:
            others = [name for name in others if name != TRACK]
        return fit(
            rows,
            key=made.keys,
            time=made.time,
            track=made.track or None,
            within=within or None,
            attributes=others,
            max_gap=gap,
            results=results,
            **dict(made.options),
        )

    @contextmanager
    def _placed(self, start: int, places: Mapping[str, int] | None = None) -> Iterator[None]:
        """Let errors show the place in the query that they are about."""
        try:
            yield
        except EddylineError as error:
            named = str(error.facts.get("attribute", error.facts.get("name", "")))
            raise self._at(error, (places or {}).get(named, start)) from error

    def _at(self, error: EddylineError, start: int) -> EddylineError:
        message = error.message.split(" (line ")[0]
        facts = {**error.facts, **place(self._text, start)}
        return type(error)(at(message, self._text, start), **facts)


def _called(of: Any, node: Call, arguments: list[Any], named: dict[str, Any]) -> Any:
    if not isinstance(of, Segments):
        msg = f"{node.method} needs segments, and these are rows"
        raise NotSupportedError(msg)
    if node.method == "select":  # its names may be those of arguments
        return of.select(*arguments, **named)
    return getattr(of, node.method)(*arguments, **named)


def _not_in(taken: Iterable[str], name: str) -> str:
    """Return a name, with a number if it is taken."""
    names = (name if n == 1 else f"{name} {n}" for n in count(1))
    known = {*taken}
    return next(each for each in names if each not in known)


def _models_of(stream: str) -> str:
    return f"models of {stream}"


def _as_stream(result: Query) -> DataFrame:
    """Return a stream with the columns of a query's results, for analysis."""
    if result.shape.isStreaming:
        return result.shape
    source = next(each.df for each in result.relations.values() if each.df.isStreaming)
    nothing = [
        F.lit(None).cast(each.dataType).alias(each.name) for each in result.shape.schema.fields
    ]
    return source.select(*nothing)
