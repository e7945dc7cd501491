"""Reads a query of models: a SELECT over sources with MODEL, or over such SELECTs.

What WHERE and ON ask of keys and of columns that are not modelled leaves rows out before they
become segments; what they ask of modelled attributes is solved on segments.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.models import earth
from eddyline.models.sql.aggregates import Aggregates, aggregates_in
from eddyline.models.sql.joining import check_no_function, joined
from eddyline.models.sql.recipe import Call, Made, ModelQuery, of_rows
from eddyline.models.sql.scope import Scope, Side, of_keys
from eddyline.models.sql.selection import OF_TIME, Item, Selection, projections
from eddyline.models.sql.sources import Sources
from eddyline.query.select.conditions import Calls, Conditions
from eddyline.query.select.from_clause import check_bare, windows_behind
from eddyline.query.select.model_clause import OUTPUTS, Outputs
from eddyline.query.select.statement import Names, Statement
from eddyline.registry import unknown
from eddyline.sql.names import column_nodes
from eddyline.sql.parsing import deep, offset_of, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.models.sql.recipe import Node
    from eddyline.models.sql.selection import Kind
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.select.statement import Fragment


def asks_for_models(text: str) -> bool:
    """Return whether a query has MODEL behind a stream.

    Raises:
        QueryError: it is no query; the message shows where.
    """
    return "MODEL" in text.upper() and any(each.has_models for each in Statement.read_all(text))


@deep
def read_model_query(
    text: str,
    columns: Mapping[str, Sequence[str]],
    times: Mapping[str, str | None],
    functions: Mapping[str, FunctionPredicate] | None = None,
) -> ModelQuery:
    """Read a query of models.

    Args:
        text: such as ``SELECT ship, x FROM s MODEL x WITHIN 0.5 BY ship WHERE x > 3 CHANGES``;
            without EXACT, see ``read_exact``.
        columns: of each stream and table, by its name.
        times: the event time of each that has one.
        functions: of the user, which may be called on rows before they become segments.

    Raises:
        QueryError: it cannot be read, or names what does not exist; the message shows where.
        NotSupportedError: it asks for what models do not answer; the message shows where.
    """
    first, *others = Statement.read_all(text)
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
        _check_said(self._text, outputs)
        self._sources.are_bounded = bool(outputs.bounds)
        scope = self._scope(statement)
        asked = aggregates_in(statement)
        if asked is None:
            self._check_no_window(scope)
            slides = scope.slides
            items = self._selected(statement, scope, self._kind(outputs, slides))
            node = _projected(scope, items)
            return self._given(statement, node, items, outputs, slides)
        aggregates = Aggregates(statement, scope, asked)
        is_said = outputs.every_us is not None or outputs.is_changes or bool(outputs.bounds)
        if aggregates.slide_us is not None and aggregates.is_plain and not is_said:
            return self._at_ticks(aggregates)
        made = aggregates.segments()
        kind = self._kind(outputs, made.slides)
        items = aggregates.items(made, OF_TIME[kind])
        return self._given(statement, _projected(made, items), items, outputs, made.slides)

    def _at_ticks(self, aggregates: Aggregates) -> ModelQuery:
        """Return aggregates over windows that slide, computed at ticks only."""
        node, columns = aggregates.rows()
        items = aggregates.items(None, OF_TIME["samples"])
        return ModelQuery(
            node, projections(items, "samples", columns, self._text), aggregates.conditions
        )

    def _given(
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
        said = (
            word for word in ("WITHIN", "PRECISION", "SAMPLE", "CHANGES") if word in outputs.places
        )
        start = next((outputs.places[word] for word in said), _start(statement))
        if outputs.is_changes:
            node = Call(node, "changes", start=start)
        elif outputs.every_us is not None or slides:
            node = Call(node, "sample", (self._every(outputs, slides),), start=start)
        columns = {each.name: each.name for each in items if each.kind == "attribute"}
        return ModelQuery(node, projections(items, kind, columns, self._text))

    def _within(self, node: Node, items: Sequence[Item], outputs: Outputs) -> Node:
        """Return segments of models that are as near to rows as the bounds of results need."""
        bounds, known = outputs.bounds, _bounded(items)
        if not bounds:
            return node
        by_name = {each.lower(): each for each in known}
        found = dict.fromkeys(known, bounds[""]) if "" in bounds else {}
        for name, bound in bounds.items():
            if name and name.lower() not in by_name:
                start = outputs.places[f"PRECISION {name}"]
                refuse(f"PRECISION: {unknown('output column', name, known)}", self._text, start)
            if name:
                found[by_name[name.lower()]] = bound
        start = outputs.places.get("WITHIN", outputs.places.get("PRECISION", 0))
        said = {"ranges": outputs.ranges} if outputs.ranges else {}
        return Call(node, "within", (found,), said, start=start) if found else node

    def _every(self, outputs: Outputs, slides: tuple[int, ...]) -> timedelta:
        if outputs.every_us is None and len({*slides}) > 1:
            said = " and ".join(f"{each * 1e-6:g} s" for each in dict.fromkeys(slides))
            message = f"windows slide by {said}; say when results are wanted: SAMPLE EVERY …"
            refuse(message, self._text, len(self._text.rstrip()) - 1)
        return timedelta(microseconds=outputs.every_us or slides[0])

    @staticmethod
    def _kind(outputs: Outputs, slides: tuple[int, ...]) -> Kind:
        if outputs.is_changes:
            return "changes"
        return "segments" if outputs.every_us is None and not slides else "samples"

    def _selected(self, statement: Statement, scope: Scope, kind: Kind | None) -> list[Item]:
        times = () if kind is None else OF_TIME[kind]
        items = Selection(statement, scope, scope.pair, times).items()
        for each in items:
            if each.kind == "distance" and kind is not None:
                message = (
                    f"{each.name!r} is a distance, which is no polynomial; select its average "
                    "over a window that slides, or compare it in WHERE"
                )
                scope.refuse(message, each.start)
            if each.is_length and kind == "segments":
                message = (
                    f"{each.name!r} is no polynomial, and segments are: write SAMPLE EVERY or "
                    "CHANGES, whose results have it"
                )
                scope.refuse(message, each.start)
            if kind is None and scope.pair is not None:
                self._check_of_pairs(each, scope.pair)
        return items

    def _check_of_pairs(self, item: Item, names: tuple[str, str]) -> None:
        """Refuse an attribute with a name by which conditions around it know another one."""
        is_like = item.name.lower().startswith(tuple(f"{each.lower()}_" for each in names))
        if item.kind == "attribute" and is_like and item.text != quoted(item.name):
            message = (
                f"{item.name!r} is what the pair calls an attribute; give it another name with AS"
            )
            refuse(message, self._text, item.start, name=item.name)

    # -- sources ----------------------------------------------------------------------------------

    def _scope(self, statement: Statement) -> Scope:
        """Return what FROM, ON and WHERE leave."""
        found = [self._source(statement, source) for source, _ in statement.sources]
        conjuncts = self._conjuncts(statement)
        if len(found) == 1:
            return self._narrowed(statement, found[0], conjuncts)
        if len(found) > 2:
            third = statement.sources[2][0]
            statement.refuse("a join of models has two sides; join two, and join that with the "
                             "third: FROM (SELECT …) AS a JOIN …", offset_of(third))  # fmt: skip
        for each in found:
            self._check_no_window(each)
        self._check_join(statement)
        return joined(statement, self._calls, (found[0], found[1]), conjuncts)

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
        join = statement.sources[1][1]
        assert isinstance(join, exp.Join)
        words = [str(join.args.get(each) or "") for each in ("method", "side", "kind")]
        if any(each not in {"", "INNER", "CROSS"} for each in words) or join.args.get("using"):
            message = "models are joined by an inner JOIN … ON …"
            statement.refuse(message, offset_of(join.this))

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
        inner = statement.of_source(source)
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
        found = windows_behind(statement, source, side.name)
        if not found:
            return scope
        at = self._sources.window_at(statement, source)
        if len(found) > 1:
            refuse(f"{side.name!r} has two windows; write one", self._text, at)
        return replace(scope, sides=(replace(side, window=found[0], window_at=at),))

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
            keys={each.name: each.text for each in items if each.kind == "key"},
            attributes={each.name: each.name for each in items if each.kind == "attribute"},
            lengths=frozenset(each.name for each in items if each.is_length),
            distances={each.name: each.distance for each in items if each.distance is not None},
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
            kinds = {each.kind for each in mentions}
            if kinds <= {"attribute", "position", "distance"}:
                scope.condition(part, mentions)
                solved.append(f"({scope.rewritten(part, mentions)})")
                scope = scope.near(part, mentions)
            elif kinds == {"key"}:
                scope = scope.on(of_keys(scope.node, part, mentions, word))
            else:
                message = (
                    f"{word}: {part.text} asks of modelled attributes and of other columns at "
                    "once; conditions on these stand beside it, joined by AND"
                )
                scope.refuse(message, part.start)
        if not solved:
            return scope
        start = conjuncts[0][1].start
        return scope.on(Call(scope.node, "where", (" AND ".join(solved),), start=start))

    @staticmethod
    def _reads_models(side: Side, part: Fragment) -> bool:
        """Return whether a condition reads a modelled attribute, whatever else there is."""
        names = [[each.name.lower() for each in node.parts] for node in column_nodes(part.tree)]
        own = {side.name.lower(), side.stream.lower()}
        known = {each.lower() for each in side.attributes}
        if earth.position_of(earth.TRACK, side.attributes) is not None:
            known.add(earth.TRACK)
        bare = (each[1] if len(each) > 1 and each[0] in own else each[0] for each in names)
        return any(each in known for each in bare)

    def _of_rows(self, statement: Statement, scope: Scope, word: str, part: Fragment) -> Scope:
        (side,) = scope.sides
        names = Names(side.name, side.stream)
        conditions = Conditions(statement, self._calls, names, [side.name])
        conditions.add(word, part.tree)
        node = scope.node
        for each in conditions.predicates[side.name]:
            node = of_rows(node, each)
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
            message = "EXISTS is not supported beside MODEL; write a JOIN"
            statement.refuse(message, statement.part(statement.exists[0].conjunct).start)


def _projected(scope: Scope, items: Sequence[Item]) -> Node:
    """Return segments with the attributes that are selected, and those that distances need."""
    wanted = {each.name: each.text for each in items if each.kind == "attribute"}
    current = {each: quoted(each) for each in scope.attributes.values()}
    if any(each.kind == "distance" for each in items):
        wanted = {**current, **wanted}
    if not wanted or wanted == current:
        return scope.node
    return Call(scope.node, "select", (), wanted, start=items[0].start)


def _bounded(items: Sequence[Item]) -> list[str]:
    """Return the names that may have a bound: attributes, with positions for coordinates."""
    names = [each.name for each in items if each.kind == "attribute"]
    points = earth.positions_in(names)
    inside = {name for each in points for name in earth.coordinates(each)}
    return [*points, *(each for each in names if each not in inside)]


def _check_said(text: str, outputs: Outputs) -> None:
    """Refuse ranges on which no bound depends."""
    if outputs.ranges and not outputs.bounds:
        message = "ASSUMING is for bounds of results, and none is asked: write WITHIN 0.5, too"
        refuse(message, text, outputs.places["ASSUMING"])


def _start(statement: Statement) -> int:
    """Return the offset of SELECT."""
    return statement.own[0].start
