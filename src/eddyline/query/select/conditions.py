"""Conjuncts of a query, sorted by the inputs that they read.

In: the conditions of ON and WHERE. Out: for each input its predicates and calls of functions; for a
join also keys and conditions on results. In an inner join ON and WHERE mean the same. A conjunct
over one input filters that input, an equality of two inputs makes a key, and any other conjunct
filters results.

In other joins ON says which rows are partners. A conjunct of ON over the first input drops none of
its rows. A conjunct of WHERE over the second input of a LEFT JOIN filters results. The keys of a
join make classes of expressions that are equal in every result.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.predicates import MixedPredicate, SqlPredicate
from eddyline.query.query import MAX_SPAN, KeyClass
from eddyline.query.select.statement import identifier, unaliased
from eddyline.query.spans import UNITS, micros_in
from eddyline.sql.analysis import Expression, check_is_row_wise
from eddyline.sql.functions import as_name, drawn, says_collation, unnegated
from eddyline.sql.parsing import offset_of, refuse
from eddyline.sql.types import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.statement import (
        Exists,
        Fragment,
        JoinNames,
        Named,
        Names,
        Scope,
        Statement,
    )
    from eddyline.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """A conjunct that is ``[NOT] f(…)`` of a function of the user."""

    function: FunctionPredicate
    negated: bool
    start: int
    """The offset of the function's name."""
    arguments: tuple[Expr, ...]
    """Empty for ``f()`` and ``f(*)``, which read the function's own columns."""

    def predicate(self, reads: Sequence[str]) -> FunctionPredicate:
        """Return the function as a predicate on what it reads here."""
        predicate = replace(self.function, reads=tuple(reads))
        return ~predicate if self.negated else predicate


class Calls:
    """The functions that a query may call."""

    def __init__(self, text: str, functions: Mapping[str, FunctionPredicate]) -> None:
        self._text = text
        self.functions = {
            name.lower(): replace(function, called=name) for name, function in functions.items()
        }
        """By name in lower case."""

    def call(self, tree: Expr) -> Call | None:
        """Return the call if a conjunct is ``[NOT] f(…)`` of a function, which it has to fit."""
        inner, negated = unnegated(tree)
        is_call = isinstance(inner, exp.Anonymous)
        function = self.functions.get(inner.name.lower()) if is_call else None
        if function is None:
            return None
        is_star = [type(expression) for expression in inner.expressions] == [exp.Star]
        call = Call(
            function, negated, offset_of(inner), () if is_star else tuple(inner.expressions)
        )
        n_arguments = len(call.arguments)
        if n_arguments and n_arguments != len(function.reads):
            takes = f"{function.name}({', '.join(function.reads)})"
            message = f"{takes} takes {len(function.reads)} argument(s), got {n_arguments}"
            refuse(message, self._text, call.start, function=function.name)
        for argument in call.arguments:
            self.check_none(argument, "as an argument of another")
        return call

    def within(self, tree: Expr) -> list[exp.Anonymous]:
        """Return the calls of functions of the user in an expression, in the order of the text."""
        calls = tree.find_all(exp.Anonymous)
        user_calls = [call for call in calls if str(call.name).lower() in self.functions]
        return sorted(user_calls, key=offset_of)

    def check_none(
        self, tree: Expr, where: str = "inside a larger expression of a query over several inputs"
    ) -> None:
        """Refuse a function in an expression that is no call."""
        for node in self.within(tree):
            message = (
                f"the function {node.name} {where} is not supported yet; "
                f"it may stand between the ANDs of WHERE, alone or after NOT"
            )
            offset = offset_of(node)
            refuse(message, self._text, offset, NotSupportedError, function=str(node.name))


class Conditions:
    """The conditions of a query over one input."""

    def __init__(
        self, statement: Statement, calls: Calls, names: Names, inputs: Sequence[str]
    ) -> None:
        self.statement = statement
        self._calls = calls
        self._names = names
        self.predicates: dict[str, list[Predicate]] = {name: [] for name in inputs}
        """By input, the conjuncts that read it alone; the first input has what reads none."""
        self._word = "WHERE"

    def add(self, word: str, tree: Expr) -> None:
        """Sort the conjuncts of a condition of ON or WHERE; some are not run yet."""
        for conjunct in self.statement.conjuncts(tree):
            self.add_conjunct(word, conjunct)

    def add_conjunct(self, word: str, conjunct: Fragment) -> None:
        """Add a conjunct of ON or WHERE, in which no subquery stands."""
        self._word = word
        check_is_row_wise(conjunct.tree, self.statement.text, word, self._calls.functions)
        call = self._calls.call(conjunct.tree)
        if call is None:
            self._add_conjunct(conjunct, self._names.inputs(conjunct, self._word))
        else:
            self._add_call(call)

    def _add_conjunct(self, part: Fragment, inputs: Sequence[str]) -> None:
        """Add a conjunct that reads one input, or none."""
        text = self._names.unqualified(part, self._word)
        names = {str(call.name).lower() for call in self._calls.within(part.tree)}
        called = {name: self._calls.functions[name] for name in sorted(names)}
        predicate = MixedPredicate(text, functions=called) if called else SqlPredicate(text)
        self._predicates_of(inputs).append(predicate)

    def _predicates_of(self, inputs: Sequence[str]) -> list[Predicate]:
        return self.predicates[inputs[0] if inputs else next(iter(self.predicates))]

    def _add_call(self, call: Call) -> None:
        """Add a conjunct that calls a function of the user."""
        predicate, inputs = self.called(call, self._word)
        if len(inputs) > 1:
            message = (
                f"the function {call.function.name} reads {' and '.join(inputs)}; "
                f"over several inputs it is not supported yet"
            )
            facts = {"function": call.function.name}
            refuse(message, self.statement.text, call.start, NotSupportedError, **facts)
        self._predicates_of(inputs).append(predicate)

    def called(self, call: Call, word: str) -> tuple[FunctionPredicate, Sequence[str]]:
        """Return a call as a predicate over what it reads, and the inputs of that."""
        arguments = [self.statement.part(argument) for argument in call.arguments]
        if not arguments:
            reads, inputs = self._names.own_reads(call.function, call.start)
            return call.predicate(reads), inputs
        named = [self._names.inputs(argument, word) for argument in arguments]
        inputs = list(dict.fromkeys(name for names in named for name in names))
        return call.predicate(
            [self._names.unqualified(argument, word) for argument in arguments]
        ), inputs


@dataclass(frozen=True, slots=True)
class _InSide:
    """A value before IN, or an output column of its SELECT."""

    inputs: Sequence[str]
    own: str
    """Over unqualified columns, as they are called in the schema."""
    qualified: str
    is_operand: bool
    """Whether the text may stand beside ``=`` without parentheses."""

    def operand(self, text: str) -> str:
        """Return a text of this side as it may stand beside ``=``."""
        return text if self.is_operand else f"({text})"

    def within(self, around: str) -> _InSide:
        """Return the side with other texts, in which its own stand at ``{}``."""
        text, qualified = (around.format(part) for part in (self.own, self.qualified))
        return replace(self, own=text, qualified=qualified, is_operand=False)


_NULL, _ALWAYS = "({}) IS NULL", "({}) IS NULL OR true"
"""Keys of rows: whether a value is NULL, and one that all rows have."""


def _equality(sides: Iterable[_InSide]) -> str:
    """Return the equality of two sides, over qualified columns."""
    return " = ".join(side.operand(side.qualified) for side in sides)


class JoinConditions(Conditions):
    """The conditions of a query over several inputs; see ``Conditions``."""

    def __init__(
        self, statement: Statement, calls: Calls, names: JoinNames, items: Sequence[FromItem]
    ) -> None:
        super().__init__(statement, calls, names, [])
        self._scoped = names
        self._times: dict[str, str] = {}
        timed = [item for item in items if item.time is not None]
        types = {item.columns.get(item.time or "") for item in timed}
        self.bounds = TimeBounds(is_local=types == {"timestamp_ntz"})
        self.keys = Keys()
        self.equalities: list[str] = []
        """As written, with every column qualified."""
        self.residual: list[str] = []
        """The other conjuncts over several inputs, with every column qualified."""
        self.conditions: list[str] = []
        """See ``Query.conditions``."""
        self.partner = ""
        """While ON of a join that is not inner is read: its second input."""
        self.absent = ""
        """While WHERE is read: the input of which results may have no row."""
        self.needed: set[str] = set()
        """Inputs that have a row where the condition on partners, or of an inner join, is true."""
        self._later: list[tuple[list[tuple[Side, Side]], str, list[str], int]] = []
        """Equalities that become keys if nothing else connects their inputs. For each: its keys,
        its text, the list of conditions that it then leaves (empty if it stays), its offset."""
        self._no_keys: list[tuple[frozenset[str], str, str, int]] = []
        """Equalities that cannot be keys: inputs, text, reason and offset of each."""

    def add_input(self, name: str, items: Sequence[FromItem]) -> None:
        """Let conditions read one more relation: one of FROM, or one that holds several."""
        self.predicates[name] = []
        self._times |= {item.name: item.time for item in items if item.time is not None}

    def connect(self, asked: tuple[str, int] | None = None) -> None:
        """Turn the later equalities into keys where inputs have none, and check all inputs.

        Args:
            asked: of a stage that EXISTS or IN adds, these words, and their offset.

        Raises:
            NotSupportedError: only an equality that cannot be a key connects two inputs, or none
                connects the rows of EXISTS or IN.
        """
        for pairs, written, kept, offset in self._later:
            classes = self.keys.classes()
            met = ({one.input, other.input} for one, other in pairs)
            if all(
                any(names <= key_class.members.keys() for key_class in classes) for names in met
            ):
                continue
            for pair in pairs:
                if (clash := self.keys.add(*pair)) is not None:
                    self._refuse_kinds(clash, offset)
            if kept:
                kept.remove(written)
                self.equalities.append(written)
        reached = {next(iter(self.predicates))}
        joined = [{*key_class.members} for key_class in self.keys.classes()]
        while more := [names for names in joined if names & reached and not names <= reached]:
            reached = reached.union(*more)
        for inputs, written, why, start in self._no_keys:
            if not inputs <= reached:
                message = f"{written} cannot be the key of a join, and is not supported yet: {why}"
                self.statement.refuse(message, start)
        if asked is not None and not self.predicates.keys() <= reached:
            self._ask_for_any(*asked)

    def _ask_for_any(self, phrase: str, start: int) -> None:
        """Let EXISTS or IN, of which nothing is asked by row, ask for any row of its SELECT.

        Raises:
            NotSupportedError: something is asked by row.
        """
        outer, inner = self.predicates
        if self.conditions:
            message = (
                f"{phrase}: no equality connects {inner} with {outer}, so each row would be "
                f"compared with all rows of the SELECT; add one to its WHERE, such as "
                f"{inner}.k = {outer}.k"
            )
            self.statement.refuse(message, start)
        sides = [Side(name, "true", "a boolean", "true", BOOLEAN) for name in (outer, inner)]
        self.keys.add(sides[0], sides[1])

    def add_using(self, left: Named, right: Named, start: int) -> None:
        """Add the equality of two columns of one type that USING names at an offset."""
        places = [self._scoped.place_of(named) for named in (left, right)]
        sides = [(place.input, identifier(place.column)) for place in places]
        self._add_equality(sides, " = ".join(place.text for place in places), start)
        if all(self._times.get(named.input) == named.column for named in (left, right)):
            self.bounds.limit(left.input, right.input, 0)
            self.bounds.limit(right.input, left.input, 0)

    def _add_bounds(self, part: Fragment) -> None:
        """Add the bounds of event times that a conjunct over several inputs states."""
        mentions = {mention.start: mention for mention in self._scoped.mentions(part, self._word)}

        def stream_of(node: exp.Column) -> str:
            mention, place = mentions.get(offset_of(node)), node.parts[-1].meta
            if mention is None or mention.end != place["end"] + 1:  # no column, or a field of one
                return ""
            name = mention.named.input
            return name if self._times.get(name) == mention.named.column else ""

        self.needed |= self.bounds.add(part.tree, stream_of)

    def add_in(self, asked: Exists, outer: Scope) -> None:
        """Add what ``(x, y) [NOT] IN (SELECT …)`` asks of its rows; EXISTS adds nothing.

        Args:
            asked: the condition.
            outer: what the values before IN may read; the output columns read the current scope.
        """
        if not asked.compared:
            return
        columns = self.statement.items_of(asked.select)
        start = self.statement.part(asked.node).start
        self._check_in(asked, columns, start)
        self._word, inner = "IN", self._scoped.scope
        pairs = []
        for value, column in zip(asked.compared, columns, strict=True):
            side = self._in_side(unaliased(column, self.statement)[1])
            self._scoped.scope = outer
            pairs.append((side, self._in_side(self.statement.part(value))))
            self._scoped.scope = inner
        of_select, before_in = pairs[0]
        if asked.asks == "equal":
            for pair in pairs:
                self._add_in(pair, start)
        elif asked.asks == "possible":
            self.conditions.append(f"coalesce({_equality(pairs[0])}, true)")
        elif asked.asks == "unknown":
            self.conditions.append(f"({' AND '.join(map(_equality, pairs))}) IS NULL")
            self._add_in((of_select.within(_ALWAYS), before_in.within(_ALWAYS)), start)
        elif asked.asks == "null":
            if of_select.inputs == [self.partner]:  # others need not be kept
                self.predicates[self.partner].append(SqlPredicate(_NULL.format(of_select.own)))
            self._add_in((of_select.within(_NULL), before_in.within(_ALWAYS)), start)
        else:
            self._add_in((of_select.within(_ALWAYS), before_in.within(_NULL)), start)

    def _check_in(self, asked: Exists, columns: Sequence[Fragment], start: int) -> None:
        """Refuse IN whose sides are not single values, as many on both."""
        for column in columns:
            if column.tree.is_star:
                message = "IN (SELECT *) is not supported yet; name the columns"
                self.statement.refuse(message, column.start)
        if len(columns) != len(asked.compared):
            message = (
                f"IN compares as many values as its SELECT has output columns: "
                f"{len(asked.compared)} before IN, {len(columns)} in SELECT"
            )
            refuse(message, self.statement.text, columns[0].start)
        sides = [unaliased(output, self.statement)[1].tree for output in columns]
        if any(isinstance(side.unnest(), exp.Tuple) for side in (*sides, *asked.compared)):
            message = "IN (SELECT …) of rows in rows, or without values, is not supported yet"
            self.statement.refuse(message, start)

    def _in_side(self, part: Fragment) -> _InSide:
        self._calls.check_none(part.tree)
        check_is_row_wise(part.tree, self.statement.text, self._word)
        self._check_deterministic(part)
        inputs = self._scoped.inputs(part, self._word)
        text = self._scoped.canonical(part, self._word)
        is_operand = isinstance(part.tree, exp.Column | exp.Literal | exp.Paren | exp.Anonymous)
        return _InSide(inputs, text, self._scoped.qualified(part, self._word), is_operand)

    def _add_in(self, sides: tuple[_InSide, _InSide], start: int) -> None:
        """Add the equality of an output column and a value before IN."""
        inputs = list(dict.fromkeys(name for side in sides for name in side.inputs))
        written = _equality(sides)
        if [len(side.inputs) for side in sides] == [1, 1] and len(inputs) == 2:
            self._add_equality([(side.inputs[0], side.own) for side in sides], written, start)
        elif inputs == [self.partner]:
            text = " = ".join(side.operand(side.own) for side in sides)
            self.predicates[self.partner].append(SqlPredicate(text))
        else:
            self.conditions.append(written)

    def _add_conjunct(self, part: Fragment, inputs: Sequence[str]) -> None:
        self._calls.check_none(part.tree)
        is_partner = self.partner and [*inputs] != [self.partner]
        if len(inputs) != 1 or is_partner or self.absent in inputs:
            self._check_deterministic(part)
        qualified = self._scoped.qualified(part, self._word)
        if self.absent in inputs:
            self.residual.append(qualified)
            return
        others = self.conditions if self.partner else self.residual
        if is_partner and len(inputs) < 2:
            others.append(qualified)
            return
        if len(inputs) < 2:
            super()._add_conjunct(part, inputs)
            return
        self._add_bounds(part)
        tree = part.tree
        trees = [tree.left, tree.right] if isinstance(tree, exp.EQ) else []
        if trees and all(isinstance(side, exp.Column) for side in trees):
            self.needed |= {
                mention.named.input for mention in self._scoped.mentions(part, self._word)
            }
        if named := self._named(trees):
            self._add_equality(named, qualified, part.start)
            return
        others.append(qualified)
        self._add_null_safe(part, qualified, others)

    def _add_null_safe(self, part: Fragment, written: str, asked: list[str]) -> None:
        """Note ``a <=> b`` and ``(a, b) = (c, d)``, in which NULL equals NULL."""
        trees = _null_safe_trees(part.tree)
        pairs = [named for operands in trees if (named := self._named(operands))]
        keys: list[tuple[Side, Side]] = []
        for pair in pairs:
            sides = null_safe_sides(pair, self._scoped.columns_of)
            if isinstance(sides, str):
                names = frozenset(name for name, _ in pair)
                self._no_keys.append((names, written, sides, part.start))
                return
            keys += sides
        if keys:  # pairs that do not belong to two inputs stay conditions on results
            rest = asked if len(pairs) == len(trees) else []
            self._later.append((keys, written, rest, part.start))

    def _named(self, trees: Sequence[Expr]) -> list[tuple[str, str]]:
        """Return input and text of two sides that belong to one input each, and not the same."""
        sides = [self._side(tree) for tree in trees]
        if None in sides:
            return []
        parts = [side for side in sides if side is not None]
        read = [self._scoped.inputs(side, self._word) for side in parts]
        if [len(names) for names in read] != [1, 1] or read[0] == read[1]:
            return []
        texts = [self._scoped.canonical(side, self._word) for side in parts]
        return [(name, text) for (name,), text in zip(read, texts, strict=True)]

    def _add_call(self, call: Call) -> None:
        _, inputs = self.called(call, self._word)
        is_first = self.partner and [*inputs] != [self.partner]
        if is_first or self.absent in inputs:
            clause = f"{self._word} of a join that is not inner"
            message = f"the function {call.function.name} in {clause} is not supported yet here"
            facts = {"function": call.function.name}
            refuse(message, self.statement.text, call.start, NotSupportedError, **facts)
        super()._add_call(call)

    def _check_deterministic(self, part: Fragment) -> None:
        if (node := drawn(part.tree)) is not None:
            message = (
                f"{self._word}: {as_name(node)}() is not deterministic, "
                f"which is not supported yet in a condition on results or partners of a join"
            )
            self.statement.refuse(message, part.start)

    # -- equalities -------------------------------------------------------------------------------

    def _side(self, tree: Expr) -> Fragment | None:
        """Return a side of an equality without parentheses; None if it is a row of several."""
        inner = tree.unnest()
        return None if isinstance(inner, exp.Tuple) else self.statement.part(inner)

    def _add_equality(self, sides: Sequence[tuple[str, str]], written: str, start: int) -> None:
        """Add an equality of two expressions, each of one input, as written at an offset."""
        a, b = (side_of(name, text, self._scoped.columns_of(name)) for name, text in sides)
        asked = self.conditions if self.partner else self.residual
        if isinstance(a, str) or isinstance(b, str):
            why = a if isinstance(a, str) else str(b)
            names = frozenset(name for name, _ in sides)
            self._no_keys.append((names, written, why, start))
            asked.append(written)
            return
        if not (a.is_plain and b.is_plain):
            self._later.append(([(a, b)], written, asked, start))
            asked.append(written)
            return
        clash = self.keys.add(a, b)
        if clash is not None:
            self._refuse_kinds(clash, start)
        self.equalities.append(written)

    def _refuse_kinds(self, clash: tuple[Side, Side], start: int) -> NoReturn:
        a, b = (f"{side.text} of {side.input} is {side.kind}" for side in clash)
        message = (
            f"an equality of different types is not supported yet as the key of a join: "
            f"{a}, {b}; CAST one to the type of the other"
        )
        self.statement.refuse(message, start)


def _null_safe_trees(tree: Expr) -> list[Sequence[Expr]]:
    """Return the pairs that a condition requires to be equal, or both NULL."""
    if isinstance(tree, exp.NullSafeEQ):
        return [(tree.left, tree.right)]
    if as_name(tree) == "equal_null" and len(tree.expressions) == 2:
        return [tree.expressions]
    rows = [side.unnest() for side in (tree.left, tree.right)] if isinstance(tree, exp.EQ) else []
    if not rows or not all(isinstance(row, exp.Tuple) for row in rows):
        return []
    left, right = (row.expressions for row in rows)
    return [*zip(left, right, strict=True)] if len(left) == len(right) else []


_KINDS = {
    "integer": ("a number", "0"),
    "decimal": ("a number", "0"),
    "float": ("a float", "0"),
    "string": ("a string", "''"),
    "boolean": ("a boolean", "false"),
    "date": ("a date", "'1970-01-01'"),
    "timestamp": ("a timestamp", "'1970-01-01 00:00:00'"),
    "timestamp_ntz": ("a timestamp without a time zone", "'1970-01-01 00:00:00'"),
    "binary": ("binary", "''"),
}
"""Kinds of types, and a value of each that replaces NULL in a key: another key says whether it is
NULL. Types of one kind compare exactly, so their equality is transitive: 1 = 1.00, but a string can
equal two numbers, and two bigints one float."""

_INEXACT = re.compile(r"[<:,](float|double|map|variant|interval|void)\b(?!:)|collate")
"""Types inside structs and arrays whose equal values may differ in bits, or have no equality."""

_OF_DAYS = re.compile("day|hour|minute|second")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equality: an expression over one input."""

    input: str
    text: str
    """Over the input's unqualified columns."""
    kind: str
    """Kind of its values, in words; empty if that cannot be told."""
    identity: str
    """Equal for sides that are the same but for blanks, comments and case of functions."""
    type: SqlType

    @property
    def is_plain(self) -> bool:
        """Whether its values are, as far as known, no structs, arrays or intervals."""
        return self.kind in ("", *(words for words, _ in _KINDS.values()))


def side_of(name: str, text: str, columns: Mapping[str, str]) -> Side | str:
    """Return a side of an equality as a key, or in words why it cannot be one."""
    side = Expression(text, text, columns, ansi=True)
    tree, kind = side.tree, side.type_of(side.tree)
    types = [columns[column] for column in side.columns_of(tree)]
    if says_collation(tree) or any("collate" in type_name.lower() for type_name in types):
        return (
            f"{text} has a collation, so different texts may be equal; compare "
            f"lower(…), or … COLLATE UTF8_BINARY"
        )
    is_whole = kind.family in ("struct", "array") and not _INEXACT.search(kind.text)
    if is_whole or (kind.family == "interval" and _OF_DAYS.search(kind.text)):
        words = kind.text
    elif kind.family == "interval":
        return f"{text} has the type {kind.text}, which Arrow does not have; compare its months"
    elif kind.is_known and kind.family not in _KINDS:
        return f"{text} has the type {kind.text}; compare plain values in it"
    else:
        words, _ = _KINDS.get(kind.family, ("", ""))
    identity = tree.unnest().sql(comments=False, normalize_functions="upper")
    return Side(name, text, words, identity, kind)


def null_safe_sides(
    sides: Iterable[tuple[str, str]], columns_of: Callable[[str], Mapping[str, str]]
) -> list[tuple[Side, Side]] | str:
    """Return ``a <=> b`` as two equalities of keys, or in words why that is impossible.

    The first compares whether the sides are NULL. The second compares the sides with a default
    value instead of NULL.
    """
    nulls: list[Side] = []
    values: list[Side] = []
    for name, text in sides:
        side = side_of(name, text, columns_of(name))
        if isinstance(side, str):
            return side
        kind = side.type
        if kind.family not in _KINDS:
            words = kind.text if kind.is_known else "of a type that the text does not tell"
            return f"NULL equals NULL in it, which takes plain types; {text} is {words}; CAST it"
        default = f"CAST({_KINDS[kind.family][1]} AS {kind.text})"
        null, value = f"(({text}) IS NULL)", f"coalesce({text}, {default})"
        same = f"coalesce {side.identity} {default}"
        nulls.append(Side(name, null, "a boolean", f"null {side.identity}", BOOLEAN))
        values.append(Side(name, value, side.kind, same, kind))
    one, other = values
    if one.kind != other.kind:
        return f"{one.input} has {one.kind} and {other.input} {other.kind}; CAST one of them"
    return [(nulls[0], nulls[1]), (one, other)]


class Keys:
    """Expressions in classes, joined by the equalities that are added."""

    def __init__(self) -> None:
        self._classes: list[list[Side]] = []

    def add(self, left: Side, right: Side) -> tuple[Side, Side] | None:
        """Make two sides and all equal to them equal, or return two that are of other kinds."""
        touched = [group for group in self._classes if _has(group, left) or _has(group, right)]
        merged = [side for group in touched for side in group]
        merged += [side for side in (left, right) if not _has(merged, side)]
        typed_sides = [side for side in (left, right, *merged) if side.kind]
        for side in typed_sides:
            if side.kind != typed_sides[0].kind:
                return typed_sides[0], side
        others = [group for group in self._classes if group not in touched]
        first = self._classes.index(touched[0]) if touched else len(others)
        self._classes = [*others[:first], merged, *others[first:]]
        return None

    def classes(self) -> tuple[KeyClass, ...]:
        """Return the classes in the order of the first equality of each."""
        return tuple(KeyClass(_members(group)) for group in self._classes)


def _has(sides: list[Side], side: Side) -> bool:
    return any((other.input, other.identity) == (side.input, side.identity) for other in sides)


def _members(sides: list[Side]) -> dict[str, tuple[str, ...]]:
    members: dict[str, tuple[str, ...]] = {}
    for side in sides:
        members[side.input] = (*members.get(side.input, ()), side.text)
    return members


# -- windows that follow from conditions -------------------------------------------------------
# Windows that follow from the condition: ``t.ts BETWEEN s.ts AND s.ts + INTERVAL '5' MINUTES``.
#
# In: the conjuncts of a join. Out: lengths of windows for streams of which the query states none.
#
# A result needs all its rows to be in their windows at one instant. So a window of the length L
# for ``s`` keeps exactly the combinations with ``x.ts - s.ts <= L`` for every other stream ``x``.
# If the condition implies these bounds, the window changes no result. Bounds are differences of
# event times, so they add up along paths: the shortest paths are the bounds that the conjuncts
# imply together [Dechter91]. The windows that the query states are bounds as well, because every
# result meets them.
#
# Only conjuncts over the very columns of event times count, and only spans of fixed length. In
# Spark, ``TIMESTAMP + INTERVAL`` moves whole days by the wall clock of the session, and so does
# the difference of two ``TIMESTAMP``. The result differs from exact time by the difference of two
# offsets of a time zone. Such a bound is longer by ``MAX_SHIFT``.


DAY = UNITS["day"]

MAX_SHIFT = 36 * UNITS["hour"]
"""µs between the offsets of two time zones at most: Java's are within 18 hours of UTC."""

_AT_MOST = (exp.LT, exp.LTE, exp.EQ, exp.NullSafeEQ)
_AT_LEAST = (exp.GT, exp.GTE, exp.EQ, exp.NullSafeEQ)

_ADDING = ("timestampadd", "dateadd", "date_add")
"""Functions that add a number of units to a timestamp."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """Event times that are added or subtracted, and a span of time."""

    times: Mapping[str, int]
    """How often the event time of each stream is added; negative if it is subtracted."""
    span: int
    """µs, may be negative."""
    size: int = 0
    """The sum of the absolute values of the spans (µs)."""
    shift: int = 0
    """µs by which its value may differ, because some of it goes by the wall clock."""

    def plus(self, other: _Sum, sign: int, *, is_local: bool) -> _Sum:
        """Return the sum with another one, or the difference if ``sign`` is -1."""
        times = Counter(self.times)
        for name, n in other.times.items():
            times[name] += sign * n
        spans = [part.size for part in (self, other) if not part.times]
        is_moved = len(spans) < 2 and all(size >= DAY for size in spans) and not is_local
        return _Sum(
            times,
            self.span + sign * other.span,
            self.size + other.size,
            self.shift + other.shift + MAX_SHIFT * is_moved,
        )


class TimeBounds:
    """Upper bounds of differences between the event times of streams.

    Args:
        is_local: whether the event times are ``TIMESTAMP_NTZ``.
    """

    def __init__(self, *, is_local: bool) -> None:
        self._is_local = is_local
        self._bounds: dict[tuple[str, str], int] = {}
        """By two streams, the most by which the first event time is later than the second (µs)."""

    def add(self, condition: Expr, stream_of: Callable[[exp.Column], str]) -> set[str]:
        """Add the bounds that a conjunct states, if it states any; return their streams.

        Args:
            condition: the conjunct.
            stream_of: returns the stream whose event time a column is; empty if it is none.
        """
        before, self._bounds = self._bounds, {}
        if isinstance(condition, exp.Between):
            low, high = condition.args["low"], condition.args["high"]
            if not condition.args.get("symmetric"):
                self._add(low, condition.this, stream_of)
                self._add(condition.this, high, stream_of)
        if isinstance(condition, _AT_MOST):
            self._add(condition.this, condition.expression, stream_of)
        if isinstance(condition, _AT_LEAST):
            self._add(condition.expression, condition.this, stream_of)
        added, self._bounds = self._bounds, before
        for (later, earlier), most in added.items():
            self.limit(later, earlier, most)
        return {name for pair in added for name in pair}

    def _add(self, less: Expr, more: Expr, stream_of: Callable[[exp.Column], str]) -> None:
        """Add that one expression is at most another."""
        left, right = self._sum(less, stream_of), self._sum(more, stream_of)
        if left is None or right is None:
            return
        difference = left.plus(right, -1, is_local=True)
        sides = {n: name for name, n in difference.times.items() if n}
        n_times = sum(map(abs, difference.times.values()))
        if n_times == 2 and {*sides} == {1, -1}:
            self.limit(sides[1], sides[-1], difference.shift - difference.span)

    def add_all(self, other: TimeBounds) -> None:
        """Add the bounds of another object."""
        for (later, earlier), most in other._bounds.items():
            self.limit(later, earlier, most)

    def limit(self, later: str, earlier: str, most: int) -> None:
        """Add that one event time is later than another one by at most so much (µs)."""
        bound = self._bounds.get((later, earlier), most)
        self._bounds[later, earlier] = min(bound, most)

    def _sum(self, tree: Expr, stream_of: Callable[[exp.Column], str]) -> _Sum | None:
        """Return an expression as a sum; None if it is no sum of event times and spans."""
        tree = tree.unnest()
        if isinstance(tree, exp.Column):
            name = stream_of(tree)
            return _Sum({name: 1}, 0) if name else None
        if isinstance(tree, exp.Add | exp.Sub):
            sides = self._sum(tree.left, stream_of), self._sum(tree.right, stream_of)
            sign = 1 if isinstance(tree, exp.Add) else -1
        elif as_name(tree) in _ADDING and len(tree.expressions) == 3:
            unit, number, time = tree.expressions
            sides, sign = (self._sum(time, stream_of), _units(unit, number)), 1
        else:
            return _span(tree)
        left, right = sides
        if left is None or right is None:
            return None
        return left.plus(right, sign, is_local=self._is_local)

    def lengths(self, stated: Mapping[str, int | None]) -> dict[str, int]:
        """Return the lengths of windows that the bounds imply (µs), by stream.

        Args:
            stated: of every stream of the join, the length of the window that the query states
                (µs), or None if it states none.
        """
        pairs = [*permutations(stated, 2)]
        most = {pair: self._bounds[pair] for pair in pairs if pair in self._bounds}
        for pair in pairs:
            if (length := stated[pair[1]]) is not None:
                most[pair] = min(most.get(pair, length), length)
        for via, (later, earlier) in product(stated, pairs):
            if (later, via) in most and (via, earlier) in most:
                path = most[later, via] + most[via, earlier]
                most[later, earlier] = min(most.get((later, earlier), path), path)
        lengths: dict[str, int] = {}
        for name in [name for name, length in stated.items() if length is None]:
            limits = [most.get(pair, MAX_SPAN + 1) for pair in pairs if pair[1] == name]
            if limits and max(limits) <= MAX_SPAN:
                lengths[name] = max(0, *limits)
        return lengths


# -- spans of time ---------------------------------------------------------------------------------


def _span(tree: Expr) -> _Sum | None:
    """Return an interval of fixed length; None if it is none."""
    tree, sign = tree.unnest(), 1
    if isinstance(tree, exp.Neg):
        tree, sign = tree.this.unnest(), -1
    if not isinstance(tree, exp.Interval):
        return None
    value, unit = tree.this, tree.args.get("unit")
    if isinstance(value, exp.Neg):
        value, sign = value.this, -sign
    if not isinstance(value, exp.Literal):
        return None
    if isinstance(unit, exp.IntervalSpan):
        micros = _between(value.name, unit.name, unit.expression.name)
    elif isinstance(unit, exp.Var | None):
        micros = micros_in(f"{value.name} {'' if unit is None else unit.name}")
        if micros is not None and "-" in value.name.strip()[1:]:
            return None  # 1 day -2 hours: its days may go by the wall clock
    else:
        return None
    return None if micros is None else _Sum({}, sign * micros, abs(micros))


_FIELDS = ("day", "hour", "minute", "second")
_OF_FIELDS = re.compile(r"([+-]?)(\d+(?:[ :]\d+)+(?:\.\d+)?)", re.ASCII)


def _between(text: str, first: str, last: str) -> int | None:
    """Return the length of ``INTERVAL '1:30' MINUTE TO SECOND`` in µs; None if it has months.

    >>> _between("1:30", "MINUTE", "SECOND"), _between("-1 02", "DAY", "HOUR")
    (90000000, -93600000000)
    """
    match = _OF_FIELDS.fullmatch(text.strip())
    if match is None or not {first.lower(), last.lower()} <= {*_FIELDS}:
        return None
    units = _FIELDS[_FIELDS.index(first.lower()) : _FIELDS.index(last.lower()) + 1]
    numbers = re.split("[ :]", match[2])
    if len(numbers) != len(units):
        return None
    parts = zip(numbers, units, strict=True)
    micros = sum(Fraction(number[:4_000]) * UNITS[unit] for number, unit in parts)
    whole = int(micros) if Fraction(micros).denominator == 1 else None
    return -whole if whole is not None and match[1] == "-" else whole


def _units(unit: Expr, number: Expr) -> _Sum | None:
    """Return so many units as a span; None if these are no whole number of a fixed unit."""
    number, sign = number.unnest(), 1
    if isinstance(number, exp.Neg):
        number, sign = number.this.unnest(), -1
    is_whole = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
    if not is_whole or len(number.name) > 18 or unit.name.lower() not in UNITS:
        return None
    micros = int(number.name) * UNITS[unit.name.lower()]
    return _Sum({}, sign * micros, micros)
