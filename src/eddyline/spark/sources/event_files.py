"""Match of event files against a rule set.

It reads files, counts matches, and writes matched events.
"""

from __future__ import annotations

import time
from concurrent.futures import wait
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from eddyline.errors import SourceError
from eddyline.spark.rules.correlations import ALERTS
from eddyline.spark.session import in_background
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.spark.rules.rule_set import RuleSet

    Progress = Callable[[int, int], None]
    """Is told how many of Spark's tasks are done, and of how many."""

KINDS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}
"""Formats of files of events, by their suffix; compressed ones end in ``.gz`` behind it."""

WRITTEN = (".parquet", ".json", ".jsonl")
"""Suffixes of what matches can be written to: formats that know lists."""

SHOWN_CHARS = 400
"""Characters of an error of Spark's that are shown."""

_POLL_S = 0.2
_MATCHES = "_eddyline_matches"


@dataclass(frozen=True, slots=True)
class Counts:
    """Findings of a run."""

    by_rule: Mapping[str, int]
    """Events of each rule that fired."""
    n_events: int
    n_matched: int
    """Events for which a rule fired."""
    seconds: float
    """Of the job that matches; of ``out``, also of writing it."""
    n_told: int = 0
    """Events that matched a reported rule; correlations report the matches of other rules."""
    prepare_s: float = 0.0
    """Of binding the rules to the columns of the events, and planning."""


def count_matches(
    rules: RuleSet,
    events: DataFrame,
    *,
    out: Path | None = None,
    keep_unmatched: bool = False,
    time_column: str | None = None,
    progress: Progress | None = None,
) -> Counts:
    """Match a batch of events with rules, in one pass; what is written is counted from there.

    Args:
        rules: the rules.
        events: a batch of events.
        out: where events go with ``matches`` added: its suffix says in which format.
        keep_unmatched: whether events that no rule matches are written, too.
        time_column: the event time, by which correlations run; a text is read as a time. Without
            one none does. Alerts are written as rows of their own.
        progress: is told how far Spark is.

    Raises:
        SourceError: ``out`` cannot be written.
        QueryError: there is no such time column.
    """
    spark = events.sparkSession
    started = time.monotonic()
    if time_column is None:
        matched = events.transform(rules.matches(_MATCHES, keep_unmatched=True))
    else:
        timed = _timed(events, time_column)
        matched = rules.with_alerts(timed, time_column, column=_MATCHES, keep_unmatched=True)
    is_event = f"{ALERTS} IS NULL" if ALERTS in matched.columns else "TRUE"
    prepare_s = time.monotonic() - started
    started = time.monotonic()
    if out is None:
        counts = _waited(lambda: _totals(matched, is_event), spark, progress)
        seconds = time.monotonic() - started
        n_events = counts.pop(None, 0)
    else:
        kept = matched if keep_unmatched else matched.where(f"size({_MATCHES}) > 0")
        rows = kept.withColumnRenamed(_MATCHES, "matches")
        if "rules" not in map(str.lower, events.columns):
            rows = rows.withColumn("rules", _facts_of(rules))
        _waited(lambda: _write(rows, out), spark, progress)
        seconds = time.monotonic() - started
        counts = _totals(_read_back(spark, out), is_event)
        counts.pop(None, 0)
        n_events = events.count()
    n_told = n_matched = counts.pop("", 0)
    if ALERTS in matched.columns:
        # No row has the matches of rules that only correlations report.
        every = events.transform(rules.matches(_MATCHES, keep_unmatched=True))
        of_rules = _totals(every, "TRUE")
        n_matched = of_rules.pop("", 0)
        counts |= of_rules
        counts.pop(None, 0)
    by_rule = {str(name): n for name, n in counts.items()}
    return Counts(by_rule, n_events, n_matched, seconds, n_told, prepare_s)


def check_format(out: Path) -> None:
    """Raise if matches cannot be written to such a file.

    Raises:
        SourceError: its suffix is unknown, or it exists.
    """
    if out.suffix not in WRITTEN:
        msg = f"matches are written to files that end in {' or '.join(WRITTEN)}, not to {out.name}"
        raise SourceError(msg, path=str(out))
    if out.exists():
        msg = f"{out} exists; name a new one for the matches"
        raise SourceError(msg, path=str(out))


def read_events(spark: SparkSession, path: Path) -> DataFrame:
    """Return events of a file, or of every file of a folder that is of a known kind.

    Raises:
        SourceError: there is nothing to read, or it cannot be read.
    """
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    if not path.exists():
        msg = f"no events at {path}: there is no such file or folder"
        raise SourceError(msg, path=str(path))
    by_kind: dict[str, list[Path]] = {}
    for file in files:
        kind = _kind_of(file)
        if kind is not None and not file.name.startswith(("_", ".")):
            by_kind.setdefault(kind, []).append(file)
    if not by_kind:
        msg = f"no events at {path}: files end in one of {', '.join(KINDS)}"
        raise SourceError(msg, path=str(path))
    try:
        return _union([_frame(spark, kind, of_kind) for kind, of_kind in by_kind.items()])
    except Exception as error:  # Spark's own, or Py4J's when a file is damaged
        first = " ".join(str(error).split("\n\tat ")[0].split())
        msg = f"events at {path} cannot be read: {first[:SHOWN_CHARS]}"
        raise SourceError(msg, path=str(path)) from error


def _kind_of(file: Path) -> str | None:
    name = file.name.lower().removesuffix(".gz")
    return next((kind for suffix, kind in KINDS.items() if name.endswith(suffix)), None)


def _frame(spark: SparkSession, kind: str, files: Sequence[Path]) -> DataFrame:
    paths = [str(file) for file in files]
    if kind == "parquet":
        return spark.read.option("mergeSchema", True).parquet(*paths)
    if kind == "csv":
        return spark.read.option("header", True).option("inferSchema", True).csv(paths)
    arrays = [str(file) for file in files if _is_array(file)]
    lines = [path for path in paths if path not in arrays]
    frames = [spark.read.json(lines)] if lines else []
    if arrays:
        frames.append(spark.read.option("multiLine", True).json(arrays))
    return _union(frames)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _is_array(file: Path) -> bool:
    """Return whether a JSON file is one array instead of a line an event."""
    with file.open("rb") as opened:
        return opened.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def _timed(events: DataFrame, column: str) -> DataFrame:
    """Return events whose time, if it is a text, is read as one."""
    if dict(events.dtypes).get(column) != "string":
        return events
    return events.withColumn(column, F.expr(f"try_cast({quoted(column)} AS TIMESTAMP)"))


def _facts_of(rules: RuleSet) -> Column:
    """Return id, title and level of each match, in the order of ``matches``."""
    # A map without keys would have no type.
    facts: dict[str, Mapping[str, Any]] = {"": {}, **rules.info, **rules.correlations}
    names = [F.lit(name) for name in facts]
    titles = [F.lit(_word(info.get("title"))).cast("string") for info in facts.values()]
    levels = [F.lit(_word(info.get("level"))).cast("string") for info in facts.values()]
    by_title, by_level = (
        F.map_from_arrays(F.array(*names), F.array(*values)) for values in (titles, levels)
    )
    return F.transform(
        "matches",
        lambda name: F.struct(
            name.alias("id"),
            F.try_element_at(by_title, name).alias("title"),
            F.try_element_at(by_level, name).alias("level"),
        ),
    )


def _word(value: Any) -> str | None:
    return None if value is None else str(value)


def _totals(matched: DataFrame, is_event: str) -> dict[str | None, int]:
    """Return events by rule; those of all events under None, of matched events under ''."""
    rules_text = (
        f"explode(concat({_MATCHES}, IF({is_event}, array(CAST(NULL AS STRING)), array()),"
        f" IF(size({_MATCHES}) > 0 AND {is_event}, array(''), array()))) AS rule"
    )
    rows = matched.selectExpr(rules_text).groupBy("rule").count().collect()
    return {row[0]: row[1] for row in rows}


def _write(frame: DataFrame, out: Path) -> None:
    check_format(out)
    frame.write.format(KINDS[out.suffix]).save(str(out))


def _read_back(spark: SparkSession, out: Path) -> DataFrame:
    schema = f"matches array<string>, {ALERTS} struct<id: string>"
    rows = spark.read.schema(schema).format(KINDS[out.suffix]).load(str(out))
    return rows.withColumnRenamed("matches", _MATCHES)


def _waited(work: Callable[[], Any], spark: SparkSession, progress: Progress | None) -> Any:
    """Do work on another thread, and say meanwhile how many of Spark's tasks are done."""
    if progress is None:
        return work()
    done = in_background(work)
    tracker = spark.sparkContext.statusTracker()
    while not done.done():
        wait([done], _POLL_S)
        stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        if running:
            n_done = sum(stage.numCompletedTasks for stage in running)
            progress(n_done, sum(stage.numTasks for stage in running))
    return done.result()
