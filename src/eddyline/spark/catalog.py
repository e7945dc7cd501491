"""What an engine knows by name: streams, tables, functions and queries; each name once."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from eddyline.errors import QueryError
from eddyline.registry import checked_folder_name, checked_text, unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.spark.query import Query
    from eddyline.spark.relation import Relation

_NAME = re.compile(r"[A-Za-z_]\w*")


class Catalog(ABC):
    """Streams, tables, functions and queries by name; what runs keeps what it uses."""

    def __init__(self) -> None:
        self.relations: dict[str, Relation] = {}
        """Streams and tables, by name."""
        self.results: dict[str, Query] = {}
        """The queries whose results are streams, by the name of the stream."""
        self.functions: dict[str, FunctionPredicate] = {}
        self.aggregates: dict[str, Any] = {}
        """Aggregates of the user, by name in lower case."""
        self.queries: dict[str, Query] = {}

    @abstractmethod
    def check_not_running(self, name: str) -> None:
        """Raise QueryError if a query of that name is running."""

    def __repr__(self) -> str:
        """Say on one line what the engine knows."""
        known = {
            "streams": [*self.streams, *self.results],
            "tables": self.tables,
            "functions": self.functions,
            "queries": self.queries,
        }
        named = (f"{kind} {', '.join(names)}" for kind, names in known.items() if names)
        return f"<engine: {'; '.join(named) or 'nothing yet'}>"

    @property
    def streams(self) -> dict[str, DataFrame]:
        """The streams by name, but for those that are results of queries."""
        return {name: each.df for name, each in self.relations.items() if each.df.isStreaming}

    @property
    def tables(self) -> dict[str, DataFrame]:
        """The tables by name."""
        return {name: each.df for name, each in self.relations.items() if not each.df.isStreaming}

    @property
    def times(self) -> dict[str, str | None]:
        """The event times of the streams by name, those of results included; None: it has none."""
        own: dict[str, str | None] = {name: each.time for name, each in self.relations.items()}
        return own | {name: made.time for name, made in self.results.items()}

    def drop(self, name: str) -> None:
        """Forget a stream, table, function or query, so that its name is free.

        Queries that were made before keep what they read. Where a stream and a query have the same
        name, both go.

        Args:
            name: of what goes; of streams, tables and functions in any case.

        Raises:
            QueryError: there is no such name, or a query that runs uses it.
        """
        kinds = {
            "stream": [*self.streams, *self.results],
            "table": [*self.tables],
            "function": [*self.functions],
            "aggregate": [*self.aggregates],
        }
        found = [
            (kind, each)
            for kind, names in kinds.items()
            for each in names
            if each.lower() == checked_text("name", name).lower()
        ]
        found += [("query", name)] if name in self.queries else []
        if not found:
            known = [each for names in (*kinds.values(), self.queries) for each in names]
            raise QueryError(unknown("name", name, known), name=name)
        for kind, each in found:
            self._check_unused(kind, each)
        self._make_room(name, self.relations, self.results, self.functions, self.aggregates)
        self.queries.pop(name, None)

    def _check_new(self, kind: str, name: str, *, replace: bool) -> None:
        checked_folder_name(f"name of a {kind}", name)
        for known in (*self.relations, *self.results):
            if known.lower() == name.lower():
                kind = "table" if known in self.tables else "stream"
                self._check_replaced(kind, known, name, replace=replace)

    def _check_replaced(self, kind: str, known: str, name: str, *, replace: bool) -> None:
        if not replace:
            msg = (
                f"{kind} {known!r} exists already; choose another name than {name!r}, or "
                f"replace it: replace=True"
            )
            raise QueryError(msg, name=name)
        self._check_unused(kind, known)

    def _check_unused(self, kind: str, name: str) -> None:
        """Raise QueryError if a query that runs uses what has the name."""
        for query in self.queries.values():
            is_it = kind == "query" and query.name == name
            if (is_it or (kind != "query" and self._uses(query, name))) and self._runs(query):
                used = "runs" if is_it else f"is used by query {query.name!r}, which runs"
                msg = f"{kind} {name!r} {used}; stop that run first"
                raise QueryError(msg, name=name, query=query.name)

    def _uses(self, query: Query, name: str) -> bool:
        """Return whether a query says a name, or reads the results of one that does."""
        said = {each.lower() for each in (*_NAME.findall(query.text), *query.relations)}
        inner = (made for each, made in self.results.items() if each.lower() in said)
        return name.lower() in said or any(self._uses(made, name) for made in inner)

    def _runs(self, query: Query) -> bool:
        try:
            self.check_not_running(query.name)
        except QueryError:
            return True
        return False

    @staticmethod
    def _make_room(name: str, *places: dict[str, Any]) -> None:
        """Remove what has the name, in any case."""
        for place in places:
            for known in [each for each in place if each.lower() == name.lower()]:
                del place[known]

    def _check_free(self, name: str, *, replace: bool) -> None:
        if checked_folder_name("name of a query", name) in self.queries:
            self._check_replaced("query", name, name, replace=replace)
