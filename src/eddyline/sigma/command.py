"""What ``eddyline sigma run`` and ``eddyline sigma check`` do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from eddyline.sigma.loading import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from eddyline.query.rules import SkippedRule
    from eddyline.sigma.loading import SigmaRules
    from eddyline.spark.event_files import Counts

SHOWN_SKIPPED = 5
"""Skipped rules that are shown unless all are asked for."""

_LEVELS = ("critical", "high", "medium", "low", "informational")
_COLOURS = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``eddyline sigma run`` was asked for."""

    rules: Path
    events: Path
    pipeline: Sequence[Path] = ()
    out: Path | None = None
    """Where events go with their matches: ``.parquet`` or ``.json``."""
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
    from eddyline.spark.event_files import (  # noqa: PLC0415
        check_format,
        count_matches,
        read_events,
    )
    from eddyline.spark.rule_set import RuleSet  # noqa: PLC0415
    from eddyline.spark.session import session  # noqa: PLC0415

    if options.out is not None:
        check_format(options.out)
    with _progress(console) as progress:
        found = _read(options.rules, options.pipeline, progress, options.restrict, options.missing)
        task = progress.add_task("Matching events", total=None)
        events = read_events(session(), options.events)
        rules = RuleSet.of(found.sources, found.skipped, on_error="skip")
        counts = count_matches(
            rules,
            events,
            out=options.out,
            keep_unmatched=options.keep_unmatched,
            progress=lambda n_done, n_all: progress.update(task, completed=n_done, total=n_all),
        )
    info = {rule.name: rule.info for rule in found.sources}
    _print_counts(counts, info, options.top, console)
    _print_missing(found, events.dtypes, console)
    _print_skipped(rules.skipped, len(found.sources), options.verbose, console)
    return counts


def check(rules: Path, pipeline: Sequence[Path], console: Console) -> int:
    """Print which rules load and which do not and why; return the number of the latter."""
    with _progress(console) as progress:
        found = _read(rules, pipeline, progress, "auto", "null")
    levels = Counter(rule.info["level"] or "no level" for rule in found.sources)
    known = [level for level in _LEVELS if level in levels]
    said = ", ".join(
        f"{levels[level]:,} {level}" for level in [*known, *sorted(set(levels) - set(known))]
    )
    console.print(f"{len(found.sources):,} rules load: {said}" if said else "No rule loads.")
    for rule in found.sources:
        for problem in rule.info["problems"]:
            _print_plain(f"  {rule.name}: runs, although {problem}", console)
    _print_skipped(found.skipped, len(found.sources), True, console)
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
    table = Table(title=f"{len(by_count):,} of {len(info):,} rules fired", title_justify="left")
    table.add_column("events", justify="right")
    for heading in ("level", "title", "rule"):
        table.add_column(heading, overflow="fold")
    for name, n_events in by_count[: top or None]:
        level = str(info[name]["level"] or "")
        style = _COLOURS.get(level, "")
        table.add_row(
            f"{n_events:,}",
            f"[{style}]{level}[/]" if style else level,
            escape(str(info[name]["title"] or name)),
            escape(name),
        )
    console.print(table)
    n_more = len(by_count) - len(by_count[: top or None])
    if n_more:
        console.print(f"and {n_more:,} more (--top 0 shows all)")
    rate = counts.n_events / counts.seconds if counts.seconds > 0 else 0.0
    console.print(
        f"{counts.n_matched:,} of {counts.n_events:,} events matched,"
        f" {sum(counts.by_rule.values()):,} matches, {counts.seconds:.1f} s,"
        f" {rate:,.0f} events/s (Spark's start of workers included)"
    )


def _print_missing(found: SigmaRules, dtypes: Iterable[tuple[str, str]], console: Console) -> None:
    columns = dict(dtypes)
    lacking = Counter(field for rule in found.sources for field in rule.lacking(columns))
    if lacking:
        said = ", ".join(f"{field} ({n:,} rules)" for field, n in lacking.most_common(10))
        more = f" and {len(lacking) - 10} more" if len(lacking) > 10 else ""
        _print_plain(f"Fields that the events lack: {said}{more}", console)


def _print_skipped(
    skipped: Sequence[SkippedRule], n_loaded: int, is_verbose: bool, console: Console
) -> None:
    if not skipped:
        return
    console.print(f"{len(skipped):,} rules do not run (beside {n_loaded:,} that were read):")
    shown = skipped if is_verbose else skipped[:SHOWN_SKIPPED]
    for each in shown:
        _print_plain(f"  {each.name}: {each.reason}", console)
    if len(shown) < len(skipped):
        console.print(f"  and {len(skipped) - len(shown):,} more (--verbose shows all)")


def _print_plain(text: str, console: Console) -> None:
    """Print what rules say as it is: it is no markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
