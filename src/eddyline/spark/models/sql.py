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
    selects: Sequence[Statement], catalog: Catalog, options: Mapping[str, Any]
) -> tuple[str, list[Step], dict[str, Relation]]:
    """Return what a query of models does.

    Args:
        selects: of the query.
        catalog: streams, tables and functions by name.
        options: of the query, for predicates on rows of tables.

    Returns:
        The name of its first stream or table, its steps, and the relations that they read: over
        tables, what models give is one, computed when it is read.

    Raises:
        QueryError: it cannot be understood; the message shows where.
        NotSupportedError: it asks for what models do not answer, of streams or at all.
        OptionError: a bound or an option that is none, or a stream's models without MAX GAP.
    """
    return _Planned(selects, catalog, options).steps()


def rows_of_models(
    selects: Sequence[Statement], catalog: Catalog, asked: ExactQuery
) -> dict[str, Relation]:
    """Return the rows that segments that are kept leave for a query with EXACT, by their table.

    Where they leave it open whether its conditions hold, a job is run to find out, see
    ``Segments.exact``. Other models are checked, and none are made.

    Raises:
        EddylineError: as of ``model_steps``.
    """
    planned = _Planned(selects, catalog, {})
    by_table = {part.made.stream: planned.rows_of(part) for part in asked.parts}
    return {name: rows for name, rows in by_table.items() if rows is not None}


JOINED = "__joined"
"""The column that says whether a row is joined with a row of each table; also with a number: of
one."""


class _Planned:
    def __init__(
        self, selects: Sequence[Statement], catalog: Catalog, options: Mapping[str, Any]
    ) -> None:
        self._selects, self._known, self._options = selects, catalog, options
        self._text = selects[0].text
        self._sources: list[tuple[Made, Segments, DataFrame]] = []
        """What segments are made of, the segments, and the rows."""
        self._joined: dict[Made, Relation] = {}
        self._is_early = False
        """Whether results are asked for before they are final; of ``EXACT``, never."""

    @cached_property
    def _query(self) -> ModelQuery:
        catalog = self._known
        columns = {name: column_types(relation.df) for name, relation in catalog.relations.items()}
        columns |= {name: result.columns for name, result in catalog.results.items()}
        names = {name: list(types) for name, types in columns.items()}
        return read_model_query(self._selects, names, catalog.times, catalog.functions)

    def steps(self) -> tuple[str, list[Step], dict[str, Relation]]:
        """Return the stem of the query's name, its steps, and the relations that they read."""
        mades = [*made_in(self._query.node)]
        streams = [model for model in mades if self._is_stream(model.stream)]
        stem = (streams or mades)[0].stream
        early = self._query.early_at
        self._is_early = early is not None
        if streams:
            self._check_streams(streams)
            steps, relations = self._of_streams(stem)
            return stem, [*steps, *self._after(stem)], relations
        if early is not None:
            message = "EARLY is of streams; of tables all results are final: leave it out"
            raise self._at(OptionError(message), early)
        plain = on_one_line(self._text).encode()
        name = f"models of {stem} {hashlib.blake2b(plain, digest_size=3).hexdigest()}"
        built = self._built(self._query.node)
        with self._placed(self._query.node.start):
            rows = built.to_df() if isinstance(built, Segments) else built
        first = ReadStep(name, _models_of(stem))
        return stem, [first, *self._after(stem)], {name: Relation(rows)}

    def _after(self, stem: str) -> list[Step]:
        """Return what is done with the rows of results."""
        name, query = _models_of(stem), self._query
        kept = [FilterStep(name, tuple(map(SqlPredicate, query.having)))] if query.having else []
        return [*kept, ProjectStep(name, query.projections, RESULT)]

    def rows_of(self, asked: ExactPart) -> Relation | None:
        """Return the rows that kept segments leave for conditions; None if there are none."""
        model = asked.made
        if model.read:
            self._check_kept(model)
        segments = self.source(model)
        if not model.read:
            return None
        for condition in asked.conditions:
            # Others are asked of the rows that are left, as these are, too.
            with suppress(QueryError):
                segments = segments if has_root(condition) else segments.where(condition)
        result = self._known.results.get(model.rows)
        rows = self._known.relations[model.rows].df if result is None else result.to_df()
        with self._placed(model.start):
            exact_rows = segments.exact(rows, time=model.time)
        assert isinstance(exact_rows, DataFrame)
        return Relation(exact_rows)

    def _check_kept(self, model: Made) -> None:
        for name in (model.stream, model.rows):
            if self._is_stream(name):
                message = (
                    f"MODEL SEGMENTS OF reads segments and their rows from tables; {name!r} is a "
                    "stream"
                )
                raise self._at(NotSupportedError(message), model.start)

    # -- streams ----------------------------------------------------------------------------------

    def _relation(self, model: Made) -> Relation:
        """Return the stream or table of a source, with what is joined to its rows."""
        relation = self._known.relations[model.stream]
        if not model.tables:
            return relation
        if model not in self._joined:
            self._joined[model] = replace(relation, df=self._with_tables(model, relation.df))
        return self._joined[model]

    def _with_tables(self, model: Made, rows: DataFrame) -> DataFrame:
        """Return rows with the columns of tables that are joined to them.

        All rows stay, as they tell the time; ``JOINED`` says which have a row of each table.
        """
        joined = rows.alias(model.name)
        columns, flags = [f"{quoted(model.name)}.*"], []
        for number, joined_table in enumerate(model.tables):
            if self._is_stream(joined_table.table):
                message = (
                    f"{joined_table.table!r} is a stream without MODEL; a model is joined with "
                    "another model, or with a table"
                )
                raise self._at(NotSupportedError(message), joined_table.start)
            relation = self._known.relations.get(joined_table.table)
            if rows.isStreaming and relation is not None and relation.refresh is not None:
                message = (
                    f"table {joined_table.table!r} is refreshed, and a model is joined with a "
                    "table that does not change; leave out refresh=…"
                )
                raise self._at(NotSupportedError(message), joined_table.start)
            result = self._known.results.get(joined_table.table)
            table = (
                self._known.relations[joined_table.table].df if result is None else result.to_df()
            )
            flag = f"{JOINED}{number}"
            right = table.withColumn(flag, F.lit(True)).alias(joined_table.name)
            asked = " AND ".join(f"({text})" for text in joined_table.conditions) or "true"
            try:
                with unlogged():
                    joined = joined.join(right, F.expr(asked), "left")
            except AnalysisException as error:
                named = self._at(
                    refused(f"the join with {joined_table.name}", error), joined_table.start
                )
                raise named from error
            name = quoted(joined_table.name)
            columns += [
                f"{name}.{quoted(column)} AS {quoted(key)}" for column, key in joined_table.columns
            ]
            flags.append(f"{quoted(flag)} IS NOT NULL")
        return joined.selectExpr(*columns, f"{' AND '.join(flags)} AS {JOINED}")

    def _is_stream(self, name: str) -> bool:
        result = self._known.results.get(name)
        return name in self._known.streams if result is None else bool(result.streams)

    def _check_streams(self, mades: Sequence[Made]) -> None:
        """Refuse segments of streams, and fits without what a gap is."""
        for model in mades:
            if model.read and self._known.times.get(model.stream) != "lo":
                message = (
                    f"segments of the stream {model.stream!r} are ordered by lo: engine.stream("
                    f"{model.stream!r}, …, time='lo')"
                )
                raise self._at(QueryError(message), model.start)
            if model.bounds and model.max_gap_us is None:
                message = (
                    "models of a stream need MAX GAP, such as MAX GAP 10 MINUTES: after so long "
                    "without a row the last segment of an entity is over"
                )
                raise self._at(OptionError(message), model.start)

    def _of_streams(self, stem: str) -> tuple[list[Step], dict[str, Relation]]:
        """Return the steps that make the rows of results of streams, and what they read."""
        built = self._built(self._query.node)
        first = next(model for model, _, _ in self._sources if self._is_stream(model.stream))
        with self._placed(first.start, first.places):
            query = built.query() if isinstance(built, Segments) else built
        mades = {id(rows): model for model, _, rows in self._sources}
        names: dict[str, str] = {}
        steps: list[Step] = []
        relations: dict[str, Relation] = {}
        for old, relation in query.relations.items():
            # What is asked of keys is a step that leaves rows out; these here are for analysis.
            model = mades.get(id(relation.df))
            assert model is not None or not relation.df.isStreaming
            wanted = old if model is None else identifier(model.name)
            names[old] = name = _not_in(names.values(), wanted)
            inner: list[Step] = [ReadStep(old, name)]
            reads: Mapping[str, Relation] = {old: relation}
            if model is not None:
                result = self._known.results.get(model.stream)
                inner = [ReadStep(model.stream, name)]
                reads = (
                    {model.stream: self._relation(model)} if result is None else result.relations
                )
                inner = inner if result is None else inlined(result.steps, name)
            renamed = {
                stream: stream
                if relations.get(stream, other) is other
                else _not_in(relations, stream)
                for stream, other in reads.items()
            }
            relations |= {renamed[stream]: other for stream, other in reads.items()}
            steps += [
                replace(step, stream=renamed[step.stream]) if isinstance(step, ReadStep) else step
                for step in inner
            ]
            predicates = [] if model is None else self._predicates(model)
            steps += [FilterStep(name, tuple(predicates))] if predicates else []
        out = {RESULT: _models_of(stem)}
        steps += (
            step.renamed(lambda old: out.get(old) or names.get(old, old))
            for step in query.steps
            if not isinstance(step, ReadStep)
        )
        return steps, relations

    # -- segments ---------------------------------------------------------------------------------

    def _built(self, node: Node) -> Any:
        """Return segments, or rows, by the calls of a recipe."""
        if isinstance(node, Made):
            return self.source(node)
        arguments = [self._value(argument) for argument in node.arguments]
        named = {name: self._value(argument) for name, argument in node.named.items()}
        built = self._built(node.of)
        with self._placed(node.start):
            return _called(built, node, arguments, named)

    def _value(self, argument: Any) -> Any:
        return self._built(argument) if isinstance(argument, Made | Call) else argument

    def source(self, model: Made) -> Segments:
        """Return the segments of a source; of equal ones, the same."""
        for other, known_segments, _ in self._sources:
            if other == model:
                return known_segments
        rows = self._rows(model)
        with self._placed(model.start, model.places):
            segments = self._made(model, rows)
        self._sources.append((model, segments, rows))
        return segments

    def _rows(self, model: Made) -> DataFrame:
        """Return the rows of a source; those of a stream for analysis only."""
        result, predicates = self._known.results.get(model.stream), self._predicates(model)
        if result is not None and model.tables:
            message = (
                f"{model.stream!r} has the results of a query; a table is joined to a stream "
                "itself, before its rows are modelled: join it in that query"
            )
            raise self._at(NotSupportedError(message), model.tables[0].start)
        if self._is_stream(model.stream):
            if result is None:
                # Of two conditions on the rows of one stream there are two inputs.
                return self._relation(model).df.select("*")
            return _as_stream(result)
        df = self._relation(model).df if result is None else result.to_df()
        option_names = {field.name for field in fields(FilterOptions)}
        filter_options = {
            name: value for name, value in self._options.items() if name in option_names
        }
        return df.transform(all_of(*predicates, **filter_options)) if predicates else df

    @staticmethod
    def _predicates(model: Made) -> list[Predicate]:
        """Return what rows have to fulfil before they become segments."""
        joined = [SqlPredicate(JOINED)] if model.tables else []
        return [*joined, *model.predicates]

    def _made(self, model_source: Made, rows: DataFrame) -> Segments:
        results = "early" if rows.isStreaming and self._is_early else "final"
        if model_source.read:
            return read(rows, results=results)
        if model_source.equations:
            horizon_us = model_source.horizon_us
            horizon = None if horizon_us is None else timedelta(microseconds=horizon_us)
            model = dict(model_source.equations)
            return declare(
                rows,
                key=model_source.keys,
                time=model_source.time,
                model=model,
                horizon=horizon,
                within=dict(model_source.near) or None,
                results=results,
            )
        gap = (
            None
            if model_source.max_gap_us is None
            else timedelta(microseconds=model_source.max_gap_us)
        )
        within = {name: bound for name, bound in model_source.bounds if bound}
        others = [name for name, bound in model_source.bounds if not bound]
        if model_source.track:
            others = [name for name in others if name != TRACK]
        return fit(
            rows,
            key=model_source.keys,
            time=model_source.time,
            track=model_source.track or None,
            within=within or None,
            attributes=others,
            max_gap=gap,
            results=results,
            **dict(model_source.options),
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


def _called(segments: Any, node: Call, arguments: list[Any], named: dict[str, Any]) -> Any:
    if not isinstance(segments, Segments):
        msg = f"{node.method} needs segments, and these are rows"
        raise NotSupportedError(msg)
    if node.method == "select":  # its names may be those of arguments
        return segments.select(*arguments, **named)
    return getattr(segments, node.method)(*arguments, **named)


def _not_in(taken: Iterable[str], name: str) -> str:
    """Return a name, with a number if it is taken."""
    names = (name if n == 1 else f"{name} {n}" for n in count(1))
    taken_names = {*taken}
    return next(candidate for candidate in names if candidate not in taken_names)


def _models_of(stream: str) -> str:
    return f"models of {stream}"


def _as_stream(result: Query) -> DataFrame:
    """Return a stream with the columns of a query's results, for analysis."""
    if result.shape.isStreaming:
        return result.shape
    source = next(relation.df for relation in result.relations.values() if relation.df.isStreaming)
    nothing = [
        F.lit(None).cast(field.dataType).alias(field.name) for field in result.shape.schema.fields
    ]
    return source.select(*nothing)
