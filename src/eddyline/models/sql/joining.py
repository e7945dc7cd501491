"""Joins of models: the same entities at the same instants, or pairs of different ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.models.sql.recipe import Call, keys_of, with_key
from eddyline.models.sql.scope import Scope, of_keys
from eddyline.sql.parsing import offset_of, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.models.sql.recipe import Node
    from eddyline.models.sql.scope import Mention, Side
    from eddyline.query.select.conditions import Calls
    from eddyline.query.select.statement import Fragment, Statement

_OPS: dict[type[Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<"}


@dataclass(frozen=True, slots=True)
class OfKeys:
    """A comparison of a key of the left side with one of the right."""

    op: str
    left: str
    right: str
    start: int


def joined(
    statement: Statement,
    calls: Calls,
    scopes: tuple[Scope, Scope],
    conjuncts: Sequence[tuple[str, Fragment]],
) -> Scope:
    """Return two sources as one, with what ON and WHERE ask of both.

    Raises:
        QueryError: a name that is not there, or may be of either.
        NotSupportedError: it is not said whether entities are the same, or different ones.
    """
    return _Join(statement, calls, scopes).read(conjuncts)


def check_no_function(calls: Calls, scope: Scope, part: Fragment) -> None:
    """Refuse a function of the user where it would be asked of segments."""
    for node in calls.within(part.tree):
        message = (
            f"the function {node.name} is asked of rows before they become segments: of columns "
            "that are not modelled, over one source"
        )
        scope.refuse(message, offset_of(node))


class _Join:
    def __init__(self, statement: Statement, calls: Calls, scopes: tuple[Scope, Scope]) -> None:
        self._statement, self._calls = statement, calls
        self._text = statement.text
        self._nodes: list[Node] = [each.node for each in scopes]
        left, right = (each.sides[0] for each in scopes)
        self._check_names(left, right)
        self._names = (left.name, right.name)
        sides = tuple(_prefixed(each) for each in (left, right))
        slides = tuple(slide for each in scopes for slide in each.slides)
        self.scope = Scope(self._text, sides, scopes[0].node, slides)
        self._of_keys: list[OfKeys] = []
        self._of_either: list[tuple[str, Mention]] = []
        """Keys in conditions that may be of either side."""
        self._solved: list[tuple[Fragment, list[Mention]]] = []

    def read(self, conjuncts: Sequence[tuple[str, Fragment]]) -> Scope:
        for word, part in conjuncts:
            self._add(word, part)
        op = self._relation()
        for at, name in enumerate(("left", "right")):
            for key in dict.fromkeys(getattr(each, name) for each in self._of_keys):
                self._nodes[at] = with_key(self._nodes[at], key)
        return self._same() if op == "=" else self._pairs(op)

    def _check_names(self, left: Side, right: Side) -> None:
        if left.name.lower() == right.name.lower():
            message = f"two inputs are called {left.name!r}; give each an alias"
            refuse(message, self._text, right.start)
        for each in (left, right):
            if not each.name.isidentifier():
                message = f"the alias of a side is a plain word, got {each.name!r}"
                refuse(message, self._text, each.start)
            if each.distances:
                message = f"{each.name!r} has a distance, which cannot be joined any more"
                self._statement.refuse(message, each.start)

    # -- conditions -------------------------------------------------------------------------------

    def _add(self, word: str, part: Fragment) -> None:
        check_no_function(self._calls, self.scope, part)
        mentions = self.scope.mentions(part.tree, word)
        compared = self._compared_keys(part, mentions)
        if compared is not None:
            self._of_keys.append(compared)
            return
        kinds, sides = {each.kind for each in mentions}, {id(each.side) for each in mentions}
        if kinds and kinds <= {"attribute", "position"}:
            self.scope.condition(part, mentions)
            self._solved.append((part, mentions))
        elif kinds and kinds <= {"key", "other"} and len(sides) == 1:
            at = self.scope.sides.index(mentions[0].side)
            self._nodes[at] = of_keys(self._nodes[at], part, mentions, word)
            self._of_either += [(word, each) for each in mentions if self._may_be_either(each)]
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
        is_bare = all(isinstance(each.unnest(), exp.Column) for each in (tree.left, tree.right))
        is_both = {id(each.side) for each in mentions} == {id(each) for each in self.scope.sides}
        if not is_bare or not is_both or {each.kind for each in mentions} != {"key"}:
            return None
        one, other, op = mentions[0], mentions[1], _OPS[type(tree)]
        if one.side is not self.scope.sides[0]:
            one, other, op = other, one, _MIRRORED[op]
        return OfKeys(op, one.column, other.column, part.start)

    def _may_be_either(self, mention: Mention) -> bool:
        """Return whether a key of both sides is written without saying which."""
        name = mention.node.name
        is_bare = mention.kind == "key" and len(mention.node.parts) == 1
        return is_bare and all(each.meaning(name) is not None for each in self.scope.sides)

    # -- results ----------------------------------------------------------------------------------

    def _relation(self) -> str:
        """Return how the keys of both sides are compared."""
        keys = [keys_of(each) for each in self._nodes]
        ops = [each.op for each in self._of_keys]
        if set(ops) <= {"="}:
            for each in self._of_keys:
                if each.left != each.right:
                    message = (
                        f"keys of the same name are joined, got {each.left!r} and "
                        f"{each.right!r}; name them the same where the rows come from"
                    )
                    self._statement.refuse(message, each.start)
            named = {each.left for each in self._of_keys}
            if named == {*keys[0]} == {*keys[1]}:
                return "="
        elif len(ops) == 1 and len(keys[0]) == len(keys[1]) == 1:
            return ops[0]
        left, right = self._names
        on = " AND ".join(f"{left}.{each} = {right}.{each}" for each in keys[0]) or "…"
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
            said = " or ".join(f"{side}.{name}" for side in self._names)
            refuse(f"{word}: {name} may be {said}: say which", self._text, mention.start)
        left, right = self._nodes
        is_self = left == right and op != "<>"
        names = self._names[::-1] if is_self and op == ">" else self._names
        start = self.scope.sides[1].start
        named = {"names": names, "other": None if is_self else right}
        node = Call(left, "pairs", (self._on(),), named, start)
        sides = tuple(
            replace(each, keys={name: f"{each.name}_{key}" for name, key in each.keys.items()})
            for each in self.scope.sides
        )
        scope = replace(self.scope, sides=sides, node=node, pair=self._names)
        for part, mentions in self._solved:
            scope = scope.near(part, mentions)
        if not is_self and op != "<>":
            (each,) = self._of_keys
            columns = [f"{self._names[0]}_{each.left}", f"{self._names[1]}_{each.right}"]
            text = f" {op} ".join(map(quoted, columns))
            scope = scope.on(Call(scope.node, "where", (text,), start=each.start))
        return scope

    def _on(self) -> str | None:
        texts = []
        for part, mentions in self._solved:
            changes = ((each.start, each.end, _of_side(each)) for each in mentions)
            texts.append(f"({part.rewritten(changes)})")
        return " AND ".join(texts) or None


def _of_side(mention: Mention) -> str:
    """Return an attribute as conditions of a join call it: ``s.`x```."""
    name = mention.side.name
    return f"{name}.{quoted(mention.column.removeprefix(f'{name}_'))}"


def _prefixed(side: Side) -> Side:
    """Return a side whose attributes have the names that they have in a join."""
    names = {name: f"{side.name}_{each}" for name, each in side.attributes.items()}
    return replace(side, attributes=names)
