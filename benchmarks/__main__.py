"""Command line of the benchmarks: ``python -m benchmarks run|list|add|compare|report|…``."""

from __future__ import annotations

import argparse
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from benchmarks.harness import flink, results
from benchmarks.harness.machine import machine
from benchmarks.harness.scenario import Settings, Status
from benchmarks.harness.scenarios import MODULES, scenarios


def run(arguments: argparse.Namespace) -> int:
    """Run a suite; one line per scenario."""
    chosen = [s for s in scenarios(arguments.suite) if re.search(arguments.pattern, s.id)]
    if not chosen:
        print(f"no scenario of {arguments.suite} matches {arguments.pattern!r}", file=sys.stderr)
        return 2
    settings = Settings(quick=arguments.quick, unseen=arguments.unseen)
    print(f"{'scenario':34} {'value':>8} {'target':>8}  {'status':8} note", flush=True)
    rows = []
    for scenario in chosen:
        started = time.perf_counter()
        measurement = scenario.measure(settings)
        rows.append(results.row(scenario, measurement, time.perf_counter() - started))
        print(results.line(rows[-1]), flush=True)
    facts = {**machine(), "quick": settings.quick}
    if arguments.output:
        results.write(arguments.output, facts, arguments.suite, rows)
    counts = {status: sum(each["status"] == status for each in rows) for status in get_args(Status)}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    seconds = sum(each["seconds"] for each in rows)
    print(f"{told}; {seconds:.0f} s; commit {facts['commit']}, {facts['cores']} cores")
    return 1 if counts["failed"] or (arguments.strict and counts["short"]) else 0


def show(arguments: argparse.Namespace) -> int:
    """List the scenarios."""
    for suite in [arguments.suite] if arguments.suite else MODULES:
        for each in scenarios(suite):
            print(f"{suite}  {each.id:34} {each.target or 'report'!s:>8}  {each.shows}")
    return 0


def add(arguments: argparse.Namespace) -> int:
    """Put the results of a run into a file of its suite, which keeps its others."""
    ran = results.read(arguments.result)
    facts, rows, suite = ran["machine"], ran["results"], ran["suite"]
    if arguments.into.exists():
        ids = [each.id for each in scenarios(suite)]
        rows = results.added(results.read(arguments.into), facts, rows, ids)
    results.write(arguments.into, facts, suite, rows)
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Print two runs side by side."""
    print(results.comparison(results.read(arguments.base), results.read(arguments.head)))
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Print a run as markdown, or put its table or its values into a page."""
    ran = results.read(arguments.result)
    if arguments.page is None:
        print(results.markdown(ran), end="")
    else:
        arguments.page.write_text(results.with_run(arguments.page.read_text("utf-8"), ran), "utf-8")
    return 0


def install_flink(_arguments: argparse.Namespace) -> int:
    """Install Flink, the peer of ``peers_flink_*``."""
    return flink.install()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(required=True)
    command = commands.add_parser("run", help="run a suite, one line per scenario")
    command.add_argument("suite", choices=MODULES)
    command.add_argument("-k", dest="pattern", default="", help="only ids that match")
    command.add_argument("-o", dest="output", type=Path, help="write the results as JSON")
    command.add_argument("--quick", action="store_true", help="less data: for a look")
    command.add_argument("--strict", action="store_true", help="exit with 1 if one is short")
    command.add_argument(
        "--unseen",
        type=int,
        default=datetime.now(UTC).date().toordinal(),
        help="first seed of models_unseen, whose note has it; the day's number if not given",
    )
    command.set_defaults(call=run)
    command = commands.add_parser("list", help="list the scenarios")
    command.add_argument("suite", nargs="?", choices=MODULES)
    command.set_defaults(call=show)
    command = commands.add_parser("add", help="put results into a file, which keeps its others")
    command.add_argument("result", type=Path)
    command.add_argument("into", type=Path)
    command.set_defaults(call=add)
    command = commands.add_parser("compare", help="compare two results as markdown")
    command.add_argument("base", type=Path)
    command.add_argument("head", type=Path)
    command.set_defaults(call=compare)
    command = commands.add_parser("report", help="print a result as markdown")
    command.add_argument("result", type=Path)
    command.add_argument("--into", dest="page", type=Path, help="a page to put it into")
    command.set_defaults(call=report)
    command = commands.add_parser(
        "install-flink", help=f"install {flink.PACKAGE} for peers_flink_*"
    )
    command.set_defaults(call=install_flink)
    return top


if __name__ == "__main__":
    parsed = parser().parse_args()
    sys.exit(parsed.call(parsed))
