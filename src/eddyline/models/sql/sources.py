"""Sources of a SELECT of models: a stream or table with what MODEL says of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import EddylineError, NotSupportedError, QueryError
from eddyline.models.declared import read_equations
from eddyline.models.revisions import layout_of
from eddyline.models.sql.recipe import Made
from eddyline.models.sql.scope import Scope, Side
from eddyline.query.select.from_clause import check_bare
from eddyline.query.select.grammar import WINDOWS
from eddyline.query.select.model_clause import TRACK, models_behind
from eddyline.registry import unknown
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.select.model_clause import ModelClause
    from eddyline.query.select.statement import Statement

_TAKEN: dict[str, tuple[str, ...]] = {
    "equations": ("BY", "AT", "HORIZON"),
    "bounds": ("BY", "AT", "MAX GAP", "WITH"),
    "segments": ("AT",),
}
"""The options of each way in which segments are made."""


class Sources:
    """Reads the sources of a query of models.

    Args:
        text: the query.
        columns: of each stream and table, by its name.
        times: the event time of each that has one.
    """

    def __init__(
        self, text: str, columns: Mapping[str, Sequence[str]], times: Mapping[str, str | None]
    ) -> None:
        self._text, self._columns, self._times = text, columns, times
        self.are_bounded = False
        """Whether the query says how near results have to be."""

    def made(self, statement: Statement, source: Expr) -> Scope:
        """Return a stream or table with MODEL behind it.

        Raises:
            QueryError: what is written there cannot be meant; the message shows where.
            NotSupportedError: more than a name, a window and MODEL stands there.
        """
        is_bare = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
        if not is_bare or source.args.get("db") or source.args.get("joins"):
            statement.refuse("FROM needs the name of a stream or table", offset_of(source))
        check_bare(statement, source)
        stream = self._stream(source)
        clauses = models_behind(source)
        if not clauses:
            message = (
                f"{stream!r} has no MODEL, and other sources of the query have; make a stream of "
                f"the models (CREATE STREAM x AS SELECT … MODEL …) and join that"
            )
            statement.refuse(message, offset_of(source.this))
        if len(clauses) > 1:
            refuse(f"{stream!r} has two MODELs; write one", self._text, clauses[1].start)
        name = str(source.alias or stream)
        made = self._of_clause(clauses[0], stream, name)
        known = {each.lower() for each in (*made.keys, *made.attributes)}
        others = tuple(each for each in self._columns[stream] if each.lower() not in known)
        side = Side(
            name,
            offset_of(source.this),
            {each: each for each in made.keys},
            {each: each for each in made.attributes},
            others=() if made.read else others,
            stream=stream,
        )
        return Scope(self._text, (side,), made)

    def check_no_model(self, source: Expr) -> None:
        """Refuse MODEL behind a subquery."""
        for each in models_behind(source):
            message = (
                "MODEL stands behind a stream; make one of the subquery (CREATE STREAM x AS …), "
                "and write FROM x MODEL …"
            )
            self._refuse(message, each.start)

    @staticmethod
    def window_at(statement: Statement, source: Expr) -> int:
        """Return the offset of the bracket of the last window behind a source."""
        alias = source.args.get("alias")
        spans = [*source.meta.get(WINDOWS, [])]
        spans += alias.meta.get(WINDOWS, []) if alias is not None else []
        return int(statement.tokens[spans[-1][0] - 1].start)

    def _stream(self, source: Expr) -> str:
        return self._named(str(source.name), offset_of(source.this))

    def _named(self, name: str, start: int) -> str:
        """Return the stream or table of a name."""
        known = {each.lower(): each for each in self._columns}
        if name.lower() not in known:
            refuse(unknown("stream", name, self._columns), self._text, start, stream=name)
        return known[name.lower()]

    def _of_clause(self, clause: ModelClause, stream: str, name: str) -> Made:
        own = {name.lower(), stream.lower()}
        for each in clause.names:
            if each.qualifier and each.qualifier.lower() not in own:
                refuse(unknown("input", each.qualifier, [name]), self._text, each.start)
        self._check_options(clause)
        if clause.are_segments:
            return self._read(clause, stream, name)
        keys = tuple(self._column(stream, each, at) for each, at in clause.keys)
        for number, (_, at) in enumerate(clause.keys):
            if keys[number] in keys[:number]:
                refuse(f"BY has {keys[number]!r} twice", self._text, at)
        bounds, places = self._bounds(clause, stream)
        for each in clause.names:
            if each.name.lower() in (key.lower() for key in keys):
                self._refuse(f"{each.name!r} is modelled, and a key", each.start)
        return Made(
            stream,
            keys,
            self._time(clause, stream),
            tuple(self._equations(clause, own).items()),
            tuple(bounds.items()),
            horizon_us=clause.horizon_us,
            max_gap_us=clause.max_gap_us,
            track=tuple(self._column(stream, each, at) for each, at in clause.track),
            options=tuple(clause.options.items()),
            name=name,
            start=clause.start,
            places=places,
        )

    def _bounds(self, clause: ModelClause, stream: str) -> tuple[dict[str, str], dict[str, int]]:
        """Return the bounds of fitted attributes, and the offsets of all attributes."""
        places = {each.name: each.start for each in clause.names}
        bounds: dict[str, str] = {}
        for each in clause.names:
            if each.name in clause.bounds:
                is_place = bool(clause.track) and each.name == TRACK
                column = TRACK if is_place else self._column(stream, each.name, each.start)
                bounds[column] = clause.bounds[each.name]
                if not bounds[column] and not self.are_bounded:
                    message = (
                        f"{each.name!r} needs its equation or its bound: x = x + vx * t, or x "
                        "WITHIN 0.5; or the bound of results, WITHIN 1 % at the end of the query"
                    )
                    refuse(message, self._text, each.start)
                places[column] = each.start
        return bounds, places

    def _check_options(self, clause: ModelClause) -> None:
        kind = "bounds" if clause.bounds else "equations" if clause.equations else "segments"
        said = {"bounds": "fitted", "equations": "declared", "segments": "read"}[kind]
        for word, at in clause.places.items():
            if word not in _TAKEN[kind]:
                message = f"{word} says nothing of attributes that are {said}; leave it out"
                refuse(message, self._text, at)
        if "results" in clause.options:
            message = (
                "in SQL, results of a stream are given once they are final, as tombstones stand in "
                "no column of a SELECT; ask el.models.fit(…, results='early')"
            )
            refuse(message, self._text, clause.places["WITH"], NotSupportedError)
        if kind == "equations" and clause.horizon_us is None:
            message = (
                "declared attributes need HORIZON, such as HORIZON 2 MINUTES: for how long a row "
                "says something at most"
            )
            refuse(message, self._text, clause.names[-1].start)

    def _read(self, clause: ModelClause, stream: str, name: str) -> Made:
        try:
            layout, _ = layout_of(self._columns[stream])
        except QueryError as error:
            refuse(f"{stream!r}: {error.message}", self._text, clause.start)
        made = Made(stream, layout.keys, "lo", read=layout.attributes, name=name,
                    start=clause.start)  # fmt: skip
        if clause.of is None:
            if clause.time is not None:
                message = "AT is the time of rows: SEGMENTS OF table AT time"
                refuse(message, self._text, clause.places["AT"])
            return made
        rows = self._named(*clause.of)
        return replace(made, rows=rows, time=self._time(clause, rows))

    def _column(self, stream: str, name: str, at: int) -> str:
        known = {each.lower(): each for each in self._columns[stream]}
        if name.lower() not in known:
            message = f"{stream!r}: {unknown('column', name, self._columns[stream])}"
            refuse(message, self._text, at, name=name)
        return known[name.lower()]

    def _time(self, clause: ModelClause, stream: str) -> str:
        own = self._times.get(stream)
        if clause.time is None:
            if own is None:
                message = f"{stream!r} has no event time; say the column of the time: AT ts"
                refuse(message, self._text, clause.start)
            return own
        name, at = clause.time
        column = self._column(stream, name, at)
        if own is not None and column != own:
            message = f"AT {column} is not the event time of {stream!r}, which is {own!r}"
            refuse(message, self._text, at)
        return column

    def _equations(self, clause: ModelClause, own: set[str]) -> dict[str, str]:
        """Return the equations as SQL, each of which is a polynomial of t."""
        found: dict[str, str] = {}
        for each in clause.names:
            if each.name not in clause.equations:
                continue
            equation = clause.equation(each.name, [*own], self._text)
            try:
                read_equations({each.name: equation.text})
            except EddylineError as error:
                place = error.facts.get("column")
                at = each.start if place is None else equation.offset(int(place) - 1)
                message = error.message.split(" (line ")[0]
                kind = type(error) if isinstance(error, QueryError) else QueryError
                refuse(message, self._text, at, kind)
            found[each.name] = equation.text
        return found

    def _refuse(self, message: str, at: int) -> NoReturn:
        refuse(message, self._text, at)
