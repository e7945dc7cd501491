"""The commands ``eddyline sigma run`` and ``eddyline sigma check``."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from eddyline.sigma.loading import read
from eddyline.watch.formatting import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from eddyline.query.conditions import SkippedRule
    from eddyline.sigma.rule import SigmaRules
    from eddyline.spark.sources.event_files import Counts

SHOWN_SKIPPED = 5
"""Skipped rules that are shown unless all are asked for."""

MAX_WIDTH = 10_000
"""Widest table where the output is no terminal."""

_LEVELS = ("critical", "high", "medium", "low", "informational")
_COLOURS = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The arguments of ``eddyline sigma run``."""

    rules: Path
    events: Path
    pipeline: Sequence[Path] = ()
    out: Path | None = None
    """The file of events with their matches: ``.parquet`` or ``.json``."""
    top: int = 20
    """Rules that are shown (0: all)."""
    keep_unmatched: bool = False
    """Whether ``out`` gets events that no rule matches, too."""
    restrict: str | bool = "auto"
    missing: str = "null"
    verbose: bool = False
    """Whether every skipped rule is shown."""


def run(options: RunOptions, console: Console) -> Counts:
    """Match events with rules, and print what fired and what was skipped.

    Raises:
        SourceError: rules or events cannot be read, or ``out`` not written.
    """
    # pyspark loads slowly, and checking rules does not need it.
    from eddyline.spark.python_workers import SessionStart  # noqa: PLC0415
    from eddyline.spark.rules.rule_set import RuleSet  # noqa: PLC0415
    from eddyline.spark.sources.event_files import (  # noqa: PLC0415
        check_format,
        count_matches,
        read_events,
    )

    if options.out is not None:
        check_format(options.out)
    clock = _Clock()
    with _progress(console) as progress:
        starting = SessionStart()
        found = _read(options.rules, options.pipeline, progress, options.restrict, options.missing)
        clock.lap("reading rules")
        task = progress.add_task("Matching events", total=None)
        spark = starting.result()
        clock.lap("waiting for Spark and its workers")
        events = read_events(spark, options.events)
        rules = RuleSet.of(found.sources, found.skipped, on_error="skip")
        clock.lap("opening events")
        counts = count_matches(
            rules,
            events,
            out=options.out,
            keep_unmatched=options.keep_unmatched,
            progress=lambda n_done, n_all: progress.update(task, completed=n_done, total=n_all),
        )
    clock.seconds["preparing rules"] = counts.prepare_s
    info = {rule.name: rule.info for rule in found.sources}
    _print_counts(counts, info, options.top, console)
    _print_missing(found, events.dtypes, console)
    skipped = rules.skipped
    _print_skipped(skipped, found, options.verbose, console)
    _print_times(clock.seconds, counts, console)
    _print_sum(counts, len(skipped), console)
    return counts


@dataclass(slots=True)
class _Clock:
    """Says what time went where."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)

    def lap(self, what: str) -> None:
        """Note the time since the last lap."""
        now = time.monotonic()
        self.seconds[what] = now - self._since
        self._since = now


def check(rules: Path, pipeline: Sequence[Path], console: Console) -> int:
    """Print which rules load and which do not and why; return the number of the latter."""
    with _progress(console) as progress:
        found = _read(rules, pipeline, progress, "auto", "null")
    levels = Counter(rule.info["level"] or "no level" for rule in found.sources)
    known = [level for level in _LEVELS if level in levels]
    said = ", ".join(
        f"{levels[level]:,} {level}" for level in [*known, *sorted(set(levels) - set(known))]
    )
    n_load = len(found.sources)
    loads = f"{counted(n_load, 'rule')} {'loads' if n_load == 1 else 'load'}: {said}"
    _print_plain(loads if said else "No rule loads.", console)
    for rule in found.sources:
        for problem in rule.info["problems"] or ():
            _print_plain(f"  {rule.name}: runs, although {problem}", console)
    _print_skipped(found.skipped, found, True, console)
    return len(found.skipped)


def _read(
    rules: Path,
    pipeline: Sequence[Path],
    progress: Progress,
    restrict: str | bool,
    missing: str,
) -> SigmaRules:
    task = progress.add_task("Reading rules", total=None)
    return read(
        rules,
        list(pipeline) or None,
        restrict=restrict,
        missing=missing,
        progress=lambda n_done, n_all: progress.update(task, completed=n_done, total=n_all),
    )


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def _print_counts(
    counts: Counts, info: Mapping[str, Mapping[str, Any]], top: int, console: Console
) -> None:
    by_count = sorted(counts.by_rule.items(), key=lambda item: (-item[1], item[0]))
    table = Table(
        title=f"{len(by_count):,} of {counted(len(info), 'rule')} fired",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    shown = by_count[: top or None]
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("level", no_wrap=True)
    # Only titles give way where a terminal is narrow: ids are what one copies.
    table.add_column("title")
    table.add_column("rule", no_wrap=True)
    for name, n_events in shown:
        level = str(info[name]["level"] or "")
        table.add_row(
            f"{n_events:,}",
            Text(level, style=_COLOURS.get(level, "")),
            _one_line(str(info[name]["title"] or name)),
            _one_line(name),
        )
    _print_table(table, console)
    n_more = len(by_count) - len(shown)
    if n_more:
        _print_plain(f"and {n_more:,} more (--top 0 shows all)", console)


def _one_line(text: str) -> Text:
    """Return a cell that is cut where it does not fit, and never wrapped."""
    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def _print_table(table: Table, console: Console) -> None:
    """Print a table: as wide as a terminal is, or else as wide as it wants to be."""
    if console.is_terminal:
        console.print(table)
        return
    unbounded = console.options.update(max_width=MAX_WIDTH)
    before = console.width
    console.width = max(before, Measurement.get(console, unbounded, table).maximum)
    try:
        console.print(table)
    finally:
        console.width = before


def _print_times(seconds: Mapping[str, float], counts: Counts, console: Console) -> None:
    """Print what time went where; the rate is that of the job that matches, and of nothing else."""
    parts = ", ".join(f"{what} {taken:.1f} s" for what, taken in seconds.items())
    rate = counts.n_events / counts.seconds if counts.seconds > 0 else 0.0
    matching = f"matching events {counts.seconds:.1f} s ({rate:,.0f} events/s)"
    _print_plain(f"Time: {parts}, {matching}", console)


def _print_sum(counts: Counts, n_skipped: int, console: Console) -> None:
    n_matches = sum(counts.by_rule.values())
    matches = f"{n_matches:,} {'match' if n_matches == 1 else 'matches'}"
    skipped = f"{counted(n_skipped, 'rule')} skipped" if n_skipped else "no rule skipped"
    events = f"{counts.n_matched:,} of {counted(counts.n_events, 'event')} matched"
    _print_plain(f"{events}, {matches}, {skipped}", console)


def _print_missing(found: SigmaRules, dtypes: Iterable[tuple[str, str]], console: Console) -> None:
    columns = dict(dtypes)
    lacking = Counter(field for rule in found.sources for field in rule.lacking(columns))
    if lacking:
        said = ", ".join(f"{field} ({counted(n, 'rule')})" for field, n in lacking.most_common(10))
        more = f" and {len(lacking) - 10} more" if len(lacking) > 10 else ""
        _print_plain(f"Fields that the events lack: {said}{more}", console)


def _print_skipped(
    skipped: Sequence[SkippedRule], found: SigmaRules, is_verbose: bool, console: Console
) -> None:
    titles = {rule.name: str(rule.info["title"] or "") for rule in found.sources}
    n_loaded = len(found.sources)
    if not skipped:
        return
    do = "does" if len(skipped) == 1 else "do"
    n_skipped = counted(len(skipped), "rule")
    _print_plain(f"{n_skipped} {do} not run (beside {n_loaded:,} that were read):", console)
    shown = skipped if is_verbose else skipped[:SHOWN_SKIPPED]
    for each in shown:
        _print_plain(f"  {_called(each, titles)}: {each.reason}", console)
    if len(shown) < len(skipped):
        _print_plain(f"  and {len(skipped) - len(shown):,} more (--verbose shows all)", console)


def _called(rule: SkippedRule, titles: Mapping[str, str]) -> str:
    title = titles.get(rule.name) or getattr(rule, "title", "")
    return f"{one_line(title)} ({rule.name})" if title else rule.name


def _print_plain(text: str, console: Console) -> None:
    """Print what rules say as it is: it is no markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
