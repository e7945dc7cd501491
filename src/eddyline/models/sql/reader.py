"""Reader of SELECTs over sources with MODEL, or over such SELECTs.

``read_model_query`` takes the SELECTs of a text and returns a recipe (``scope``). WHERE and ON
leave out rows by keys and by columns that are not modelled, before rows become segments. Conditions
on modelled attributes are solved on segments.

``Sources`` reads FROM: a stream or table with what MODEL says of its rows. ``_Join`` reads joins:
the same entities at the same instants, or pairs of different ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import EddylineError, QueryError
from eddyline.models.fitting.declared import read_equations
from eddyline.models.revisions import REVISIONS, VALIDATED, VERSION, layout_of
from eddyline.models.segments import FLAGS, TOMB
from eddyline.models.solving import earth
from eddyline.models.sql.aggregates import Aggregates, aggregates_in
from eddyline.models.sql.scope import (
    OF_TIME,
    Call,
    Item,
    JoinedTable,
    Made,
    ModelQuery,
    Scope,
    Selection,
    Side,
    keys_of,
    of_keys,
    of_rows,
    projections,
    with_key,
)
from eddyline.query.select.conditions import Calls, Conditions
from eddyline.query.select.from_clause import check_bare, windows_behind
from eddyline.query.select.grammar import WINDOWS
from eddyline.query.select.model_clause import OUTPUTS, TRACK, Outputs, models_behind
from eddyline.query.select.statement import Names, Statement, is_star, selects_beside_models
from eddyline.query.steps import name_of
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import column_nodes
from eddyline.sql.parsing import deep, offset_of, parse_output, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.models.sql.scope import Mention, Node, ResultKind
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.select.model_clause import ModelClause
    from eddyline.query.select.statement import Fragment, SetOperation


def asks_for_models(selects: Sequence[Statement | SetOperation]) -> bool:
    """Return whether one of a query's SELECTs has MODEL behind a stream."""
    return any(select.has_models for select in selects)


@deep
def read_model_query(
    selects: Sequence[Statement],
    columns: Mapping[str, Sequence[str]],
    times: Mapping[str, str | None],
    functions: Mapping[str, FunctionPredicate] | None = None,
) -> ModelQuery:
    """Read a query of models.

    Args:
        selects: of a query without EXACT, see ``read_exact``, such as
            ``SELECT ship, x FROM s MODEL x WITHIN 0.5 BY ship WHERE x > 3 CHANGES``.
        columns: of each stream and table, by its name.
        times: the event time of each that has one.
        functions: of the user, which may be called on rows before they become segments.

    Raises:
        QueryError: it cannot be read, or names what does not exist; the message shows where.
        NotSupportedError: it asks for what models do not answer; the message shows where.
    """
    first, *others = selects
    text = first.text
    if others:
        first.refuse("UNION ALL of models is not supported; write two queries", _start(others[0]))
    return _Reader(text, columns, times, Calls(text, functions or {})).query(first)


class _Reader:
    def __init__(
        self,
        text: str,
        columns: Mapping[str, Sequence[str]],
        times: Mapping[str, str | None],
        calls: Calls,
    ) -> None:
        self._text = text
        self._sources = Sources(text, columns, times)
        self._calls = calls

    # -- the outermost SELECT ---------------------------------------------------------------------

    def query(self, statement: Statement) -> ModelQuery:
        """Return the query of a statement."""
        outputs: Outputs = statement.tree.meta.get(OUTPUTS) or Outputs()
        assert not outputs.is_exact  # ``exact.read_exact`` has read it
        self._check(statement)
        if outputs.ranges and not outputs.bounds:
            message = "ASSUMING is for bounds of results, and none is asked: write WITHIN 0.5, too"
            refuse(message, self._text, outputs.places["ASSUMING"])
        self._sources.are_bounded = bool(outputs.bounds)
        scope = self._scope(statement)
        query = self._query(statement, scope, outputs)
        return query if not outputs.is_early else self._early(query, outputs)

    def _early(self, query: ModelQuery, outputs: Outputs) -> ModelQuery:
        """Return a query whose results are given before they are final.

        What a condition on rows leaves out is taken back.
        """
        start = outputs.places["EARLY"]
        shown = {projected.lower() for projected in map(name_of, query.projections)}
        for name in REVISIONS:
            if name in shown and not (name == TOMB and {*FLAGS} <= shown):
                message = f"early results have a column {name!r}; give another one a name with AS"
                refuse(message, self._text, start, name=name)
        node = query.node
        wanted = {key.lower() for key in keys_of(node)}
        read = {
            column.name.lower()
            for text in query.projections
            for column in column_nodes(parse_output(text))
        }
        if lacking := sorted(wanted - read):
            message = (
                "a row of early results replaces the one of the same keys, so the query selects "
                f"all of them; missing: {', '.join(lacking)}"
            )
            refuse(message, self._text, start)
        tomb = TOMB
        if query.having:
            holds = " AND ".join(f"({condition})" for condition in query.having)
            tomb = f"{TOMB} OR NOT coalesce({holds}, false) AS {TOMB}"
        more = [VERSION, *([tomb] if TOMB not in shown else []), VALIDATED]
        return replace(query, projections=(*query.projections, *more), having=(), early_at=start)

    def _query(self, statement: Statement, scope: Scope, outputs: Outputs) -> ModelQuery:
        """Return the query of final results."""
        asked = aggregates_in(statement)
        if asked is None:
            self._check_no_window(scope)
            slides = scope.slides
            items = self._selected(statement, scope, self._kind(outputs, slides))
            node = _projected(scope, items)
            return self._result(statement, node, items, outputs, slides)
        aggregates = Aggregates(statement, scope, asked)
        is_said = outputs.every_us is not None or outputs.is_changes or bool(outputs.bounds)
        if aggregates.slide_us is not None and aggregates.is_plain and not is_said:
            return self._at_ticks(aggregates)
        result_scope = aggregates.segments()
        kind = self._kind(outputs, result_scope.slides)
        items = aggregates.items(result_scope, OF_TIME[kind])
        return self._result(
            statement, _projected(result_scope, items), items, outputs, result_scope.slides
        )

    def _at_ticks(self, aggregates: Aggregates) -> ModelQuery:
        """Return aggregates over windows that slide, computed at ticks only."""
        node, columns = aggregates.rows()
        items = aggregates.items(None, OF_TIME["samples"])
        return ModelQuery(
            node, projections(items, "samples", columns, self._text), aggregates.conditions
        )

    def _result(
        self,
        statement: Statement,
        node: Node,
        items: Sequence[Item],
        outputs: Outputs,
        slides: tuple[int, ...],
    ) -> ModelQuery:
        """Return segments as the query wants to have them."""
        kind = self._kind(outputs, slides)
        node = self._within(node, items, outputs)
        words = (
            word for word in ("WITHIN", "PRECISION", "SAMPLE", "CHANGES") if word in outputs.places
        )
        start = next((outputs.places[word] for word in words), _start(statement))
        if outputs.is_changes:
            node = Call(node, "changes", start=start)
        elif outputs.every_us is not None or slides:
            node = Call(node, "sample", (self._every(outputs, slides),), start=start)
        columns = {item.name: item.name for item in items if item.kind == "attribute"}
        return ModelQuery(node, projections(items, kind, columns, self._text))

    def _within(self, node: Node, items: Sequence[Item], outputs: Outputs) -> Node:
        """Return segments of models that are as near to rows as the bounds of results need."""
        bounds, names = outputs.bounds, _bounded(items)
        if not bounds:
            return node
        by_name = {attribute.lower(): attribute for attribute in names}
        within = dict.fromkeys(names, bounds[""]) if "" in bounds else {}
        for name, bound in bounds.items():
            if name and name.lower() not in by_name:
                start = outputs.places[f"PRECISION {name}"]
                refuse(f"PRECISION: {unknown('output column', name, names)}", self._text, start)
            if name:
                within[by_name[name.lower()]] = bound
        start = outputs.places.get("WITHIN", outputs.places.get("PRECISION", 0))
        options = {"ranges": outputs.ranges} if outputs.ranges else {}
        return Call(node, "within", (within,), options, start=start) if within else node

    def _every(self, outputs: Outputs, slides: tuple[int, ...]) -> timedelta:
        if outputs.every_us is None and len({*slides}) > 1:
            phrase = " and ".join(f"{slide * 1e-6:g} s" for slide in dict.fromkeys(slides))
            message = f"windows slide by {phrase}; say when results are wanted: SAMPLE EVERY …"
            refuse(message, self._text, len(self._text.rstrip()) - 1)
        return timedelta(microseconds=outputs.every_us or slides[0])

    @staticmethod
    def _kind(outputs: Outputs, slides: tuple[int, ...]) -> ResultKind:
        if outputs.is_changes:
            return "changes"
        return "segments" if outputs.every_us is None and not slides else "samples"

    def _selected(self, statement: Statement, scope: Scope, kind: ResultKind | None) -> list[Item]:
        times = () if kind is None else OF_TIME[kind]
        items = Selection(statement, scope, times).items()
        for item in items:
            if item.kind == "distance" and kind is not None:
                message = (
                    f"{item.name!r} is a distance, which is no polynomial; select its average "
                    "over a window that slides, or compare it in WHERE"
                )
                scope.refuse(message, item.start)
            if item.is_length and kind == "segments":
                message = (
                    f"{item.name!r} is no polynomial, and segments are: write SAMPLE EVERY or "
                    "CHANGES, whose results have it"
                )
                scope.refuse(message, item.start)
            if kind is None and scope.pair is not None:
                self._check_of_pairs(item, scope.pair)
        return items

    def _check_of_pairs(self, item: Item, names: tuple[str, str]) -> None:
        """Refuse an attribute with a name by which conditions around it know another one."""
        is_like = item.name.lower().startswith(tuple(f"{name.lower()}_" for name in names))
        if item.kind == "attribute" and is_like and item.text != quoted(item.name):
            message = (
                f"{item.name!r} is what the pair calls an attribute; give it another name with AS"
            )
            refuse(message, self._text, item.start, name=item.name)

    # -- sources ----------------------------------------------------------------------------------

    def _scope(self, statement: Statement) -> Scope:
        """Return what FROM, ON and WHERE leave."""
        conjuncts = self._conjuncts(statement)
        plain = [source for source, _ in statement.sources if self._sources.is_plain(source)]
        if plain and len(plain) < len(statement.sources):
            return self._with_tables(statement, plain, conjuncts)
        scopes = [self._source(statement, source) for source, _ in statement.sources]
        if len(scopes) == 1:
            return self._narrowed(statement, scopes[0], conjuncts)
        if len(scopes) > 2:
            third = statement.sources[2][0]
            statement.refuse("a join of models has two sides; join two, and join that with the "
                             "third: FROM (SELECT …) AS a JOIN …", offset_of(third))  # fmt: skip
        for scope in scopes:
            self._check_no_window(scope)
        self._check_join(statement)
        return _Join(statement, self._calls, (scopes[0], scopes[1])).read(conjuncts)

    @staticmethod
    def _check_no_window(scope: Scope) -> None:
        for side in scope.sides:
            if side.window is not None:
                message = (
                    "a window is of aggregates over one source; a join of models has both sides "
                    "at the same instant"
                )
                scope.refuse(message, side.window_at)

    def _check_join(self, statement: Statement) -> None:
        for _, join in statement.sources[1:]:
            assert isinstance(join, exp.Join)
            words = [str(join.args.get(word) or "") for word in ("method", "side", "kind")]
            if any(word not in {"", "INNER", "CROSS"} for word in words) or join.args.get("using"):
                message = "models are joined by an inner JOIN … ON …"
                statement.refuse(message, offset_of(join.this))

    def _with_tables(
        self, statement: Statement, tables: list[Expr], conjuncts: Sequence[tuple[str, Fragment]]
    ) -> Scope:
        """Return a stream or table with MODEL, to whose rows tables are joined before."""
        self._check_join(statement)
        one, *more = [source for source, _ in statement.sources if source not in tables]
        scope = self._source(statement, one)
        if more or not isinstance(scope.node, Made):
            message = (
                "a table is joined to the rows of one stream before these are modelled; write that "
                "in a subquery: FROM (SELECT … FROM s MODEL … JOIN t ON s.k = t.k) AS a JOIN …"
            )
            statement.refuse(message, offset_of(tables[0]))
        sides = [self._sources.table(statement, table, scope.sides[0]) for table in tables]
        return _Tables(statement, self._calls, scope, sides).read(conjuncts, self._of_rows)

    def _conjuncts(self, statement: Statement) -> list[tuple[str, Fragment]]:
        """Return what ON and WHERE ask, each with its word."""
        trees: list[tuple[str, Expr]] = []
        for _, by in statement.sources:
            on = by.args.get("on") if isinstance(by, exp.Join) else None
            trees += [] if on is None else [("ON", on)]
        where = statement.tree.args.get("where")
        trees += [] if where is None else [("WHERE", where.this)]
        return [(word, part) for word, tree in trees for part in statement.conjuncts(tree)]

    def _source(self, statement: Statement, source: Expr) -> Scope:
        inner = selects_beside_models(statement.of_source(source))
        if not inner:
            scope = self._sources.made(statement, source)
        else:
            if len(inner) > 1:
                statement.refuse("UNION ALL of models is not supported", _start(inner[1]))
            if not source.alias:
                message = "a subquery in FROM needs a name: FROM (SELECT …) AS x"
                refuse(message, self._text, _start(inner[0]))
            check_bare(statement, source)
            self._sources.check_no_model(source)
            scope = self._subquery(inner[0], str(source.alias))
        return self._with_window(statement, source, scope)

    def _with_window(self, statement: Statement, source: Expr, scope: Scope) -> Scope:
        (side,) = scope.sides
        windows = windows_behind(statement, source, side.name)
        if not windows:
            return scope
        start = self._sources.window_at(statement, source)
        if len(windows) > 1:
            refuse(f"{side.name!r} has two windows; write one", self._text, start)
        return replace(scope, sides=(replace(side, window=windows[0], window_at=start),))

    def _subquery(self, statement: Statement, name: str) -> Scope:
        """Return a SELECT in FROM as a source."""
        self._check(statement)
        scope = self._scope(statement)
        asked = aggregates_in(statement)
        if asked is not None:
            aggregates = Aggregates(statement, scope, asked)
            scope = aggregates.segments()
            items = aggregates.items(scope, ())
        else:
            self._check_no_window(scope)
            items = self._selected(statement, scope, None)
        side = Side(
            name,
            _start(statement),
            keys={item.name: item.text for item in items if item.kind == "key"},
            attributes={item.name: item.name for item in items if item.kind == "attribute"},
            lengths=frozenset(item.name for item in items if item.is_length),
            distances={item.name: item.distance for item in items if item.distance is not None},
        )
        return Scope(self._text, (side,), _projected(scope, items), scope.slides, scope.pair)

    # -- conditions over one source ---------------------------------------------------------------

    def _narrowed(
        self, statement: Statement, scope: Scope, conjuncts: Sequence[tuple[str, Fragment]]
    ) -> Scope:
        (side,) = scope.sides
        solved: list[str] = []
        for word, part in conjuncts:
            if isinstance(scope.node, Made) and not self._reads_models(side, part):
                scope = self._of_rows(statement, scope, word, part)
                continue
            check_no_function(self._calls, scope, part)
            mentions = scope.mentions(part.tree, word)
            kinds = {mention.kind for mention in mentions}
            if kinds <= {"attribute", "position", "distance"}:
                scope.condition(part, mentions)
                solved.append(f"({scope.rewritten(part, mentions)})")
                scope = scope.near(part, mentions)
            elif kinds == {"key"}:
                scope = scope.on(of_keys(scope.node, part, mentions, word))
            elif kinds <= {"attribute", "key"}:
                scope.condition(part, mentions)
                solved.append(f"({scope.rewritten(part, mentions)})")
            else:
                refuse_mixed(scope, part, word)
        if not solved:
            return scope
        start = conjuncts[0][1].start
        return scope.on(Call(scope.node, "where", (" AND ".join(solved),), start=start))

    @staticmethod
    def _reads_models(side: Side, part: Fragment) -> bool:
        """Return whether a condition reads a modelled attribute, whatever else there is."""
        names = [
            [name_part.name.lower() for name_part in node.parts] for node in column_nodes(part.tree)
        ]
        qualifiers = {side.name.lower(), side.stream.lower()}
        modelled = {attribute.lower() for attribute in side.attributes}
        if earth.position_of(earth.TRACK, side.attributes) is not None:
            modelled.add(earth.TRACK)
        bare = (path[1] if len(path) > 1 and path[0] in qualifiers else path[0] for path in names)
        return any(name in modelled for name in bare)

    def _of_rows(self, statement: Statement, scope: Scope, word: str, part: Fragment) -> Scope:
        (side,) = scope.sides
        names = Names(side.name, side.stream)
        conditions = Conditions(statement, self._calls, names, [side.name])
        conditions.add(word, part.tree)
        node = scope.node
        for predicate in conditions.predicates[side.name]:
            node = of_rows(node, predicate)
        return scope.on(node)

    def _check(self, statement: Statement) -> None:
        """Refuse what a SELECT of models cannot have."""
        if statement.emits is not None:
            message = f"{statement.emits.upper()} is of joins and aggregates over rows"
            statement.refuse(message, statement.emits_at)
        for word in ("distinct", "windows"):
            if statement.tree.args.get(word):
                shown = {"distinct": "DISTINCT", "windows": "WINDOW"}[word]
                statement.refuse(f"{shown} is not supported beside MODEL",
                                 statement.offset_of_word(shown))  # fmt: skip
        if statement.exists:
            asked = statement.exists[0]
            message = f"{asked.said} is not supported beside MODEL; write a JOIN"
            statement.refuse(message, statement.part(asked.node).start)


def _projected(scope: Scope, items: Sequence[Item]) -> Node:
    """Return segments with the attributes that are selected, and those that distances need."""
    wanted = {item.name: item.text for item in items if item.kind == "attribute"}
    current = {attribute: quoted(attribute) for attribute in scope.attributes.values()}
    if any(item.kind == "distance" for item in items):
        wanted = {**current, **wanted}
    if not wanted or wanted == current:
        return scope.node
    return Call(scope.node, "select", (), wanted, start=items[0].start)


def _bounded(items: Sequence[Item]) -> list[str]:
    """Return the names that may have a bound: attributes, with positions for coordinates."""
    names = [item.name for item in items if item.kind == "attribute"]
    points = earth.positions_in(names)
    inside = {name for point in points for name in earth.coordinates(point)}
    return [*points, *(name for name in names if name not in inside)]


def _start(statement: Statement) -> int:
    """Return the offset of SELECT."""
    return statement.own[0].start


# -- sources --------------------------------------------------------------------------------------


_TAKEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "equations": ("declared", ("BY", "AT", "HORIZON")),
    "bounds": ("fitted", ("BY", "AT", "MAX GAP", "WITH")),
    "segments": ("read", ("AT",)),
}
"""Each way in which segments are made, as a word, and its options."""


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
        stream = self._named(str(source.name), offset_of(source.this))
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
        model = self._of_clause(clauses[0], stream, name)
        modelled = {column.lower() for column in (*model.keys, *model.attributes)}
        others = tuple(column for column in self._columns[stream] if column.lower() not in modelled)
        side = Side(
            name,
            offset_of(source.this),
            {key: key for key in model.keys},
            {attribute: attribute for attribute in model.attributes},
            others=() if model.read else others,
            stream=stream,
        )
        return Scope(self._text, (side,), model)

    def is_plain(self, source: Expr) -> bool:
        """Return whether a source is a name without MODEL."""
        return isinstance(source, exp.Table) and not models_behind(source)

    def table(self, statement: Statement, source: Expr, beside: Side) -> Side:
        """Return a table that is joined to rows before these are modelled; errors as of ``made``.

        Its columns are called ``t_name`` where they are keys of entities.
        """
        check_bare(statement, source)
        table = self._named(str(source.name), offset_of(source.this))
        name = str(source.alias or table)
        if windows_behind(statement, source, name):
            message = f"{name!r} is a table, which has no window; write it behind MODEL"
            refuse(message, self._text, self.window_at(statement, source))
        if name.lower() == beside.name.lower():
            message = f"two inputs are called {name!r}; give each an alias"
            refuse(message, self._text, offset_of(source))
        taken = {known_name.lower() for known_name in beside.known}
        keys = {}
        for column in self._columns[table]:
            key = f"{name}_{column}"
            while key.lower() in taken:
                key += "_"
            keys[column] = key
        return Side(name, offset_of(source.this), keys, {}, stream=table, is_table=True)

    def check_no_model(self, source: Expr) -> None:
        """Refuse MODEL behind a subquery."""
        for clause in models_behind(source):
            message = (
                "MODEL stands behind a stream; make one of the subquery (CREATE STREAM x AS …), "
                "and write FROM x MODEL …"
            )
            refuse(message, self._text, clause.start)

    @staticmethod
    def window_at(statement: Statement, source: Expr) -> int:
        """Return the offset of the bracket of the last window behind a source."""
        alias = source.args.get("alias")
        spans = [*source.meta.get(WINDOWS, [])]
        spans += alias.meta.get(WINDOWS, []) if alias is not None else []
        return int(statement.tokens[spans[-1][0] - 1].start)

    def _named(self, name: str, start: int) -> str:
        """Return the stream or table of a name."""
        spellings = {stream.lower(): stream for stream in self._columns}
        if name.lower() not in spellings:
            refuse(unknown("stream", name, self._columns), self._text, start, stream=name)
        return spellings[name.lower()]

    def _of_clause(self, clause: ModelClause, stream: str, name: str) -> Made:
        qualifiers = {name.lower(), stream.lower()}
        for attribute in clause.names:
            if attribute.qualifier and attribute.qualifier.lower() not in qualifiers:
                refuse(unknown("input", attribute.qualifier, [name]), self._text, attribute.start)
        self._check_options(clause)
        if clause.are_segments:
            return self._read(clause, stream, name)
        keys = tuple(self._column(stream, column, start) for column, start in clause.keys)
        for number, (_, offset) in enumerate(clause.keys):
            if keys[number] in keys[:number]:
                refuse(f"BY has {keys[number]!r} twice", self._text, offset)
        bounds, places = self._bounds(clause, stream)
        for attribute in clause.names:
            if attribute.name.lower() in (key.lower() for key in keys):
                refuse(f"{attribute.name!r} is modelled, and a key", self._text, attribute.start)
        return Made(
            stream,
            keys,
            self._time(clause, stream),
            tuple(self._equations(clause, qualifiers).items()),
            bounds=tuple(bounds.items()),
            near=tuple((name, bound) for name, bound in clause.near.items() if bound),
            horizon_us=clause.horizon_us,
            max_gap_us=clause.max_gap_us,
            track=tuple(self._column(stream, column, start) for column, start in clause.track),
            options=tuple(clause.options.items()),
            name=name,
            start=clause.start,
            places=places,
        )

    def _bounds(self, clause: ModelClause, stream: str) -> tuple[dict[str, str], dict[str, int]]:
        """Return the bounds of fitted attributes, and the offsets of all attributes."""
        places = {entry.name: entry.start for entry in clause.names}
        bounds: dict[str, str] = {}
        for attribute in clause.names:
            if attribute.name in clause.bounds:
                is_place = bool(clause.track) and attribute.name == TRACK
                column = (
                    TRACK if is_place else self._column(stream, attribute.name, attribute.start)
                )
                bounds[column] = clause.bounds[attribute.name]
                if not bounds[column] and not self.are_bounded:
                    message = (
                        f"{attribute.name!r} needs its equation or its bound: x = x + vx * t, or x "
                        "WITHIN 0.5; or the bound of results, WITHIN 1 % at the end of the query"
                    )
                    refuse(message, self._text, attribute.start)
                places[column] = attribute.start
        return bounds, places

    def _check_options(self, clause: ModelClause) -> None:
        kind = "bounds" if clause.bounds else "equations" if clause.equations else "segments"
        description, taken = _TAKEN[kind]
        for word, offset in clause.places.items():
            if word not in taken:
                message = f"{word} says nothing of attributes that are {description}; leave it out"
                refuse(message, self._text, offset)
        if "results" in clause.options:
            message = (
                "in SQL, results are asked for before they are final by EARLY at the end of the "
                "query"
            )
            refuse(message, self._text, clause.places["WITH"])

    def _read(self, clause: ModelClause, stream: str, name: str) -> Made:
        try:
            layout, _ = layout_of(self._columns[stream])
        except QueryError as error:
            refuse(f"{stream!r}: {error.message}", self._text, clause.start)
        model = Made(stream, layout.keys, "lo", read=layout.attributes, name=name,
                    start=clause.start)  # fmt: skip
        if clause.of is None:
            if clause.time is not None:
                message = "AT is the time of rows: SEGMENTS OF table AT time"
                refuse(message, self._text, clause.places["AT"])
            return model
        rows = self._named(*clause.of)
        return replace(model, rows=rows, time=self._time(clause, rows))

    def _column(self, stream: str, name: str, offset: int) -> str:
        spellings = {column.lower(): column for column in self._columns[stream]}
        if name.lower() not in spellings:
            message = f"{stream!r}: {unknown('column', name, self._columns[stream])}"
            refuse(message, self._text, offset, name=name)
        return spellings[name.lower()]

    def _time(self, clause: ModelClause, stream: str) -> str:
        event_time = self._times.get(stream)
        if clause.time is None:
            if event_time is None:
                message = f"{stream!r} has no event time; say the column of the time: AT ts"
                refuse(message, self._text, clause.start)
            return event_time
        name, offset = clause.time
        column = self._column(stream, name, offset)
        if event_time is not None and column != event_time:
            message = f"AT {column} is not the event time of {stream!r}, which is {event_time!r}"
            refuse(message, self._text, offset)
        return column

    def _equations(self, clause: ModelClause, qualifiers: set[str]) -> dict[str, str]:
        """Return the equations as SQL, each of which is a polynomial of t, or a rate."""
        equations: dict[str, str] = {}
        heads = {name: f"d({quoted(name)}) = " * (name in clause.near) for name in clause.equations}
        others = {name: f"{head}0" for name, head in heads.items()}
        for attribute in clause.names:
            if attribute.name not in clause.equations:
                continue
            equation, head = (
                clause.equation(attribute.name, [*qualifiers], self._text),
                heads[attribute.name],
            )
            text = head + equation.text
            try:
                read_equations({**others, attribute.name: text})
            except EddylineError as error:
                place = error.facts.get("column")
                offset = (
                    attribute.start
                    if place is None
                    else equation.offset(int(place) - 1 - len(head))
                )
                message = error.message.split(" (line ")[0]
                kind = type(error) if isinstance(error, QueryError) else QueryError
                refuse(message, self._text, offset, kind)
            equations[attribute.name] = text
        return equations


# -- joins ----------------------------------------------------------------------------------------


_OPS: dict[type[Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<"}


@dataclass(frozen=True, slots=True)
class OfKeys:
    """A comparison of a key of the left side with one of the right."""

    op: str
    left: str
    right: str
    start: int


def check_no_function(calls: Calls, scope: Scope, part: Fragment) -> None:
    """Refuse a function of the user where it would be asked of segments."""
    for node in calls.within(part.tree):
        message = (
            f"the function {node.name} is asked of rows before they become segments: of columns "
            "that are not modelled, over one source"
        )
        scope.refuse(message, offset_of(node))


def refuse_mixed(scope: Scope, part: Fragment, word: str) -> NoReturn:
    """Refuse a condition on modelled attributes and on columns that are neither these nor keys."""
    message = (
        f"{word}: {part.text} asks of modelled attributes and of other columns at once; "
        "conditions on these stand beside it, joined by AND"
    )
    scope.refuse(message, part.start)


class _Tables:
    """Reads the join of a stream, or table, with tables whose rows are as they are.

    Rows are joined before they are modelled: an entity has the keys of its rows, and the columns of
    the tables' rows that the query names. Of rows of a table that are equal in these one counts.
    """

    def __init__(
        self, statement: Statement, calls: Calls, scope: Scope, tables: Sequence[Side]
    ) -> None:
        self._statement, self._calls = statement, calls
        self._side = scope.sides[0]
        self._tables = tables
        self._scope = replace(scope, sides=(self._side, *tables))
        self._asked: dict[str, list[str]] = {table.name: [] for table in tables}
        self._named: dict[str, set[str]] = {table.name: set() for table in tables}

    def read(
        self,
        conjuncts: Sequence[tuple[str, Fragment]],
        of_rows: Callable[[Statement, Scope, str, Fragment], Scope],
    ) -> Scope:
        """Return what is left by conditions; ``of_rows`` takes those on rows of the stream."""
        scope, solved = self._scope, []
        rows = replace(scope, sides=(self._side,))
        for word, part in conjuncts:
            mentions = scope.mentions(part.tree, word)
            kinds = {mention.kind for mention in mentions}
            of_tables = [mention for mention in mentions if mention.side.is_table]
            if kinds & {"attribute", "position"}:
                check_no_function(self._calls, scope, part)
                if not kinds <= {"attribute", "position", "key"}:
                    refuse_mixed(scope, part, word)
                scope.condition(part, mentions)
                solved.append((part, f"({scope.rewritten(part, mentions)})"))
                for table_mention in of_tables:
                    self._named[table_mention.side.name].add(table_mention.column)
            elif not of_tables:
                rows = of_rows(self._statement, rows, word, part)
            else:
                self._add(part, mentions, word)
        self._add_columns()
        tables = tuple(map(self._joined, self._tables))
        keys = [key for table in tables for _, key in table.columns]
        model = rows.node
        assert isinstance(model, Made)
        node: Node = replace(model, keys=(*model.keys, *keys), tables=tables, name=self._side.name)
        if solved:
            texts = " AND ".join(text for _, text in solved)
            node = Call(node, "where", (texts,), start=solved[0][0].start)
        sides = (
            replace(table, keys={n: key for n, key in table.keys.items() if key in keys})
            for table in self._tables
        )
        return replace(scope, sides=(self._side, *sides), node=node)

    def _add(self, part: Fragment, mentions: Sequence[Mention], word: str) -> None:
        """Take a condition on rows of a table, and perhaps of the stream."""
        check_no_function(self._calls, self._scope, part)
        check_is_row_wise(part.tree, part.query, word)
        columns = {key: name for table in self._tables for name, key in table.keys.items()}
        text = part.rewritten(
            (
                mention.start,
                mention.end,
                f"{quoted(mention.side.name)}.{quoted(_column_of(mention, columns))}",
            )
            for mention in mentions
        )
        places = [
            place for place, table in enumerate(self._tables) for m in mentions if m.side is table
        ]
        self._asked[self._tables[max(places)].name].append(text)

    def _add_columns(self) -> None:
        """Note the columns that results have, or that they are grouped by."""
        args = self._statement.tree.args
        trees = [column.tree for column in self._statement.output_columns]
        trees += [args[clause] for clause in ("group", "having") if args.get(clause) is not None]
        for side in self._tables:
            qualifiers = {side.name.lower(), side.stream.lower()}
            for tree in trees:
                if is_star(tree) and str(tree.args.get("table") or side.name).lower() in qualifiers:
                    self._named[side.name] |= {*side.keys.values()}
                nodes = [] if is_star(tree) else column_nodes(tree)
                for node in nodes:
                    qualifier, name = str(node.table or side.name), node.parts[-1].name
                    key = side.meaning(name)
                    if qualifier.lower() in qualifiers and key is not None:
                        self._named[side.name].add(key[1])

    def _joined(self, side: Side) -> JoinedTable:
        columns = tuple((n, key) for n, key in side.keys.items() if key in self._named[side.name])
        asked = tuple(self._asked[side.name])
        return JoinedTable(side.stream, side.name, columns, asked, side.start)


def _column_of(mention: Mention, columns: Mapping[str, str]) -> str:
    return columns[mention.column] if mention.side.is_table else mention.column


class _Join:
    """Reads two sources as one, with what ON and WHERE ask of both."""

    def __init__(self, statement: Statement, calls: Calls, scopes: tuple[Scope, Scope]) -> None:
        self._statement, self._calls = statement, calls
        self._text = statement.text
        self._nodes: list[Node] = [scope.node for scope in scopes]
        left, right = (scope.sides[0] for scope in scopes)
        self._check_names(left, right)
        self._names = (left.name, right.name)
        sides = tuple(_prefixed(side) for side in (left, right))
        slides = tuple(slide for scope in scopes for slide in scope.slides)
        self.scope = Scope(self._text, sides, scopes[0].node, slides)
        self._of_keys: list[OfKeys] = []
        self._of_either: list[tuple[str, Mention]] = []
        """Keys of both sides in conditions that do not say which."""
        self._solved: list[tuple[Fragment, list[Mention]]] = []
        self._of_both: list[tuple[str, Fragment]] = []
        """Conditions on attributes and keys at once, which are asked of what is joined."""

    def read(self, conjuncts: Sequence[tuple[str, Fragment]]) -> Scope:
        for word, part in conjuncts:
            self._add(word, part)
        op = self._relation()
        for place, name in enumerate(("left", "right")):
            for key in dict.fromkeys(getattr(comparison, name) for comparison in self._of_keys):
                self._nodes[place] = with_key(self._nodes[place], key)
        scope = self._same() if op == "=" else self._pairs(op)
        for word, part in self._of_both:
            mentions = scope.mentions(part.tree, word)
            scope.condition(part, mentions)
            text = scope.rewritten(part, mentions)
            scope = scope.on(Call(scope.node, "where", (text,), start=part.start))
        return scope

    def _check_names(self, left: Side, right: Side) -> None:
        if left.name.lower() == right.name.lower():
            message = f"two inputs are called {left.name!r}; give each an alias"
            refuse(message, self._text, right.start)
        for side in (left, right):
            if not side.name.isidentifier():
                message = f"the alias of a side is a plain word, got {side.name!r}"
                refuse(message, self._text, side.start)
            if side.distances:
                message = f"{side.name!r} has a distance, which cannot be joined any more"
                self._statement.refuse(message, side.start)

    # -- conditions -------------------------------------------------------------------------------

    def _add(self, word: str, part: Fragment) -> None:
        check_no_function(self._calls, self.scope, part)
        mentions = self.scope.mentions(part.tree, word)
        compared = self._compared_keys(part, mentions)
        if compared is not None:
            self._of_keys.append(compared)
            return
        kinds, sides = (
            {mention.kind for mention in mentions},
            {id(mention.side) for mention in mentions},
        )
        if kinds and kinds <= {"attribute", "position"}:
            self.scope.condition(part, mentions)
            self._solved.append((part, mentions))
        elif "attribute" in kinds and kinds <= {"attribute", "key"}:
            self._of_both.append((word, part))
        elif kinds and kinds <= {"key", "other"} and len(sides) == 1:
            place = self.scope.sides.index(mentions[0].side)
            self._nodes[place] = of_keys(self._nodes[place], part, mentions, word)
            self._of_either += [
                (word, mention)
                for mention in mentions
                if mention.kind == "key"
                and len(mention.node.parts) == 1
                and all(side.meaning(mention.node.name) for side in self.scope.sides)
            ]
        else:
            message = (
                f"{word}: {part.text} asks of modelled attributes and of other columns at once, "
                "or of other columns of both sides; conditions of one kind stand between the ANDs"
            )
            self._statement.refuse(message, part.start)

    def _compared_keys(self, part: Fragment, mentions: Sequence[Mention]) -> OfKeys | None:
        tree = part.tree
        if not isinstance(tree, exp.Binary) or type(tree) not in _OPS or len(mentions) != 2:
            return None
        is_bare = all(
            isinstance(operand.unnest(), exp.Column) for operand in (tree.left, tree.right)
        )
        is_both = {id(mention.side) for mention in mentions} == {
            id(side) for side in self.scope.sides
        }
        if not is_bare or not is_both or {mention.kind for mention in mentions} != {"key"}:
            return None
        one, other, op = mentions[0], mentions[1], _OPS[type(tree)]
        if one.side is not self.scope.sides[0]:
            one, other, op = other, one, _MIRRORED[op]
        return OfKeys(op, one.column, other.column, part.start)

    # -- results ----------------------------------------------------------------------------------

    def _relation(self) -> str:
        """Return how the keys of both sides are compared."""
        keys = [keys_of(node) for node in self._nodes]
        ops = [comparison.op for comparison in self._of_keys]
        if set(ops) <= {"="}:
            for pair in self._of_keys:
                if pair.left != pair.right:
                    message = (
                        f"keys of the same name are joined, got {pair.left!r} and "
                        f"{pair.right!r}; name them the same where the rows come from"
                    )
                    self._statement.refuse(message, pair.start)
            named = {comparison.left for comparison in self._of_keys}
            if named == {*keys[0]} == {*keys[1]}:
                return "="
        elif len(ops) == 1 and len(keys[0]) == len(keys[1]) == 1:
            return ops[0]
        left, right = self._names
        on = " AND ".join(f"{left}.{key} = {right}.{key}" for key in keys[0]) or "…"
        message = (
            f"a join of models says of every key that both sides have the same (ON {on}), or of "
            f"the only key that they differ (ON {left}.k <> {right}.k, or <, which has each pair "
            "once)"
        )
        return self._statement.refuse(message, offset_of(self._statement.sources[1][0]))

    def _same(self) -> Scope:
        left, right = self._nodes
        named = {"names": self._names}
        node = Call(left, "join", (right, self._on()), named, self.scope.sides[1].start)
        return self.scope.on(node)

    def _pairs(self, op: str) -> Scope:
        for word, mention in self._of_either:
            name = mention.node.name
            choices = " or ".join(f"{side}.{name}" for side in self._names)
            refuse(f"{word}: {name} may be {choices}: say which", self._text, mention.start)
        left, right = self._nodes
        is_self = left == right and op != "<>"
        names = self._names[::-1] if is_self and op == ">" else self._names
        start = self.scope.sides[1].start
        named = {"names": names, "other": None if is_self else right}
        node = Call(left, "pairs", (self._on(),), named, start)
        sides = tuple(
            replace(side, keys={name: f"{side.name}_{key}" for name, key in side.keys.items()})
            for side in self.scope.sides
        )
        scope = replace(self.scope, sides=sides, node=node, pair=self._names)
        for part, mentions in self._solved:
            scope = scope.near(part, mentions)
        if not is_self and op != "<>":
            (comparison,) = self._of_keys
            columns = [
                f"{self._names[0]}_{comparison.left}",
                f"{self._names[1]}_{comparison.right}",
            ]
            text = f" {op} ".join(map(quoted, columns))
            scope = scope.on(Call(scope.node, "where", (text,), start=comparison.start))
        return scope

    def _on(self) -> str | None:
        texts = []
        for part, mentions in self._solved:
            changes = ((mention.start, mention.end, _of_side(mention)) for mention in mentions)
            texts.append(f"({part.rewritten(changes)})")
        return " AND ".join(texts) or None


def _of_side(mention: Mention) -> str:
    """Return an attribute as conditions of a join call it: ``s.`x```."""
    name = mention.side.name
    return f"{name}.{quoted(mention.column.removeprefix(f'{name}_'))}"


def _prefixed(side: Side) -> Side:
    """Return a side whose attributes have the names that they have in a join."""
    names = {name: f"{side.name}_{attribute}" for name, attribute in side.attributes.items()}
    return replace(side, attributes=names)
