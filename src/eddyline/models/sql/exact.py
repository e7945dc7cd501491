"""EXACT: a query of models whose answer is that of its rows, as SQL says without models.

Of models that would have to be fitted first nothing is gained: rows alone are asked. So the query
is the same one without what it says of models, and each of its rows passes or not as in any filter:
NULL, NaN, ties and rows of one instant are what they are in SQL, and plans are learned. Segments
that are kept say of which rows that need not be asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.models.declared import read_equations
from eddyline.models.sql.recipe import Made
from eddyline.models.sql.sources import Sources
from eddyline.query.select.from_clause import windows_behind
from eddyline.query.select.groups import Aggregation, aggregation_of
from eddyline.query.select.model_clause import OUTPUTS, models_behind
from eddyline.query.select.over import over_of
from eddyline.query.select.statement import Statement
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.select.model_clause import Outputs

_STREAM = "make a stream of these rows (CREATE STREAM x AS SELECT … MODEL … EXACT), and"
_COMPUTED = {
    "SAMPLE": "values at ticks are between rows",
    "CHANGES": "ranges begin and end between rows",
    "WITHIN": "the values of rows have no error",
    "PRECISION": "the values of rows have no error",
}
"""Why rows alone do not answer what else may be said of results."""


@dataclass(frozen=True)
class ExactQuery:
    """A query of the rows that models would stand for."""

    text: str
    """The query with blanks for what it says of models, so that all else keeps its place."""
    made: Made
    """What it says of models."""
    conditions: tuple[str, ...]
    """What stands between the ANDs of WHERE, without what the source is called."""


def read_exact(
    text: str,
    columns: Mapping[str, Sequence[str]],
    times: Mapping[str, str | None],
    aggregates: Collection[str],
) -> ExactQuery | None:
    """Return a query with EXACT as one over rows; None if it does not say EXACT.

    Args:
        text: the query.
        columns: of each stream and table, by its name.
        times: the event time of each that has one.
        aggregates: names of aggregate functions, in lower case.

    Raises:
        QueryError: what it says of models cannot be meant; the message shows where.
        NotSupportedError: rows alone do not answer it; the message shows where.

    Example:
        >>> columns = {"s": ["ship", "ts", "x"]}
        >>> asked = "SELECT ship, x FROM s MODEL x WITHIN 5 BY ship WHERE x > 3 EXACT"
        >>> read_exact(asked, columns, {"s": "ts"}, ()).text.split()
        ['SELECT', 'ship,', 'x', 'FROM', 's', 'WHERE', 'x', '>', '3']
    """
    first, *others = Statement.read_all(text)
    statements = [first, *others]
    said = [each.tree.meta.get(OUTPUTS) for each in statements]
    outputs = next((each for each in said if each is not None and each.is_exact), None)
    if outputs is None:
        return None
    if others:
        message = "EXACT is of one SELECT; write a query for each part of UNION ALL"
        _refuse(message, text, others[0].own[0].start)
    source = _checked(first, outputs, aggregates)
    sources = Sources(text, columns, times)
    sources.are_bounded = True  # rows are asked, however near models would have to be
    made = sources.made(first, source).node
    assert isinstance(made, Made)
    _check_of_rows(made, text)
    (clause,) = models_behind(source)
    word = outputs.places["EXACT"]
    spans = (clause.start, clause.end), (word, word + len("EXACT"))
    return ExactQuery(_blank(text, *spans), made, tuple(_conditions(first, made)))


def _checked(statement: Statement, outputs: Outputs, aggregates: Collection[str]) -> Expr:
    """Return the source of a SELECT that rows answer one by one."""
    text = statement.text
    for word, why in _COMPUTED.items():
        if word in outputs.places:
            _refuse(f"EXACT returns rows, and {why}; leave out {word}, or EXACT", text,
                    outputs.places[word])  # fmt: skip
    (source, _), *joined = statement.sources
    if joined:
        message = (
            "EXACT is of rows of one stream or table: a join of models pairs instants at which "
            f"there may be no rows; {_STREAM} join that"
        )
        _refuse(message, text, offset_of(joined[0][0]))
    inner = statement.of_source(source)
    if inner:
        message = "EXACT is of rows of a stream or table, and a subquery has results of models"
        _refuse(f"{message}; write MODEL … EXACT over its source", text, inner[0].own[0].start)
    if windows_behind(statement, source, source.alias_or_name):
        message = f"EXACT returns rows one by one, without a window; {_STREAM} give that a window"
        _refuse(message, text, Sources.window_at(statement, source))
    _check_row_wise(statement, aggregates)
    return source


def _conditions(statement: Statement, made: Made) -> Iterator[str]:
    where = statement.tree.args.get("where")
    own = {made.name.lower(), made.stream.lower()}
    for part in [] if where is None else statement.conjuncts(where.this):
        named = (each.parts for each in part.columns)
        yield part.rewritten(
            (parts[0].meta["start"], parts[1].meta["start"], "")
            for parts in named
            if len(parts) > 1 and parts[0].name.lower() in own
        )


def _check_row_wise(statement: Statement, aggregates: Collection[str]) -> None:
    """Refuse what is computed of several rows, and slopes."""
    text, over = statement.text, over_of(statement)
    said = aggregation_of(statement, aggregates)
    if over is not None:
        said = said or Aggregation("OVER (…)", offset_of(over))
    if said is not None:
        message = (
            f"{said.said} of models is over time and of rows over their number, so that EXACT "
            f"could mean either; {_STREAM} aggregate that"
        )
        _refuse(message, text, said.start)
    if statement.emits is not None:
        message = f"{statement.emits.upper()} is of joins and aggregates over rows"
        _refuse(message, text, statement.emits_at)
    where = statement.tree.args.get("where")
    trees = [*(each.tree for each in statement.output_columns), *([where.this] if where else [])]
    for call in (each for tree in trees for each in tree.find_all(exp.Anonymous)):
        if str(call.this).lower() == "d":
            message = "EXACT: d(…) is the slope of a model, and rows have none"
            _refuse(message, text, offset_of(call))


def _check_of_rows(made: Made, text: str) -> None:
    """Refuse segments without known rows, and attributes that are no columns of rows."""
    if made.read and not made.rows:
        message = (
            "EXACT: it is not known which rows these segments stand for; say their table: MODEL "
            "SEGMENTS OF tracks AT ts"
        )
        _refuse(message, text, made.start)
    for name, equation in read_equations(dict(made.equations)).items() if made.equations else ():
        if (equation.column or "").lower() != name.lower():
            message = (
                f"EXACT: rows have no {name!r}, which is computed of them; declare a column, such "
                "as x = x + vx * t"
            )
            _refuse(message, text, made.places.get(name, made.start))


def _blank(text: str, *spans: tuple[int, int]) -> str:
    """Return a text with blanks in spans; lines stay."""
    for start, end in spans:
        text = text[:start] + re.sub(r"\S", " ", text[start:end]) + text[end:]
    return text


def _refuse(message: str, text: str, start: int) -> NoReturn:
    refuse(message, text, start, NotSupportedError)
