"""Aggregates of models, over windows or over entities.

A window belongs to one entity. Over entities there is a value at each instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.models.solving.earth import coordinates
from eddyline.models.sql.scope import (
    Call,
    Item,
    Mention,
    Scope,
    Side,
    checked,
    keys_of,
    nearer,
    of_keys,
)
from eddyline.query.query import LONGEST, RangeWindow, SlideWindow
from eddyline.query.select.groups import AROUND, check_one_grouping
from eddyline.query.select.statement import is_star, unaliased
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import column_nodes
from eddyline.sql.parsing import comparable, offset_of, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import Expr

    from eddyline.models.sql.scope import Distance, Node
    from eddyline.query.select.statement import Fragment, Statement

FUNCTIONS = ("avg", "sum", "min", "max")
DISTANCE = "distance"
"""The column of average distances."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate that is asked for, once or several times."""

    function: str
    name: str
    """The attribute that it makes."""
    text: str
    """What is aggregated, over the attributes of the segments."""
    start: int
    distance: Distance | None = None


def aggregates_in(statement: Statement) -> list[exp.Anonymous] | None:
    """Return the calls of aggregates in a SELECT; None if it does not aggregate at all."""
    args = statement.tree.args
    trees = [*(column.tree for column in statement.output_columns)]
    trees += [args["having"].this] if args.get("having") else []
    calls = [call for tree in trees for call in _calls(tree)]
    return calls if calls or args.get("group") or args.get("having") else None


def _calls(tree: Expr) -> list[exp.Anonymous]:
    calls = [
        node
        for node in tree.find_all(exp.Anonymous)
        if isinstance(node.this, str) and node.this.lower() in FUNCTIONS
    ]
    return sorted(calls, key=offset_of)


class Aggregates:
    """The aggregates of a SELECT.

    Args:
        statement: the SELECT.
        scope: what its names mean.
        calls: the calls in it.

    Raises:
        QueryError: a name that is neither grouped nor aggregated.
        NotSupportedError: what models do not answer; the message shows where.
    """

    def __init__(self, statement: Statement, scope: Scope, calls: Sequence[exp.Anonymous]) -> None:
        self._statement, self._scope = statement, scope
        self._text = statement.text
        self._first = offset_of(calls[0]) if calls else statement.own[0].start
        if not calls:
            word = "GROUP BY" if statement.tree.args.get("group") else "HAVING"
            statement.refuse(
                f"{word} stands beside avg, sum, min or max of a modelled attribute",
                statement.offset_of_word(word.split(maxsplit=1)[0]),
            )
        self.width_us, self.slide_us = self._window()
        self._aliases = self._of_columns()
        self._aggregated: dict[tuple[str, tuple[str, ...]], Aggregated] = {}
        for call in calls:
            self._add(call)
        self._check_functions()
        self.groups = self._groups()
        inner = [
            unaliased(column, statement)[1].tree.unnest() for column in statement.output_columns
        ]
        self.is_plain = all(
            isinstance(node, exp.Column) or any(node is one for one in self._aliases.values())
            for node in inner
        )
        """Whether output columns are aggregates, and not arithmetic over them."""

    # -- what is asked ----------------------------------------------------------------------------

    def _of_columns(self) -> dict[str, exp.Anonymous]:
        """Return the calls that are output columns, by the names of these."""
        calls: dict[str, exp.Anonymous] = {}
        for column in self._statement.output_columns:
            if is_star(column.tree):
                message = f"{column.text} beside aggregates is not supported; name the keys"
                self._statement.refuse(message, column.start)
            alias, part = unaliased(column, self._statement)
            inner = part.tree.unnest()
            if isinstance(inner, exp.Anonymous) and _calls(inner)[:1] == [inner]:
                name = alias or self._default_name(inner, part)
                if name.lower() in map(str.lower, calls):
                    message = f"two output columns are called {name!r}; give one another name"
                    refuse(f"{message} with AS", self._text, column.start, name=name)
                calls[name] = inner
        return calls

    def _default_name(self, call: exp.Anonymous, part: Fragment) -> str:
        (argument, *_) = call.expressions or [call]
        if not isinstance(argument, exp.Column):
            message = f"output column {part.text!r} needs a name: {part.text} AS …"
            refuse(message, self._text, part.start)
        return f"{call.this.lower()}_{argument.name}"

    def _window(self) -> tuple[int | None, int | None]:
        """Return the length and the slide of the window (µs)."""
        if not all(other.is_table for other in self._scope.sides[1:]):
            message = (
                "aggregates of a join stand in a SELECT around it: FROM (SELECT …) AS x [RANGE …]"
            )
            self._statement.refuse(message, self._first)
        side = self._scope.sides[0]
        match side.window:
            case None:
                return None, None
            case RangeWindow(length) if 0 < length < LONGEST:
                return length, None
            case SlideWindow(length, slide, 0) if length < LONGEST:
                return length, slide
        message = "windows of models are [RANGE 10 MINUTES], or [RANGE 10 MINUTES SLIDE 10 SECONDS]"
        return self._statement.refuse(message, side.window_at)

    def _add(self, call: exp.Anonymous) -> None:
        function, start = str(call.this).lower(), offset_of(call)
        if len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Distinct | exp.Star):
            refuse(f"{function}() takes one modelled attribute", self._text, start)
        if isinstance(call.parent, (*AROUND, exp.Window)):
            self._statement.refuse(f"only {function}(…) may stand here, without more words", start)
        part = self._statement.part(call.expressions[0])
        mentions = self._scope.mentions(part.tree, f"{function}()")
        self._check_no_position(function, part, mentions)
        distance = self._distance(part, mentions)
        if distance is None:
            for mention in mentions:
                if mention.kind not in {"attribute", "position", "key"}:
                    message = f"{function}({part.text}): {mention.node.name!r} is not modelled"
                    self._statement.refuse(message, mention.start)
            self._scope.expression(part, mentions)
            if all(mention.kind == "key" for mention in mentions):
                refuse(f"{function}() takes a modelled attribute", self._text, part.start)
        text = self._scope.rewritten(part, mentions)
        key = function, comparable(text)
        names = [name for name, aliased in self._aliases.items() if aliased is call]
        name = names[0] if names else f"__{function}{len(self._aggregated)}"
        self._aggregated.setdefault(key, Aggregated(function, name, text, start, distance))
        call.meta["aggregated"] = key

    def _check_no_position(
        self, function: str, part: Fragment, mentions: Sequence[Mention]
    ) -> None:
        """Refuse a position, and say how an average of positions is written."""
        place = part.tree.unnest()
        if not isinstance(place, exp.Column) or mentions[0].kind != "position":
            return
        axes = coordinates(mentions[0].column)
        asked = ", ".join(f"avg({axis}) AS {axis}" for axis in axes)
        has = "is asked by its coordinates" if function == "avg" else "has only an average"
        message = f"{function}({part.text}): a position {has}; write {asked}"
        self._statement.refuse(message, part.start)

    def _distance(self, part: Fragment, mentions: Sequence[Mention]) -> Distance | None:
        inner = part.tree.unnest()
        if isinstance(inner, exp.Column) and mentions[0].kind == "distance":
            return mentions[0].side.distances[mentions[0].column]
        return None

    def _check_functions(self) -> None:
        first, *others = self._aggregated.values()
        for other in others:
            if other.function != first.function or first.function in {"min", "max"}:
                message = (
                    f"{first.function}({first.text}) and {other.function}({other.text}) are asked "
                    "in one SELECT; ask each in a subquery, and join these"
                )
                self._statement.refuse(message, other.start)
            if other.distance is not None or first.distance is not None:
                message = "the average of a distance is asked alone"
                self._statement.refuse(message, other.start)
        if first.distance is not None and (first.function != "avg" or self.slide_us is None):
            message = (
                "of a distance there is avg over a window that slides: "
                "FROM (SELECT …) AS x [RANGE 10 MINUTES SLIDE 10 SECONDS]"
            )
            self._statement.refuse(message, first.start)

    def _groups(self) -> tuple[str, ...]:
        """Return the keys by which results are told apart."""
        keys = keys_of(self._scope.node)
        group = self._statement.tree.args.get("group")
        if group is None:
            return keys if self.width_us is not None else ()
        check_one_grouping(self._statement)
        if group.args.get("all"):
            message = "GROUP BY ALL is not supported beside MODEL; name the keys"
            self._statement.refuse(message, self._statement.offset_of_word("GROUP"))
        columns: list[str] = []
        for expression in group.expressions:
            inner, part = expression.unnest(), self._statement.part(expression)
            mentions = self._scope.mentions(part.tree, "GROUP BY")
            if not isinstance(inner, exp.Column) or mentions[0].kind != "key":
                message = f"GROUP BY takes keys of the entities, got {part.text}"
                self._statement.refuse(message, part.start)
            columns.append(mentions[0].column)
        first = self._first_made
        if {*columns} != {*keys} and first.distance is not None:
            message = (
                "the average of a distance is of each pair: GROUP BY "
                f"{', '.join(self._scope.keys)}, or leave it out"
            )
            self._statement.refuse(message, self._statement.offset_of_word("GROUP"))
        return keys if {*columns} == {*keys} else tuple(dict.fromkeys(columns))

    @property
    def _first_made(self) -> Aggregated:
        return next(iter(self._aggregated.values()))

    # -- results ----------------------------------------------------------------------------------

    def rows(self) -> tuple[Node, dict[str, str]]:
        """Return the aggregates at the ends of windows, and what the columns of rows are called."""
        first = self._first_made
        if first.distance is None:
            node = self._computed(self._slide)
            return node, {name: self._name(call) for name, call in self._aliases.items()}
        scope = self._scope
        assert scope.pair is not None
        node = scope.node
        for part in self._having:
            near = self._over_distance(part, first)
            node = node if near is None else nearer(node, near, whole=True)
        named = {"window": self._width, "slide": self._slide, "names": scope.pair}
        distances = Call(node, "avg_distance", first.distance.axes, named, first.start)
        return distances, dict.fromkeys(self._aliases, DISTANCE)

    @property
    def _width(self) -> timedelta:
        return timedelta(microseconds=self.width_us or 0)

    @property
    def _slide(self) -> timedelta:
        return timedelta(microseconds=self.slide_us or 0)

    def _computed(self, slide: timedelta | None) -> Node:
        """Return the aggregates, at ticks or as segments."""
        wanted = {aggregated.name: aggregated.text for aggregated in self._aggregated.values()}
        current = {attribute: quoted(attribute) for attribute in self._scope.attributes.values()}
        first = self._first_made
        node: Node = self._scope.node
        if wanted != current:
            node = Call(node, "select", (), wanted, first.start)
        over = {} if self.width_us is None else {"window": self._width}
        over |= {} if slide is None else {"slide": slide}
        names = tuple(wanted)
        if self.groups != keys_of(node) or self.width_us is None:
            node = Call(node, first.function, names, {"by": self.groups}, first.start)
        return node if not over else Call(node, first.function, names, over, first.start)

    def segments(self) -> Scope:
        """Return the aggregates as segments, where HAVING holds."""
        first = self._first_made
        if first.distance is not None:
            message = (
                "the average of a distance is told at the ends of windows only: in the outermost "
                "SELECT, without SAMPLE and CHANGES"
            )
            self._statement.refuse(message, first.start)
        side = self._scope.sides[0]
        keys = {name: key for name, key in self._scope.keys.items() if key in self.groups}
        result_side = Side(
            side.name,
            side.start,
            keys,
            {aggregated.name: aggregated.name for aggregated in self._aggregated.values()},
            stream=side.stream,
        )
        slides = self._scope.slides
        slides += () if self.slide_us is None else (self.slide_us,)
        scope = Scope(self._text, (result_side,), self._computed(None), slides)
        return self._selected(scope)

    def _selected(self, scope: Scope) -> Scope:
        solved: list[str] = []
        for part in self._having:
            mentions = [*self._mentions(part.tree, "HAVING", scope.sides[0])]
            kinds = {mention.kind for mention in mentions}
            if kinds == {"key"}:
                scope = scope.on(of_keys(scope.node, part, mentions, "HAVING"))
            else:
                scope.condition(part, mentions)
                solved.append(f"({scope.rewritten(part, mentions)})")
        if not solved:
            return scope
        start = self._having[0].start
        return scope.on(Call(scope.node, "where", (" AND ".join(solved),), start=start))

    @property
    def conditions(self) -> tuple[str, ...]:
        """What HAVING asks of rows, in SQL over their columns."""
        side = self._scope.sides[0]
        first = self._first_made
        texts: list[str] = []
        for part in self._having:
            mentions = [*self._mentions(part.tree, "HAVING", side)]
            if first.distance is not None:
                mentions = [
                    replace(mention, column=DISTANCE) if mention.kind == "attribute" else mention
                    for mention in mentions
                ]
            texts.append(self._scope.rewritten(part, mentions))
        return tuple(texts)

    @property
    def _having(self) -> list[Fragment]:
        having = self._statement.tree.args.get("having")
        parts = [] if having is None else self._statement.conjuncts(having.this)
        for part in parts:
            check_is_row_wise(part.tree, self._text, "HAVING", FUNCTIONS)
        return parts

    def _over_distance(self, part: Fragment, aggregated: Aggregated) -> dict[str, float] | None:
        """Return how near pairs come whose average distance HAVING bounds."""
        side = self._scope.sides[0]
        assert aggregated.distance is not None
        distance_name = next(
            name for name, distance in side.distances.items() if distance == aggregated.distance
        )
        mentions = [
            replace(mention, kind="distance", column=distance_name, side=side)
            for mention in self._mentions(part.tree, "HAVING", side)
            if mention.kind == "attribute"
        ]
        return self._scope.nearness(part, mentions)

    def items(self, scope: Scope | None, times: Sequence[str]) -> list[Item]:
        """Return the output columns.

        Args:
            scope: the aggregates as segments; None: they are rows at ticks.
            times: columns of time that may be named.
        """
        items: list[Item] = []
        side = self._scope.sides[0] if scope is None else scope.sides[0]
        for column in self._statement.output_columns:
            alias, part = unaliased(column, self._statement)
            inner, what = part.tree.unnest(), f"output column {column.text!r}"
            is_time = isinstance(inner, exp.Column) and inner.name.lower() in times
            if is_time and self._scope.sides[0].meaning(inner.name) is None:
                name = inner.name.lower()
                items.append(Item("time", alias or name, name, part.start))
                continue
            mentions = [*self._mentions(part.tree, what, side)]
            items.append(self._item(alias, part, mentions, scope, what))
        return checked(items, self._text)

    def _item(
        self,
        alias: str,
        part: Fragment,
        mentions: list[Mention],
        scope: Scope | None,
        what: str,
    ) -> Item:
        inner = part.tree.unnest()
        if isinstance(inner, exp.Column) and mentions[0].kind == "key":
            return Item("key", alias or inner.name, mentions[0].column, part.start)
        called = next((name for name, call in self._aliases.items() if call is inner), None)
        if called is not None:
            return Item("attribute", called, quoted(mentions[0].column), part.start)
        if any(mention.kind == "key" for mention in mentions):
            self._statement.refuse(f"{what}: keys are selected alone", part.start)
        if not alias:
            refuse(f"{what} needs a name: {part.text} AS …", self._text, part.start)
        assert scope is not None  # arithmetic over aggregates is of segments
        scope.expression(part, mentions)
        return Item("attribute", alias, scope.rewritten(part, mentions), part.start)

    # -- names ------------------------------------------------------------------------------------

    def _name(self, call: exp.Anonymous) -> str:
        return self._aggregated[call.meta["aggregated"]].name

    def _mentions(self, tree: Expr, what: str, side: Side) -> Iterator[Mention]:
        """Yield the aggregates and keys in an expression over results, in order of the text."""
        calls = [call for call in _calls(tree) if "aggregated" in call.meta]
        inside = {id(node) for call in calls for node in call.find_all(exp.Column)}
        mentions = []
        for aggregate in calls:
            place = self._statement.place(aggregate)
            assert place is not None
            mentions.append(Mention(aggregate, side, "attribute", self._name(aggregate), *place))  # type: ignore[arg-type]
        others = (node for node in column_nodes(tree) if id(node) not in inside)
        mentions += [self._of_name(node, what, side) for node in others]
        yield from sorted(mentions, key=lambda mention: mention.start)

    def _of_name(self, node: exp.Column, what: str, side: Side) -> Mention:
        for alias, call in self._aliases.items():
            if node.name.lower() == alias.lower() and len(node.parts) == 1 and what == "HAVING":
                end = node.this.meta["end"] + 1
                return Mention(node, side, "attribute", self._name(call), offset_of(node), end)
        mention = self._scope.meaning(node, what)
        if mention.kind != "key" or mention.column not in self.groups:
            functions = ", ".join(FUNCTIONS)
            message = (
                f"{what}: {node.name!r} is neither grouped nor aggregated; aggregates of models "
                f"are {functions}"
            )
            refuse(message, self._text, offset_of(node))
        return replace(mention, side=side)
