"""Bounds on the stack and the time that Java takes for a regular expression, by its text alone.

Java backtracks. It calls itself once for each repetition of a group whose matches differ in length,
so a long text exhausts the stack. Choices that overlap multiply: ``a.*b.*c`` takes cubic time, and
``(a+)+c`` takes exponential time. Such an expression answers for short texts and fails or hangs for
long ones. A plan must not move it before the conditions that stand before it.

The bounds hold for every text. An expression that is not understood has no bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

MAX_DEGREE = 2
"""Greatest exponent of the text's length in the time of an expression that moves freely."""

MAX_PATHS = 1_000
"""Most ways through an expression, beside those that the degree counts."""

MAX_TIMES = 100
"""Most repetitions of a group; more count as any number."""

MAX_NODES = 1_000
"""Most nodes on the longest way through an expression: each takes a frame of the stack."""

_ASCII = (1 << 128) - 1
_OTHER = 1 << 128
_ALL = _ASCII | _OTHER
"""Sets of characters: a bit for each of ASCII, and one for all others."""


class Effort(NamedTuple):
    """What an expression may exhaust on a long text."""

    stack: bool
    time: bool

    @property
    def reason(self) -> str:
        """What it may exhaust, as part of a sentence; empty if nothing."""
        if self.stack:
            return "may exhaust the stack on a long text"
        return "may take very long on a long text" if self.time else ""


@dataclass(frozen=True, slots=True)
class _Chars:
    """One character of a set."""

    first: int


@dataclass(frozen=True, slots=True)
class _Place:
    """An assertion without width."""

    kind: str = ""
    """``start`` or ``end`` of the whole text; empty: a word boundary, or an end of a line."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A look ahead or behind."""

    part: _Node


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int | None
    """None: any number."""


_Node = _Chars | _Place | _Look | _Sequence | _Choice | _Repeat


class _NotUnderstoodError(Exception):
    """A construct without a bound."""


@lru_cache(maxsize=4096)
def regex_effort(pattern: str) -> Effort:
    r"""Return what Java may exhaust when it looks for an expression in a text.

    Example:
        >>> regex_effort(r"^(\d{1,3}\.){3}\d+ .*error")
        Effort(stack=False, time=False)
        >>> regex_effort("(a|b)+c"), regex_effort("(a+)+c")
        (Effort(stack=True, time=False), Effort(stack=True, time=True))
    """
    try:
        tree = _Reader(pattern).whole()
        bounds = _Bounds()
        bounds.look_for(tree)
    except (_NotUnderstoodError, RecursionError):
        return Effort(stack=True, time=True)
    return Effort(bounds.is_deep or _depth(tree) > MAX_NODES, bounds.is_slow)


def like_is_slow(pattern: str, escape: str) -> bool:
    r"""Return whether Java may take more than quadratic time for a pattern of LIKE.

    Spark makes ``.*`` of each ``%``. Those at the end take no time.

    Example:
        >>> like_is_slow("%a%b%", "\\"), like_is_slow("%a%b%c%", "\\")
        (False, True)
    """
    plain = re.sub(re.escape(escape) + ".", "x", pattern, flags=re.DOTALL)
    return plain.rstrip("%").count("%") > MAX_DEGREE


@dataclass(frozen=True, slots=True)
class _Paths:
    """The ways in which a part of an expression is reached: ``n**degree * factor``."""

    degree: int = 0
    factor: int = 1


@dataclass(frozen=True, slots=True)
class _Follow:
    """What comes behind a part."""

    first: int
    """The characters that it may begin with."""
    accepts: bool
    """Whether the expression matches without anything more."""


class _Bounds:
    """Counts the ways through an expression, from left to right."""

    def __init__(self) -> None:
        self.is_deep = False
        self.is_slow = False
        self._times = 1

    def look_for(self, tree: _Node) -> None:
        """Count the ways of looking for an expression in a text."""
        head = tree.parts[0] if isinstance(tree, _Sequence) and tree.parts else tree
        start = _Paths(0 if head == _Place("start") else 1)
        self._noted(self._walk(tree, start, _Follow(0, accepts=True)))

    def _noted(self, paths: _Paths) -> _Paths:
        self.is_slow |= paths.degree > MAX_DEGREE or paths.factor > MAX_PATHS
        return paths

    def _walk(self, node: _Node, paths: _Paths, follow: _Follow) -> _Paths:
        if isinstance(node, _Chars | _Place):
            return paths
        if isinstance(node, _Look):
            self._noted(self._walk(node.part, paths, _Follow(0, accepts=True)))
            return paths
        if isinstance(node, _Sequence):
            return self._sequence(node, paths, follow)
        if isinstance(node, _Choice):
            return self._choice(node, paths, follow)
        return self._repeat(node, paths, follow)

    def _sequence(self, node: _Sequence, paths: _Paths, follow: _Follow) -> _Paths:
        follows = [follow]  # one more than there are parts
        for part in reversed(node.parts):
            follows.append(_before(part, follows[-1]))
        for part, after in zip(node.parts, follows[-2::-1], strict=True):
            paths = self._walk(part, paths, after)
        return paths

    def _choice(self, node: _Choice, paths: _Paths, follow: _Follow) -> _Paths:
        ways = [self._walk(part, paths, follow) for part in node.parts]
        firsts = [_before(part, follow).first for part in node.parts]
        heads = [
            sum(way.factor for way, first in zip(ways, firsts, strict=True) if first & other)
            for other in firsts
        ]
        factor = max([*heads, *(way.factor for way in ways)])
        return self._noted(_Paths(max(way.degree for way in ways), factor))

    def _repeat(self, node: _Repeat, paths: _Paths, follow: _Follow) -> _Paths:
        first = _first(node.part)
        is_many = node.high is None or node.high > MAX_TIMES
        is_ambiguous = bool(first & follow.first)
        if is_many and not _is_single(node.part):
            self.is_deep |= not _is_even(node.part)
            # What is repeated must match in one way alone; else the ways multiply.
            again = _Follow(first | follow.first, accepts=False)
            is_single_way = self._walk(node.part, paths, again) == paths
            self.is_slow |= not is_single_way or _is_nullable(node.part)
        elif not _is_single(node.part):
            return self._few(node, paths, follow, is_ambiguous=is_ambiguous)
        if is_many:
            if not follow.accepts:
                self._noted(replace(paths, degree=paths.degree + 1))
            return self._noted(replace(paths, degree=paths.degree + is_ambiguous))
        spread = (node.high or 0) - node.low
        factor = spread + 1 if is_ambiguous else 1
        return self._noted(replace(paths, factor=paths.factor * factor))

    def _few(self, node: _Repeat, paths: _Paths, follow: _Follow, *, is_ambiguous: bool) -> _Paths:
        """Walk through a group that is repeated a few times, or not at all."""
        high = node.high or 0
        self._times *= max(1, high)
        if self._times > MAX_TIMES:
            raise _NotUnderstoodError
        again = _Follow(_first(node.part) | follow.first, follow.accepts)
        for number in range(high):
            paths = self._walk(node.part, paths, follow if number == high - 1 else again)
        self._times //= max(1, high)
        factor = high - node.low + 1 if is_ambiguous else 1
        return self._noted(replace(paths, factor=paths.factor * factor))


def _first(node: _Node) -> int:
    """Return the characters that a part may begin with, if it is not empty."""
    if isinstance(node, _Chars):
        return node.first
    if isinstance(node, _Place | _Look):
        return 0
    if isinstance(node, _Repeat):
        return _first(node.part)
    found = 0
    for part in node.parts:
        found |= _first(part)
        if isinstance(node, _Sequence) and not _is_nullable(part):
            break
    return found


def _is_nullable(node: _Node) -> bool:
    """Return whether a part may match nothing."""
    if isinstance(node, _Chars):
        return False
    if isinstance(node, _Place | _Look):
        return True
    if isinstance(node, _Repeat):
        return node.low == 0 or _is_nullable(node.part)
    return (all if isinstance(node, _Sequence) else any)(map(_is_nullable, node.parts))


def _asserts(node: _Node) -> bool:
    """Return whether a part may fail although it needs no character."""
    if isinstance(node, _Repeat):
        return node.low > 0 and _asserts(node.part)
    if isinstance(node, _Sequence):
        return any(map(_asserts, node.parts))
    if isinstance(node, _Choice):
        return all(map(_asserts, node.parts))
    return isinstance(node, _Place | _Look)


def _before(node: _Node, follow: _Follow) -> _Follow:
    """Return what comes behind the part before a node."""
    if not _is_nullable(node):
        return _Follow(_first(node), accepts=False)
    if isinstance(node, _Place) and node.kind == "end":
        return _Follow(0, accepts=False)
    first = _first(node) | (_ALL if follow.accepts and _asserts(node) else follow.first)
    return _Follow(first, follow.accepts and not _asserts(node))


def _is_single(node: _Node) -> bool:
    """Return whether a part is one character of a set, without a group around it."""
    return isinstance(node, _Chars)


def _is_even(node: _Node) -> bool:
    """Return whether all matches of a part have one length, and it makes no choice."""
    if isinstance(node, _Chars):
        return not node.first & _OTHER
    if isinstance(node, _Sequence):
        return all(map(_is_even, node.parts))
    return isinstance(node, _Repeat) and node.low == node.high and _is_even(node.part)


def _depth(node: _Node) -> int:
    """Return the nodes on the longest way through a part."""
    if isinstance(node, _Look):
        return 1 + _depth(node.part)
    if isinstance(node, _Sequence):
        return 1 + sum(map(_depth, node.parts))
    if isinstance(node, _Choice):
        return 1 + max(map(_depth, node.parts))
    if isinstance(node, _Repeat) and not _is_single(node.part):
        is_few = node.high is not None and node.high <= MAX_TIMES
        return 1 + _depth(node.part) * (node.high or 1 if is_few else 1)
    return 1


_QUANTIFIER = re.compile(r"([*+?]|\{(\d{1,4})(,(\d{0,4}))?\})([?+]?)")
_FLAGS = re.compile(r"\?([ims]*)([:)])")
_BOUNDS = {"^": "start", "$": "end"}
_LOOKS = ("?=", "?!", "?<=", "?<!")
_PLACES = {"A": "start", "Z": "end", "z": "end", "b": "", "B": ""}
_CLASSES = {
    "d": "0123456789",
    "w": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
    "s": " \t\n\x0b\f\r",
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b", "v": "\x0b"}


def _bits(chars: str) -> int:
    found = 0
    for char in chars:
        found |= 1 << ord(char) if char.isascii() else _OTHER
    return found


_NO_LINE_END = _ALL & ~_bits("\n\r")
_UPPER, _LOWER = _bits("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), _bits("abcdefghijklmnopqrstuvwxyz")
_CASE = ord("a") - ord("A")
_SHORT = {letter: _bits(chars) for letter, chars in _CLASSES.items()}


class _Reader:
    """One expression being read from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        self._flags: frozenset[str] = frozenset()

    def whole(self) -> _Node:
        """Return the tree of the expression."""
        tree = self._choice()
        if self._position < len(self._text):
            raise _NotUnderstoodError
        return tree

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._position += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return _Sequence(tuple(parts))

    def _repeated(self, atom: _Node) -> _Node:
        found = _QUANTIFIER.match(self._text, self._position)
        if found is None:
            return atom
        self._position = found.end()
        if found[5] == "+" or isinstance(atom, _Place | _Look):
            raise _NotUnderstoodError
        if found[2] is None:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
            return _Repeat(atom, low, high)
        last = found[2] if found[3] is None else found[4]
        return _Repeat(atom, int(found[2]), int(last) if last else None)

    def _atom(self) -> _Node | None:
        """Return the next atom; None if it only sets flags."""
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escaped()
        if char in _BOUNDS:
            return _Place("" if "m" in self._flags else _BOUNDS[char])
        if char == ".":
            return _Chars(_ALL if "s" in self._flags else _NO_LINE_END)
        if char in "*+?{":
            raise _NotUnderstoodError
        return _Chars(self._folded(_bits(char)))

    def _group(self) -> _Node | None:
        before = self._flags
        looks = next((each for each in _LOOKS if self._text.startswith(each, self._position)), "")
        if looks:
            self._position += len(looks)
        elif self._peek() == "?":
            found = _FLAGS.match(self._text, self._position)
            if found is None:
                raise _NotUnderstoodError
            self._position = found.end()
            self._flags |= frozenset(found[1])
            if found[2] == ")":
                return None
        inside = self._choice()
        if self._take() != ")":
            raise _NotUnderstoodError
        self._flags = before
        return _Look(inside) if looks else _Sequence((inside,))

    def _escaped(self) -> _Node:
        char = self._take()
        if char in _PLACES:
            return _Place(_PLACES[char])
        return _Chars(self._set_of(char))

    def _set_of(self, char: str) -> int:
        """Return the characters of an escape."""
        if char.lower() in _SHORT:
            found = _SHORT[char.lower()]
            return _ALL & ~found if char.isupper() else found
        if char.isalnum() and char not in _CONTROL:
            raise _NotUnderstoodError
        return self._folded(_bits(_CONTROL.get(char, char)))

    def _class(self) -> _Node:
        is_negated = self._peek() == "^"
        self._position += is_negated
        found = 0
        while self._peek() != "]":
            found |= self._member()
        self._position += 1
        found = self._folded(found)
        # What is no ASCII is in both of two sets, as neither tells more.
        return _Chars((_ALL & ~found) | _OTHER if is_negated else found)

    def _member(self) -> int:
        char = self._take()
        if char in "[&":
            raise _NotUnderstoodError  # a class in a class, or an intersection
        if char == "\\":
            char = self._take()
            if char.isalnum() and char not in _CONTROL:
                return self._set_of(char)
            char = _CONTROL.get(char, char)
        if self._peek() != "-" or self._text[self._position + 1 : self._position + 2] in ("]", ""):
            return _bits(char)
        self._position += 1
        last = self._take()
        if last in "[\\" or last < char:
            raise _NotUnderstoodError
        ascii_part = "".join(map(chr, range(ord(char), min(ord(last), 127) + 1)))
        return _bits(ascii_part) | (0 if last.isascii() else _OTHER)

    def _folded(self, chars: int) -> int:
        if "i" not in self._flags:
            return chars
        upper, lower = chars & _UPPER, chars & _LOWER
        return chars | upper << _CASE | lower >> _CASE

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise _NotUnderstoodError
        self._position += 1
        return char
