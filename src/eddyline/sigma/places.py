"""The place of a fault in a rule's file, as far as the YAML tells.

A line is given only where one is known: of the YAML's own error, of a key that stands there twice,
of the field, the condition or the part of the rule that was refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from sigma import exceptions
from sigma.modifiers import modifier_mapping, reverse_modifier_mapping
from sigma.rule.base import SigmaYAMLLoader
from sigma.rule.detection import SigmaDetectionItem

from eddyline.errors import EddylineError
from eddyline.sigma.modifiers import check_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLASS = re.compile(r"'?\b(Sigma\w+Modifier)\b'?")
_NULL = re.compile(r"<sigma\.types\.SigmaNull object at \w+>")

_OF_CORRELATIONS = {
    exceptions.SigmaCorrelationTypeError: ("correlation", "type"),
    exceptions.SigmaTimespanError: ("correlation", "timespan"),
    exceptions.SigmaCorrelationConditionError: ("correlation", "condition"),
    exceptions.SigmaCorrelationRuleError: ("correlation",),
}
"""The parts of a document that errors of correlations are about."""


@dataclass(frozen=True, slots=True)
class Place:
    """One document of a file, or of a text that was given."""

    path: str
    """Of the file; empty for a text."""
    n_file: int = 0
    """The number of its file, from 0."""
    first_line: int = 1
    """The line on which the document starts."""
    number: int = 1
    """The number of the document within its file, from 1."""
    n_documents: int = 1

    def at(self, line: int | None) -> str:
        """Return the place in words, with the line within the document if it is known (from 1).

        >>> Place("a.yml").at(3), Place("a.yml").at(None), Place("").at(3)
        ('a.yml:3', 'a.yml', 'line 3')
        >>> Place("a.yml", first_line=7, number=2, n_documents=2).at(None)
        'a.yml, document 2 (from line 7)'
        """
        if line is not None:
            of_file = self.first_line + line - 1
            return f"{self.path}:{of_file}" if self.path else f"line {of_file}"
        whole = self.path or "text"
        if self.n_documents == 1:
            return whole
        return f"{whole}, document {self.number} (from line {self.first_line})"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a document."""

    reason: str
    line: int | None = None
    """Within the document, from 1; None if it is not known."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a mapping, and what stands there."""

    text: str
    line: int
    value: yaml.Node

    @property
    def field(self) -> str | None:
        """The field that it tests, without modifiers; None for a keyword."""
        return self.text.partition("|")[0] or None


def yaml_fault(text: str, error: Exception) -> Fault:
    """Return the reason why a text is no YAML."""
    marks = [getattr(error, f"{each}_mark", None) for each in ("problem", "context")]
    lines = [mark.line + 1 for mark in marks if mark is not None]
    if not lines:
        return Fault(f"not YAML: {error}", _repeated(text))
    # What is never closed is missed behind the last line.
    line = min(lines[0], max(1, len(text.splitlines())))
    said = [getattr(error, "context", None), getattr(error, "problem", None)]
    return Fault(f"not YAML: {' '.join(part for part in said if part)}", line)


def fault(text: str, error: Exception) -> Fault:
    """Return the reason why a rule is refused, in the words of its YAML, not pySigma's."""
    root = _root(text)
    reason = message(error)
    tests = () if isinstance(error, EddylineError) else _tests(root)
    refused = next((key for key in tests if _refusal(key) == reason), None)
    if refused is not None:
        of = f"field {refused.field!r}: " if refused.field else ""
        return Fault(of + _worded(reason, refused), refused.line)
    facts = error.facts if isinstance(error, EddylineError) else {}
    if "field" in facts:
        # Of several tests of a field, which one is refused is not known.
        lines = {key.line for key in _tests(root) if key.field == facts["field"]}
        return Fault(_worded(reason), lines.pop() if len(lines) == 1 else None)
    part = _part(error, facts)
    # What is missing has no line, but what it is missing in has.
    known = (line_of(text, *part[:length]) for length in range(len(part), 0, -1))
    return Fault(_worded(reason), next((line for line in known if line is not None), None))


def message(error: Exception) -> str:
    """Return the text of an error, with its class only where that is not pySigma's or ours."""
    if isinstance(error, EddylineError):
        return error.message
    if isinstance(error, exceptions.SigmaError):
        return _NULL.sub("null", str(error))
    return f"{type(error).__name__}: {error}"


def line_of(text: str, *path: str) -> int | None:
    r"""Return the line of the key at a path of keys; None if there is none.

    >>> line_of("a: 1\nb:\n  c: 2\n", "b", "c")
    3
    """
    node, line = _root(text), None
    for name in path:
        found = next((key for key in _keys(node) if key.text == name), None)
        if found is None:
            return None
        node, line = found.value, found.line
    return line


def _part(error: Exception, facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the path of the part that an error is about; nothing if that is not known."""
    if "part" in facts:
        return tuple(facts["part"])
    if isinstance(error, exceptions.SigmaConditionError):
        return ("detection", "condition")
    for kind, path in _OF_CORRELATIONS.items():
        if isinstance(error, kind):
            return path
    if isinstance(error, exceptions.SigmaLogsourceError):
        return ("logsource",)
    if isinstance(error, exceptions.SigmaDetectionError):
        return ("detection",)
    return ()


def _worded(reason: str, key: _Key | None = None) -> str:
    """Return a reason that calls modifiers what the rule calls them."""
    written = key.text.split("|")[1:] if key else []
    names = dict(reverse_modifier_mapping)
    names |= {modifier_mapping[each].__name__: each for each in written if each in modifier_mapping}
    said = _CLASS.sub(lambda found: f"'{names.get(found[1], found[1])}'", reason)
    return said.replace("incompatible to value type of", "does not fit the value")


def _refusal(key: _Key) -> str | None:
    """Return pySigma's objection to one test, or None if it takes it."""
    try:
        value = _value(key.value)
        check_fields({"": {key.text: value}})
        SigmaDetectionItem.from_mapping(key.text, value)
    except Exception as error:  # noqa: BLE001 - strange rules make pySigma raise almost anything
        return message(error)
    return None


def _value(node: yaml.Node) -> Any:
    loader = SigmaYAMLLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _root(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, yaml.CSafeLoader)
    except Exception:  # noqa: BLE001 - strange YAML raises almost anything
        return None


def _keys(node: yaml.Node | None) -> Iterator[_Key]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield _Key(str(key.value), key.start_mark.line + 1, value)


def _tests(root: yaml.Node | None) -> Iterator[_Key]:
    """Yield the keys below the names of a detection."""
    for part in _keys(root):
        if part.text == "detection":
            for named in _keys(part.value):
                if named.text not in ("condition", "timeframe"):
                    yield from _below(named.value)


def _below(node: yaml.Node) -> Iterator[_Key]:
    for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        yield from _keys(each)


def _repeated(text: str) -> int | None:
    """Return the line on which a key stands for the second time in its mapping."""
    waiting = [_root(text)]
    known: set[int] = set()  # a node can stand below itself, by an alias
    while waiting:
        node = waiting.pop()
        if id(node) in known:
            continue
        known.add(id(node))
        seen: set[str] = set()
        for key in _keys(node):
            if key.text in seen:
                return key.line
            seen.add(key.text)
            waiting.append(key.value)
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
    return None
