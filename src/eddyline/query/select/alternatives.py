"""Rewriting of EXISTS and IN under OR as several SELECTs.

The rows of all these together are the results.

In: the conditions of WHERE. Out: alternatives, each of which is a list of conjuncts. A conjunct is
plain SQL, or it is EXISTS or IN, each of them negated or not. No row meets two of the alternatives,
so UNION ALL of them has each result once.

NOT moves inwards, which SQL's three truth values allow. Then WHERE is true if enough of its parts
are true, so a part that is NULL may count as false. ``a OR b`` becomes ``a``, and ``b`` where ``a``
is not true. ``x NOT IN (SELECT y …)`` is true if no row has ``y = x``, none has ``y`` NULL, and
there is no row at all if ``x`` is NULL. Where an equality with a column outside finds few rows, one
join asks for all three.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError, NullWarning, own_frames
from eddyline.query.select.statement import Exists, Fragment, asked_by
from eddyline.sql.functions import as_name, drawn, joined_by
from eddyline.sql.parsing import at, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlglot import Expr

    from eddyline.query.select.statement import Statement

MOST = 64
"""Most alternatives of one WHERE."""


@dataclass(frozen=True, slots=True)
class _All:
    """Conditions that are all to be true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    """Conditions of which one is to be true."""

    parts: tuple[Condition, ...]


Condition = Fragment | Exists | _All | _Any


@dataclass(frozen=True, slots=True)
class Alternative:
    """Conjuncts of WHERE."""

    plain: tuple[Fragment, ...]
    asked: tuple[Exists, ...]


def alternatives(statement: Statement) -> list[Alternative]:
    """Return the alternatives of a statement's WHERE; one if no subquery stands under OR.

    Raises:
        NotSupportedError: there are more than ``MOST``.
    """
    where = statement.tree.args.get("where")
    if where is None:
        return [Alternative((), ())]
    conjuncts = statement.conjuncts(where.this)
    if not statement.exists:
        return [Alternative(tuple(conjuncts), ())]
    conditions = [
        _condition(statement, part.tree, negated=False) if _asks(part.tree) else part
        for part in conjuncts
    ]
    _warn_of_nulls(statement, conditions)
    trees = [condition.tree for condition in conditions if isinstance(condition, Fragment)]
    conditions = [_asked_once(_without_known(condition, trees)) for condition in conditions]
    results: list[Alternative] = []
    for plain, asked in _cut(conditions):
        signs = {(id(exists.select), exists.asks, exists.is_negated): exists for exists in asked}
        split = (
            [fragment] if fragment.around[0] else statement.conjuncts(fragment.tree)
            for fragment in plain
        )
        alternative = Alternative(tuple(chain.from_iterable(split)), tuple(signs.values()))
        if not any((select, asks, not sign) in signs for select, asks, sign in signs):
            results.append(alternative)
        if len(results) > MOST:
            message = f"EXISTS and IN under OR make more than {MOST} alternatives of WHERE"
            refuse(message, statement.text, statement.part(where.this).start, NotSupportedError)
    return results or [alternative]  # one that no row meets, if there is no other


def _asks(tree: Expr) -> bool:
    """Return whether EXISTS or IN of a SELECT is in a condition."""
    return any(asked_by(node) is not None for node in tree.walk())


def _condition(statement: Statement, tree: Expr, *, negated: bool) -> Condition:
    """Return a condition, or NOT of it, without NOT around AND and OR."""
    if (asked := asked_by(tree)) is not None:
        return _asked(replace(asked, is_negated=asked.is_negated != negated))
    if not _asks(tree):
        fragment = statement.part(tree)
        if (node := drawn(tree)) is not None:
            message = (
                f"WHERE: {as_name(node)}() is drawn anew, so it cannot stand beside a subquery"
            )
            statement.refuse(f"{message} under OR or NOT", fragment.start)
        return fragment.negated(is_null_true=False) if negated else fragment
    inner = tree.unnest()
    if isinstance(inner, exp.Not):
        return _condition(statement, inner.this, negated=not negated)
    kind = exp.And if isinstance(inner, exp.And) else exp.Or
    parts = [_condition(statement, part, negated=negated) for part in joined_by(kind, inner)]
    return (_All if (kind is exp.And) != negated else _Any)(tuple(parts))


def _asked(asked: Exists) -> Condition:
    """Return EXISTS or IN, or the conditions that NOT IN is: of equal values, and of NULLs."""
    if not (asked.compared and asked.is_negated):
        return asked
    if len(asked.compared) > 1:
        return _All((asked, replace(asked, asks="unknown")))
    parts = [asked, replace(asked, asks="null"), replace(asked, asks="any")]
    where = asked.select.args.get("where")
    inside = [] if where is None else joined_by(exp.And, where.this)
    if _is_known(asked.select.expressions[0].unalias(), inside):
        parts.pop(1)
    return _All(tuple(parts))


def _asked_once(condition: Condition) -> Condition:
    """Return a condition in which one join asks for equal values and NULLs where that is cheap."""
    if not isinstance(condition, _All | _Any):
        return condition
    parts = tuple(map(_asked_once, condition.parts))
    first = parts[0]
    if isinstance(condition, _All) and isinstance(first, Exists) and _is_connected(first.select):
        same = [isinstance(part, Exists) and part.select is first.select for part in parts]
        if len(first.compared) == 1 and len(parts) > 1 and all(same):
            return replace(first, asks="possible")
    return replace(condition, parts=parts)


def _is_connected(select: exp.Select) -> bool:
    """Return whether WHERE has the equality of a column of a SELECT and one outside."""
    where, alias = select.args.get("where"), select.args["from_"].this.alias_or_name.lower()
    for conjunct in [] if where is None else joined_by(exp.And, where.this):
        inner = conjunct.unnest()
        sides = [inner.left, inner.right] if isinstance(inner, exp.EQ) else []
        names = [side.table.lower() for side in sides if isinstance(side, exp.Column)]
        if len(names) == 2 and alias in names and any(name not in ("", alias) for name in names):
            return True
    return False


def _is_known(value: Expr, conjuncts: Iterable[Expr]) -> bool:
    """Return whether a conjunct says that a value is not NULL."""
    for conjunct in conjuncts:
        inner = conjunct.unnest()
        if isinstance(inner, exp.Not) and isinstance(inner.this.unnest(), exp.Is):
            comparison = inner.this.unnest()
            same = comparison.this.sql().lower() == value.unnest().sql().lower()
            if same and isinstance(comparison.expression, exp.Null):
                return True
    return False


def _without_known(condition: Condition, conjuncts: Sequence[Expr]) -> Condition:
    """Return a condition that asks nothing for a NULL before NOT IN which WHERE excludes."""
    if not isinstance(condition, _All):
        return condition
    parts = [_without_known(part, conjuncts) for part in condition.parts]
    return _All(
        tuple(
            part
            for part in parts
            if not (
                isinstance(part, Exists)
                and part.asks == "any"
                and _is_known(part.compared[0], conjuncts)
            )
        )
    )


def _warn_of_nulls(statement: Statement, conditions: Sequence[Condition]) -> None:
    """Warn of each NOT IN whose SELECT may have a NULL."""
    for condition in conditions:
        if isinstance(condition, _All | _Any):
            _warn_of_nulls(statement, condition.parts)
        elif isinstance(condition, Exists) and condition.asks in ("null", "unknown"):
            column = statement.items_of(condition.select)[0].text
            place = offset_of(condition.select.args["from_"])
            message = (
                "NOT IN (SELECT …): a NULL among the values drops every row, as SQL has it; write "
                f"WHERE {column} IS NOT NULL in the SELECT, or NOT EXISTS"
            )
            text = at(message, statement.text, place)
            warnings.warn(text, NullWarning, stacklevel=own_frames())


def _not_true(condition: Condition) -> Condition:
    """Return the condition that a condition is false or NULL."""
    if isinstance(condition, Fragment):
        return condition.negated(is_null_true=True)
    if isinstance(condition, Exists):
        return replace(condition, is_negated=not condition.is_negated)
    kind = _Any if isinstance(condition, _All) else _All
    return kind(tuple(map(_not_true, condition.parts)))


def _cut(conditions: Sequence[Condition]) -> Iterator[tuple[list[Fragment], list[Exists]]]:
    """Yield the alternatives of conditions that are all to be true."""
    plain = [condition for condition in conditions if isinstance(condition, Fragment)]
    asked = [condition for condition in conditions if isinstance(condition, Exists)]
    rest = [condition for condition in conditions if isinstance(condition, _All | _Any)]
    if not rest:
        yield plain, asked
        return
    first, *others = rest
    same = [*plain, *asked, *others]
    if isinstance(first, _All):
        yield from _cut([*same, *first.parts])
        return
    # Plain SQL comes first: rows that it decides wait for no partner.
    one, *more = sorted(first.parts, key=lambda part: not isinstance(part, Fragment))
    yield from _cut([*same, one])
    if more:
        yield from _cut([*same, _not_true(one), _Any(tuple(more))])
