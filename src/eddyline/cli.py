"""The command line ``eddyline``.

Its commands are ``run``, ``check``, ``serve``, ``doctor``, ``bundle``, ``demo`` and ``sigma``.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

import eddyline
from eddyline.errors import EddylineError, EddylineWarning
from eddyline.report.html import check_packages, write_reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.serve.server import Server
    from eddyline.spark.run.running_query import RunFace

app = typer.Typer(
    help="Continuous queries on Spark that keep finding their cheapest plan while they run.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sigma_app = typer.Typer(help="Sigma rules on Spark.", no_args_is_help=True)
app.add_typer(sigma_app, name="sigma")
console = Console()

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

VALUES_HELP = "Show values of rows, such as names of groups, on the page."
RULES_HELP = "Folder (with those below it) or file of rules."
Rules = Annotated[
    Path | None, typer.Argument(metavar="RULES", exists=True, help=RULES_HELP, show_default=False)
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", exists=True, help="The same, as an option.")
]
Pipelines = Annotated[
    list[Path] | None, typer.Option(exists=True, help="YAML of a pipeline of pySigma's.")
]


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(help="A script: CREATE STREAM, TABLE, FUNCTION, QUERY and RULES.")
    ],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder from which a later run continues.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option(help="'available_now', or an interval such as '5 seconds'.")
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(help="How changed queries go on: 'keep_state' or 'reset'."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write an HTML report; of several queries, others beside it."),
    ] = None,
    adaptive: Annotated[bool, typer.Option(help="Learn orders, or keep them as written.")] = True,
    explain: Annotated[bool, typer.Option(help="Say at the end how each query ran.")] = True,
    quiet: Annotated[bool, typer.Option(help="Show no progress.")] = False,
    serve: Annotated[
        bool, typer.Option(help="Serve a page of the queries while they run.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0: a free one.")] = 0,
    values: Annotated[bool, typer.Option(help=VALUES_HELP)] = False,
) -> None:
    """Run the queries of a script until they end or Ctrl-C."""
    if report is not None:
        check_packages()
    from eddyline.sigma.loading import load_rules  # noqa: PLC0415
    from eddyline.spark.run.running_query import explanations, watch  # noqa: PLC0415
    from eddyline.spark.script import run_script  # noqa: PLC0415 - pyspark loads slowly

    with _plain_warnings():
        try:
            with _waiting_for("Spark and the start of the queries", quiet=quiet):
                runs = run_script(
                    file,
                    checkpoint=None if checkpoint is None else str(checkpoint),
                    trigger=trigger,
                    changed=changed,
                    adaptive=adaptive,
                    load_rules=load_rules,
                )
        except KeyboardInterrupt:
            _said("eddyline: Ctrl-C stopped the start; no query runs", "yellow")
            raise
        with _page(runs, port, values=values) if serve else contextlib.nullcontext():
            watch(runs, quiet=quiet)
    for text in explanations(runs, width=console.width) if explain else ():
        console.print(text, markup=False, highlight=False)
    if report is not None:
        for written in write_reports([query.run_view() for query in runs], report):
            _printed(f"Written: {written}")


def _page(runs: Sequence[RunFace], port: int, *, values: bool) -> Server:
    """Serve the page of runs of this process, and say where it is."""
    from eddyline.serve.server import serve  # noqa: PLC0415 - Starlette is an extra
    from eddyline.spark.run.live import LiveRuns  # noqa: PLC0415

    served = serve(LiveRuns(lambda: runs), port=port, values=values)
    _said(f"eddyline: the page is at {served.url}", "cyan")
    return served


@app.command()
def serve(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINT...", exists=True, help="Folders of checkpoints, or with some below."
        ),
    ],
    port: Annotated[int, typer.Option(help="Port; 0: a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this let other machines ask.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="EDDYLINE_TOKEN", help="Of the address; a new one if omitted."),
    ] = None,
    values: Annotated[bool, typer.Option(help=VALUES_HELP)] = False,
) -> None:
    """Serve a page of queries of other processes and of the past, from files, until Ctrl-C."""
    from eddyline.serve.runs import StoredRuns  # noqa: PLC0415
    from eddyline.serve.server import serve as serve_runs  # noqa: PLC0415 - Starlette is an extra

    runs = StoredRuns(checkpoints)
    with serve_runs(runs, port=port, host=host, token=token, values=values) as page:
        _said(f"eddyline: the page is at {page.url}", "cyan")
        with contextlib.suppress(KeyboardInterrupt):
            page.wait()


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A script, as for run.")],
    spark: Annotated[
        bool, typer.Option(help="Ask Spark about columns, types, functions and formats, too.")
    ] = True,
) -> None:
    """List every problem of a script (exit code 1 if there is one); start nothing."""
    from eddyline.spark.script_check import checked_script  # noqa: PLC0415 - sqlglot loads slowly

    problems: list[EddylineError] = []
    script = checked_script(file, problems)
    if spark:
        from eddyline.sigma.loading import load_rules  # noqa: PLC0415
        from eddyline.spark.script import problems_on_spark  # noqa: PLC0415 - pyspark loads slowly

        with _plain_warnings(), _waiting_for("Spark"):
            problems_on_spark(script, file, problems, load_rules=load_rules)
    for problem in problems:
        _said(f"eddyline: {problem}", "red")
    if problems:
        n_problems = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        _said(f"eddyline: {file} has {n_problems}", "red")
        raise typer.Exit(1)
    started = ", ".join([*(q.name for q in script.queries), *(r.name for r in script.rules)])
    where = "" if spark else " (checked without Spark)"
    _printed(f"{file}: nothing wrong{where}; starts {started}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("out/demo"),
    batches: Annotated[int, typer.Option(min=2, max=365, help="Parts of the year.")] = 12,
) -> None:
    """Stream a year of real flights through a badly written conjunction, twice."""
    from eddyline.demo import run_demo  # noqa: PLC0415 - pyspark loads slowly

    run_demo(out, n_batches=batches, console=console)


@app.command()
def doctor(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(exists=True, file_okay=False, help="A checkpoint to look at, too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what is wrong with this installation or a checkpoint (then the exit code is 1)."""
    from eddyline.care.doctor import (  # noqa: PLC0415
        check_checkpoint,
        check_machine,
        findings_json,
        is_fine,
        told,
    )

    findings = check_machine()
    if checkpoint is not None:
        findings += check_checkpoint(checkpoint)
    if as_json:
        console.print_json(data=findings_json(findings))
    else:
        for line in told(findings):
            console.print(line, soft_wrap=True)
    if not is_fine(findings):
        raise typer.Exit(1)


@app.command()
def bundle(
    checkpoint: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Of a query, or of several.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The archive; eddyline-bundle-NAME.zip if omitted.", dir_okay=False),
    ] = None,
) -> None:
    """Pack what helps to find a fault of a query into one archive, without values of rows."""
    from eddyline.care.bundle import INSIDE, default_file, write_bundle  # noqa: PLC0415

    written = write_bundle(checkpoint, out or default_file(checkpoint))
    _printed(f"Written: {written}\n\n{INSIDE}")


@sigma_app.command("run")
def sigma_run(
    events: Annotated[
        Path, typer.Option(exists=True, help="File or folder: parquet, json, jsonl or csv.")
    ],
    rules: Rules = None,
    rules_option: RulesOption = None,
    pipeline: Pipelines = None,
    out: Annotated[
        Path | None, typer.Option(help="Write matched events here, with 'matches' added.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Rules of the table; 0: all.")] = 20,
    keep_unmatched: Annotated[
        bool, typer.Option(help="Write events that no rule matches, too.")
    ] = False,
    restrict: Annotated[
        str, typer.Option(help="Rules meet only events of their log source: auto, yes or no.")
    ] = "auto",
    missing: Annotated[
        str, typer.Option(help="A test of a field that an event lacks is 'null' or 'false'.")
    ] = "null",
    time: Annotated[
        str | None, typer.Option(help="Column of the events' time, by which correlations run.")
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show every rule that does not run.")] = False,
    format: Annotated[
        str,
        typer.Option(
            help="'table', or 'json': one JSON document with all rules that fired, and all else "
            "that is said to stderr."
        ),
    ] = "table",
) -> None:
    """Match events with Sigma rules, and count the matches of each rule, the worst level first."""
    from eddyline.sigma.command import RunOptions  # noqa: PLC0415 - pySigma and pyspark load slowly
    from eddyline.sigma.command import run as run_rules  # noqa: PLC0415

    asked = RunOptions(
        rules=_rules_of(rules, rules_option),
        events=events,
        pipeline=pipeline or (),
        out=out,
        top=top,
        keep_unmatched=keep_unmatched,
        restrict={"yes": True, "no": False}.get(restrict, restrict),
        missing=missing,
        verbose=verbose,
        time=time,
        format=format,
    )
    run_rules(asked, console, Console(stderr=True))


@sigma_app.command("check")
def sigma_check(
    rules: Rules = None, rules_option: RulesOption = None, pipeline: Pipelines = None
) -> None:
    """Say which Sigma rules load, and which do not and why (then the exit code is 1)."""
    from eddyline.sigma.command import check  # noqa: PLC0415 - pySigma loads slowly

    if check(_rules_of(rules, rules_option), pipeline or (), console):
        raise typer.Exit(1)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings of eddyline as one line, without the place in the code."""
    by_python = warnings.showwarning

    def shown(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, EddylineWarning):
            _said(f"eddyline: {message}", "yellow")
        else:
            by_python(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = shown
        yield


@contextlib.contextmanager
def _waiting_for(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show what the command waits for while it waits, on a terminal."""
    errors = Console(stderr=True)
    if quiet or not errors.is_terminal or errors.is_dumb_terminal:
        yield
        return
    with errors.status(f"waiting for {what} …"):
        yield


def _printed(text: str) -> None:
    """Print a text to the standard output as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _said(text: str, style: str) -> None:
    """Print a line to the standard error stream."""
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _rules_of(argument: Path | None, option: Path | None) -> Path:
    """Return the path of rules, which is given once: as an argument or as an option."""
    paths = [path for path in (argument, option) if path is not None]
    if len(paths) != 1:
        msg = f"name one folder or file of rules, as RULES or --rules; got {len(paths)}"
        raise typer.BadParameter(msg, param_hint="RULES")
    return paths[0]


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Handle what stands before a command."""
    if version:
        console.print(eddyline.__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line; errors of ours are one message, not a traceback."""
    try:
        app()
    except EddylineError as error:
        _said(f"eddyline: {error.message}", "red")
        sys.exit(1)
    except SystemExit as end:
        if end.code == INTERRUPTED and "pyspark" in sys.modules:
            from eddyline.spark.session import stop_active  # noqa: PLC0415 - only if loaded already

            stop_active()
        raise
    sys.exit(0)
