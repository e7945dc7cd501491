"""Limits on the text of rules, and lines of their faults.

*Bodies.* Rules are data from strangers, and may be written to hang the reader. A few lines of
aliases can expand to more text than a machine can hold. Readers of rules expand aliases, because
they turn values into texts and walk through lists. The composer does not, so the expanded size is
counted on its nodes. Deep nesting overflows the stack of the composer, or makes it scan in
quadratic time, so depth is checked before.

*Modifiers.* pySigma applies the modifiers of a field one after the other. Chains that make more
texts than a machine can hold are refused. ``mend`` encodes Base64 again, because pySigma does not
encode the bytes of the text. A rule with a chain that matches no event runs, and
``info["problems"]`` says so.

*Places.* A line is given only where one is known: of the YAML's own error, of a key that stands
there twice, of the field, the condition or the part of the rule that was refused.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import yaml
from sigma import exceptions, modifiers
from sigma.conditions import ConditionAND
from sigma.modifiers import modifier_mapping, reverse_modifier_mapping
from sigma.rule.base import SigmaYAMLLoader
from sigma.rule.detection import SigmaDetectionItem
from sigma.types import SigmaExpansion, SigmaNumber, SigmaString

from eddyline.errors import EddylineError, QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sigma.rule import SigmaDetection, SigmaDetections

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
    marks = [getattr(error, f"{kind}_mark", None) for kind in ("problem", "context")]
    lines = [mark.line + 1 for mark in marks if mark is not None]
    if not lines:
        return Fault(f"not YAML: {error}", _repeated(text))
    # What is never closed is missed behind the last line.
    line = min(lines[0], max(1, len(text.splitlines())))
    texts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return Fault(f"not YAML: {' '.join(part for part in texts if part)}", line)


def fault(text: str, error: Exception) -> Fault:
    """Return the reason why a rule is refused, in the words of its YAML, not pySigma's."""
    root = _root(text)
    reason = message(error)
    tests = () if isinstance(error, EddylineError) else _tests(root)
    refused = next((key for key in tests if _refusal(key) == reason), None)
    if refused is not None:
        prefix = f"field {refused.field!r}: " if refused.field else ""
        return Fault(prefix + _worded(reason, refused), refused.line)
    facts = error.facts if isinstance(error, EddylineError) else {}
    if "field" in facts:
        # Of several tests of a field, which one is refused is not known.
        lines = {key.line for key in _tests(root) if key.field == facts["field"]}
        return Fault(_worded(reason), lines.pop() if len(lines) == 1 else None)
    part = _part(error, facts)
    # What is missing has no line, but what it is missing in has.
    line_numbers = (line_of(text, *part[:length]) for length in range(len(part), 0, -1))
    return Fault(_worded(reason), next((line for line in line_numbers if line is not None), None))


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
        entry = next((key for key in _keys(node) if key.text == name), None)
        if entry is None:
            return None
        node, line = entry.value, entry.line
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
    names |= {
        modifier_mapping[modifier].__name__: modifier
        for modifier in written
        if modifier in modifier_mapping
    }
    words = _CLASS.sub(lambda match: f"'{names.get(match[1], match[1])}'", reason)
    return words.replace("incompatible to value type of", "does not fit the value")


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
    for child in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        yield from _keys(child)


def _repeated(text: str) -> int | None:
    """Return the line on which a key stands for the second time in its mapping."""
    waiting = [_root(text)]
    visited: set[int] = set()  # a node can stand below itself, by an alias
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        seen: set[str] = set()
        for key in _keys(node):
            if key.text in seen:
                return key.line
            seen.add(key.text)
            waiting.append(key.value)
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
    return None


MAX_DASHED = 20_000
"""Texts that ``windash`` may make of the values of one rule."""

_WIDE = ("wide", "utf16be", "utf16")
_BASE64 = ("base64", "base64offset")
_PARTS = {"contains", "startswith", "endswith", "expand"}
"""Modifiers whose tests match a part of a text."""

_GROWTH = {"windash": 1.0, "base64": 4 / 3, "base64offset": 4.0, **dict.fromkeys(_WIDE, 2.0)}
"""Growth of a text by a modifier, as a factor; dashes are counted apart."""

MAX_GROWTH = 100
"""Greatest growth of a text by a chain of modifiers, as a factor."""

_DASH = re.compile(r"\B[-/]\b")
"""The dashes that pySigma replaces."""

_N_DASHES = 5
"""Characters that ``windash`` puts in place of a dash."""

_BOM = b"\xff\xfe"
"""The byte order mark of UTF-16 with the low byte first."""


def check_fields(detection: dict[Any, Any]) -> None:
    """Raise QueryError on fields that pySigma cannot read, or would never finish reading.

    Args:
        detection: tests by the names of the detection's parts, as YAML has them.
    """
    n_texts = 0
    for part, tests in detection.items():
        for name, value in _fields_within(tests):
            path = "detection", str(part)
            if name is None:
                continue
            if not isinstance(name, str):
                msg = f"YAML reads the name of a field as {name!r}; write it in quotes"
                raise QueryError(msg, part=path)
            _check_chain(name, path)
            n_texts += texts_of_dashes(name, value)
            if n_texts > MAX_DASHED:
                msg = f"'windash' makes more than {MAX_DASHED:,} texts; write fewer dashes"
                raise QueryError(msg, part=path)


def _fields_within(tests: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the names of fields in a part of a detection, and what they are tested for."""
    if isinstance(tests, dict):
        yield from tests.items()
    elif isinstance(tests, list):
        for test in tests:
            yield from _fields_within(test)


def _check_chain(field: str, path: tuple[str, ...]) -> None:
    """Raise QueryError if the modifiers of a field multiply its texts too often."""
    name, *chain = field.split("|")
    growing = [modifier for modifier in chain if modifier in _GROWTH]
    if "windash" in growing[1:]:
        msg = f"field {name!r}: 'windash' finds no dash behind {growing[0]!r}; write it first"
        raise QueryError(msg, part=path)
    if prod(_GROWTH[modifier] for modifier in growing) > MAX_GROWTH:
        shown = "|".join(growing)
        msg = f"field {name!r}: modifiers {shown:.60} make more than {MAX_GROWTH} times its text"
        raise QueryError(msg, part=path)


def texts_of_dashes(field: str, value: Any) -> int:
    """Return how many texts ``windash`` makes of the values of a field.

    >>> texts_of_dashes("F|windash", ["-a", "/a /b"]), texts_of_dashes("F", "-a")
    (30, 0)
    """
    if "windash" not in field.split("|")[1:]:
        return 0
    values = value if isinstance(value, list) else [value]
    return sum(_N_DASHES ** len(_DASH.findall(str(text))) for text in values)


class _Utf16(modifiers.SigmaUTF16Modifier):
    """The text in UTF-16 behind its byte order mark, as bytes; pySigma's mark is one of UTF-8."""

    def modify(self, val: SigmaString) -> SigmaString:
        text = _BOM + b"".join(_text_of(part).encode("utf-16le") for part in val.s)
        return SigmaString.from_str(text.decode("utf-8", "surrogateescape"))


class _Base64(modifiers.SigmaBase64Modifier):
    """The bytes of a text in Base64."""

    def modify(self, val: SigmaString) -> SigmaString:
        return SigmaString.from_str(b64encode(_bytes(val)).decode())


class _Base64Offset(modifiers.SigmaBase64OffsetModifier):
    """The bytes of a text in Base64 behind 0, 1 and 2 others; pySigma counts characters."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        text = _bytes(val)
        return SigmaExpansion([SigmaString.from_str(_offset(text, n)) for n in range(3)])


def _offset(text: bytes, n_before: int) -> str:
    """Return the Base64 characters that depend only on the text."""
    whole = b64encode(b" " * n_before + text).decode()
    n_bytes = n_before + len(text)
    start, end = (8 * n_before + 5) // 6, 8 * n_bytes // 6
    return whole[start:end]


def _bytes(value: SigmaString) -> bytes:
    return "".join(_text_of(part) for part in value.s).encode("utf-8", "surrogateescape")


def _text_of(part: Any) -> str:
    """Return a part of a text; pySigma has refused wildcards before."""
    assert isinstance(part, str)
    return part


_BASE64_MODIFIERS = {modifiers.SigmaBase64Modifier, modifiers.SigmaBase64OffsetModifier}
_OWN: dict[Any, Any] = {
    modifiers.SigmaUTF16Modifier: _Utf16,
    modifiers.SigmaBase64Modifier: _Base64,
    modifiers.SigmaBase64OffsetModifier: _Base64Offset,
}


def mend(detections: SigmaDetections) -> None:
    """Give the detections of a rule the Base64 texts of their values, byte by byte."""
    for item in items_of(detections):
        is_encoded = _BASE64_MODIFIERS.intersection(item.modifiers)
        if is_encoded and item.original_value is not None:
            replaced = [_OWN.get(modifier, modifier) for modifier in item.modifiers]
            item.value = SigmaDetectionItem(item.field, replaced, item.original_value.copy()).value


def problems_of(detections: SigmaDetections) -> list[str]:
    """Return the fields that match (almost) no event because of their modifiers."""
    items = (item for item in items_of(detections) if item.modifiers)
    return list(dict.fromkeys(why for item in items if (why := _problem(item))))


def _problem(item: SigmaDetectionItem) -> str | None:
    place = f"field {item.field!r}" if item.field else "a keyword"
    chain = [modifiers.reverse_modifier_mapping[modifier.__name__] for modifier in item.modifiers]
    wide = next((modifier for modifier in chain if modifier in _WIDE), None)
    if wide is not None and {*_BASE64}.isdisjoint(chain[chain.index(wide) :]):
        return f"{place}: {wide!r} is for Base64; write 'base64offset|contains' behind it"
    if not item.field:
        return None
    if "base64offset" in chain and _PARTS.isdisjoint(chain):
        return f"{place}: 'base64offset' finds a part of a text; write 'contains' behind it"
    if item.value_linking is ConditionAND:
        values = [value for value in item.value if isinstance(value, SigmaString | SigmaNumber)]
        plain = {str(value).lower() for value in values if not _is_pattern(value)}
        if len(plain) > 1:
            return f"{place}: 'all' asks one value to equal several; write 'contains|all'"
    return None


def _is_pattern(value: Any) -> bool:
    return isinstance(value, SigmaString) and any(not isinstance(part, str) for part in value.s)


def items_of(detections: SigmaDetections) -> Iterator[SigmaDetectionItem]:
    """Yield the tests of a rule."""
    for detection in detections.detections.values():
        yield from _items_within(detection)


def _items_within(detection: SigmaDetection) -> Iterator[SigmaDetectionItem]:
    for item in detection.detection_items:
        if isinstance(item, SigmaDetectionItem):
            yield item
        else:
            yield from _items_within(item)


MAX_DEPTH = 64
"""Levels of nesting, aliases expanded. Rules need fewer than ten."""

FREE_SIZE = 200_000
"""Expanded size that every file may have: characters of scalars plus nodes."""

SIZE_RATIO = 20
"""Expanded size that a file may have per character. Without aliases it is below 2."""

# A block collection needs a column more than the one around it, or an indicator in the same line.
# Only a sequence may start in the column of its mapping, which makes two levels of a column.
_DEEP = re.compile(rf"[ \t?:-]{{{MAX_DEPTH // 2}}}")


MAX_DIGITS = 1_000
"""Characters of a number. PyYAML takes quadratic time for numbers to the base of 60."""

_LONG_NUMBER = re.compile(rf"[0-9a-fA-F_:.]{{{MAX_DIGITS}}}")


class Allowance:
    """Expanded size that the documents of one file may still have.

    Args:
        n_chars: characters of the file.
    """

    def __init__(self, n_chars: int) -> None:
        self.size = FREE_SIZE + SIZE_RATIO * n_chars
        """What a file may have as a whole."""
        self._unspent = self.size

    def spend(self, size: int) -> bool:
        """Take a size from the allowance; return False, and take nothing, if it is too large."""
        if size > self._unspent:
            return False
        self._unspent -= size
        return True


def read_yaml(text: str, loader: type[Any], allowance: Allowance) -> tuple[Any, int]:
    """Return the value of one YAML document, and its expanded size.

    Args:
        text: the document.
        loader: a loader class of PyYAML.
        allowance: of the file; the document spends its part.

    Raises:
        QueryError: it is nested too deeply, contains itself, or expands too much.
        Exception: what the loader raises on a text that is no YAML.
    """
    check_depth(text, loader)
    reader = loader(text)
    try:
        root = reader.get_single_node()
        if root is None:
            return None, 0
        # Without an anchor there is no alias.
        size = _Sizes().size_and_height(root, 1)[0] if "&" in text else len(text)
        if _LONG_NUMBER.search(text):
            _check_numbers(root)
        if not allowance.spend(size):
            msg = (
                f"its aliases expand its file to more than {allowance.size:,} characters; write "
                "fewer of them, or put the documents in several files"
            )
            raise QueryError(msg, line=_largest_key(root))
        return reader.construct_document(root), size
    finally:
        reader.dispose()


def check_depth(text: str, loader: type[Any]) -> None:
    """Raise QueryError on a text that is nested too deeply; aliases are not expanded."""
    n_open = text.count("[") + text.count("{")
    if n_open <= MAX_DEPTH // 2 and not _DEEP.search(text):
        return
    depth = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark = event.start_mark
                msg = f"it is nested more than {MAX_DEPTH} levels deep"
                raise QueryError(msg, line=None if mark is None else mark.line + 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_numbers(root: yaml.Node) -> None:
    """Raise QueryError on a number of too many digits."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            is_number = node.tag.endswith((":int", ":float"))
            if is_number and len(node.value) > MAX_DIGITS:
                msg = f"a number of more than {MAX_DIGITS:,} characters; write a text in quotes"
                raise QueryError(msg, line=node.start_mark.line + 1)
            continue
        for part in _parts(node):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)


class _Sizes:
    """Expanded sizes and heights of nodes."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[int, int]] = {}

    def size_and_height(self, node: yaml.Node, level: int) -> tuple[int, int]:
        """Return size and height of a node that stands on a level, from 1."""
        if isinstance(node, yaml.ScalarNode):
            return 1 + len(node.value), 0
        measures = self._sizes.get(id(node))
        if measures is None and level <= MAX_DEPTH:
            size = height = 0
            for part in _parts(node):
                part_size, part_height = self.size_and_height(part, level + 1)
                size += part_size
                height = max(height, part_height)
            measures = self._sizes[id(node)] = size + 1, height + 1
        if measures is None or level + measures[1] > MAX_DEPTH + 1:
            msg = f"an alias contains itself, or is nested more than {MAX_DEPTH} levels deep"
            raise QueryError(msg, line=node.start_mark.line + 1)
        return measures


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def _largest_key(root: yaml.Node) -> int | None:
    """Return the line of the key of a document whose value is largest."""
    if not isinstance(root, yaml.MappingNode) or not root.value:
        return None
    sizes = _Sizes()
    key, _ = max(root.value, key=lambda pair: sizes.size_and_height(pair[1], 2)[0])
    return int(key.start_mark.line) + 1
