from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

from eddyline.report.formatting import TIMES
from eddyline.report.series import order_lines
from eddyline.report.terminal import ProgressLine, batch_line, sparkline
from eddyline.runtime.records import BatchRecord
from tests.report.fakes import a_run, many_names

BATCHES = a_run(60).history.batches


def plain() -> Console:
    return Console(file=StringIO(), width=40)


def terminal(width: int = 120) -> Console:
    return Console(file=StringIO(), width=width, force_terminal=True, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_off_a_terminal_each_batch_is_one_plain_line():
    console = plain()
    with ProgressLine("q", console=console) as progress:
        for record in BATCHES:
            progress.update(record)
    lines = written(console).splitlines()
    assert len(lines) == len(BATCHES)
    assert lines[7].startswith("q: batch 7  ")
    assert "\x1b" not in written(console)


def test_a_change_of_order_is_said_once():
    console = plain()
    with ProgressLine("q", console=console) as progress:
        for record in BATCHES:
            progress.update(record)
    orders = [record.operators[0].order for record in BATCHES]
    n_changes = sum(a != b for a, b in pairwise(orders))
    assert n_changes > 0
    assert written(console).count("changed:") == n_changes


@pytest.mark.parametrize("console", [plain(), terminal()])
def test_quiet_writes_nothing(console):
    with ProgressLine("q", console=console, quiet=True) as progress:
        progress.update(BATCHES[0])
    assert written(console) == ""
    assert progress.n_rows == BATCHES[0].n_rows


@pytest.mark.parametrize("width", [30, 120])
def test_on_a_terminal_the_lines_are_redrawn(width):
    console = terminal(width)
    with ProgressLine("suspicious", console=console) as progress:
        for record in BATCHES:
            progress.update(record)
    last = written(console).rsplit("✔", 1)[1]
    assert "suspicious" in last
    assert "5,911,704 in 60" in last
    assert "changed" in last
    assert "\x1b[?25h" in written(console), "the cursor is shown again"


def test_an_error_leaves_the_terminal_as_it_was():
    console = terminal()
    with pytest.raises(ValueError, match="stop"), ProgressLine("q", console=console):
        raise ValueError("stop")
    assert "✘" in written(console)
    assert "\x1b[?25h" in written(console)


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    console = terminal()
    with ProgressLine("q", console=console) as progress:
        progress.update(BATCHES[0])
    assert written(console).startswith("q: batch 0")


def test_before_the_first_batch_it_says_so():
    console = terminal()
    with ProgressLine("q", console=console):
        pass
    assert "waiting for the first batch" in written(console)


def test_what_is_not_known_is_left_out():
    block = replace(BATCHES[0].operators[0], cost_ns=math.nan, as_written_ns=math.nan)
    line = batch_line(replace(BATCHES[0], seconds=0.0, lines=order_lines([block], 10, 0.5)))
    assert "nan" not in line
    assert "- rows/s" in line
    assert TIMES not in line


def test_an_empty_batch_without_blocks():
    console = plain()
    with ProgressLine("q", console=console) as progress:
        progress.update(BatchRecord(batch_id=0, n_rows=0, n_kept=0, seconds=0.2))
    assert written(console) == "q: batch 0  0 rows in 200 ms  0 rows/s  0 out\n"


def test_two_hundred_filters_stay_on_a_line():
    run = a_run(2, many_names(200), tuple(float(10 + f) for f in range(200)))
    assert "… 195 more" in batch_line(run.history.batches[0])
    assert len(batch_line(run.history.batches[0])) < 250


def test_names_cannot_steer_the_terminal():
    block = replace(BATCHES[0].operators[0], filter_ids=("\x1b[2J",) * 6, component="\x1b[2J")
    console = plain()
    with ProgressLine("q", console=console) as progress:
        for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0)):
            moved = replace(block, order=order, filter_ids=tuple(f"{f}\x1b[2J" for f in range(6)))
            progress.update(
                replace(BATCHES[0], operators=(moved,), lines=order_lines([moved], 10, 0.5))
            )
    assert "changed: " in written(console)
    assert "\x1b" not in written(console)


def test_bars_grow_from_zero():
    assert sparkline([0.0, 50.0, 100.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
