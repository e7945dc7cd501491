"""Literals that a regular expression of Python cannot match without, found in its parse tree.

A text that holds none of the literals is refused without running the expression. Ignoring case,
the literals are compared in lower case as ``str.lower`` makes it; a letter that matches others
(``(?i)s`` matches ``ſ``, which stays ``ſ`` in lower case) stands for each of them.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_parser: Any = importlib.import_module("re._parser")

MIN_LITERAL = 2
"""Characters of a literal that is worth looking for."""

_MAX_TEXTS = 24
"""Literals of one set; more cost more than they save."""

_LONG_ENOUGH = 6
"""Characters beyond which a longer literal is not rarer."""

_RARE_CHARS = frozenset("`^{}<>|+&;~#!$@*\x00\t\r\n")
"""Characters that few texts hold."""

_RARE = 3
"""Number of a literal's characters that one of those counts for."""

_MAX_CLASS = 4
"""Characters of a class such as ``[aA]`` that are taken one by one."""

_MAX_CHARS = 128
"""Characters of a literal; the rest of a longer one begins another."""


class Needed(NamedTuple):
    """A literal of a set of which a text must hold at least one."""

    text: str
    folded: bool
    """Whether it is in lower case and is to be looked for in the text in lower case."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Facts about the texts that a part of an expression matches."""

    exact: frozenset[str] | None
    """All of them, compared as ``folded`` says; None: too many."""
    needs: frozenset[Needed]
    """One of these is within each of them; empty: nothing is known."""
    folded: bool | None = None
    """Comparison of ``exact``; None: it has no letters."""
    head: _Found | None = None
    """If not all texts are known: texts of which each of them begins with one."""
    tail: _Found | None = None
    """If not all texts are known: texts of which each of them ends with one."""


_NOTHING = _Found(None, frozenset())
_EMPTY = _Found(frozenset({""}), frozenset())


def necessary_literals(
    pattern: str, flags: int = 0, *, min_length: int = MIN_LITERAL
) -> tuple[Needed, ...]:
    """Return literals of which every text that the expression is found in holds at least one.

    The pattern is one for ``re.search``; ``min_length``: characters of the shortest literal (> 0).

    Returns:
        The literals, sorted; none if nothing useful is known.

    Raises:
        re.error: it is not a regular expression.

    Example:
        >>> necessary_literals("a(bc|de)x?.*")
        (Needed(text='abc', folded=False), Needed(text='ade', folded=False))
        >>> necessary_literals("mAlware", re.I | re.A)
        (Needed(text='malware', folded=True),)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what later versions will read differently
        tree = _parser.parse(pattern, flags)
    found = _sequence(tree.data, tree.state.flags)
    needs = _best([*_as_needs(found), found.needs])
    is_useful = needs and min(len(each.text) for each in needs) >= min_length
    return tuple(sorted(needs)) if is_useful else ()


def _sequence(items: Iterable[tuple[Any, Any]], flags: int) -> _Found:
    """Join neighbours: literals grow as long as all texts are known."""
    run, head = _EMPTY, None
    candidates: list[frozenset[Needed]] = []
    for op, argument in items:
        found = _item(str(op), argument, flags)
        longer = _joined(run, found)
        if longer is not None:
            run = longer
            continue
        reached = _joined(run, found.head or _EMPTY) or run
        head = head or reached
        candidates += [*_as_needs(reached), *_as_needs(found.head), found.needs]
        run = found if found.exact is not None else found.tail or _EMPTY
    if head is None:
        return run
    return _Found(None, _best([*candidates, *_as_needs(run)]), head=head, tail=run)


def _joined(left: _Found, right: _Found) -> _Found | None:
    """Return the texts that two neighbours match together, if those are few."""
    if left.exact is None or right.exact is None:
        return None
    kinds = {left.folded, right.folded} - {None}
    if len(kinds) > 1 or len(left.exact) * len(right.exact) > _MAX_TEXTS:
        return None
    texts = frozenset(a + b for a, b in product(left.exact, right.exact))
    if max(map(len, texts)) > _MAX_CHARS:
        return None
    return _Found(texts, frozenset(), next(iter(kinds), None))


def _as_needs(found: _Found | None) -> list[frozenset[Needed]]:
    if found is None or found.exact is None:
        return []
    texts: list[str] = []
    for text in sorted(found.exact, key=len):
        if not any(shorter in text for shorter in texts):
            texts.append(text)
    return [frozenset(Needed(text, bool(found.folded)) for text in texts)]


def _best(candidates: list[frozenset[Needed]]) -> frozenset[Needed]:
    useful = [each for each in candidates if each and all(need.text for need in each)]
    return max(useful, key=_worth, default=frozenset())


def _worth(needs: frozenset[Needed]) -> tuple[int, int, int]:
    rarity = min(sum(_RARE if char in _RARE_CHARS else 1 for char in each.text) for each in needs)
    shortest = min(len(each.text) for each in needs)
    return min(rarity, _LONG_ENOUGH), -len(needs), shortest


def _item(op: str, argument: Any, flags: int) -> _Found:
    if op in ("LITERAL", "IN"):
        return _class(argument if op == "IN" else [(op, argument)], flags)
    if op in ("AT", "ASSERT", "ASSERT_NOT"):
        return _EMPTY  # they match no characters, so that neighbours stay neighbours
    if op in ("SUBPATTERN", "ATOMIC_GROUP"):
        _, added, removed, inside = argument if op == "SUBPATTERN" else (0, 0, 0, argument)
        return _sequence(inside, (flags | added) & ~removed)
    if op == "BRANCH":
        return _branch([_sequence(each, flags) for each in argument[1]])
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inside = argument
        return _repeat(int(least), int(most), _sequence(inside, flags))
    return _NOTHING


def _class(members: Any, flags: int) -> _Found:
    chars: list[str] = []
    for op, argument in members:
        if str(op) == "LITERAL":
            chars.append(chr(argument))
        elif str(op) == "RANGE" and argument[1] - argument[0] < _MAX_CLASS:
            chars += map(chr, range(argument[0], argument[1] + 1))
        else:
            return _NOTHING
    return _of_chars(chars, flags) if 0 < len(chars) <= _MAX_CLASS else _NOTHING


def _of_chars(chars: list[str], flags: int) -> _Found:
    if not flags & re.IGNORECASE:
        return _Found(frozenset(chars), frozenset(), folded=False)
    is_ascii = bool(flags & re.ASCII)
    lowered = frozenset(low for char in chars for low in _lowered_partners(char, is_ascii))
    return _Found(lowered, frozenset(), folded=True)


def _branch(parts: list[_Found]) -> _Found:
    exacts = [part.exact for part in parts if part.exact is not None]
    kinds = {part.folded for part in parts} - {None}
    together = frozenset().union(*exacts) if exacts else frozenset()
    if len(exacts) == len(parts) and len(kinds) <= 1 and len(together) <= _MAX_TEXTS:
        return _Found(together, frozenset(), next(iter(kinds), None))
    each = [_best([*_as_needs(part), part.needs]) for part in parts]
    needs = frozenset().union(*each) if all(each) else frozenset()
    return _Found(None, needs if len(needs) <= _MAX_TEXTS else frozenset())


def _repeat(least: int, most: int, part: _Found) -> _Found:
    if (least, most) == (0, 1) and part.exact is not None:
        return _Found(part.exact | {""}, frozenset(), part.folded)
    if least == 0:
        return _NOTHING
    if part.exact is None:
        return _Found(None, part.needs, head=part.head, tail=part.tail)
    many = part
    for _ in range(least - 1):
        longer = _joined(many, part)
        if longer is None:
            return _Found(None, _best(_as_needs(many)), head=many, tail=part)
        many = longer
    if least == most:
        return many
    return _Found(None, _best(_as_needs(many)), head=many, tail=part)


_NO_CASE_FROM = 0x20000
"""No later character has another case: ideographs, tags and private use. A test holds it."""


@lru_cache(maxsize=4096)
def _lowered_partners(char: str, is_ascii: bool) -> frozenset[str]:
    """Return, in lower case, all that ``re`` matches with a character if case is ignored."""
    flags = re.IGNORECASE | (re.ASCII if is_ascii else 0)
    matched = {char, *re.findall(re.escape(char), _cased(), flags)}
    lowered = {each.lower() for each in matched}
    # Within a word a capital sigma has one lower case, at its end another.
    return frozenset(lowered | {"σ", "ς"} if lowered & {"σ", "ς"} else lowered)


@lru_cache(maxsize=1)
def _cased() -> str:
    """Return all characters that have another case."""
    chars = map(chr, range(_NO_CASE_FROM))
    return "".join(c for c in chars if c.lower() != c or c.upper() != c)
