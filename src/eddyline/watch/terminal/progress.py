"""What a person sees while a run lasts: rows per second, the order in force, the last change.

On a terminal a few lines are redrawn in place; anywhere else (a file, a pipe, a notebook) every
batch is one plain line without control codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from eddyline.watch.formatting import (
    change_texts,
    clipped,
    cost_text,
    count,
    duration,
    finite,
    one_line,
    order_text,
    per_second,
    percent,
    ratio,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from eddyline.joins.view import JoinRecord
    from eddyline.rules.record import RuleRecord
    from eddyline.runtime.records import BatchRecord, BlockRecord

SHOWN_NAMES = 5
"""Filters of an order that are named on a line."""

RATE_BATCHES = 30
"""Batches in the small plot of rows per second."""

_REDRAWS_PER_S = 8
_BARS = "▁▂▃▄▅▆▇█"


class ProgressLine:
    """Shows how a run goes, batch by batch. Use it as a context manager.

    Args:
        query: name of the query.
        console: where to write; the standard error stream if omitted, so that rows written to
            the standard output stay apart.
        quiet: write nothing at all.
    """

    def __init__(self, query: str, *, console: Console | None = None, quiet: bool = False) -> None:
        self.query = one_line(query)
        self.quiet = quiet
        self.n_batches = 0
        self.n_rows = 0
        self.n_kept = 0
        self._console = Console(stderr=True) if console is None else console
        # Replaced, never changed in place: the thread that redraws may be reading them.
        self._rates: tuple[float, ...] = ()
        self._blocks: dict[str, BlockRecord] = {}
        self._rules: RuleRecord | None = None
        self._join: JoinRecord | None = None
        self.n_late = 0
        self._change = ""
        self._live: Live | None = None
        self._mark: RenderableType = Spinner("dots", style="cyan")

    def __enter__(self) -> Self:
        is_drawn = self._console.is_terminal and not self._console.is_dumb_terminal
        if is_drawn and not self.quiet:
            self._live = Live(
                get_renderable=self._drawing,
                console=self._console,
                refresh_per_second=_REDRAWS_PER_S,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._mark = Text("✔", style="green") if error is None else Text("✘", style="red")
            self._live.stop()
            self._live = None

    def update(self, record: BatchRecord) -> None:
        """Take in a batch that ended, and show it."""
        change = self._changes(record)
        self._change = change or self._change
        self._blocks = self._blocks | {block.component: block for block in record.blocks}
        self._rules = record.rules or self._rules
        self._join = record.join or self._join
        self.n_late += record.join.n_late if record.join is not None else 0
        self.n_batches += 1
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        rate = per_second(record.n_rows, record.seconds) or 0.0
        self._rates = (*self._rates, rate)[-RATE_BATCHES:]
        if self.quiet:
            return
        if self._live is not None:
            self._live.refresh()
            return
        line = batch_line(record, shows_orders=self.n_batches == 1)
        line += f"  changed: {change}" if change else ""
        self._console.print(Text(line), soft_wrap=True)

    def _changes(self, record: BatchRecord) -> str:
        """Say which blocks of the batch ran under another order than before, and under which."""
        changes = []
        for block in record.blocks:
            before = self._blocks.get(block.component)
            if before is not None and _names(before) != _names(block):
                old, _ = change_texts(_names(before), _names(block), SHOWN_NAMES)
                changes.append(f"batch {record.batch_id}, {block.component} before: {old}")
        before_rules = self._rules
        if record.rules and before_rules and record.rules.plan != before_rules.plan:
            changes.append(f"batch {record.batch_id}, rules before: {before_rules.plan}")
        return "; ".join(changes)

    def _drawing(self) -> RenderableType:
        head = Table.grid(padding=(0, 1))
        head.add_column(width=1)
        head.add_column(no_wrap=True, overflow="ellipsis")
        head.add_row(self._mark, Text(self.query, style="bold"))
        return Group(head, Padding(self._lines(), (0, 0, 0, 2)))

    def _lines(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column(overflow="ellipsis")
        for label, line in self._facts():
            grid.add_row(label, Text(line, no_wrap=True, overflow="ellipsis"))
        return grid

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the lines below the query's name, each with its label."""
        if self.n_batches == 0:
            yield "rows", "waiting for the first batch"
            return
        batches = f"{count(self.n_batches)} batches" if self.n_batches > 1 else "1 batch"
        yield "rows", f"{count(self.n_rows)} in {batches}, {self._outcome()}"
        yield "speed", f"{count(self._rates[-1])} rows/s  {sparkline(self._rates)}"
        for name, block in self._blocks.items():
            yield name, order_text(_names(block), SHOWN_NAMES)
            yield "", cost_text(block.cost_ns, block.as_written_ns)
        if self._rules is not None:
            yield "rules", _rules_text(self._rules)
        if self._join is not None:
            yield "windows", _windows_text(self._join)
        if self._change:
            yield "changed", self._change

    def _outcome(self) -> str:
        """Say what became of the rows so far."""
        if self._join is None:
            return f"{percent(ratio(self.n_kept, self.n_rows))} kept"
        return f"{count(self.n_kept)} results{_late_text(self.n_late)}"


def batch_line(record: BatchRecord, *, shows_orders: bool = True) -> str:
    """Say on one line what a batch did.

    Args:
        record: the batch.
        shows_orders: whether the orders in force are on the line.
    """
    parts = [
        f"batch {record.batch_id}",
        f"{count(record.n_rows)} rows in {duration(1e9 * record.seconds)}",
        f"{count(per_second(record.n_rows, record.seconds))} rows/s",
        f"{count(record.n_kept)} {'kept' if record.join is None else 'results'}",
    ]
    if (join := record.join) is not None:
        parts[-1] += _late_text(join.n_late)
        parts.append(f"windows {count(sum(join.n_kept))} rows, {size(sum(join.n_bytes))}")
    for block in record.blocks if shows_orders else ():
        order = order_text(_names(block), SHOWN_NAMES)
        cost = cost_text(block.cost_ns, block.as_written_ns)
        known = f" ({cost})" if finite(block.cost_ns) is not None else ""
        parts.append(f"{block.component}: {order}{known}")
    if record.rules is not None:
        parts.append(f"{count(record.rules.n_matches)} matches")
        parts += [f"rules: {_rules_text(record.rules)}"] if shows_orders else []
    return "  ".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """Return the values as bars from zero to their greatest."""
    top = max(values)
    if top <= 0.0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _rules_text(rules: RuleRecord) -> str:
    return f"{count(rules.n_rules)}: {rules.plan}"


def _late_text(n_late: int) -> str:
    return f", {count(n_late)} late" if n_late else ""


def _windows_text(join: JoinRecord) -> str:
    """Say how many rows the windows hold, the fullest first."""
    held = sorted(zip(join.n_kept, join.inputs, strict=True), key=lambda each: -each[0])
    shown = ", ".join(f"{clipped(name)} {count(n)}" for n, name in held[:SHOWN_NAMES])
    more = f", … {len(held) - SHOWN_NAMES:,} more" if len(held) > SHOWN_NAMES else ""
    return f"{count(sum(join.n_kept))} rows, {size(sum(join.n_bytes))}: {shown}{more}"


def _names(block: BlockRecord) -> list[str]:
    return [block.filter_ids[f] for f in block.order]
