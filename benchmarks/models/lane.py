"""Segments fitted from scanned Parquet files, end to end: tasks read the files, or Spark does.

The seed draws how many rows, entities and attributes there are, and how near models have to be.
Both ways read the same files of twenty columns and write their segments to Parquet.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import eddyline as el
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session, written
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, seconds_of
from benchmarks.models.data import T0_US

N_COLUMNS, N_SHAPES, N_ROUNDS = 20, 3, 5


@dataclass(frozen=True)
class Shape:
    """Rows that are fitted."""

    n_rows: int
    n_entities: int
    n_attributes: int
    within: float
    """Of each attribute, in its unit; rows scatter by 1."""
    has_names: bool
    """Whether entities are texts, and not numbers."""

    def __str__(self) -> str:
        kind = "names" if self.has_names else "numbers"
        return (
            f"{self.n_rows:,} rows of {self.n_entities:,} {kind}, {self.n_attributes} attributes "
            f"within {self.within:.2g}"
        )


def drawn(rng: np.random.Generator, settings: Settings) -> Shape:
    """Return a shape of the day."""
    return Shape(
        settings.pick(int(rng.integers(1_000_000, 5_000_000)), 40_000),
        int(10 ** rng.uniform(1, 4)),
        int(rng.integers(1, 4)),
        float(10 ** rng.uniform(0.3, 1.5)),
        bool(rng.integers(0, 2)),
    )


def files(shape: Shape, rng: np.random.Generator) -> Path:
    """Return a folder with the rows, and columns that nobody asks for."""
    n, seconds = shape.n_rows, np.sort(rng.uniform(0.0, 86_400.0, shape.n_rows))
    entities = rng.integers(0, shape.n_entities, n)
    times = pa.array((seconds * 1e6).astype(np.int64) + T0_US).cast(pa.timestamp("us", "UTC"))
    texts = np.char.add("vessel ", np.arange(shape.n_entities).astype(str))
    keys = texts[entities] if shape.has_names else entities
    columns = {"key": pa.array(keys), "ts": times}
    for each in range(shape.n_attributes):
        slow = 50 * np.sin(seconds / (600.0 * (each + 1)) + entities)
        columns[f"a{each}"] = pa.array(slow + rng.normal(size=n))
    while len(columns) < N_COLUMNS:
        columns[f"other_{len(columns)}"] = pa.array(rng.integers(0, 1_000, n) / 8)
    return written(pa.table(columns))


def fit(folder: Path, shape: Shape, target: str, lane: str) -> None:
    """Fit the rows of a folder, and write the segments."""
    df = spark_session().read.parquet(str(folder))
    within = {f"a{each}": shape.within for each in range(shape.n_attributes)}
    segments = el.models.fit(
        df, key="key", time="ts", within=within, max_gap="10 minutes", lane=lane
    )
    segments.to_df().write.mode("overwrite").parquet(target)


def of_the_day(settings: Settings) -> Measurement:
    """Time of ``lane="off"`` over the default: the median of some shapes."""
    rng = np.random.default_rng([settings.unseen, 85])
    gains, notes = [], []
    raw: dict[str, tuple[float, ...]] = {}
    for _ in range(settings.pick(N_SHAPES, 1)):
        shape = drawn(rng, settings)
        folder, target = files(shape, rng), tempfile.mkdtemp(prefix="eddyline_bench_")
        ways = {
            lane: partial(fit, folder, shape, f"{target}/{lane}", lane) for lane in ("auto", "off")
        }
        times = interleaved(ways, settings.pick(N_ROUNDS, 1))
        written_rows = [spark_session().read.parquet(f"{target}/{lane}") for lane in ways]
        n_segments, n_others = (rows.count() for rows in written_rows)
        left = written_rows[0].exceptAll(written_rows[1]).count()
        assert (left, n_segments) == (0, n_others), f"{shape}: segments differ"
        ratios = [
            off / auto
            for off, auto in zip(times["off"].seconds, times["auto"].seconds, strict=True)
        ]
        gains.append(median(ratios))
        notes.append(
            f"{shape}, {n_segments:,} segments: {median(ratios):.2f} ({spread(ratios)}; "
            f"auto {times['auto']}, off {times['off']})"
        )
        raw |= {f"{way} {len(gains)}": seconds for way, seconds in seconds_of(times).items()}
        shutil.rmtree(target)
    return Measurement(median(gains), "; ".join(notes), raw)


RUNS: Runs = {"lane_fit": of_the_day}
