"""Sources of rules: folders, files and texts.

They are cut into YAML documents, and folders are followed. A set may follow a folder while it runs.
There is no thread: who asks for the rules of the moment, such as a micro-batch that begins, lets
the folder be looked at. What cannot be read, or does not fit, is told, and the rules that its file
had stay. Files are known by time and size, and if these are others by their content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.errors import EddylineError, OptionError, RuleFilesWarning, SourceError
from eddyline.query.query import check_span
from eddyline.query.spans import micros_in
from eddyline.rules.view import COMPONENT
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from eddyline.query.conditions import RuleSource
    from eddyline.rules.store import RuleStore
    from eddyline.sigma.rule import SigmaRule, SigmaRules

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
    by_path: dict[str, Content] = {}
    for item in several:
        if not isinstance(item, str | Path):
            msg = f"no rules: {item!r:.60} is no text and no path; {_WANTED}"
            raise SourceError(msg)
        if isinstance(item, str) and not item.strip():
            # The empty path is the current folder, which nobody means by it.
            msg = f"no rules: {item!r} is no name of a file or folder; {_WANTED}"
            raise SourceError(msg)
        if isinstance(item, str) and "\n" in item:
            by_path[f"text {len(by_path)}"] = Content("", item.encode("utf-8", "surrogatepass"))
            continue
        for path in _files(Path(item)):
            key = str(path.resolve())
            if key not in by_path:
                by_path[key] = Content(str(path), _read(path))
    return list(by_path.values())


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
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        files = [file for file in files if file.is_file()]
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


EVERY = "1 second"
"""Least time between two looks, unless told otherwise."""

SETTLE_S = 0.05
"""Time between two looks that have to agree once something has changed (s): an editor may be
writing a file, or be about to rename another to its name."""

MOST_LOOKS = 10
"""Looks at a folder that goes on changing; what has changed since is for the next batch."""

TEMPORARY = (".", "#")
"""Beginnings of the names of files that are not rules yet, but an editor's."""

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of what is not there any more, or leads nowhere."""

CORRELATIONS = "correlations"
"""Stands for the file where what is told is of all correlations."""

_WIDE = re.compile(rb"^(filter|correlation)\s*:", re.MULTILINE)
"""Keys of documents that make a difference to what other documents mean."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment."""

    mtime_ns: int
    n_bytes: int
    digest: bytes
    is_wide: bool
    """Whether it has documents on which others may depend."""


def every_s(watch: str | bool) -> float:
    """Return the least time between two looks (s), from the option ``watch``.

    Raises:
        OptionError: it is no interval.
    """
    text = EVERY if watch is True else watch
    micros = micros_in(text) if isinstance(text, str) else None
    check_span(f"watch {text!r:.60}", micros, watch=watch)
    if micros is None or micros < 0:
        msg = f"watch is True or an interval such as '10 seconds', got {watch!r}"
        raise OptionError(msg, watch=watch)
    return micros / 1e6


class RuleFolder:
    """Follows a folder, or a file, for one set of rules; see ``rules.store.Follower``.

    Args:
        path: the folder; its files are taken to be those that the set was read from.
        read: reads files, or the folder, as the set was read.
        every_s: least time between two looks (s).
        clock: monotonic clock (s).
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[list[str | Path]], SigmaRules],
        *,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path = path
        self._read = read
        self._every_s = every_s
        self.correlations: set[str] = set()
        """Texts of the correlations of the set."""
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._files = scan(path, {})
        """The files that the rules of the set are of."""
        self._looked_at = clock()
        self._troubles: dict[str, str] = {}

    @property
    def place(self) -> str:
        """The folder, or the file."""
        return str(self.path)

    @property
    def files(self) -> list[str | Path]:
        """The files that the rules of the set are of."""
        return [*self._files]

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be taken in, file by file, and why."""
        return tuple(self._troubles.values())

    def look(self, store: RuleStore, batch_id: int) -> list[JournalEntry]:
        """Take in what has changed since the last look; returns what could not be."""
        with self._lock:
            if self._clock() - self._looked_at < self._every_s:
                return []
            before, reasons = self._files, {str(self.path): ""}
            try:
                states = self._settled()
            except OSError as error:  # what cannot be seen has not gone
                return self._new_troubles(
                    {str(self.path): f"{self.path} cannot be read: {error}"}, batch_id
                )
            finally:
                self._looked_at = self._clock()
            if states is None:
                return []
            if not states:
                reasons[str(self.path)] = f"{self.path} has no rules any more"
            elif states != before:
                reasons = self._take_in(store, before, states)
            return self._new_troubles(reasons, batch_id)

    def _settled(self) -> dict[str, FileState] | None:
        """Return the files once two looks agree; None if they go on changing."""
        states = scan(self.path, self._files)
        if states == self._files:
            return states
        for _ in range(MOST_LOOKS):
            self._sleep(SETTLE_S)
            again = scan(self.path, states)
            if again == states:
                return states
            states = again
        return None

    def _take_in(
        self, store: RuleStore, before: Mapping[str, FileState], states: Mapping[str, FileState]
    ) -> dict[str, str]:
        """Put the rules of changed files in the set, and take those of others out.

        Returns:
            Why something was not taken in, by file; "" where all was.
        """
        gone = before.keys() - states.keys()
        # Of files that are one by links, or alike, one alone may be read: another has its place.
        digests_before = {
            state.digest for path, state in before.items() if _digest(states, path) != state.digest
        }
        changed = [
            path
            for path, state in states.items()
            if _digest(before, path) != state.digest or state.digest in digests_before
        ]
        if any(state.is_wide for state in (*before.values(), *states.values())):
            changed = [*states] if changed or gone else []
        reasons = {str(self.path): "", **dict.fromkeys(gone, "")}
        if changed:
            try:
                reasons |= self._read_anew(store, changed, states, gone)
            except EddylineError as error:  # such as that a file has gone meanwhile
                return {str(self.path): error.message}
        self._files = dict(states)
        _leave(store, {name for name, path in _owners(store).items() if path in gone}, gone)
        return reasons

    def _read_anew(
        self,
        store: RuleStore,
        paths: list[str],
        states: Mapping[str, FileState],
        gone: Collection[str],
    ) -> dict[str, str]:
        """Read files and put their rules in the set; all of them if names are taken by others."""
        read = self._read([*paths])
        others = {*store.now()[1]} - _names(store, {*paths, *gone})
        if any(rule.name in others for rule in read.sources):
            paths = [*states]
            read = self._read([*paths])
        reasons = _put(store, read, paths, gone)
        now = {correlation.text for correlation in read.correlations}
        if now and now != self.correlations:
            reasons[CORRELATIONS] = (
                f"{self.path}: correlations change when the query is started anew"
            )
        return reasons

    def _new_troubles(self, whys: Mapping[str, str], batch_id: int) -> list[JournalEntry]:
        """Return what was not taken in and is not known yet, and warn of it."""
        new = {path: why for path, why in whys.items() if why and self._troubles.get(path) != why}
        kept = {path: why for path, why in self._troubles.items() if path not in whys}
        self._troubles = kept | {path: why for path, why in whys.items() if why}
        for why in new.values():
            msg = f"not taken in: {why}; the rules that were there before stay"
            warnings.warn(msg, RuleFilesWarning, stacklevel=2)
        return [
            JournalEntry(batch_id, COMPONENT, "broken", evidence={"why": why})
            for why in new.values()
        ]


def scan(path: Path, before: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return the files of a folder, or a file; what goes meanwhile is left out.

    Those whose time and size are known are not read.

    Raises:
        OSError: something is there that cannot be read.
    """
    files = [path]
    if path.is_dir():
        inner = (Path(name, file_name) for name, _, names in _walk(path) for file_name in names)
        rules = (file for file in inner if file.suffix.lower() in SUFFIXES)
        files = sorted(file for file in rules if not file.name.startswith(TEMPORARY))
    return {str(file): state for file in files if (state := _state(file, before)) is not None}


def _walk(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield folders as ``os.walk`` does, and raise what it passes over."""

    def failed(error: OSError) -> None:
        if error.errno not in GONE:
            raise error

    return os.walk(path, onerror=failed)


def _state(path: Path, states_before: Mapping[str, FileState]) -> FileState | None:
    try:
        seen = path.stat()
        before = states_before.get(str(path))
        if before and (before.mtime_ns, before.n_bytes) == (seen.st_mtime_ns, seen.st_size):
            return before
        if not stat.S_ISREG(seen.st_mode):  # such as a pipe, which may never end
            return None
        data = path.read_bytes()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return FileState(seen.st_mtime_ns, len(data), digest, _WIDE.search(data) is not None)


def _digest(files: Mapping[str, FileState], path: str) -> bytes | None:
    return files[path].digest if path in files else None


def _owners(store: RuleStore) -> dict[str, str]:
    """Return the files of the rules of a set, by their names; of those that came from files."""
    _, sources = store.now()
    return {
        name: str(source.info["path"])
        for name, source in sources.items()
        if source.info.get("path")
    }


def _names(store: RuleStore, paths: Collection[str]) -> set[str]:
    """Return the names of the rules that came from some files."""
    return {name for name, path in _owners(store).items() if path in paths}


def _put(
    store: RuleStore, read: SigmaRules, paths: Sequence[str], gone: Collection[str]
) -> dict[str, str]:
    """Put the rules of files in a set, of each file all or none; returns why not, by file."""
    known_reasons = {refused.reason for refused in store.unread}
    reasons: dict[str, str] = {}
    for skipped in read.skipped:
        if skipped.reason not in known_reasons:
            reasons.setdefault(skipped.path, skipped.reason)
    stay = {path for path in paths if path in reasons and _names(store, [path])}
    done = [path for path in paths if path not in stay]
    taken = {*store.now()[1]} - _names(store, {*done, *gone})
    rules: dict[str, dict[str, SigmaRule]] = {path: {} for path in done}
    for rule in read.sources:
        if rule.info["path"] in rules:
            rules[str(rule.info["path"])][rule.name] = rule
    for path in done:
        if clash := sorted(rules[path].keys() & taken):
            reasons[path] = f"{path}: another rule of the set is called {clash[0]!r}"
        else:
            reasons[path] = _why_not(store, rules[path], path) or reasons.get(path, "")
    had = {path: _names(store, [path]) - {*rules[path]} for path in done}
    fine = [path for path in done if not reasons[path]]
    unread = {refused.path for refused in read.skipped}
    gone_rules = {name for path in fine for name in had[path]}
    _leave(store, gone_rules, [path for path in fine if path not in unread])
    return reasons


def _why_not(store: RuleStore, rules: Mapping[str, SigmaRule], path: str) -> str:
    """Put the rules of a file in the set, or return why they are not; "" if they are."""
    _, now = store.now()
    new = {name: rule for name, rule in rules.items() if _has_changed(now.get(name), rule)}
    try:
        store.put(new)
    except EddylineError as error:  # one does not fit the columns of a stream
        return f"{path}: {error.message}"
    return ""


def _has_changed(before: RuleSource | None, after: RuleSource) -> bool:
    """Return whether a rule, or what is said of it, is another one."""
    return before is None or (before.text, before.info, before) != (after.text, after.info, after)


def _leave(store: RuleStore, names: Collection[str], paths: Collection[str]) -> None:
    """Take rules out of the set, and what could not be read of some files."""
    _, now = store.now()
    unread = {rule.name for rule in store.unread if getattr(rule, "path", "") in paths}
    gone = [*names, *(name for name in unread if name not in now)]
    if gone:
        store.remove(gone)
