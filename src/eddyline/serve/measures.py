"""Numbers and sentences of the page about a run as a whole.

* ``cells``: the numbers that change with each batch, as texts. A page holds each text in an element
  that has its name; an event sets the texts of these elements.
* ``health``: whether the run is well, in a word and in sentences that name what was measured.
* ``Effects``: what a decision brought, by the time that batches took before it and after it.
* ``time_sections``: the time of a batch by its parts, as Spark measures them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

from eddyline.report.formatting import (
    AS_WRITTEN,
    LITTLE,
    TIMES,
    UNKNOWN,
    count,
    counted,
    duration,
    out_of,
    ratio,
    saving_text,
    significant,
    size,
    span,
    times,
)
from eddyline.report.sections import Figure, Line, Section, Table, columns
from eddyline.runtime.records import event_times, n_batches, numbers_of
from eddyline.serve.following import is_change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.serve.following import Followed


POINTS = 60
"""Batches of the small plot of rows per second."""

WIDTH, HEIGHT = 120, 28
"""Units of the small plot."""


def cells(run: Followed) -> dict[str, str]:
    """Return what is known of a run after its newest batch, by the names of the elements."""
    if not run.recent:
        return {}
    newest = run.recent[-1]
    state, work = run.recent_work[-1], run.work
    n_kept, n_bytes = state.get("n_kept", 0), state.get("n_bytes", 0)
    return {
        "rate": count(ratio(newest.n_rows, newest.seconds)),
        "seconds": duration(1e9 * newest.seconds),
        "rows-of-batch": f"{count(newest.n_rows)} rows",
        "batch": count(newest.batch_id),
        "batches": count(run.n_batches),
        "rows": count(run.n_rows),
        "out": count(run.n_kept),
        "share": out_of(run.n_kept, run.n_rows),
        "late": count(work["n_late"]),
        "late-share": out_of(work["n_late"], run.n_rows),
        "state": size(n_bytes) if n_bytes or n_kept else UNKNOWN,
        "state-rows": f"{count(n_kept)} kept" if n_kept else "",
        "cost": duration(ratio(work["cost_ns"], work["n_priced"])),
        "saving": saving(
            ratio(work["cost_ns"], work["n_priced"]), ratio(work["as_written_ns"], work["n_priced"])
        ),
        "saved": saved(work.get("saved_s"), run.seconds),
        "saved-of": f"of work; batches took {duration(1e9 * run.seconds)}",
        "changes": count(run.n_changes),
        "changed": f"last after batch {count(run.changed_after)}" if run.n_changes else "",
        "at": f"{newest.ended_at:.3f}" if newest.ended_at else "",
        **_lag(newest),
        **_backlog(run),
    }


def _lag(record: BatchRecord) -> dict[str, str]:
    """Write how far results are behind the newest event time, and when that was."""
    newest, complete = event_times(numbers_of(record.operators, record.n_rows).values())
    event_at = "" if newest is None else f"{newest / 1e6:.3f}"
    if newest is None:
        why = "the query uses no event time, or no row had one"
    else:
        why = "a stream has had no row with an event time" if complete is None else ""
    return {
        "lag": UNKNOWN if newest is None or complete is None else behind(newest - complete),
        "lag-why": why,
        "event-at": event_at,
    }


def behind(us: float) -> str:
    """Write how far a watermark is behind (µs).

    >>> behind(0.0), behind(90_000_000.0)
    ('0 s', '1 min 30 s')
    """
    return span(round(us)) if us >= 1.0 else "0 s"


def _backlog(run: Followed) -> dict[str, str]:
    """Write the input that waits, and what is known of it."""
    backlog = run.backlog()
    rows = UNKNOWN if backlog.n_rows is None else count(backlog.n_rows)
    files = "" if backlog.n_files is None else counted(backlog.n_files, "file")
    return {
        "backlog": f"~{rows}" if backlog.is_estimate and backlog.n_rows is not None else rows,
        "backlog-of": files or ("" if backlog.why else "as of the newest batch"),
        "backlog-why": backlog.why,
    }


def saving(cost_ns: float | None, as_written_ns: float | None) -> str:
    """Write what the plans in force save: ``2.5 × less``, as they were written, or unknown."""
    text = saving_text(cost_ns, as_written_ns)
    return text.partition(" than")[0] if text and text != AS_WRITTEN else text or UNKNOWN


def saved(saved_s: float | None, seconds: float) -> str:
    """Write the work that plans saved beside the time of the batches (s).

    >>> saved(1.9, 12.0), saved(-1.9, 12.0), saved(0.01, 12.0), saved(None, 12.0)
    ('1.9 s', '1.9 s more', 'next to nothing', '-')
    """
    if saved_s is None:
        return UNKNOWN
    if abs(saved_s) < LITTLE * seconds:
        return "next to nothing"
    return duration(1e9 * abs(saved_s)) + (" more" if saved_s < 0.0 else "")


def spark_line(batches: Sequence[BatchRecord]) -> str:
    """Return the rows per second of the newest batches as points of a line, from zero up."""
    newest = list(batches)[-POINTS:]
    rates = [ratio(batch.n_rows, batch.seconds) or 0.0 for batch in newest]
    top = max(rates, default=0.0) or 1.0
    step = WIDTH / max(1, len(rates) - 1)
    return " ".join(
        f"{step * place:.1f},{HEIGHT - 2 - (HEIGHT - 4) * rate / top:.1f}"
        for place, rate in enumerate(rates)
    )


Level = Literal["good", "look", "bad", "past"]
"""Of a run: nothing stands out, something does, it failed, it has ended."""

LEVELS: dict[Level, str] = {
    "good": "running well",
    "look": "running, look at it",
    "bad": "failed",
    "past": "ended",
}
"""The levels in words."""

NEWEST = 10
"""Newest batches that are judged."""

LEAST_KNOWN = 20
"""Batches that must be known before the newest are compared with them."""

SLOWER = 2.0
"""Factor over the usual time of a row from which on the page says so."""

SILENT = 10.0
"""Usual intervals without a batch after which the page says so."""

LEAST_SILENCE_S = 60.0
"""Shorter times without a batch are not told (s)."""

DEARER = 1.05
"""Factor over the cost as written from which on the page says so."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a run is."""

    level: Level
    said: tuple[str, ...]
    """What was found, in sentences."""

    @property
    def word(self) -> str:
        """The level in words."""
        return LEVELS[self.level]


def health(run: Followed, now: float, *, values: bool) -> Health:
    """Return how a run is.

    Args:
        run: the run.
        now: the time (s since 1970).
        values: whether an error may show values of rows.
    """
    if run.error is not None:
        return Health("bad", (run.error.told(values=values),))
    if not run.is_running:
        return Health("past", (_so_far(run),))
    if not run.recent:
        return Health("good", ("It waits for its first batch.",))
    sentences = (*_late(run), *_slow(run), *_silent(run, now), *_dear(run))
    if sentences:
        return Health("look", (*sentences, *_skipped(run)))
    return Health("good", (_so_far(run), *_skipped(run)))


def _so_far(run: Followed) -> str:
    if not run.n_batches:
        return "No batch has run."
    batches = counted(run.n_batches, "batch", "batches")
    return f"{count(run.n_rows)} rows in {batches}, {count(run.n_kept)} out."


def _skipped(run: Followed) -> Iterator[str]:
    """Say what was left out on request: rules that do not run are told, and are no alarm."""
    if n := round(run.recent_work[-1].get("n_skipped", 0)):
        yield f"{counted(n, 'rule')} {'is' if n == 1 else 'are'} skipped."


def _late(run: Followed) -> Iterator[str]:
    newest = list(run.recent_work)[-NEWEST:]
    n_late = sum(work.get("n_late", 0) for work in newest)
    if n_late:
        yield f"{count(n_late)} rows of the newest {len(newest)} batches came too late."


def _slow(run: Followed) -> Iterator[str]:
    times = [batch.seconds / batch.n_rows for batch in run.recent if batch.n_rows]
    if len(times) < LEAST_KNOWN:
        return
    slower = ratio(median(times[-NEWEST:]), median(times[:-NEWEST]))
    if slower is not None and slower >= SLOWER:
        yield (
            f"A row takes {significant(slower)} {TIMES} as long in the newest {NEWEST} batches as "
            f"in those before."
        )


def _silent(run: Followed, now: float) -> Iterator[str]:
    ends = [batch.ended_at for batch in run.recent if batch.ended_at]
    if len(ends) < 2:
        return
    usual = median(after - before for before, after in pairwise(ends))
    silence = now - ends[-1]
    if silence > max(LEAST_SILENCE_S, SILENT * usual):
        waits = f"usually one ends every {lasting(usual)}"
        yield f"No batch has ended for {lasting(silence)}; {waits}."


def lasting(seconds: float) -> str:
    """Write a time that may be long.

    >>> lasting(0.25), lasting(7_385)
    ('250 ms', '2 h 3 min')
    """
    return span(max(1, round(1e6 * seconds)))


def _dear(run: Followed) -> Iterator[str]:
    work = run.recent_work[-1]
    more = ratio(work.get("cost_ns"), work.get("as_written_ns"))
    if more is not None and more >= DEARER:
        yield f"The plans in force cost {significant(more)} {TIMES} what those as written would."


MOST_BATCHES = 10
"""Batches on each side of a decision that are compared."""

LEAST_A_SIDE = 3
"""Batches that each side must have to be judged: one alone may have waited for another query."""

UNLIKE = 10.0
"""Factor between the rows of batches above which they are not compared: what each batch takes,
whatever its rows, would be told as a difference between plans."""

ALIKE = 1.03
"""Times that differ by less than this factor are told as equal."""

WARM_UP = "Only the first batch with rows ran before it, which also warms up: none to compare with."


@dataclass(frozen=True, slots=True)
class Side:
    """The batches on one side of a decision."""

    n_batches: int
    n_rows: int
    seconds: float

    @property
    def per_row_ns(self) -> float | None:
        """Time of a row (ns)."""
        return ratio(1e9 * self.seconds, self.n_rows)

    @property
    def rows_per_batch(self) -> float | None:
        """Mean rows of a batch."""
        return ratio(self.n_rows, self.n_batches)

    @property
    def per_batch_ns(self) -> float | None:
        """Time of a batch (ns)."""
        return ratio(1e9 * self.seconds, self.n_batches)


class Effects:
    """Compares the batches around decisions; only those with neither side of another decision.

    Args:
        batches: of the run, in their order.
        journal: of the run.
    """

    def __init__(self, batches: Sequence[BatchRecord], journal: Sequence[JournalEntry]) -> None:
        self._batches = batches
        self._ids = [batch.batch_id for batch in batches]
        with_rows = (place for place, batch in enumerate(batches) if batch.n_rows)
        is_whole = bool(batches) and batches[0].batch_id == 0
        # The first batch with rows started workers and compiled what they run.
        self._warm = next(with_rows, 0) + 1 if is_whole else 0
        self._changes = sorted({entry.batch_id for entry in journal if is_change(entry)})

    def of(self, entry: JournalEntry) -> str:
        """Say what a decision brought; empty where it is none that changes what batches do."""
        if not is_change(entry) or not self._ids or entry.batch_id < self._ids[0]:
            return ""
        place = bisect_right(self._changes, entry.batch_id)
        first = self._changes[place - 2] if place > 1 else -1
        until = self._changes[place] if place < len(self._changes) else self._ids[-1]
        middle = bisect_right(self._ids, entry.batch_id)
        start = max(bisect_right(self._ids, first), middle - MOST_BATCHES, self._warm)
        if start >= middle:
            return WARM_UP
        end = min(bisect_right(self._ids, until), middle + MOST_BATCHES)
        return compared(self._side(start, middle), self._side(middle, end))

    def _side(self, start: int, end: int) -> Side:
        chosen = self._batches[start:end]
        return Side(
            n_batches(chosen), sum(b.n_rows for b in chosen), sum(b.seconds for b in chosen)
        )


def compared(before: Side, after: Side) -> str:
    """Say what batches took before and after, and by how much that differs if it can be judged.

    >>> compared(Side(4, 4_000, 2.0), Side(3, 3_000, 0.6))
    'A row took 500 µs before (4 batches of 500 ms) and 200 µs after (3 of 200 ms): 2.5 × less.'
    >>> compared(Side(1, 1_000, 0.5), Side(2, 2_000, 0.4)).partition(" after ")[2]
    '(2 of 200 ms), too few batches to judge.'
    """
    old, new = before.per_row_ns, after.per_row_ns
    if old is None or new is None:
        return "No batch to compare with has run yet." if after.n_batches == 0 else ""
    batches = counted(before.n_batches, "batch", "batches")
    return (
        f"A row took {duration(old)} before ({batches} of {duration(before.per_batch_ns)}) and "
        f"{duration(new)} after ({count(after.n_batches)} of {duration(after.per_batch_ns)})"
        f"{_doubt(before, after) or f': {_difference(old, new)}'}."
    )


def _doubt(before: Side, after: Side) -> str:
    """Say why times are not judged; empty if they are."""
    if min(before.n_batches, after.n_batches) < LEAST_A_SIDE:
        return ", too few batches to judge"
    larger = ratio(before.rows_per_batch or 0.0, after.rows_per_batch or 0.0) or UNLIKE
    if not 1 / UNLIKE < larger < UNLIKE:
        sizes = " and ".join(count(round(side.rows_per_batch or 0)) for side in (before, after))
        return f", which is not judged: batches had {sizes} rows"
    return ""


def _difference(old: float, new: float) -> str:
    factor = ratio(old, new)
    return times(1.0 if factor is None or 1 / ALIKE < factor < ALIKE else factor)


def in_short(effect: str) -> str:
    """Return what a decision brought in a few words; empty if nothing was judged.

    >>> in_short("A row took 5 µs before (4 batches of 5 s) and 2 µs after (3 of 2 s): 2.5 × less.")
    'a row took 2.5 × less time'
    """
    _, is_compared, factor = effect.rpartition("): ")
    return f"a row took {factor.removesuffix('.')} time" if is_compared else ""


WHOLE = "triggerExecution"
"""Spark's name for the time of a batch from its trigger to its commit."""

PARTS_IN_WORDS = {
    "latestOffset": "look for input",
    "getOffset": "look for input",
    "setOffsetRange": "look for input",
    "walCommit": "write down the input",
    "getBatch": "get the input",
    "queryPlanning": "plan",
    "addBatch": "operators and sink",
    "commitOffsets": "commit",
    "commitBatch": "commit",
}
"""Spark's names for the parts of a batch, in words."""

REST = "between them"

TIMES_OF_PARTS = columns("part, mean: ns, newest: ns, share: share")


def time_sections(phases: Mapping[int, Mapping[str, float]]) -> list[Section]:
    """Return what the newest batches did in their time, nothing if that is not known.

    Args:
        phases: seconds by batch and Spark's name of a part.
    """
    parts_by_batch = {batch_id: parts_in_words(parts) for batch_id, parts in sorted(phases.items())}
    parts_by_batch = {batch_id: parts for batch_id, parts in parts_by_batch.items() if parts}
    if not parts_by_batch:
        return []
    names = list(dict.fromkeys(name for parts in parts_by_batch.values() for name in parts))
    newest = parts_by_batch[max(parts_by_batch)]
    sums = {name: sum(parts.get(name, 0.0) for parts in parts_by_batch.values()) for name in names}
    names.sort(key=lambda name: -sums[name])
    whole = sum(sums.values())
    rows = tuple(
        (
            name,
            1e9 * sums[name] / len(parts_by_batch),
            1e9 * newest.get(name, 0.0),
            sums[name] / whole if whole else None,
        )
        for name in names
    )
    lines = tuple(
        Line(name, tuple(1e9 * parts.get(name, 0.0) for parts in parts_by_batch.values()))
        for name in names
    )
    note = f"Of the newest {len(parts_by_batch)} batches, as Spark measures them."
    figure = Figure("Time of each part of a batch", tuple(parts_by_batch), lines, "ns")
    return [Section("time of batches", (Table(TIMES_OF_PARTS, rows, note), figure))]


def parts_in_words(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the time of each part in words, and what is left of the whole.

    >>> parts_in_words({"addBatch": 0.5, "walCommit": 0.1, "triggerExecution": 0.7})
    {'operators and sink': 0.5, 'write down the input': 0.1, 'between them': 0.1}
    """
    seconds_by_part: dict[str, float] = {}
    for name, seconds in parts.items():
        if name != WHOLE:
            words = PARTS_IN_WORDS.get(name, name)
            seconds_by_part[words] = round(seconds_by_part.get(words, 0.0) + seconds, 6)
    rest = round(parts.get(WHOLE, 0.0) - sum(seconds_by_part.values()), 6)
    return {**seconds_by_part, REST: rest} if seconds_by_part and rest > 0.0 else seconds_by_part
