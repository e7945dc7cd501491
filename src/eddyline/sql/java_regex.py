"""Regular expressions of Java, as Spark runs them, written for Python where both surely agree.

Literals, escapes of punctuation, classes of ASCII characters, groups, alternatives, greedy and lazy
quantifiers, ``^``, ``$``, ``.`` and the flags ``(?i)`` and ``(?s)`` at the start. What the two
languages call the end of a line, a digit or a letter differs, so these are written out.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

_LINE_ENDS = r"\n\r\u0085\u2028\u2029"
_DOT = f"[^{_LINE_ENDS}]"
_END = r"(?:(?=(?:\r\n|[\r\u0085\u2028\u2029])?\Z)|(?<!\r)(?=\n\Z))"
_SHORT = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": r" \t\n\x0b\f\r",
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_IN_CLASS = frozenset("!\"#$%'()*+,./:;<=>?@_`{|}~ ")
_KINDS = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class PythonRegex:
    """A regular expression for ``re.search``."""

    pattern: str
    flags: int


class _ForeignError(Exception):
    """Something in which the two languages may differ."""


def python_regex(pattern: str) -> PythonRegex | None:
    r"""Return the Python expression that is found in the same texts as one of Java; None: not sure.

    Example:
        >>> python_regex("a.b")
        PythonRegex(pattern='a[^\\n\\r\\u0085\\u2028\\u2029]b', flags=0)
        >>> python_regex(r"\bword") is None  # what a word is, differs
        True
    """
    found = re.match(r"\(\?([is]{1,2})\)", pattern)
    flags = found[1] if found else ""
    body = pattern[found.end() :] if found else pattern
    ignores_case = "i" in flags
    if ignores_case and not pattern.isascii():
        return None  # Java folds ASCII letters only
    reading = _Translation(body, is_dotall="s" in flags)
    try:
        written = reading.alternatives()
    except (_ForeignError, RecursionError):
        return None
    if reading.position < len(body):
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


class _Translation:
    """One pattern being read from left to right."""

    def __init__(self, body: str, *, is_dotall: bool) -> None:
        self.position = 0
        self._body = body
        self._dot = r"(?s:.)" if is_dotall else _DOT

    def alternatives(self) -> str:
        """Read up to a closing parenthesis or the end."""
        parts = [self._sequence()]
        while self._peek() == "|":
            self.position += 1
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        pieces = []
        while self._peek() not in ("", "|", ")"):
            atom, takes_quantifier = self._atom()
            found = _QUANTIFIER.match(self._body, self.position)
            if found and not takes_quantifier:
                raise _ForeignError
            if found:
                self.position = found.end()
                if self._peek() in ("*", "+", "?", "{"):
                    raise _ForeignError
            pieces.append(atom + (found[0] if found else ""))
        return "".join(pieces)

    def _atom(self) -> tuple[str, bool]:
        """Return the next atom, and whether it may be repeated."""
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class(), True
        if char == "\\":
            return self._escaped(), True
        plain = {".": (self._dot, True), "^": (r"\A", False), "$": (_END, False)}.get(char)
        if char in "*+?{}]" or "\ud800" <= char <= "\udfff":
            raise _ForeignError
        return plain or (re.escape(char), True)

    def _group(self) -> tuple[str, bool]:
        if self._peek() == "?":
            if self._body[self.position : self.position + 2] != "?:":
                raise _ForeignError
            self.position += 2
        inside = self.alternatives()
        if self._peek() != ")":
            raise _ForeignError
        self.position += 1
        group = f"(?:{inside})"
        # How often an empty match is repeated is a matter of the engine.
        return group, re.fullmatch(group, "") is None

    def _escaped(self) -> str:
        char = self._take()
        if char.lower() in _SHORT:
            return f"[{'^' if char.isupper() else ''}{_SHORT[char.lower()]}]"
        if char in _CONTROL:
            return re.escape(_CONTROL[char])
        if char in _PUNCTUATION:
            return re.escape(char)
        raise _ForeignError

    def _class(self) -> str:
        negated = self._peek() == "^"
        self.position += negated
        members: list[str] = []
        while self._peek() != "]":
            members.append(self._member())
        self.position += 1
        if not members:
            raise _ForeignError
        return f"[{'^' if negated else ''}{''.join(members)}]"

    def _member(self) -> str:
        char = self._take()
        if char == "\\":
            following = self._take()
            if following in _SHORT:
                return _SHORT[following]
            if following in _CONTROL:
                return re.escape(_CONTROL[following])
            if following not in _PUNCTUATION:
                raise _ForeignError
            self._refuse_range()
            return re.escape(following)
        if char == "-" and self._peek() == "]":
            return r"\-"
        kind = next((kind for kind in _KINDS if char in kind), "")
        if not kind and char not in _IN_CLASS:
            raise _ForeignError
        if kind and self._is_range():
            self.position += 1
            last = self._take()
            if last not in kind or last < char:
                raise _ForeignError
            return f"{char}-{last}"
        self._refuse_range()
        return re.escape(char)

    def _is_range(self) -> bool:
        following = self._body[self.position : self.position + 2]
        return len(following) > 1 and following[0] == "-" and following[1] != "]"

    def _refuse_range(self) -> None:
        if self._is_range():
            raise _ForeignError

    def _peek(self) -> str:
        return self._body[self.position : self.position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise _ForeignError
        self.position += 1
        return char
