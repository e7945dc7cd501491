"""WITH: named queries, put as subqueries into FROM.

In: the tree of a query. Out: the same tree without WITH. A query that FROM names twice is read
twice. A name hides a stream of that name, and names of enclosing queries. A query of WITH reads
the names that are defined before it, so it never reads itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.sql.parsing import PLACE, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

LATER = "later"
"""Key of ``meta`` of a table whose name WITH defines, but not for this place."""

MOST_READS = 1_000
"""Most queries of WITH that one query reads, counted each time that FROM names one."""


@dataclass(slots=True)
class _Named:
    """A query of WITH."""

    name: str
    body: Expr
    n_reads: int
    """Queries of WITH that one use of the name reads, itself included."""
    is_used: bool = False


def without_with(tree: Expr, text: str) -> list[Expr]:
    """Replace names of WITH in a tree; return the queries of WITH that are not used.

    Args:
        tree: a query, which is changed.
        text: the query's text, for errors.

    Raises:
        QueryError: two queries of one WITH have the same name.
        NotSupportedError: names are used more than ``MOST_READS`` times.
    """
    if tree.find(exp.With) is None:
        return []
    reader = _Reader(text)
    reader.expand(tree, {}, frozenset())
    return [named.body for named in reader.named if not named.is_used]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.named: list[_Named] = []
        """All queries of WITH, in the order in which they end."""
        self._n_reads = 0

    def expand(self, node: Expr, scope: Mapping[str, _Named], later: frozenset[str]) -> None:
        """Replace names below a node.

        Args:
            node: a part of a query.
            scope: queries by their names in lower case.
            later: names that WITH defines behind this place.
        """
        clause = node.args.get("with_")
        if clause is not None:
            node.set("with_", None)
            scope = self._defined(clause.expressions, scope, later)
        for child in list(node.iter_expressions()):
            self.expand(child, scope, later)
            if isinstance(child, exp.Table) and _is_bare(child):
                name = child.name.lower()
                if name in scope:
                    child.replace(self._read(child, scope[name]))
                elif name in later:
                    child.meta[LATER] = True

    def _defined(
        self, clause: Sequence[exp.CTE], outer: Mapping[str, _Named], later: frozenset[str]
    ) -> Mapping[str, _Named]:
        """Return the names that may be used behind WITH."""
        names = [cte.alias.lower() for cte in clause]
        scope = dict(outer)
        for position, definition in enumerate(clause):
            if names[position] in names[:position]:
                message = f"WITH defines {definition.alias!r} twice; choose another name"
                refuse(
                    message, self._text, offset_of(definition.args["alias"]), name=definition.alias
                )
            before = self._n_reads
            self.expand(definition, scope, later.union(names[position:]))
            named = _Named(definition.alias, definition.this.pop(), 1 + self._n_reads - before)
            self._n_reads = before
            self.named.append(named)
            scope[names[position]] = named
        return scope

    def _read(self, table: exp.Table, named: _Named) -> exp.Subquery:
        """Return a query of WITH as a subquery with the name, the windows, … of a table."""
        named.is_used = True
        self._n_reads += named.n_reads
        place = offset_of(table.this)
        if self._n_reads > MOST_READS:
            message = f"the query reads queries of WITH more than {MOST_READS:,} times"
            refuse(message, self._text, place, NotSupportedError)
        subquery = exp.Subquery(this=named.body.copy())
        for key, value in table.args.items():
            if key != "this":
                subquery.set(key, value)
        if table.args.get("alias") is None:
            name = table.this.copy()
            name.set("this", named.name)
            subquery.set("alias", exp.TableAlias(this=name))
        subquery.meta.update(table.meta)
        subquery.meta[PLACE] = place
        return subquery


def _is_bare(table: exp.Table) -> bool:
    return isinstance(table.this, exp.Identifier) and not table.args.get("db")
