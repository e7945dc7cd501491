"""Rows that come too late: what is told of them, and the task that puts them aside.

At the start of a run people are told what is late, and later that much is.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import LatenessWarning, LateRowsWarning
from eddyline.query.query import UNITS
from eddyline.spark.arrow_tasks import task_ids
from eddyline.state.late_rows import write_late_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from eddyline.spark.operator import Operator
    from eddyline.state.manifest import StatePlace

LATE_FRAC = 0.005
"""Share of late rows among those of a stream that is warned of."""

MOST_MISSED = 2
"""Late rows that are not warned of, as a multiple of those that a learned share allows."""

FEW_ROWS = 10
"""Late rows that are not warned of, whatever their share."""


def warned_of_late(
    stream: str,
    n_late: int,
    n_rows: int,
    outcome: str,
    share: float | None = None,
    delays: Callable[[], NDArray[np.int64]] = lambda: np.empty(0, np.int64),
    lateness_us: int = 0,
) -> bool:
    """Warn of late rows if they are many, and return whether they are.

    Args:
        stream: their stream.
        n_late: how many there are so far.
        n_rows: rows of the stream so far.
        outcome: what has become of them ("not joined").
        share: of rows that a lateness that is learned is to hold ((0, 1)); None if it was given.
        delays: returns how far each row was behind the watermark (µs, ascending).
        lateness_us: the lateness that the stream has (µs).
    """
    allowed = 0.0 if share is None else 1 - share
    if n_late < max(FEW_ROWS, max(LATE_FRAC, MOST_MISSED * allowed) * n_rows):
        return False
    longer = _would_hold(delays, lateness_us)
    if share is not None:
        more = f"learned {100 * (1 - allowed / 10):.9g} %"
        longer = f"lateness='{more}' of the stream waits for more of them"
    msg = (
        f"{n_late:,} of {n_rows:,} rows of {stream!r} came too late and were {outcome}: "
        f"run.late_rows({stream!r}) has them; {longer}. Files "
        f"are read in the order in which they were changed: over many that exist, "
        f"in another order than that of time, give a lateness as large as their disorder, or read "
        f"them in one batch"
    )
    warnings.warn(msg, LateRowsWarning, stacklevel=2)
    return True


def _would_hold(delays: Callable[[], NDArray[np.int64]], lateness_us: int) -> str:
    """Name the lateness that would have held 99 % of the late rows, and the one for all."""
    sorted_us = np.empty(0, np.int64)
    with contextlib.suppress(OSError, pa.ArrowInvalid):  # the warning works without it
        sorted_us = delays()
    if not sorted_us.size:
        return "a longer lateness of the stream waits for them"
    needed = lateness_us + sorted_us[[-(-99 * sorted_us.size // 100) - 1, -1]]
    most, all_ = (interval_text(int(us)) for us in needed)
    if most == all_:
        return f"lateness='{all_}' would have held all of them"
    return f"lateness='{most}' would have held 99 % of them, lateness='{all_}' all"


def interval_text(us: int) -> str:
    """Return an interval of at least a length (µs), rounded up to two digits or more.

    >>> interval_text(5_400_000_001), interval_text(90_000_000), interval_text(1)
    ('91 minutes', '90 seconds', '1 millisecond')
    """
    names = ("day", "hour", "minute", "second", "millisecond")
    unit = next((name for name in names if us >= 10 * UNITS[name]), "millisecond")
    number = -(-us // UNITS[unit])
    return f"{number} {unit}{'' if number == 1 else 's'}"


LIMITS = ("maxfilespertrigger", "maxbytespertrigger")
"""Options of Spark's file source, lowered, that cut the files that exist into several batches."""


def warn_without_lateness(operators: Sequence[Operator], source: DataFrame) -> None:
    """Say in one sentence what is late of streams that were given no lateness, and the way out.

    Args:
        operators: of the run that starts.
        source: the rows that it reads.
    """
    for each in operators:
        if not each.without_lateness:
            continue
        names = [repr(name) for name in each.without_lateness]
        those = f"stream {names[0]} has"
        if len(names) > 1:
            those = f"streams {', '.join(names[:-1])} and {names[-1]} have"
        kept = next((name for name in each.keeps_late if name in each.without_lateness), None)
        msg = (
            f"{those} no lateness: a row that is earlier than one of its stream in a batch before "
            f"is late and left out; lateness='1 minute' beside time='…' waits for it, and "
            f"run.late_rows({kept or each.keeps_late[0]!r}) has those that were left out"
        )
        if limit := _limit_of(source):
            msg += f"; without {limit} all files that exist are one batch, in which no row is late"
        warnings.warn(msg, LatenessWarning, stacklevel=own_frames())


def _limit_of(source: DataFrame) -> str:
    """Return the option by which Spark cuts the files of a stream into batches; empty if none."""
    frame: Any = source
    try:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        java = source.sparkSession.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
        for leaf in java.asJava(leaves):
            if leaf.getClass().getSimpleName() == "StreamingRelation":
                for name in java.asJava(leaf.dataSource().options()):
                    if name.lower() in LIMITS:
                        return str(name)
    except Exception:  # noqa: BLE001 - it is a hint only, from inside Spark
        return ""
    return ""


def own_frames() -> int:
    """Return the level of the stack at which the code of the user called, for ``warnings``."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("eddyline."):
        level, frame = level + 1, frame.f_back
    return level


MICROS = "__micros"
"""The column of the event time of rows (µs)."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Writes late rows; goes to workers."""

    place: StatePlace
    batch_id: int
    stream: str
    low: int
    """Watermark: rows before it are late (µs)."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition as a file, and return its name and their number."""
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        table = pa.Table.from_batches(arrived)
        starts = table[MICROS].to_numpy()
        rows = table.drop_columns([MICROS])
        at = self.batch_id, task_ids()[0], self.stream
        file = write_late_table(self.place, *at, rows, starts, self.low)
        yield pa.RecordBatch.from_pydict({"file": [file], "n": [table.num_rows]})
