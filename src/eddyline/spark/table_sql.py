"""Queries over tables alone that are more than a filter: Spark answers them as written.

They are not continuous, so the engine has nothing to learn, and they need no windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from eddyline.errors import NotSupportedError
from eddyline.query.select.grammar import EMITTED, WINDOWS
from eddyline.query.select.statement import identifier
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.relation import Relation
from eddyline.sql.parsing import SparkText, deep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.query.select.statement import Statement
    from eddyline.spark.catalog import Catalog


@deep
def tables_of(text: str, selects: Sequence[Statement], catalog: Catalog) -> Sequence[exp.Table]:
    """Return the tables in the tree of a query; nothing if it also reads other inputs.

    Args:
        text: the query.
        selects: its SELECTs; none if it is no query of the engine, but perhaps one of Spark.
        catalog: the tables of the engine.
    """
    names = {each.lower() for each in catalog.tables}
    if not names:
        return []
    try:
        tree = selects[0].tree.root() if selects else parse_one(text, read=SparkText)
    except SqlglotError:
        return []
    windows = [span for each in tree.walk() for span in each.meta.get(WINDOWS, ())]
    # Spark reads [NOW], and says that it is wrong behind a table.
    is_of_streams = EMITTED in tree.meta or any(last - first > 1 for first, last in windows)
    if is_of_streams or not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        return []  # Spark would run what is no query
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [each for each in tree.find_all(exp.Table) if each.name.lower() not in ctes]
    is_table = (each.name.lower() in names and not each.args.get("db") for each in tables)
    return tables if all(is_table) else []


def answered(text: str, tables: Sequence[exp.Table], catalog: Catalog) -> Relation:
    """Return Spark's results of a query over tables.

    Raises:
        QueryError: Spark refuses it.
        NotSupportedError: it calls a function of the engine, which Spark does not know.
    """
    functions = {name.lower() for name in (*catalog.functions, *catalog.aggregates)}
    for call in tables[0].root().find_all(exp.Anonymous):
        if str(call.name).lower() in functions:
            msg = (
                f"{call.name}() is a function of the engine; over tables alone only a plain "
                f"SELECT … FROM t WHERE … may call it; aggregates have el.window_aggregate(df, …)"
            )
            raise NotSupportedError(msg, function=str(call.name))
    frames = {each.lower(): df for each, df in catalog.tables.items()}
    read: dict[str, Any] = {f"t{at}": frames[each.name.lower()] for at, each in enumerate(tables)}
    places = [each.this.meta for each in tables]
    pieces, end = [], 0
    order = sorted(range(len(tables)), key=lambda at: places[at]["start"])
    for at in order:
        alias = "" if tables[at].alias else f" AS {identifier(tables[at].name)}"
        pieces += [_plain(text[end : places[at]["start"]]), f"{{t{at}}}{alias}"]
        end = places[at]["end"] + 1
    statement = "".join([*pieces, _plain(text[end:])])
    session = next(iter(read.values())).sparkSession
    try:
        with unlogged():
            return Relation(session.sql(statement, **read))
    except (AnalysisException, ParseException) as error:
        raise refused("the query over tables, which Spark answers", error) from error


def _plain(text: str) -> str:
    """Return a text with escaped braces."""
    return text.replace("{", "{{").replace("}", "}}")
