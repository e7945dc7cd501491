"""The numbers of a run that change with each batch, as texts: on the list, on its page, in events.

A page holds each in an element that has its name; an event sets the texts of these elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.report.formatting import (
    AS_WRITTEN,
    LITTLE,
    UNKNOWN,
    count,
    counted,
    duration,
    out_of,
    per_second,
    saving_text,
    size,
    span,
)
from eddyline.serve.following import work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.records import BatchRecord
    from eddyline.serve.following import Followed, Work

POINTS = 60
"""Batches of the small plot of rows per second."""

WIDTH, HEIGHT = 120, 28
"""Units of the small plot."""


def cells(run: Followed) -> dict[str, str]:
    """Return what is known of a run after its newest batch, by the names of the elements."""
    if not run.recent:
        return {}
    newest = run.recent[-1]
    work = work_of(newest)
    return {
        "rate": count(per_second(newest.n_rows, newest.seconds)),
        "seconds": duration(1e9 * newest.seconds),
        "rows-of-batch": f"{count(newest.n_rows)} rows",
        "batch": count(newest.batch_id),
        "batches": count(run.n_batches),
        "rows": count(run.n_rows),
        "out": count(run.n_kept),
        "share": out_of(run.n_kept, run.n_rows),
        "late": count(run.n_late),
        "late-share": out_of(run.n_late, run.n_rows),
        "state": size(work.n_bytes) if work.n_bytes or work.n_kept else UNKNOWN,
        "state-rows": f"{count(work.n_kept)} kept" if work.n_kept else "",
        "cost": duration(run.cost_ns),
        "saving": saving(run.cost_ns, run.as_written_ns),
        "saved": saved(run.saved_s, run.seconds),
        "saved-of": f"of work; batches took {duration(1e9 * run.seconds)}",
        "changes": count(run.n_changes),
        "changed": f"last after batch {count(run.changed_after)}" if run.n_changes else "",
        "at": f"{newest.ended_at:.3f}" if newest.ended_at else "",
        **_lag(work),
        **_backlog(run),
    }


def _lag(work: Work) -> dict[str, str]:
    """Write how far results are behind the newest event time, and when that was."""
    newest, complete = work.newest_us, work.complete_us
    at = "" if newest is None else f"{newest / 1e6:.3f}"
    if newest is None:
        why = "the query uses no event time, or no row had one"
    else:
        why = "a stream has had no row with an event time" if complete is None else ""
    return {
        "lag": UNKNOWN if newest is None or complete is None else behind(newest - complete),
        "lag-why": why,
        "event-at": at,
    }


def behind(us: float) -> str:
    """Write how far a watermark is behind (µs).

    >>> behind(0.0), behind(90_000_000.0)
    ('0 s', '1 min 30 s')
    """
    return span(round(us)) if us >= 1.0 else "0 s"


def _backlog(run: Followed) -> dict[str, str]:
    """Write the input that waits, and what is known of it."""
    known = run.backlog()
    rows = UNKNOWN if known.n_rows is None else count(known.n_rows)
    files = "" if known.n_files is None else counted(known.n_files, "file")
    return {
        "backlog": f"~{rows}" if known.is_estimate and known.n_rows is not None else rows,
        "backlog-of": files or ("" if known.why else "as of the newest batch"),
        "backlog-why": known.why,
    }


def saving(cost_ns: float | None, as_written_ns: float | None) -> str:
    """Write what the plans in force save: ``2.5 × less``, as they were written, or unknown."""
    said = saving_text(cost_ns, as_written_ns)
    return said.partition(" than")[0] if said and said != AS_WRITTEN else said or UNKNOWN


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
    rates = [per_second(each.n_rows, each.seconds) or 0.0 for each in newest]
    top = max(rates, default=0.0) or 1.0
    step = WIDTH / max(1, len(rates) - 1)
    return " ".join(
        f"{step * at:.1f},{HEIGHT - 2 - (HEIGHT - 4) * rate / top:.1f}"
        for at, rate in enumerate(rates)
    )
