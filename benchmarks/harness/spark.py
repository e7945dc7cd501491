"""What scenarios on Spark share: the session, rows as cached frames, and a sink that keeps none."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness.isolated import peak_bytes, python_below
from eddyline.spark.session import session


@cache
def spark_session() -> SparkSession:
    """Return the session of this process, on two cores."""
    folder = tempfile.mkdtemp(prefix="eddyline_bench_")
    conf = {
        "spark.driver.memory": "3g",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
    }
    return session(conf, master="local[2]", app="eddyline benchmarks")


_folders: list[tempfile.TemporaryDirectory[str]] = []


def written(table: pa.Table, *, n_files: int = 8) -> Path:
    """Return a folder with a table as Parquet files, gone with this process."""
    _folders.append(tempfile.TemporaryDirectory(prefix="eddyline_bench_"))
    folder = Path(_folders[-1].name)
    step = -(-table.num_rows // n_files)
    for number in range(n_files):
        parquet.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
    return folder


def cached(folder: Path | str, spark: SparkSession | None = None) -> DataFrame:
    """Return the rows of a folder as a frame that is in memory."""
    df = (spark or spark_session()).read.parquet(str(folder)).cache()
    df.count()
    return df


def workers_peak_bytes(spark: SparkSession) -> list[int]:
    """Return the most memory that each of the session's Python workers has held so far (bytes)."""
    jvm: Any = spark._jvm
    return [peak_bytes(pid) for pid in python_below(int(jvm.ProcessHandle.current().pid()))]


def noop(df: DataFrame) -> None:
    """Compute all rows and drop them."""
    df.write.format("noop").mode("overwrite").save()
