"""The batches of a run: in memory as records, on the disk as lines of plain values.

Both have a budget. Where one is used up, older batches are merged into coarser records, about
equally many in each, so that counts and times stay right over any number of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.files import append, encoded, go_on_with, joined, replace_file, whole_lines
from eddyline.errors import StateError
from eddyline.runtime.records import BatchRecord, Counting, Numbers, coarser

if TYPE_CHECKING:
    from pathlib import Path

    from eddyline.runtime.operator import Record

PROGRESS_BYTES = 32 << 20
"""Size up to which the file grows (bytes): some 60,000 records of a query with a few operators."""

MAX_RECORDS = 2_000
"""Records in memory; figures draw half as many points."""


class StoredRecord(msgspec.Struct, frozen=True):
    """One component after one batch, as plain values: a ``runtime.operator.Record``."""

    component: str
    plan: Any = None
    """The plan in force, as in the journal."""
    sums: dict[str, float] = {}
    """Counts of the batch by name; see ``runtime.records.Numbers``."""
    levels: dict[str, float] = {}
    """How things stand after the batch."""

    @classmethod
    def of(cls, record: Record, n_rows: int) -> StoredRecord:
        """Return a record of a batch of so many rows as plain values."""
        numbers = record.numbers(n_rows) if isinstance(record, Counting) else Numbers()
        levels = {name: float(value) for name, value in numbers.levels.items()}
        sums = {name: float(value) for name, value in numbers.sums.items()}
        return cls(record.component, record.plan, sums, levels)

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002 - they are known
        """Return its numbers."""
        return Numbers(self.sums, self.levels)

    def with_earlier(self, earlier: StoredRecord, share: float) -> StoredRecord:  # noqa: ARG002
        """Return one record for several batches: sums add up, levels are as after the last."""
        names = dict.fromkeys((*earlier.sums, *self.sums))
        sums = {name: earlier.sums.get(name, 0.0) + self.sums.get(name, 0.0) for name in names}
        return msgspec.structs.replace(self, sums=sums)


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of the file: a ``BatchRecord``; fields of later versions are passed over."""

    batch_id: int
    n_rows: int
    n_kept: int
    seconds: float
    ended_at: float = 0.0
    operators: tuple[StoredRecord, ...] = ()
    lines: tuple[str, ...] = ()
    n_batches: int = 1
    kept_by: dict[str, int] = {}
    first_began_at: float | None = None


class Progress:
    """The batches of a run, oldest first.

    Args:
        path: file that is appended to, also over restarts; created if it is not there. Without
            one, nothing is kept on the disk.
        max_bytes: size up to which the file grows (bytes).
        max_records: records up to which memory is used.

    Raises:
        StateError: the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = PROGRESS_BYTES,
        max_records: int = MAX_RECORDS,
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.records: list[BatchRecord] = []
        """Those of this process; its older batches are merged."""
        self._n_bytes = 0
        if path is not None:
            try:
                self._n_bytes = go_on_with(path)
            except OSError as error:
                raise _unwritable(path, error) from error

    def add(self, record: BatchRecord) -> None:
        """Take in a batch that ended.

        Raises:
            StateError: the file cannot be written.
        """
        self.records.append(record)
        if len(self.records) > self.max_records:
            self.records = coarser(self.records, self.max_records // 4, self.max_records // 4)
        if self.path is None:
            return
        try:
            self._n_bytes += append(self.path, [line_of(record)])
            if self._n_bytes > self.max_bytes:
                self._thin(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _thin(self, path: Path) -> None:
        """Rewrite the file to about half of its budget, one half of which are the newest lines."""
        lines, part = whole_lines(path), self.max_bytes // 4
        n_part = max(1, part * len(lines) // self._n_bytes)
        content = joined(map(line_of, coarser(read_progress(path), n_part, n_part)))
        replace_file(path, content)
        self._n_bytes = len(content)


def line_of(record: BatchRecord) -> bytes:
    """Return a record as a line of the file."""
    line = _Line(
        record.batch_id,
        record.n_rows,
        record.n_kept,
        record.seconds,
        record.ended_at,
        tuple(StoredRecord.of(each, record.n_rows) for each in record.operators),
        record.lines,
        record.n_batches,
        dict(record.kept_by),
        record.first_began_at,
    )
    return encoded(line)


def read_progress(path: Path) -> list[BatchRecord]:
    """Return the records of a file that another process may be writing, but for half a last one.

    Their operators are ``StoredRecord``.

    Raises:
        StateError: it cannot be read; the message says where.
    """
    found: list[BatchRecord] = []
    try:
        decoder = msgspec.json.Decoder(_Line)
        for line in whole_lines(path):
            record = _record(decoder.decode(line))
            if found and found[-1].batch_id == record.batch_id and found[-1].n_batches == 1:
                found.pop()  # it ran again after a failure, and counts once
            found.append(record)
    except OSError as error:
        msg = f"cannot read the progress {path}: {error}; make it readable or move it away"
        raise StateError(msg, path=str(path)) from error
    except (ValueError, RecursionError) as error:
        number = len(found) + 1
        msg = f"line {number} of the progress {path} is no batch: {error}; move the file away"
        raise StateError(msg, path=str(path), line=number) from error
    return found


def _record(line: _Line) -> BatchRecord:
    return BatchRecord(**{name: getattr(line, name) for name in line.__struct_fields__})


def _unwritable(path: Path, error: OSError) -> StateError:
    msg = f"cannot write the progress {path}: {error}; make room or rights"
    return StateError(msg, path=str(path))
