"""Sources of rules: folders, files and texts, cut into YAML documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Source = str | Path
    """A path, or YAML text with more than one line."""

SUFFIXES = (".yml", ".yaml")
"""Files of a folder that are read."""

_WANTED = "rules are a folder, a file, YAML text of several lines, or several of these"

_CUT = re.compile(r"^---(?:[ \t]*\r?\n|(?=[ \t])|\Z)|^\.\.\.[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_BLANK = re.compile(r"\s*(?:[#%].*)?")


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file, or a text that was given."""

    path: str
    """Of the file; empty for a text."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document."""

    text: str
    line: int
    """Its first line, from 1."""


def contents(source: Source | Sequence[Source]) -> list[Content]:
    """Return the files and texts of a source, each file once, in the order of their paths.

    A folder is searched with the folders below it.

    Raises:
        SourceError: nothing was named, a file or folder does not exist or cannot be read, or a
            folder has no rules.
    """
    is_several = isinstance(source, Iterable) and not isinstance(source, str | bytes)
    several: list[Any] = list(source) if is_several else [source]  # type: ignore[arg-type]
    if not several:
        msg = f"no rules: an empty list was given; {_WANTED}"
        raise SourceError(msg)
    found: dict[str, Content] = {}
    for each in several:
        if not isinstance(each, str | Path):
            msg = f"no rules: {each!r:.60} is no text and no path; {_WANTED}"
            raise SourceError(msg)
        if isinstance(each, str) and not each.strip():
            # The empty path is the current folder, which nobody means by it.
            msg = f"no rules: {each!r} is no name of a file or folder; {_WANTED}"
            raise SourceError(msg)
        if isinstance(each, str) and "\n" in each:
            found[f"text {len(found)}"] = Content("", each.encode("utf-8", "surrogatepass"))
            continue
        for path in _files(Path(each)):
            key = str(path.resolve())
            if key not in found:
                found[key] = Content(str(path), _read(path))
    return list(found.values())


def documents(text: str) -> Iterator[Document]:
    r"""Return the documents of a text, without those that are empty.

    >>> [(each.line, each.text) for each in documents("a: 1\n---\nb: 2\n")]
    [(1, 'a: 1\n'), (3, 'b: 2\n')]
    """
    start, line = 0, 1
    ends = [(cut.start(), cut.end()) for cut in _CUT.finditer(text)]
    for end, following in [*ends, (len(text), len(text))]:
        part = text[start:end]
        if not all(_BLANK.fullmatch(line) for line in part.splitlines()):
            yield Document(part, line)
        line += text.count("\n", start, following)
        start = following


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
        files = [each for each in files if each.is_file()]
        if not files:
            msg = f"no rules in folder {path}: it has no file that ends in {' or '.join(SUFFIXES)}"
            raise SourceError(msg, path=str(path))
        return files
    if not path.exists():
        msg = f"no file or folder {path}; {_WANTED}"
        raise SourceError(msg, path=str(path))
    return [path]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"rules in {path} cannot be read: {error}"
        raise SourceError(msg, path=str(path)) from error
