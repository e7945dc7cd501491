"""Text patterns: LIKE and Java's regular expressions.

They mean what they mean in Spark.

*In Python.* A regular expression is written for Python where both languages surely agree: literals,
escapes of punctuation, classes of ASCII characters, groups, alternatives, greedy and lazy
quantifiers, ``^``, ``$``, ``.`` and the flags ``(?i)`` and ``(?s)`` at the start. What the two call
the end of a line, a digit or a letter differs, so these are written out.

*Effort.* Java backtracks. It calls itself once for each repetition of a group whose matches differ
in length, so a long text exhausts the stack. Choices that overlap multiply: ``a.*b.*c`` takes cubic
time, and ``(a+)+c`` takes exponential time. Such an expression answers for short texts and fails or
hangs for long ones. A plan must not move it before the conditions that stand before it. The bounds
hold for every text, and come from the expression alone. One that is not understood has no bound.

*Required literals.* A text that holds none of the literals that an expression cannot match without
is refused without running it. They are found in Python's parse tree. Ignoring case, they are
compared in lower case as ``str.lower`` makes it; a letter that matches others (``(?i)s`` matches
``ſ``, which stays ``ſ`` in lower case) stands for each of them.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ANY, ONE = "%", "_"
"""The wildcards: any characters, also none, and exactly one."""

_NEWLY_PAIRED = frozenset("ɤƛꟓꟕ")
"""Lower-case letters whose upper case came with Unicode 15 and 16, which Python may not know."""


@dataclass(frozen=True, slots=True)
class Wild:
    """A wildcard in a text pattern."""

    what: str
    """``ANY`` or ``ONE``."""


def like_parts(pattern: str, escape: str) -> tuple[str | Wild, ...] | None:
    r"""Return the parts of a LIKE pattern, or None if Spark refuses it.

    >>> like_parts("a%b!_", "!")
    ('a', Wild(what='%'), 'b_')
    """
    parts: list[str | Wild] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            literal = next(chars, "")
            if literal not in (ANY, ONE, escape):
                return None
            _append(parts, literal)
        elif char in (ANY, ONE):
            parts.append(Wild(char))
        else:
            _append(parts, char)
    return tuple(parts)


def is_whole_text(text: str) -> bool:
    r"""Return whether a text has no half characters, which Spark does not keep.

    >>> is_whole_text("é"), is_whole_text("\ud800")
    (True, False)
    """
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _append(parts: list[str | Wild], literal: str) -> None:
    if parts and isinstance(parts[-1], str):
        parts[-1] += literal
    else:
        parts.append(literal)


def is_lower(parts: tuple[str | Wild, ...]) -> bool:
    """Return whether the literals of a pattern are in lower case, as texts in lower case are."""
    return all(char.lower() == char for part in parts if isinstance(part, str) for char in part)


def is_folded_alike(parts: tuple[str | Wild, ...]) -> bool:
    """Return whether Python and Spark surely agree on which texts in lower case hold the literals.

    Letters that are newer than this Python's Unicode are not folded by it.
    """
    chars = {char for part in parts if isinstance(part, str) for char in part}
    return not chars & _NEWLY_PAIRED and all(unicodedata.category(char) != "Cn" for char in chars)


@dataclass(frozen=True, slots=True)
class PythonRegex:
    """A regular expression for ``re.search``."""

    pattern: str
    flags: int


def python_regex(pattern: str) -> PythonRegex | None:
    r"""Return the Python expression that is found in the same texts as one of Java; None: not sure.

    Example:
        >>> python_regex("a.b")
        PythonRegex(pattern='a[^\\n\\r\\u0085\\u2028\\u2029]b', flags=0)
        >>> python_regex(r"\bword") is None  # what a word is, differs
        True
    """
    match = re.match(r"\(\?([is]{1,2})\)", pattern)
    flags = match[1] if match else ""
    body = pattern[match.end() :] if match else pattern
    ignores_case = "i" in flags
    if ignores_case and not pattern.isascii():
        return None  # Java folds ASCII letters only
    reader = _Reader(body, flags)
    try:
        written = _in_python(reader.whole())
    except (_NotUnderstoodError, RecursionError):
        return None
    if reader.is_foreign:
        return None
    return PythonRegex(written, int(re.IGNORECASE | re.ASCII) if ignores_case else 0)


def is_plain_regex(pattern: str) -> bool:
    """Return whether a pattern surely is a regular expression for Java, and not for Python only."""
    only_python = re.search(
        r"\(\?[PaLu(]|\[\^?\]|\[[^\]]*\[|(?<!\\)\{(?!\d+(,\d*)?\})|\\[xuUN0-9]", pattern
    )
    if only_python:
        return False
    try:
        compiled(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression of Python, without warnings about later versions of Python.

    Raises:
        re.error: it is none; OverflowError or RecursionError: it is too large.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


MAX_DEGREE = 2
"""Greatest exponent of the text's length in the time of an expression that moves freely."""

MAX_PATHS = 1_000
"""Most paths through an expression, apart from those that the degree counts."""

MAX_TIMES = 100
"""Most repetitions of a group; more count as any number."""

MAX_NODES = 1_000
"""Most nodes on the longest path through an expression: each takes a frame of the stack."""

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
    python: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Place:
    """An assertion without width."""

    kind: str = ""
    """``start`` or ``end`` of the whole text; empty: a word boundary, or an end of a line."""
    python: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class _Look:
    """A look ahead or behind."""

    part: _Node


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]
    is_group: bool = False
    """Whether parentheses stand around it."""


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int | None
    """None: any number."""
    python: str
    """The quantifier."""


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

    Spark turns each ``%`` into ``.*``. A ``%`` at the end takes no time.

    Example:
        >>> like_is_slow("%a%b%", "\\"), like_is_slow("%a%b%c%", "\\")
        (False, True)
    """
    plain = re.sub(re.escape(escape) + ".", "x", pattern, flags=re.DOTALL)
    return plain.rstrip("%").count("%") > MAX_DEGREE


@dataclass(frozen=True, slots=True)
class _Paths:
    """Number of paths to a part of an expression: ``n**degree * factor``."""

    degree: int = 0
    factor: int = 1


@dataclass(frozen=True, slots=True)
class _Follow:
    """The expression behind a part."""

    first: int
    """The characters that it may begin with."""
    accepts: bool
    """Whether the expression matches without anything more."""


class _Bounds:
    """Counts the paths through an expression, from left to right."""

    def __init__(self) -> None:
        self.is_deep = False
        self.is_slow = False
        self._times = 1

    def look_for(self, tree: _Node) -> None:
        """Count the paths of a search for an expression in a text."""
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
        if not node.parts:  # an empty branch, as of (a|)
            return paths
        follows = [follow]
        for part in node.parts[:0:-1]:
            follows.append(_before(part, follows[-1]))
        for part, after in zip(node.parts, reversed(follows), strict=True):
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
            # The repeated part must match in one way, or the paths multiply.
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
    chars = 0
    for part in node.parts:
        chars |= _first(part)
        if isinstance(node, _Sequence) and not _is_nullable(part):
            break
    return chars


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
    """Return whether a part may fail without reading a character."""
    if isinstance(node, _Repeat):
        return node.low > 0 and _asserts(node.part)
    if isinstance(node, _Sequence):
        return any(map(_asserts, node.parts))
    if isinstance(node, _Choice):
        return all(map(_asserts, node.parts))
    return isinstance(node, _Place | _Look)


def _before(node: _Node, follow: _Follow) -> _Follow:
    """Return what follows the part in front of a node."""
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


_REPETITION = re.compile(r"([*+?]|\{(\d{1,4})(,(\d{0,4}))?\})([?+]?)", re.ASCII)
_FLAGS = re.compile(r"\?([ims]*)([:)])")
_BOUNDS = {"^": "start", "$": "end"}
_LOOKS = ("?=", "?!", "?<=", "?<!")
_PLACES = {"A": "start", "Z": "end", "z": "end", "b": "", "B": ""}
_DIGITS, _LOWER = "0123456789", "abcdefghijklmnopqrstuvwxyz"
_KINDS = (_DIGITS, _LOWER, _LOWER.upper())
"""Characters between which a range is the same in both languages."""
_CLASSES = {"d": _DIGITS, "w": f"{_DIGITS}_{_LOWER}{_LOWER.upper()}", "s": " \t\n\x0b\f\r"}
_IN_PYTHON = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\x0b\f\r"}
"""The members of a class that an escape stands for."""
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b", "v": "\x0b"}
_ALIKE_CONTROLS = "tnrf"
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_PLAIN_IN_CLASS = _PUNCTUATION - {*"&-[\\]^"}
_DOT = r"[^\n\r\u0085\u2028\u2029]"
_ENDS = {
    "^": r"\A",
    "$": r"(?:(?=(?:\r\n|[\r\u0085\u2028\u2029])?\Z)|(?<!\r)(?=\n\Z))",
}
MAX_TIMES_WRITTEN = 999
"""Most repetitions of a quantifier that is written for Python."""


def _bits(chars: str) -> int:
    bits = 0
    for char in chars:
        bits |= 1 << ord(char) if char.isascii() else _OTHER
    return bits


_NO_LINE_END = _ALL & ~_bits("\n\r")
_LOWER_BITS = _bits(_LOWER)
_CASE = ord("a") - ord("A")
_SETS = {letter: _bits(chars) for letter, chars in _CLASSES.items()}


class _Reader:
    """One expression being read from left to right.

    Each node has the text that says the same in Python, unless ``is_foreign``.
    """

    def __init__(self, pattern: str, flags: str = "") -> None:
        self._text = pattern
        self._position = 0
        self._flags = frozenset(flags)
        self.is_foreign = False
        """Whether something was read in which the two languages may differ."""

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
        match = _REPETITION.match(self._text, self._position)
        if match is None:
            return atom
        self._position = match.end()
        if match[5] == "+" or isinstance(atom, _Place | _Look):
            raise _NotUnderstoodError
        low: int
        high: int | None
        if match[2] is None:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[match[1]]
        else:
            last = match[2] if match[3] is None else match[4]
            low, high = int(match[2]), int(last) if last else None
            self._note(MAX_TIMES_WRITTEN >= (low if high is None else high) >= low)
        # How often an empty match is repeated is a matter of the engine.
        self._note(_is_single(atom) or not _is_nullable(atom))
        return _Repeat(atom, low, high, match[0])

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
            return _Place("" if "m" in self._flags else _BOUNDS[char], _ENDS[char])
        if char == ".":
            is_any = "s" in self._flags
            return _Chars(*((_ALL, "(?s:.)") if is_any else (_NO_LINE_END, _DOT)))
        if char in "*+?{":
            raise _NotUnderstoodError
        self._note(char not in "}]" and not "\ud800" <= char <= "\udfff")
        return _Chars(self._folded(_bits(char)), re.escape(char))

    def _group(self) -> _Node | None:
        before = self._flags
        looks = next((look for look in _LOOKS if self._text.startswith(look, self._position)), "")
        self._note(not looks)
        if looks:
            self._position += len(looks)
        elif self._peek() == "?":
            match = _FLAGS.match(self._text, self._position)
            if match is None:
                raise _NotUnderstoodError
            self._position = match.end()
            self._flags |= frozenset(match[1])
            self._note(match[0] == "?:")
            if match[2] == ")":
                return None
        inside = self._choice()
        if self._take() != ")":
            raise _NotUnderstoodError
        self._flags = before
        return _Look(inside) if looks else _Sequence((inside,), is_group=True)

    def _escaped(self) -> _Node:
        char = self._take()
        if char in _PLACES:
            self._note(False)
            return _Place(_PLACES[char])
        members = _IN_PYTHON.get(char.lower())
        if members is not None:
            return _Chars(self._set_of(char), f"[{'^' if char.isupper() else ''}{members}]")
        self._note(char in _PUNCTUATION or char in _ALIKE_CONTROLS)
        return _Chars(self._set_of(char), re.escape(_CONTROLS.get(char, char)))

    def _set_of(self, char: str) -> int:
        """Return the characters of an escape."""
        if char.lower() in _SETS:
            chars = _SETS[char.lower()]
            return _ALL & ~chars if char.isupper() else chars
        if char.isalnum() and char not in _CONTROLS:
            raise _NotUnderstoodError
        return self._folded(_bits(_CONTROLS.get(char, char)))

    def _class(self) -> _Node:
        is_negated = self._peek() == "^"
        self._position += is_negated
        set_bits, members = 0, ""
        while self._peek() != "]":
            chars, member = self._member()
            set_bits, members = set_bits | chars, members + member
        self._position += 1
        self._note(bool(members))
        folded = self._folded(set_bits)
        # A set does not tell which other characters it has, so its complement has some, too.
        first = (_ALL & ~folded) | _OTHER if is_negated else folded
        return _Chars(first, f"[{'^' if is_negated else ''}{members}]")

    def _member(self) -> tuple[int, str]:
        char = self._take()
        if char in "[&":
            raise _NotUnderstoodError  # a class in a class, or an intersection
        is_escaped = char == "\\"
        if is_escaped:
            char = self._take()
            if char.isalnum() and char not in _CONTROLS:
                self._note(char in _IN_PYTHON)
                return self._set_of(char), _IN_PYTHON.get(char, "")
            self._note(char in _PUNCTUATION or char in _ALIKE_CONTROLS)
            char = _CONTROLS.get(char, char)
        kind = (
            "" if is_escaped else next((candidate for candidate in _KINDS if char in candidate), "")
        )
        if self._peek() != "-" or self._text[self._position + 1 : self._position + 2] in ("]", ""):
            is_last = char == "-" and self._peek() == "]"
            self._note(is_escaped or bool(kind) or char in _PLAIN_IN_CLASS or is_last)
            return _bits(char), re.escape(char)
        self._position += 1
        last = self._take()
        if last in "[\\" or last < char:
            raise _NotUnderstoodError
        self._note(last in kind)
        ascii_part = "".join(map(chr, range(ord(char), min(ord(last), 127) + 1)))
        return _bits(ascii_part) | (0 if last.isascii() else _OTHER), f"{char}-{last}"

    def _folded(self, chars: int) -> int:
        if "i" not in self._flags:
            return chars
        upper, lower = chars & _LOWER_BITS >> _CASE, chars & _LOWER_BITS
        return chars | upper << _CASE | lower >> _CASE

    def _note(self, is_alike: bool) -> None:
        """Note whether Python surely says the same of what was read."""
        self.is_foreign |= not is_alike

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise _NotUnderstoodError
        self._position += 1
        return char


def _in_python(node: _Node) -> str:
    """Return what was read as a text for Python."""
    if isinstance(node, _Chars | _Place):
        return node.python
    if isinstance(node, _Repeat):
        return f"{_in_python(node.part)}{node.python}"
    if isinstance(node, _Look):
        return _in_python(node.part)
    text = ("" if isinstance(node, _Sequence) else "|").join(map(_in_python, node.parts))
    return f"(?:{text})" if isinstance(node, _Sequence) and node.is_group else text


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
    sequence = _sequence(tree.data, tree.state.flags)
    needs = _best([*_as_needs(sequence), sequence.needs])
    is_useful = needs and min(len(need.text) for need in needs) >= min_length
    return tuple(sorted(needs)) if is_useful else ()


def _sequence(items: Iterable[tuple[Any, Any]], flags: int) -> _Found:
    """Join neighbours: literals grow as long as all texts are known."""
    run, head = _EMPTY, None
    candidates: list[frozenset[Needed]] = []
    for op, argument in items:
        item = _item(str(op), argument, flags)
        longer = _joined(run, item)
        if longer is not None:
            run = longer
            continue
        reached = _joined(run, item.head or _EMPTY) or run
        head = head or reached
        candidates += [*_as_needs(reached), *_as_needs(item.head), item.needs]
        run = item if item.exact is not None else item.tail or _EMPTY
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


def _as_needs(part: _Found | None) -> list[frozenset[Needed]]:
    if part is None or part.exact is None:
        return []
    texts: list[str] = []
    for text in sorted(part.exact, key=len):
        if not any(shorter in text for shorter in texts):
            texts.append(text)
    return [frozenset(Needed(text, bool(part.folded)) for text in texts)]


def _best(candidates: list[frozenset[Needed]]) -> frozenset[Needed]:
    useful = [
        candidate for candidate in candidates if candidate and all(need.text for need in candidate)
    ]
    return max(useful, key=_worth, default=frozenset())


def _worth(needs: frozenset[Needed]) -> tuple[int, int, int]:
    rarity = min(sum(_RARE if char in _RARE_CHARS else 1 for char in need.text) for need in needs)
    shortest = min(len(need.text) for need in needs)
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
        return _branch([_sequence(choice, flags) for choice in argument[1]])
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
    needs_by_part = [_best([*_as_needs(part), part.needs]) for part in parts]
    needs = frozenset().union(*needs_by_part) if all(needs_by_part) else frozenset()
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
    lowered = {text.lower() for text in matched}
    # Within a word a capital sigma has one lower case, at its end another.
    return frozenset(lowered | {"σ", "ς"} if lowered & {"σ", "ς"} else lowered)


@lru_cache(maxsize=1)
def _cased() -> str:
    """Return all characters that have another case."""
    chars = map(chr, range(_NO_CASE_FROM))
    return "".join(c for c in chars if c.lower() != c or c.upper() != c)
