"""Reports of tasks: what a task observed and decided, on its way from a worker to the driver.

A report travels as bytes in a column of the job's result, so it is read by the process that laid
the job, and never from a file.
"""

from __future__ import annotations

import pickle
import zlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    found = []
    for report in reports:
        at = {"partition": report.partition}
        found += [replace(each, evidence={**each.evidence, **at}) for each in report.entries]
        if n_left_out := report.n_entries - len(report.entries):
            evidence = {**at, "n_entries": n_left_out}
            found.append(JournalEntry(batch_id, report.component, "left_out", evidence=evidence))
    return found
