"""Runs a script of streams, tables, functions and queries."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from eddyline.errors import NotSupportedError, QueryError, SourceError
from eddyline.query.script import (
    OF_STREAMS,
    REFRESH,
    CreateAggregate,
    CreateStream,
    CreateTable,
    collected,
)
from eddyline.runtime.checkpoint import checked_changed
from eddyline.spark.analysis import reason_of, unlogged
from eddyline.spark.engine import Engine
from eddyline.spark.rules.rule_set import RuleSet
from eddyline.spark.run.running_query import stop_runs
from eddyline.spark.script_check import (
    FILE_FORMATS,
    broken,
    checked_script,
    imported,
    in_file,
    start_arguments,
)
from eddyline.spark.session import deferring_interrupts
from eddyline.spark.shared.group import Start, start_together
from eddyline.spark.sources.reading import own_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.errors import EddylineError
    from eddyline.query.script import (
        CreateFunction,
        CreateQuery,
        CreateResult,
        CreateRules,
        Script,
    )
    from eddyline.sources.source import Source
    from eddyline.spark.query import Query
    from eddyline.spark.run.running_query import RunFace
    from eddyline.spark.shared.group import Shared

    LoadRules = Callable[..., RuleSet]


def run_script(
    file: Path,
    *,
    spark: SparkSession | None = None,
    checkpoint: str | None = None,
    trigger: str | None = None,
    changed: str | None = None,
    adaptive: bool = True,
    shared: Shared = True,
    load_rules: LoadRules | None = None,
) -> list[RunFace]:
    """Start every query of a script; those over one stream run together, see ``docs/sharing.md``.

    Args:
        file: the script; modules of its functions are also looked for beside it.
        spark: the session to run on; the active or an embedded one if omitted.
        checkpoint: folder from which a later run continues; each query gets a folder in it.
        trigger: for queries that do not say their own.
        changed: as for ``Query.start``, of each query that has changed.
        adaptive: False keeps every order as written, and each query by itself.
        shared: as for ``Engine.start_all``.
        load_rules: returns the rules of a file or folder as a set; its other arguments are the
            set's name, functions and ``adaptive``. Without it, rules are refused.

    Raises:
        QueryError: the script cannot be understood; the message says where.
        SourceError: it cannot be read, or the input of a stream or table, or rules cannot.
    """
    script = checked_script(file)
    wanted = checked_changed(changed)
    engine = Engine(spark)
    starts = []
    with deferring_interrupts() as check:
        for query, options in _made(engine, script, file, load_rules, adaptive=adaptive):
            arguments = {"sink": "console", "trigger": trigger, **start_arguments(options)}
            names = {field.name for field in fields(Start)} & arguments.keys()
            every = {name: arguments.pop(name) for name in names}
            starts.append(Start(query, changed=wanted, others=arguments, **every))
            check()
        runs = start_together(starts, engine.groups, checkpoint=checkpoint, shared=shared)
        try:
            check()
        except KeyboardInterrupt:
            stop_runs(runs)
            raise
    return runs


def problems_on_spark(
    script: Script,
    file: Path,
    problems: list[EddylineError],
    *,
    spark: SparkSession | None = None,
    load_rules: LoadRules | None = None,
) -> None:
    """Add the errors of a script that only Spark finds: columns, types, functions and formats.

    Nothing starts. Objects that read a stream with a problem are not checked.

    Args:
        script: the result of ``checked_script``.
        file: the file of the script.
        problems: the problems that ``checked_script`` found; collects the others.
        spark: as for ``run_script``.
        load_rules: as for ``run_script``.
    """
    for _ in _made(Engine(spark), script, file, load_rules, adaptive=True, problems=problems):
        pass


def _made(
    engine: Engine,
    script: Script,
    file: Path,
    load_rules: LoadRules | None,
    *,
    adaptive: bool,
    problems: list[EddylineError] | None = None,
) -> Iterator[tuple[Query, Mapping[str, str]]]:
    """Yield the queries of a script and the options that are written for each."""
    _define(engine, script, file.absolute().parent, problems)
    for result in script.results:
        if _is_broken(result.name, result.text, script, problems):
            continue
        with collected(problems, result.name):
            renamed = replace(result, name=f"stream {result.name}")
            query = _query(engine, renamed, file, adaptive=adaptive)
            time, lateness = result.options.get("time"), result.options.get("lateness")
            engine.stream(result.name, query, time=time, lateness=lateness)
    for select in script.queries:
        if not _is_broken(select.name, select.text, script, problems):
            with collected(problems, select.name):
                yield _query(engine, select, file, adaptive=adaptive), select.options
    for rules in script.rules:
        if not _is_broken(rules.name, rules.stream, script, problems):
            with collected(problems, rules.name):
                yield _rules(engine, rules, file, load_rules, adaptive=adaptive), rules.options


def _is_broken(name: str, text: str, script: Script, problems: list[EddylineError] | None) -> bool:
    """Return whether an object has a problem, or its text names an input that has one."""
    names = {broken_name.lower() for broken_name in broken(problems)}
    inputs = names - {query.name.lower() for query in script.queries}
    inputs -= {rules.name.lower() for rules in script.rules}
    return name.lower() in names or not inputs.isdisjoint(re.findall(r"\w+", text.lower()))


def _query(
    engine: Engine, written: CreateQuery | CreateResult, file: Path, *, adaptive: bool
) -> Query:
    """Return a query of a script; its errors also say where in the file it stands."""
    try:
        return engine.query(written.text, name=written.name, adaptive=adaptive)
    except QueryError as error:
        raise in_file(error, written, file) from error


def _rules(
    engine: Engine,
    written: CreateRules,
    file: Path,
    load: LoadRules | None,
    *,
    adaptive: bool,
) -> Query:
    """Return the query of a set of rules; its errors also say where in the file it stands."""
    own_rules = {rule.name: rule for rule in written.own}
    made_with: dict[str, Any] = {
        "name": written.name,
        "functions": engine.functions,
        "adaptive": adaptive,
    }
    try:
        if written.path is None:
            rules = RuleSet(**made_with)
        elif load is None:
            msg = "nothing reads rules here; run the script by `eddyline run`"
            raise NotSupportedError(msg)
        else:
            rules = load(Path(written.path), **made_with)
        rules.add({name: rule.rule for name, rule in own_rules.items()})
        query = engine.rules(
            written.name,
            rules,
            stream=written.stream,
            column=written.column,
            keep_unmatched=written.keep_unmatched,
            as_struct=written.as_struct,
        )
        for why in rules.skipped:  # of files some may be, but not what stands here
            if why.name in own_rules:
                raise QueryError(why.reason, name=why.name)
    except QueryError as error:
        if (name := error.facts.get("rule", error.facts.get("name"))) in own_rules:
            raise in_file(error, own_rules[name], file) from error
        msg = f"{file}, rules {written.name!r}: {error.message}"
        raise type(error)(msg, **error.facts) from error
    return query


def _define(
    engine: Engine, script: Script, folder: Path, problems: list[EddylineError] | None
) -> None:
    """Give the engine the streams, tables and functions of a script that have no problem yet."""
    without = broken(problems)
    parts: Sequence[CreateStream | CreateTable | CreateFunction | CreateAggregate]
    parts = (*script.streams, *script.tables, *script.functions, *script.aggregates)
    for created in parts:
        if created.name not in without:
            with collected(problems, created.name):
                _add(engine, created)
    _send_by_value(folder)


def _add(
    engine: Engine, created: CreateStream | CreateTable | CreateFunction | CreateAggregate
) -> None:
    name = created.name
    if isinstance(created, CreateStream):
        arguments: dict[str, Any] = {option: created.options.get(option) for option in OF_STREAMS}
        engine.stream(name, _read(engine.spark, "stream", created), **arguments)
    elif isinstance(created, CreateTable):
        engine.table(
            name, _read(engine.spark, "table", created), refresh=created.options.get(REFRESH)
        )
    elif isinstance(created, CreateAggregate):
        engine.aggregate(name, imported(name, created.target))
    else:
        engine.function(name, imported(name, created.target))


def _send_by_value(folder: Path) -> None:
    """Let functions of modules beside the script travel to workers, which cannot import them."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        is_own = module.__name__.partition(".")[0] not in {"__main__", "eddyline"}
        is_beside = file != "" and Path(file).absolute().is_relative_to(folder)
        if is_own and is_beside and "site-packages" not in file:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@unlogged()
def _read(
    spark: SparkSession, what: str, created: CreateStream | CreateTable
) -> DataFrame | Source:
    """Return the source or the DataFrame of a stream or a table that a script describes."""
    is_stream, options = isinstance(created, CreateStream), dict(created.options)
    for name in OF_STREAMS if is_stream else (REFRESH,):
        options.pop(name, None)
    kind = options.pop("format")
    if (source := own_source(spark, kind, options)) is not None:
        return source
    path, schema = options.pop("path", None), options.pop("schema", None)
    try:
        reader: Any = (spark.readStream if is_stream else spark.read).format(kind)
        reader = reader.options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        elif is_stream and kind in FILE_FORMATS and path is not None:
            reader = reader.schema(spark.read.format(kind).options(**options).load(path).schema)
        df: DataFrame = reader.load(path)
        return df
    except (PySparkException, Py4JJavaError) as error:
        msg = f"{what} {created.name!r}: cannot read {kind} from {path}: {reason_of(error)}"
        raise SourceError(msg, **{what: created.name}) from error
