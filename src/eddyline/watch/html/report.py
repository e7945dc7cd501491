"""The report of a run: one HTML file that needs no network, readable in light and in dark.

Every text that a user wrote (queries, names of predicates, settings) is escaped, and the page
forbids itself to load anything.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import escape
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eddyline.errors import PluginError, SourceError
from eddyline.watch.explain import explain
from eddyline.watch.formatting import (
    change_texts,
    clipped,
    cost_text,
    count,
    evidence_text,
    finite,
    one_line,
)
from eddyline.watch.html import figures
from eddyline.watch.html.parts import colour_key, figure_card
from eddyline.watch.html.series import (
    MAX_FILTERS,
    BlockSeries,
    Point,
    RunTotals,
    block_series,
    points_of,
    totals_of,
)
from eddyline.watch.html.tiles import cost_tiles, filter_tiles, join_tiles, tile_list
from eddyline.watch.joins.facts import summary as join_summary
from eddyline.watch.joins.html import join_sections
from eddyline.watch.rules.html import rule_sections
from eddyline.watch.rules.terminal import summary
from eddyline.watch.terminal.layout import SAME_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import RunView


class BlockWords(NamedTuple):
    """What the sections about an order call what is ordered."""

    title: str
    part: str
    drops: str


FILTER_WORDS = BlockWords("{} block", "filter", "Rows dropped of those that reach a filter")
WINDOW_WORDS = BlockWords(
    "Order of {}", "window", "Rows without a partner, of those that reach a window"
)

MAX_ENTRIES = 500
"""Most entries of the journal on the page: the newest."""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)


def write_report(view: RunView, path: str | Path) -> Path:
    """Write a run as one self-contained HTML file.

    Args:
        view: the run.
        path: the file to write; missing folders are made.

    Returns:
        The path of the file.

    Raises:
        PluginError: the optional package that draws the figures is not installed.
        SourceError: the file cannot be written.
    """
    target = Path(path)
    text = _page(view, plotly_js())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"cannot write the report to {str(target)!r}: {error}"
        raise SourceError(msg, path=str(target)) from error
    return target


def check_plotly() -> None:
    """Check that a report can be drawn, before a run that is to have one.

    Raises:
        PluginError: the optional package that draws the figures is not installed.
    """
    plotly_js()


def plotly_js() -> str:
    """Return the code that draws the figures.

    Raises:
        PluginError: the optional package that it comes with is not installed.
    """
    try:
        offline = import_module("plotly.offline")
    except ImportError as error:
        msg = "a report needs the package plotly; install it with: pip install 'eddyline[report]'"
        raise PluginError(msg, package="plotly") from error
    text: str = offline.get_plotlyjs()
    return text


def _page(view: RunView, plotly_js: str) -> str:
    points = points_of(view.batches)
    words = FILTER_WORDS if view.join_view is None else WINDOW_WORDS
    blocks = block_series(view, points)
    drawn: dict[str, figures.Figure] = {}
    body = [
        _header(view, blocks, points),
        *([] if view.join_view is None else join_sections(view.join_view, points, drawn)),
        *(_block(series, drawn, number, words) for number, series in enumerate(blocks)),
        *([] if view.rule_view is None else rule_sections(view.rule_view)),
        _run(points, blocks, drawn) if view.join_view is None else _join_run(points, blocks, drawn),
        _journal(view.journal),
        _explanation(view),
        _settings(view.settings),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(clipped(view.query, 80))}: eddyline run</title>",
            f"<style>{_asset('report.css')}</style></head><body><main>",
            *(part for part in body if part),
            "</main>",
            _scripts(drawn, plotly_js) if drawn else "",
            "</body></html>\n",
        ]
    )


def _scripts(drawn: dict[str, figures.Figure], plotly_js: str) -> str:
    # "<" is written as an escape so that no text in the data can end the script element.
    data = json.dumps(drawn, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="figures">{data}</script>\n'
        f"<script>{plotly_js}</script>\n<script>{_asset('report.js')}</script>"
    )


def _asset(name: str) -> str:
    return resources.files("eddyline.watch").joinpath(name).read_text(encoding="utf-8")


def _header(view: RunView, blocks: Sequence[BlockSeries], points: Sequence[Point]) -> str:
    totals = totals_of(view.batches)
    parts = [
        "<header>",
        f'<p class="eyebrow">eddyline run{_when(view)}</p>',
        f"<h1>{escape(one_line(view.query))}</h1>",
        _text(view),
        f'<p class="lead">{escape(_lead(view, totals, blocks))}</p>',
        "</header>",
    ]
    if totals.n_batches:
        tiles = join_tiles if view.join_view is not None else filter_tiles
        parts.append(tile_list([*tiles(totals), *cost_tiles(blocks)]))
    if totals.n_batches > len(points):
        parts.append(f'<p class="note">{_thinning(totals.n_batches, points)}</p>')
    return "\n".join(parts)


def _text(view: RunView) -> str:
    """Return the query as written; of many rules folded up, under how many they are."""
    text = f"<pre>{escape(view.text)}</pre>"
    n_rules = 0 if view.rule_view is None else view.rule_view.n_rules
    if n_rules <= MAX_RULES:
        return text
    return f"<details><summary>{count(n_rules)} rules</summary>{text}</details>"


def _when(view: RunView) -> str:
    ends = [end for batch in view.batches if (end := finite(batch.ended_at) or 0.0) > 0.0]
    if not ends:
        return ""
    first, last = (datetime.fromtimestamp(end, UTC) for end in (ends[0], ends[-1]))
    if first == last:
        return f", {first:%Y-%m-%d %H:%M:%S} UTC"
    until = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f", {first:%Y-%m-%d %H:%M:%S} to {until} UTC"


def _lead(view: RunView, totals: RunTotals, blocks: Sequence[BlockSeries]) -> str:
    if view.rule_view is not None:
        return " ".join(summary(view.rule_view))
    if view.join_view is not None:
        return " ".join([*join_summary(view.join_view), *_order_changes(view, blocks)])
    return _outcome(totals, blocks)


def _order_changes(view: RunView, blocks: Sequence[BlockSeries]) -> list[str]:
    """Say how often the orders of a join changed in this run."""
    if not blocks:
        return []
    first = view.batches[0].batch_id
    entries = (entry for entry in view.journal if entry.batch_id >= first)
    n_changes = sum(entry.event == "order" for entry in entries)
    often = f"changed {_number(n_changes, 'time')}" if n_changes else "did not change"
    return [f"The orders of {_number(len(blocks), 'pipeline')} {often}."]


def _outcome(totals: RunTotals, blocks: Sequence[BlockSeries]) -> str:
    """Say in a sentence or two how the run went."""
    if totals.n_batches == 0:
        return "No batch has run yet."
    sentences = []
    for series in blocks:
        n_changes = len(series.changes)
        often = f"changed {_number(n_changes, 'time')}" if n_changes else "did not change"
        sentence = f"The order of the {series.component} block {often}"
        if series.mean_cost_ns is not None:
            cost = cost_text(series.mean_cost_ns, series.mean_as_written_ns)
            sentence += f"; over the run its expected cost is {cost}"
        sentences.append(sentence + ".")
    return " ".join(sentences) or "No filter of this query has an order to learn."


def _number(n: int, noun: str) -> str:
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def _thinning(n_batches: int, points: Sequence[Point]) -> str:
    size = len(points[0].batches)
    return (
        f"The figures draw {count(n_batches)} batches as {count(len(points))} points of "
        f"up to {count(size)} batches each: rates are over all of them, orders, fractions and "
        "costs those of the last."
    )


def _block(
    series: BlockSeries, drawn: dict[str, figures.Figure], number: int, words: BlockWords
) -> str:
    n_filters, n_shown = len(series.filter_ids), len(series.shown)
    note = "Dotted lines mark the batches at which the order changed." if _marked(series) else ""
    if n_shown < n_filters:
        note = (
            f"Shown are the {n_shown} {words.part}s whose place changed most, then the costliest. "
            f"{note}"
        )
    prefix = f"block-{number}"
    ranks = "" if n_shown == n_filters else f", among the {MAX_FILTERS} shown"
    cards = [
        figure_card(f"Order in force{ranks}", figures.order_figure(series), prefix, drawn),
        figure_card(words.drops, figures.drop_figure(series), prefix, drawn),
        figure_card(
            "Expected cost per row, in force and as written (grey)",
            figures.cost_figure(series),
            prefix,
            drawn,
        ),
    ]
    return "\n".join(
        [
            f"<section><h2>{escape(words.title.format(series.component))}: "
            f"{_number(n_filters, words.part)}</h2>",
            f'<p class="note">{note}</p>',
            _key(series),
            *cards,
            "</section>",
        ]
    )


def _marked(series: BlockSeries) -> bool:
    return 0 < len(series.changes) <= figures.MAX_MARKS


def _key(series: BlockSeries) -> str:
    slots = figures.slots_of(series)
    return colour_key({series.filter_ids[f]: slots[f] for f in sorted(series.shown)})


def _run(
    points: Sequence[Point], blocks: Sequence[BlockSeries], drawn: dict[str, figures.Figure]
) -> str:
    if not points:
        return ""
    changes = sorted({change for series in blocks for change in series.changes})
    rate = figure_card("Rows per second", figures.rate_figure(points, changes), "run", drawn)
    evaluations = figures.evaluation_figure(points, changes)
    work = figure_card("Evaluations per row", evaluations, "run", drawn)
    return f'<section><h2>Work</h2><div class="pair">{rate}{work}</div></section>'


def _join_run(
    points: Sequence[Point], blocks: Sequence[BlockSeries], drawn: dict[str, figures.Figure]
) -> str:
    if not points:
        return ""
    changes = sorted({change for series in blocks for change in series.changes})
    rate = figure_card("Rows per second", figures.rate_figure(points, changes), "run", drawn)
    found = figure_card("Combinations found per batch", figures.result_figure(points), "run", drawn)
    late = figures.late_figure(points)
    cards = "" if late is None else figure_card("Late rows per batch", late, "run", drawn)
    return f'<section><h2>Work</h2><div class="pair">{rate}{found}</div>{cards}</section>'


def _journal(journal: Sequence[JournalEntry]) -> str:
    if not journal:
        return '<section><h2>Journal</h2><p class="note">No decision was taken.</p></section>'
    shown = journal[-MAX_ENTRIES:]
    note = "Every decision with its evidence, the newest first."
    if len(shown) < len(journal):
        note += f" Shown are the newest {count(len(shown))} of {count(len(journal))}."
    rows = "\n".join(_entry(entry) for entry in reversed(shown))
    return (
        f'<section><h2>Journal</h2><p class="note">{note}</p>'
        '<div class="card scroll"><table><thead><tr><th class="number">Batch</th><th>Block</th>'
        "<th>Event</th><th>Before and after</th><th>Evidence</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _entry(entry: JournalEntry) -> str:
    before, after = change_texts(entry.before, entry.after)
    if before == after and entry.before is not None:
        before = f"{SAME_WORDS}:"
    plans = f'<span class="plan before">{escape(before)}</span>' if before != after else ""
    plans += f'<span class="plan">{escape(after)}</span>'
    return (
        f'<tr><td class="number">{entry.batch_id}</td>'
        f'<td class="part">{escape(entry.component)}</td>'
        f"<td>{escape(entry.event)}</td><td>{plans}</td>"
        f'<td class="evidence">{escape(evidence_text(entry.evidence))}</td></tr>'
    )


def _explanation(view: RunView) -> str:
    found = view.rule_view or view.join_view or view.filter_view
    if found is None:
        return ""
    text = escape(explain(found))
    return f'<section><h2>As it stands</h2><pre class="words">{text}</pre></section>'


def _settings(settings: dict[str, str]) -> str:
    if not settings:
        return ""
    rows = (
        f"<dt>{escape(str(name))}</dt><dd><code>{escape(str(value))}</code></dd>"
        for name, value in settings.items()
    )
    return (
        '<section><h2>Settings</h2><div class="card"><dl class="settings">'
        f"{''.join(rows)}</dl></div></section>"
    )


MAX_RULES = 10
"""Rules of a set that are shown without being asked for."""
