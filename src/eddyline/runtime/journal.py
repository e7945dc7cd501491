"""Journal: every decision with its evidence, within a size budget.

``LineFile`` is a file of JSON lines that one process appends to while others read it: the journal
here, and the progress of ``records``.

``TaskReport`` carries the decisions and observations of a task from a worker to the driver. A
report travels as bytes in a column of the job's result. So the process that laid the job reads it,
and nobody reads it from a file.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from eddyline.data.files import append, go_on_with, joined, replace_file, whole_lines
from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

JOURNAL_BYTES = 16 << 20
"""Size up to which a journal grows (bytes): some 40,000 decisions."""

NO_PLANS = ("restore", "rules", "alarms", "missed", "adjust", "version")
"""Events whose before and after are no plans between which was decided."""

JOURNAL_FILE = "journal"
"""Name of the file in errors."""

ItemT = TypeVar("ItemT")

RUN = "run"
"""Component of what is of a run as a whole."""

LEFT_OUT = "left_out"
"""Event of an entry that counts others."""

KINDS = ("of_tasks", "findings", "changes")
"""What is left out first, second and last: what tasks decided for their partitions, what the driver
found without changing a plan, and changes of plans and what persons decided."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One decision: what changed, from what to what, and why."""

    batch_id: int
    """Micro-batch after which it was taken; -1 before the first batch or in a batch job."""
    component: str
    """Name of what decided: a block (``native``, ``arrow``; of a task, whose partition the evidence
    names, or of the driver) or the ``run``."""
    event: str
    """The decision: ``order`` (another order), ``stale`` (evidence let go), ``sample`` (a sample
    confirmed the order), ``recall`` (the plan of a situation that came again), ``mistaken`` (it was
    another situation), ``left_out`` (so many older entries of a task, or of the journal, were
    only counted), ``restore`` and ``drop_state`` (at a restart), ``change`` and
    ``reset`` (a changed query goes on from a checkpoint), ``pin``, ``adapt`` and ``stop``
    (by a person, or because of what the evidence names), ``adjust`` (another value of an option, by
    a person); of joins ``grid`` (rows are cut into
    other buckets, or a frequent key into several), ``tree`` (the ways between inputs), ``caches``,
    ``tiers`` (for how long rows are hot), ``matched``, ``passed`` and ``closed`` (whether they are
    so once they were in their result, others have passed their key, or it is over in them),
    ``kept`` (for how long rows are kept that are dropped then) and ``missed`` (how many results
    that cost at most), ``filtered`` (whether tables drop rows before the shuffle) and ``way``
    (whether tables go to the rows), and ``version`` (a table was read again, or could not be
    asked); of streams ``lateness`` (another bound was learned); of rules
    ``rules`` (some came, went or changed), ``broken`` (a file of them was not taken in) and
    ``sharing`` (how they are looked for); their ``order`` is of one rule's Python tests; of alarms
    ``alarms`` (some came, went or changed), ``sharing`` and ``order`` (how a template of them is
    solved) and ``came_true`` (what that cost beside what was estimated); of the watch ``alarm`` (a
    series has changed) and ``unmatched`` (no series has a watched name)."""
    before: Any = None
    """The plan before, as plain values; a list of texts is an order."""
    after: Any = None
    """The plan after."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check."""
    at: str = field(default="", compare=False)
    """When the driver noted it (UTC, ISO 8601); empty before that."""

    @property
    def is_plan_change(self) -> bool:
        """Whether the driver put another plan in force than the one before."""
        is_other = None not in (self.before, self.after) and self.before != self.after
        return is_other and not self.is_of_task and self.event not in NO_PLANS

    @property
    def is_of_task(self) -> bool:
        """Whether a task decided, for the rows of its partition alone."""
        return "partition" in self.evidence

    @property
    def kind(self) -> str:
        """One of ``KINDS``: how long a journal keeps it."""
        if self.is_of_task:
            return "of_tasks"
        is_of_run = self.component == RUN and self.event != LEFT_OUT
        is_asked = "by" in self.evidence
        return "changes" if is_of_run or is_asked or self.before != self.after else "findings"

    def to_json(self) -> str:
        """Return the entry as one line of JSON."""
        values = {member.name: getattr(self, member.name) for member in fields(self)}
        return json.dumps(values, sort_keys=False, default=_plain)


def _plain(value: Any) -> Any:
    is_record = is_dataclass(value) and not isinstance(value, type)
    return asdict(value) if is_record else str(value)


class Journal:
    """A list of entries that is appended to, mirrored to a file of JSON lines if a path is given.

    Where it grows over its budget, it is thinned to half of it: the oldest entries go, those of
    tasks first and changes of plans last. An entry ``left_out`` of the run, which stands first,
    counts what went.

    Args:
        path: file to append to; it is read first if it exists, and created if not.
        max_bytes: its budget (bytes).

    Raises:
        StateError: the file cannot be read; the message says where.
    """

    def __init__(self, path: Path | None = None, max_bytes: int = JOURNAL_BYTES) -> None:
        self.max_bytes = max_bytes
        self._file = None if path is None else LineFile(path, JOURNAL_FILE)
        self._entries = [] if path is None else read_entries(path)
        self._n_bytes = 0 if self._file is None else self._file.n_bytes

    def extend(self, entries: Iterable[JournalEntry]) -> None:
        """Append entries, and write them to the file in one go.

        Raises:
            StateError: the file cannot be written.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        new = [replace(entry, at=entry.at or now) for entry in entries]
        if not new:
            return
        lines = [_line(entry) for entry in new]
        self._entries.extend(new)
        self._n_bytes += len(joined(lines))
        if self._n_bytes > self.max_bytes:
            self._entries = thinned(self._entries, self.max_bytes // 2)
            lines = [_line(entry) for entry in self._entries]
            self._n_bytes = len(joined(lines))
            if self._file is not None:
                self._file.replace(lines)
        elif self._file is not None:
            self._file.append(lines)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> JournalEntry:
        return self._entries[index]

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries as dicts, ready for a DataFrame."""
        return [asdict(entry) for entry in self._entries]


def thinned(entries: Sequence[JournalEntry], max_bytes: int) -> list[JournalEntry]:
    """Return the entries that a budget has room for, behind one that counts the others.

    Args:
        entries: in the order in which they were taken.
        max_bytes: size of the entries that stay (bytes).
    """
    by_rank = sorted(
        range(len(entries)), key=lambda number: (KINDS.index(entries[number].kind), number)
    )
    sizes = [len(_line(entry)) + 1 for entry in entries]
    left_out, n_bytes = set(), sum(sizes)
    for place in by_rank:
        if n_bytes <= max_bytes:
            break
        n_bytes -= sizes[place]
        left_out.add(place)
    kept = [entry for number, entry in enumerate(entries) if number not in left_out]
    if not left_out:
        return kept
    gone = [entries[number] for number in sorted(left_out)]
    if kept and _is_total(kept[0]):
        gone.insert(0, kept.pop(0))
    return [_total(gone), *kept]


def n_left_out(entries: Iterable[JournalEntry]) -> int:
    """Return how many entries a journal has only counted."""
    return sum(entry.evidence["n_entries"] for entry in entries if _is_total(entry))


def n_taken(entries: Sequence[JournalEntry]) -> int:
    """Return how many decisions were ever noted, those that a journal has only counted included."""
    is_thinned = bool(entries) and _is_total(entries[0])  # it stands first
    return len(entries) + (n_left_out(entries[:1]) - 1 if is_thinned else 0)


def _total(gone: Sequence[JournalEntry]) -> JournalEntry:
    """Return an entry that counts others; of those that count, what they count."""
    counts = Counter[str]()
    for entry in gone:
        if _is_total(entry):
            counts.update({kind: entry.evidence[kind] for kind in KINDS})
        else:
            counts[entry.kind] += entry.evidence["n_entries"] if entry.event == LEFT_OUT else 1
    evidence = {"n_entries": counts.total()} | {kind: counts[kind] for kind in KINDS}
    last = gone[-1]
    return JournalEntry(last.batch_id, RUN, LEFT_OUT, evidence=evidence, at=last.at)


def _is_total(entry: JournalEntry) -> bool:
    return (entry.component, entry.event) == (RUN, LEFT_OUT)


def read_entries(path: Path) -> list[JournalEntry]:
    """Return the entries of a file that another process may be writing, but for half a last one.

    Raises:
        StateError: the file cannot be read; the message says where.
    """
    return list(read_lines(path, JOURNAL_FILE, "entry", _entry))


def _entry(line: bytes) -> JournalEntry:
    """Return the entry of a line, in which numbers may be nan; raises ValueError if it is none."""
    return msgspec.convert(json.loads(line), JournalEntry)


def _line(entry: JournalEntry) -> bytes:
    return entry.to_json().encode()


# -- files of lines ----------------------------------------------------------------------------


class LineFile:
    """A file of JSON lines that is appended to; half a last line is cut off first.

    Args:
        path: of the file; it is made with its folder if it is not there.
        what: name of the file in errors.

    Raises:
        StateError: the file can neither be read nor made.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        try:
            self.n_bytes = go_on_with(path)
        except OSError as error:
            raise (_unreadable if path.exists() else _unwritable)(path, what, error) from error

    def append(self, lines: Iterable[bytes]) -> None:
        """Append lines in one go.

        Raises:
            StateError: they cannot be written.
        """
        try:
            self.n_bytes += append(self.path, lines)
        except OSError as error:
            raise _unwritable(self.path, self.what, error) from error

    def replace(self, lines: Iterable[bytes]) -> None:
        """Replace all lines.

        Raises:
            StateError: they cannot be written; the file is as it was.
        """
        content = joined(lines)
        try:
            replace_file(self.path, content)
        except OSError as error:
            raise _unwritable(self.path, self.what, error) from error
        self.n_bytes = len(content)


def read_lines(path: Path, what: str, noun: str, read: Callable[[bytes], ItemT]) -> Iterator[ItemT]:
    """Yield the items of a file of lines, which its process may be writing.

    Args:
        path: of the file.
        what: name of the file in errors.
        noun: what a line is, for errors.
        read: returns the item of a line; raises ValueError or RecursionError if it is none.

    Raises:
        StateError: the file cannot be read; the message says where.
    """
    try:
        lines = whole_lines(path)
    except OSError as error:
        raise _unreadable(path, what, error) from error
    for number, line in enumerate(lines, start=1):
        try:
            yield read(line)
        except (ValueError, RecursionError) as error:
            msg = f"line {number} of the {what} {path} is no {noun}: {error}; move the file away"
            raise StateError(msg, path=str(path), line=number) from error


def _unreadable(path: Path, what: str, error: OSError) -> StateError:
    msg = f"cannot read the {what} {path}: {error}; make it readable or move it away"
    return StateError(msg, path=str(path))


def _unwritable(path: Path, what: str, error: OSError) -> StateError:
    msg = f"cannot write the {what} {path}: {error}; free space, or give write permission"
    return StateError(msg, path=str(path))


# -- the reports of tasks ----------------------------------------------------------------------

MAX_ENTRIES = 50
"""Decisions of one task that are reported one by one; of more, the newest, and their number."""

ProfileT = TypeVar("ProfileT")


@dataclass(frozen=True, slots=True)
class TaskReport(Generic[ProfileT]):
    """The report of one task: its observations, decisions and state."""

    component: str
    """Name of what decides, as in the journal."""
    partition: int
    attempt: int
    profile: ProfileT
    """Its observations."""
    entries: tuple[JournalEntry, ...] = ()
    """Its newest decisions."""
    n_entries: int = 0
    """Number of decisions, those left out included."""

    def to_bytes(self) -> bytes:
        """Return the report as bytes, to travel to the driver."""
        return zlib.compress(pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL), level=1)

    @staticmethod
    def from_bytes(data: bytes) -> TaskReport[Any]:
        """Return the report that one of our own workers packed."""
        report: TaskReport[Any] = pickle.loads(zlib.decompress(data))
        return report


@dataclass(slots=True)
class Decisions:
    """The decisions of one task while it runs."""

    newest: deque[JournalEntry] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))
    n: int = 0

    def add(self, entries: Sequence[JournalEntry]) -> None:
        """Take in decisions."""
        self.newest.extend(entries)
        self.n += len(entries)

    def report(
        self, component: str, partition: int, attempt: int, profile: ProfileT
    ) -> TaskReport[ProfileT]:
        """Return the report of the task with its decisions."""
        return TaskReport(component, partition, attempt, profile, tuple(self.newest), self.n)


def newest_attempts(packed: Iterable[bytes]) -> list[TaskReport[Any]]:
    """Return the reports of a job's tasks, each task once, in the order of partitions.

    A task that was retried or ran twice counts as its newest attempt.
    """
    newest: dict[tuple[str, int], TaskReport[Any]] = {}
    for data in packed:
        report = TaskReport.from_bytes(data)
        task = report.component, report.partition
        if task not in newest or report.attempt >= newest[task].attempt:
            newest[task] = report
    return [newest[task] for task in sorted(newest)]


def decisions_of(reports: Iterable[TaskReport[Any]], batch_id: int) -> list[JournalEntry]:
    """Return the decisions of the tasks of one job as journal entries, with their partitions."""
    entries = []
    for report in reports:
        origin = {"partition": report.partition}
        entries += [
            replace(entry, evidence={**entry.evidence, **origin}) for entry in report.entries
        ]
        if n_left_out := report.n_entries - len(report.entries):
            evidence = {**origin, "n_entries": n_left_out}
            entries.append(JournalEntry(batch_id, report.component, "left_out", evidence=evidence))
    return entries
