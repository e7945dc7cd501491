"""Fitting: rows per second on one core, the size of segments beside their rows', and the bound."""

from __future__ import annotations

import io
import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved
from benchmarks.models.data import REAL, Rows
from eddyline.data.arrays import Floats, Mask
from eddyline.models import timeline
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.segments import Segments, in_seconds
from eddyline.models.solving import polynomials

BOUNDS = ("1 %", "0.05 %")

MILLION = 1_000_000


def speed(settings: Settings, name: str) -> Measurement:
    """Rows per second of the slower of two bounds, rows by entity and time (millions)."""
    rows = REAL[name]()
    rows = rows.copies(-(-settings.pick(MILLION, 100_000) // len(rows)))
    mixed = rows.by_time
    n_runs = settings.pick(9, 3)
    found: dict[str, Any] = {}
    worst, notes = np.inf, []
    for bound in BOUNDS:
        within = rows.within(bound)
        report = fit(rows.keys, rows.times, rows.values, within)[1]
        times = interleaved(
            {
                "by entity": partial(fit, rows.keys, rows.times, rows.values, within),
                "by time": partial(fit, mixed.keys, mixed.times, mixed.values, within),
            },
            n_runs,
            clock=time.process_time,
        )
        rates = {
            kind: [len(rows) / each / MILLION for each in taken.seconds]
            for kind, taken in times.items()
        }
        worst = min(worst, median(rates["by entity"]))
        told = ", ".join(
            f"{kind} {median(each):.3g} ({spread(each)})" for kind, each in rates.items()
        )
        notes.append(f"{bound}: {told} M rows/s; {report}")
        found[bound] = {**rates, "rows_per_segment": report.rows_per_segment}
    return Measurement(worst, f"{len(rows):,} rows; " + "; ".join(notes), found)


def stored(segments: Segments) -> pa.Table:
    """Return segments with the columns in which they are stored, as ``Segments.write`` does."""
    columns: dict[str, Any] = {"key": segments.keys}
    is_begin = segments.origin == segments.lo
    columns["origin"] = pa.array(segments.origin, mask=is_begin).cast(pa.timestamp("us"))
    for name in ("lo", "hi"):
        columns[name] = pa.array(getattr(segments, name)).cast(pa.timestamp("us"))
    columns |= {"is_point": segments.is_point, "tomb": segments.is_tombstone}
    for name, coefs in segments.coefs.items():
        ends = np.arange(len(coefs) + 1, dtype=np.int32) * coefs.shape[1]
        columns[f"coef_{name}"] = pa.ListArray.from_arrays(pa.array(ends), pa.array(coefs.ravel()))
        columns[f"err_{name}"] = segments.errors[name]
    return pa.table(columns)


def n_bytes(table: pa.Table, **options: Any) -> int:
    """Return how long the Parquet file of a table is, by zstd and other options of its writer."""
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd", **options)
    return file.tell()


def by_differences(table: pa.Table) -> int:
    """Return how long it is without dictionaries, times as differences: not as Spark writes it."""
    times = [each.name for each in table.schema if pa.types.is_timestamp(each.type)]
    encodings = dict.fromkeys(times, "DELTA_BINARY_PACKED")
    return n_bytes(table, use_dictionary=False, column_encoding=encodings)


def size(_: Settings, name: str) -> Measurement:
    """How many times smaller segments at 1 % are than the rows that they stand for."""
    rows = REAL[name]()
    raw = {"by entity": n_bytes(rows.table), "by time": n_bytes(rows.by_time.table)}
    found: dict[str, Any] = {"rows": raw}
    for bound in BOUNDS:
        for share in (FitOptions().rounding, 0.0):
            segments, report = fit(
                rows.keys, rows.times, rows.values, rows.within(bound), FitOptions(rounding=share)
            )
            table = stored(segments)
            found[f"{bound}, rounding {share:g}"] = {
                "bytes": n_bytes(table),
                "by_differences": by_differences(table),
                "n_segments": report.n_segments,
                "columns": {each: n_bytes(table.select([each])) for each in table.column_names},
            }
    least = min(raw.values())
    ratios = {kind: least / each["bytes"] for kind, each in found.items() if kind != "rows"}
    told = ", ".join(f"{kind} {each:.3g} x" for kind, each in ratios.items())
    first = next(iter(ratios))
    n_segments, other = found[first]["n_segments"], found[first]["by_differences"]
    rows_too = min(by_differences(rows.table), by_differences(rows.by_time.table))
    note = (
        f"{told}; {len(rows):,} rows of {least / len(rows):.1f} bytes, the smaller of both orders; "
        f"at 1 % {n_segments:,} segments of {found[first]['bytes'] / n_segments:.1f} bytes; "
        f"without dictionaries and with times as differences {least / other:.3g} x, "
        f"{rows_too / other:.3g} x beside rows that are written so, too"
    )
    return Measurement(ratios[first], note, found)


def is_far(rows: Rows, segments: Segments, places: Any) -> tuple[dict[str, Floats], Any]:
    """Return how far rows are from their segments, and the segments of these."""
    starts, wanted = timeline.codes(
        (segments.keys, segments.lo), (rows.keys[places], rows.times[places])
    )
    at = timeline.piece_at(starts, wanted)
    since = in_seconds(rows.times[places] - segments.origin[at])
    far = {
        name: np.abs(rows.values[name][places] - polynomials.evaluate(coefs[at], since))
        for name, coefs in segments.coefs.items()
    }
    inside = (segments.keys[at] == rows.keys[places]) & (rows.times[places] < segments.hi[at])
    assert inside.all(), "a row is in no segment"
    return far, at


def _is_greatest(rows: Rows, name: str) -> Mask:
    """Return which rows have the greatest value of their instant; the others may lose to it."""
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(rows.keys) != 0) | (np.diff(rows.times) != 0)
    most = np.fmax.reduceat(rows.values[name], np.flatnonzero(new))
    found: Mask = rows.values[name] == most[np.cumsum(new) - 1]
    return found


CHECKED = {"auto": 2, "linear": 1, "swing": 1, "connected": 1, "polynomial": 4}
"""Methods that are checked, with degrees."""


def broken(rows: Rows, bound: str, options: FitOptions, places: Any) -> tuple[int, int, int, float]:
    """Fit rows, and check the values of some against the bound and the error that is told.

    Args:
        rows: by entity and time; a row has a value of an attribute at least.
        bound: of all attributes.
        options: how they are fitted.
        places: the rows that are checked; None: all.

    Returns:
        How many values were checked, how many are too far, how many of these lost to a greater one
        of their instant and do not count, and the largest part of a bound that was used.
    """
    within = rows.within(bound)
    segments, _ = fit(rows.keys, rows.times, rows.values, within, options)
    if places is None:
        some = [np.isfinite(each) for each in rows.values.values()]
        places = np.flatnonzero(np.any(some, axis=0))
    far, at = is_far(rows, segments, places)
    n_checked = n_broken = n_lost = 0
    worst = 0.0
    for each, distance in far.items():
        values = rows.values[each][places]
        there = np.isfinite(values)
        allowed = _allowed(within[each], values)
        beyond = there & ~(distance <= np.minimum(allowed, segments.errors[each][at]))
        lost = beyond & ~_is_greatest(rows, each)[places] if beyond.any() else beyond
        n_checked += int(there.sum())
        n_broken += int((beyond & ~lost).sum())
        n_lost += int(lost.sum())
        used = there & ~lost
        worst = max(worst, float((distance[used] / np.maximum(allowed[used], 1e-300)).max()))
    return n_checked, n_broken, n_lost, worst


def violations(settings: Settings) -> Measurement:
    """Values of random rows that are beyond the bound, or beyond the error that is told."""
    rng = np.random.default_rng(0)
    cells = [(name, bound, method) for name in REAL for bound in BOUNDS for method in CHECKED]
    n_each = -(-settings.pick(10 * MILLION, 100_000) // len(cells))
    n_checked = n_broken = n_lost = 0
    worst = 0.0
    for name in REAL:
        rows = REAL[name]()
        for bound in BOUNDS:
            for method, degree in CHECKED.items():
                options = FitOptions(method=method, degree=degree)
                counts = broken(rows, bound, options, rng.integers(0, len(rows), n_each))
                n_checked, n_broken = n_checked + counts[0], n_broken + counts[1]
                n_lost, worst = n_lost + counts[2], max(worst, counts[3])
    note = (
        f"of {n_checked:,} values of {', '.join(REAL)} at {' and '.join(BOUNDS)} by "
        f"{', '.join(CHECKED)}; at most {worst:.6g} of the bound used; {n_lost:,} draws of values "
        "that lost to a greater one at the same instant of their entity, which fits count"
    )
    return Measurement(float(n_broken), note, {"checked": n_checked, "lost": n_lost})


def _allowed(bound: Bound, values: Floats) -> Floats:
    return bound.value * np.abs(values) if bound.is_relative else np.full(len(values), bound.value)


RUNS: Runs = {
    **{f"models_fit_{name}": partial(speed, name=name) for name in REAL},
    **{f"models_size_{name}": partial(size, name=name) for name in REAL},
    "models_bounds": violations,
}
