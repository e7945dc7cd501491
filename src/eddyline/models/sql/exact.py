"""``EXACT``: queries of models with the answer of their rows.

Models that would have to be fitted first save nothing: such a query asks the rows alone. It is the
same query without MODEL, and each of its rows passes or not as in any filter: NULL, NaN, ties and
rows of one instant are what they are in SQL, and plans are learned.

If segments were stored, they say which rows can be skipped. The same holds inside UNION ALL and
subqueries in FROM. The enclosing query always sees rows.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.models.fitting.declared import read_equations
from eddyline.models.solving.earth import coordinates
from eddyline.models.sql.reader import Sources
from eddyline.models.sql.scope import Made
from eddyline.query.select.from_clause import windows_behind
from eddyline.query.select.groups import aggregation_of, over_of
from eddyline.query.select.model_clause import EXACT, OUTPUTS, TRACK, models_behind
from eddyline.query.select.statement import selects_beside_models
from eddyline.sql.parsing import offset_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.select.model_clause import Outputs
    from eddyline.query.select.statement import Statement

_STREAM = "make a stream of these rows (CREATE STREAM x AS SELECT … MODEL … EXACT), and"
_COMPUTED = {
    "SAMPLE": "values at ticks are between rows",
    "CHANGES": "ranges begin and end between rows",
    "WITHIN": "the values of rows have no error",
    "PRECISION": "the values of rows have no error",
}
"""Why rows alone do not answer what else may be said of results."""


@dataclass(frozen=True)
class ExactPart:
    """What a SELECT with EXACT says of models."""

    made: Made
    """What rows would become."""
    conditions: tuple[str, ...]
    """What stands between the ANDs of WHERE, without what the source is called."""


@dataclass(frozen=True)
class ExactQuery:
    """A query of the rows that models would stand for."""

    text: str
    """The query with blanks for what it says of models, so that all else keeps its place."""
    parts: tuple[ExactPart, ...]
    """Its SELECTs with EXACT: it, parts of UNION ALL, subqueries in FROM."""


def read_exact(
    selects: Sequence[Statement],
    columns: Mapping[str, Sequence[str]],
    times: Mapping[str, str | None],
    aggregates: Collection[str],
) -> ExactQuery | None:
    """Return a query with EXACT as one over rows; None if it does not say EXACT.

    Args:
        selects: of the query.
        columns: of each stream and table, by its name.
        times: the event time of each that has one.
        aggregates: names of aggregate functions, in lower case.

    Raises:
        QueryError: what it says of models cannot be meant; the message shows where.
        NotSupportedError: rows alone do not answer it; the message shows where.

    Example:
        >>> from eddyline.query.select.statement import Statement
        >>> columns = {"s": ["ship", "ts", "x"]}
        >>> text = "SELECT ship, x FROM s MODEL x WITHIN 5 BY ship WHERE x > 3 EXACT"
        >>> read_exact(Statement.read_all(text), columns, {"s": "ts"}, ()).text.split()
        ['SELECT', 'ship,', 'x', 'FROM', 's', 'WHERE', 'x', '>', '3']
    """
    text, statements = selects[0].text, [*_every(selects)]
    all_outputs = [_exact_outputs(select) for select in statements]
    if not any(all_outputs):
        return None
    parts, spans = [], []
    for statement, outputs in zip(statements, all_outputs, strict=True):
        if outputs is None:
            _check_has_rows(statement)
            continue
        source = _checked(statement, outputs, aggregates)
        sources = Sources(text, columns, times)
        sources.are_bounded = True  # rows are asked, however near models would have to be
        model = sources.made(statement, source).node
        assert isinstance(model, Made)
        _check_of_rows(model, statement)
        if model.track:
            _check_no_position(statement, model, columns[model.stream])
        parts.append(ExactPart(model, tuple(_conditions(statement, model))))
        (clause,) = models_behind(source)
        word = outputs.places[EXACT]
        spans += [(clause.start, clause.end), (word, word + len(EXACT))]
    _check_kept_once(parts, statements)
    return ExactQuery(_blank(text, *spans), tuple(parts))


def _every(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield statements, and those of their subqueries in FROM behind each."""
    for statement in statements:
        yield statement
        for source, _ in statement.sources:
            yield from _every(selects_beside_models(statement.of_source(source)))


def _exact_outputs(statement: Statement) -> Outputs | None:
    """Return what a SELECT says of its results if it says EXACT."""
    outputs: Outputs | None = statement.tree.meta.get(OUTPUTS)
    return outputs if outputs is not None and outputs.is_exact else None


def _check_has_rows(statement: Statement) -> None:
    """Refuse models in a SELECT without EXACT, where others have it."""
    for source, _ in statement.sources:
        for clause in models_behind(source):
            message = (
                "other SELECTs of this query say EXACT and return rows, and this one has results "
                "of models; write EXACT behind it, too, or a query of its own"
            )
            statement.refuse(message, clause.start)


def _check_kept_once(parts: Sequence[ExactPart], statements: Sequence[Statement]) -> None:
    """Refuse segments that are kept and asked twice: other rows are left for each of them."""
    tables = [table for statement in statements for table, _ in statement.sources]
    names = Counter(table.name.lower() for table in tables if isinstance(table, exp.Table))
    for part in parts:
        if part.made.read and names[part.made.stream.lower()] > 1:
            message = (
                f"the segments {part.made.stream!r} are named twice in a query with EXACT; name "
                "their rows in one of its parts, or write two queries"
            )
            statements[0].refuse(message, part.made.start)


def _checked(statement: Statement, outputs: Outputs, aggregates: Collection[str]) -> Expr:
    """Return the source of a SELECT that rows answer one by one."""
    for word, why in _COMPUTED.items():
        if word in outputs.places:
            message = f"EXACT returns rows, and {why}; leave out {word}, or EXACT"
            statement.refuse(message, outputs.places[word])
    (source, _), *joined = statement.sources
    inner = selects_beside_models(statement.of_source(source))
    has_models = any(models_behind(expression) for expression, _ in statement.sources)
    if not has_models and (not inner or all(map(_exact_outputs, inner))):
        message = (
            "EXACT is said of models, FROM s MODEL x WITHIN 0.5; this SELECT has none and returns "
            "rows, so leave EXACT out"
        )
        statement.refuse(message, outputs.places[EXACT])
    if joined:
        message = (
            "EXACT is of rows of one stream or table: a join of models pairs instants at which "
            f"there may be no rows; {_STREAM} join that"
        )
        statement.refuse(message, offset_of(joined[0][0]))
    if inner:
        message = "EXACT is of rows of a stream or table, and a subquery has results of models"
        statement.refuse(f"{message}; write it behind the SELECT with MODEL", inner[0].own[0].start)
    if windows_behind(statement, source, source.alias_or_name):
        message = f"EXACT returns rows one by one, without a window; {_STREAM} give that a window"
        statement.refuse(message, Sources.window_at(statement, source))
    _check_row_wise(statement, aggregates)
    return source


def _conditions(statement: Statement, model: Made) -> Iterator[str]:
    where = statement.tree.args.get("where")
    qualifiers = {model.name.lower(), model.stream.lower()}
    for part in [] if where is None else statement.conjuncts(where.this):
        named = (column.parts for column in part.columns)
        yield part.rewritten(
            (parts[0].meta["start"], parts[1].meta["start"], "")
            for parts in named
            if len(parts) > 1 and parts[0].name.lower() in qualifiers
        )


def _check_row_wise(statement: Statement, aggregates: Collection[str]) -> None:
    """Refuse what is computed of several rows, and slopes."""
    aggregation = aggregation_of(statement, aggregates) or over_of(statement)
    if aggregation is not None:
        message = (
            f"{aggregation.said} of models is over time and of rows over their number, so that "
            f"EXACT could mean either; {_STREAM} aggregate that"
        )
        statement.refuse(message, aggregation.start)
    if statement.emits is not None:
        message = f"{statement.emits.upper()} is of joins and aggregates over rows"
        statement.refuse(message, statement.emits_at)
    for call in _asked(statement, exp.Anonymous):
        if str(call.this).lower() == "d":
            message = "EXACT: d(…) is the slope of a model, and rows have none"
            statement.refuse(message, offset_of(call))


def _check_no_position(statement: Statement, model: Made, columns: Sequence[str]) -> None:
    """Refuse a position: rows have only its latitude and longitude."""
    column_names = {column.lower() for column in columns}
    names = {TRACK, *coordinates(TRACK)} - column_names
    for node in _asked(statement, exp.Column):
        if node.name.lower() in names:
            lat, lon = model.track
            message = (
                f"EXACT: rows have no {node.name!r}, which is a position in metres; use their "
                f"columns {lat} and {lon}, such as {lat} > 47 AND {lon} < -122"
            )
            statement.refuse(message, offset_of(node))


def _asked(statement: Statement, kind: type[Expr]) -> Iterator[Expr]:
    """Yield the nodes of a kind in the output columns and in WHERE."""
    where = statement.tree.args.get("where")
    trees = [
        *(column.tree for column in statement.output_columns),
        *([where.this] if where else []),
    ]
    for tree in trees:
        yield from tree.find_all(kind)


def _check_of_rows(model: Made, statement: Statement) -> None:
    """Refuse segments without known rows, and attributes that are no columns of rows."""
    if model.read and not model.rows:
        message = (
            "EXACT: it is not known which rows these segments stand for; say their table: MODEL "
            "SEGMENTS OF tracks AT ts"
        )
        statement.refuse(message, model.start)
    for name, equation in read_equations(dict(model.equations)).items() if model.equations else ():
        if (equation.column or "").lower() != name.lower():
            message = (
                f"EXACT: rows have no {name!r}, which is computed of them; declare a column, such "
                "as x = x + vx * t"
            )
            statement.refuse(message, model.places.get(name, model.start))


def _blank(text: str, *spans: tuple[int, int]) -> str:
    """Return a text with blanks in spans; lines stay."""
    for start, end in spans:
        text = text[:start] + re.sub(r"\S", " ", text[start:end]) + text[end:]
    return text
