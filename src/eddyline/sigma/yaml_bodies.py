"""Safe reading of YAML: rules are data from strangers, and may be written to hang the reader.

A few lines of aliases can expand to more text than a machine can hold. Readers of rules expand
aliases, because they turn values into texts and walk through lists. The composer does not, so the
expanded size is counted on its nodes. Deep nesting overflows the stack of the composer, or makes it
scan in quadratic time, so depth is checked before.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from eddyline.errors import QueryError

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
        size = _Sizes().of(root, 1)[0] if "&" in text else len(text)
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

    def of(self, node: yaml.Node, level: int) -> tuple[int, int]:
        """Return size and height of a node that stands on a level, from 1."""
        if isinstance(node, yaml.ScalarNode):
            return 1 + len(node.value), 0
        measures = self._sizes.get(id(node))
        if measures is None and level <= MAX_DEPTH:
            size = height = 0
            for part in _parts(node):
                part_size, part_height = self.of(part, level + 1)
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
    key, _ = max(root.value, key=lambda pair: sizes.of(pair[1], 2)[0])
    return int(key.start_mark.line) + 1
