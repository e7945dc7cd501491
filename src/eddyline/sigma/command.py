"""The commands ``eddyline sigma run`` and ``eddyline sigma check``."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from eddyline.errors import MissingFieldsWarning, OptionError
from eddyline.query.conditions import SkippedRule
from eddyline.query.rules.rule import LEVELS, Rule
from eddyline.registry import unknown
from eddyline.report.formatting import counted, one_line
from eddyline.sigma.fields import likely_columns
from eddyline.sigma.loading import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from eddyline.query.rules.rule import Described
    from eddyline.sigma.rule import SigmaCorrelation, SigmaRule, SigmaRules
    from eddyline.spark.sources.event_files import Counts

SHOWN_SKIPPED = 5
"""Skipped rules that are shown unless all are asked for."""

MAX_WIDTH = 10_000
"""Widest table where the output is no terminal."""

FORMATS = ("table", "json")
"""How findings are printed."""

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
    time: str | None = None
    """The event-time column, by which correlations run."""
    format: str = "table"
    """One of ``FORMATS``: tables for people, or one JSON document with all rules that fired."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(unknown("format", self.format, FORMATS), format=self.format)


def run(options: RunOptions, console: Console, errors: Console) -> Counts:
    """Match events with rules, and print what fired and what was skipped.

    JSON goes to ``console`` alone, and what was written where, and how far it is, to ``errors``.

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
    is_json = options.format == "json"
    shown = errors if is_json else console
    with _progress(shown) as progress, warnings.catch_warnings():
        starting = SessionStart()
        sigma_rules = _read(
            options.rules, options.pipeline, progress, options.restrict, options.missing
        )
        clock.lap("reading rules")
        task = progress.add_task("Waiting for Spark", total=None)
        spark = starting.result()
        clock.lap("waiting for Spark and its workers")
        progress.update(task, description="Opening events")
        events = read_events(spark, options.events)
        progress.update(task, description="Matching events")
        rules = RuleSet.of(
            sigma_rules.sources, sigma_rules.skipped, sigma_rules.correlations, on_error="skip"
        )
        clock.lap("opening events")
        warnings.simplefilter("ignore", MissingFieldsWarning)  # a line of the results says it
        counts = count_matches(
            rules,
            events,
            out=options.out,
            keep_unmatched=options.keep_unmatched,
            time_column=options.time,
            progress=lambda n_done, n_all: progress.update(task, completed=n_done, total=n_all),
        )
    clock.seconds["preparing rules"] = counts.prepare_s
    skipped, lacking = (
        (*rules.skipped, *_untimed(sigma_rules, options)),
        _lacking(sigma_rules, events.dtypes),
    )
    left_out = {rule.name for rule in skipped}
    alerting = {
        correlation.name: correlation
        for correlation in sigma_rules.correlations
        if correlation.name not in left_out
    }
    counts, alerts = _apart(counts, alerting)
    by_name = {rule.name: rule for rule in sigma_rules.sources}
    if is_json:
        findings = _findings(counts, by_name, skipped, lacking, clock.seconds, options.out)
        if sigma_rules.correlations:
            findings["correlations"] = _counted(alerts, alerting, "alerts")
        console.file.write(json.dumps(findings, indent=2) + "\n")
    else:
        _print_counts(counts, by_name, options.top, console)
        if alerting:
            _print_counts(alerts, alerting, options.top, console, _ALERTS)
        likely = likely_columns(lacking, dict(events.dtypes))
        _print_missing(lacking, likely, console)
        _print_skipped(skipped, sigma_rules, options.verbose, console)
        _print_times(clock.seconds, counts, console)
        _print_sum(counts, _kinds_of(skipped, sigma_rules), console, sum(alerts.by_rule.values()))
    if options.out is not None:
        n_written = counts.n_events if options.keep_unmatched else counts.n_told
        which = "whether they matched or not" if options.keep_unmatched else "those that matched"
        message = f"Written to {options.out}: {counted(n_written, 'event')}, {which}"
        _print_plain(message, errors if is_json else console)
    return counts


@dataclass(slots=True)
class _Clock:
    """Seconds of each lap."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)

    def lap(self, what: str) -> None:
        now = time.monotonic()
        self.seconds[what], self._since = now - self._since, now


def check(rules: Path, pipeline: Sequence[Path], console: Console) -> int:
    """Print which rules load and which do not and why; return the number of the latter."""
    with _progress(console) as progress:
        sigma_rules = _read(rules, pipeline, progress, "auto", "null")
    levels = Counter(rule.info["level"] or "no level" for rule in sigma_rules.sources)
    named_levels = [level for level in reversed(LEVELS) if level in levels]
    phrase = ", ".join(
        f"{levels[level]:,} {level}"
        for level in [*named_levels, *sorted(set(levels) - set(named_levels))]
    )
    n_load = len(sigma_rules.sources)
    loads = f"{counted(n_load, 'rule')} {'loads' if n_load == 1 else 'load'}: {phrase}"
    _print_plain(loads if phrase else "No rule loads.", console)
    if sigma_rules.correlations:
        n = len(sigma_rules.correlations)
        _print_plain(f"{counted(n, 'correlation')} {'loads' if n == 1 else 'load'}.", console)
    every: list[Described] = [*sigma_rules.sources, *sigma_rules.correlations]
    for rule in every:
        for problem in rule.info["problems"] or ():
            _print_plain(f"  {rule.name}: runs, although {problem}", console)
    _print_skipped(sigma_rules.skipped, sigma_rules, True, console)
    return len(sigma_rules.skipped)


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


class _Completed(MofNCompleteColumn):
    """Progress as done/total, once the total is known."""

    def render(self, task: Task) -> Text:
        """Return the text of a task."""
        return Text("") if task.total is None else super().render(task)


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Completed(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def _fired(counts: Counts, described: Mapping[str, Described]) -> list[tuple[str, Rule, str, int]]:
    """Return id, rule, level as it is written, and events of each rule that fired.

    The worst level comes first, levels that are none of Sigma's last; of a level most events.
    """
    fired = [
        (
            name,
            Rule.of(described[name]),
            str(described[name].info["level"] or ""),
            n_events,
        )
        for name, n_events in counts.by_rule.items()
    ]
    return sorted(fired, key=lambda entry: (-entry[1].rank, -entry[3], entry[0]))


def _findings(
    counts: Counts,
    described: Mapping[str, Described],
    skipped: Sequence[SkippedRule],
    lacking: Mapping[str, int],
    seconds: Mapping[str, float],
    out: Path | None,
) -> dict[str, Any]:
    """Return all that a run has found, for JSON."""
    return {
        "events": counts.n_events,
        "matched_events": counts.n_matched,
        "matches": sum(counts.by_rule.values()),
        "rules": _counted(counts, described, "events"),
        "skipped": [
            {"id": rule.name, "title": _title_of(rule, described), "reason": rule.reason}
            for rule in skipped
        ],
        "missing_fields": dict(lacking),
        "seconds": {
            what: round(taken, 3)
            for what, taken in {**seconds, "matching events": counts.seconds}.items()
        },
        "written": None if out is None else str(out),
    }


def _counted(counts: Counts, described: Mapping[str, Described], what: str) -> list[dict[str, Any]]:
    """Return the rules that fired, or the correlations that gave alerts, for JSON."""
    return [
        {"id": name, "title": rule.title, "level": level or None, "tags": list(rule.tags), what: n}
        for name, rule, level, n in _fired(counts, described)
    ]


def _untimed(sigma_rules: SigmaRules, options: RunOptions) -> list[SkippedRule]:
    """Return the correlations, which do not run without an event time."""
    if options.time is not None:
        return []
    reason = "a correlation looks at events within a timespan: name their time by --time"
    return [
        SkippedRule(correlation.name, reason, correlation.text)
        for correlation in sigma_rules.correlations
    ]


def _apart(counts: Counts, alerting: Mapping[str, Described]) -> tuple[Counts, Counts]:
    """Return the counts of rules, and those of alerts."""
    of_rules = {name: n for name, n in counts.by_rule.items() if name not in alerting}
    of_alerts = {name: n for name, n in counts.by_rule.items() if name in alerting}
    return replace(counts, by_rule=of_rules), replace(counts, by_rule=of_alerts)


_EVENTS = ("rule", "fired", "events")
_ALERTS = ("correlation", "gave alerts", "alerts")
"""What tables call what they count."""


def _print_counts(
    counts: Counts,
    described: Mapping[str, Described],
    top: int,
    console: Console,
    words: tuple[str, str, str] = _EVENTS,
) -> None:
    fired = _fired(counts, described)
    what, did, header = words
    table = Table(
        title=f"{len(fired):,} of {counted(len(described), what)} {did}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    shown = fired[: top or None]
    table.add_column(header, justify="right", no_wrap=True)
    table.add_column("level", no_wrap=True)
    # Only titles give way where a terminal is narrow: ids are what one copies.
    table.add_column("title")
    table.add_column(what, no_wrap=True)
    for name, rule, level, n_events in shown:
        table.add_row(
            f"{n_events:,}",
            Text(level, style=_COLOURS.get(level, "")),
            _one_line(rule.title or name),
            _one_line(name),
        )
    _print_table(table, console)
    n_more = len(fired) - len(shown)
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


def _print_sum(counts: Counts, skipped: str, console: Console, n_alerts: int = 0) -> None:
    n_matches = sum(counts.by_rule.values())
    matches = f"{n_matches:,} {'match' if n_matches == 1 else 'matches'}"
    events = f"{counts.n_matched:,} of {counted(counts.n_events, 'event')} matched"
    alerts = f", {counted(n_alerts, 'alert')}" if n_alerts else ""
    _print_plain(f"{events}, {matches}{alerts}, {skipped or 'no rule'} skipped", console)


def _kinds_of(documents: Iterable[SkippedRule | Described], sigma_rules: SigmaRules) -> str:
    """Return how many rules, correlations and filters there are, such as ``2 rules``."""
    correlations = {correlation.name for correlation in sigma_rules.correlations}
    kinds = Counter(
        "correlation" if document.name in correlations else _kind_of(document.text)
        for document in documents
    )
    phrases = [
        counted(kinds[kind], kind) for kind in ("rule", "correlation", "filter") if kinds[kind]
    ]
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if phrases[1:] else phrases)


def _kind_of(text: str) -> str:
    """Return the kind of a document, by the section that makes it one."""
    section = re.search(r"^(correlation|filter)[ \t]*:", text, re.MULTILINE)
    return section[1] if section else "rule"


def _lacking(sigma_rules: SigmaRules, dtypes: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the fields that the events lack, and how many rules ask for each."""
    columns = dict(dtypes)
    return Counter(field for rule in sigma_rules.sources for field in rule.lacking(columns))


def _print_missing(lacking: Counter[str], likely: Mapping[str, str], console: Console) -> None:
    if lacking:
        phrase = ", ".join(
            f"{field} ({counted(n, 'rule')})" for field, n in lacking.most_common(10)
        )
        more = f" and {len(lacking) - 10} more" if len(lacking) > 10 else ""
        _print_plain(f"Fields that the events lack: {phrase}{more}", console)
    mapped = [f"{name} to {likely[name]}" for name, _ in lacking.most_common() if name in likely]
    if mapped:
        _print_plain(f"A pipeline may map {', '.join(mapped[:10])}", console)


def _print_skipped(
    skipped: Sequence[SkippedRule], sigma_rules: SigmaRules, is_verbose: bool, console: Console
) -> None:
    every: list[SigmaRule | SigmaCorrelation] = [*sigma_rules.sources, *sigma_rules.correlations]
    described = {rule.name: rule for rule in every}
    if not skipped:
        return
    left_out = {rule.name for rule in skipped}
    runs = (
        _kinds_of((rule for rule in every if rule.name not in left_out), sigma_rules) or "no rule"
    )
    do = "does" if len(skipped) == 1 else "do"
    _print_plain(f"{_kinds_of(skipped, sigma_rules)} {do} not run ({runs} run):", console)
    shown = skipped if is_verbose else skipped[:SHOWN_SKIPPED]
    for skipped_rule in shown:
        title = _title_of(skipped_rule, described)
        called = f"{one_line(title)} ({skipped_rule.name})" if title else skipped_rule.name
        _print_plain(f"  {called}: {skipped_rule.reason}", console)
    if len(shown) < len(skipped):
        _print_plain(f"  and {len(skipped) - len(shown):,} more (--verbose shows all)", console)


def _title_of(rule: SkippedRule, described: Mapping[str, Any]) -> str | None:
    """Return the title of a rule that does not run: of one that was read, or could not be."""
    title = (
        described[rule.name].info["title"] if rule.name in described else getattr(rule, "title", "")
    )
    return str(title) if title else None


def _print_plain(text: str, console: Console) -> None:
    """Print what rules say as it is: it is no markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
