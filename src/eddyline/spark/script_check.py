"""Check of a script before Spark starts.

The check covers text, names, functions and paths. Anything that needs columns, such as names and
types in a condition, is checked when Spark knows them.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.errors import OptionError, QueryError, SourceError
from eddyline.query.rules.sources import check_rule, rule_source
from eddyline.query.script import (
    OF_STREAMS,
    REFRESH,
    SINK_MAPPINGS,
    CreateRule,
    collected,
    read_script,
)
from eddyline.query.select.from_clause import windows_behind
from eddyline.query.select.statement import Statement
from eddyline.registry import hint, unknown
from eddyline.report.system import NAME
from eddyline.spark.starting import check_sink, spark_trigger
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.errors import EddylineError
    from eddyline.query.script import (
        CreateQuery,
        CreateResult,
        CreateRules,
        CreateStream,
        CreateTable,
        Script,
    )

FILE_FORMATS = {"parquet", "orc", "json", "csv", "text", "avro"}
"""Formats whose columns can be read off the files that are there already."""


def checked_script(file: Path, problems: list[EddylineError] | None = None) -> Script:
    """Read a script and check what can be checked without Spark.

    Args:
        file: the script; modules of its functions are also looked for beside it.
        problems: collects the errors; their fact ``created`` names the object of the script.
            Without a list the first error is raised.

    Raises:
        QueryError: the script cannot be understood, names what there is not, or a function cannot
            be imported; the message says where.
        SourceError: it cannot be read, or there is no such path of an input or of rules.
        OptionError: an unknown trigger or sink, or a sink without what it needs.
    """
    try:
        text = file.read_text("utf-8-sig")  # editors may begin a file with a byte-order mark
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the script {file}: {getattr(error, 'strerror', None) or error}"
        raise SourceError(msg, path=str(file)) from error
    script = read_script(text, problems)
    if not script.queries and not script.rules and not problems:
        msg = f"{file} has no query; add: CREATE QUERY name AS SELECT … FROM stream WHERE …"
        raise QueryError(msg, path=str(file))
    # A statement that cannot be read still takes its name.
    names = [*(created.name for created in (*script.streams, *script.tables)), *broken(problems)]
    selects: list[CreateQuery | CreateResult] = [
        *(replace(result, name=f"stream {result.name}") for result in script.results),
        *script.queries,
    ]
    for selected in selects:
        with collected(problems, selected.name.removeprefix("stream ")):
            _check_select(selected, [*names, *(result.name for result in script.results)], file)
    reads: list[CreateStream | CreateTable] = [*script.streams, *script.tables]
    for read in reads:
        for check in (_check_path, _check_options):
            with collected(problems, read.name):
                check(read)
    for query in script.queries:
        with collected(problems, query.name):
            _check_start(f"query {query.name!r}", query.options, file)
    for rules in script.rules:
        with collected(problems, rules.name):
            _check_rules(rules, script, text, file, broken(problems))
    functions = _imported(script, str(file.absolute().parent), problems)
    for rules in script.rules:
        for rule in rules.own:
            with collected(problems, rules.name):
                _check_rule(rule, functions, file)
    return script


def broken(problems: Iterable[EddylineError] | None) -> set[str]:
    """Return the names of the objects that have a problem."""
    return {problem.facts["created"] for problem in problems or ()}


def _imported(script: Script, folder: str, problems: list[EddylineError] | None) -> dict[str, Any]:
    """Return the functions of a script by name; they and its aggregates can be imported."""
    if (script.functions or script.aggregates) and folder not in sys.path:
        sys.path.insert(0, folder)
    functions = {}
    for aggregate in script.aggregates:
        with collected(problems, aggregate.name):
            imported(aggregate.name, aggregate.target)
    for function in script.functions:
        with collected(problems, function.name):
            functions[function.name] = imported(function.name, function.target)
    return functions


def _check_select(selected: CreateQuery | CreateResult, inputs: Iterable[str], file: Path) -> None:
    names = {name.lower(): name for name in inputs}
    try:
        statements = Statement.read_all(selected.text)
        every = [*statements, *itertools.chain.from_iterable(statements[0].unused)]
        selects = [select for statement in every for select in statement.selects]
        for statement, table in ((select, table) for select in selects for table in select.tables):
            if table.name.lower() not in (*names, NAME):
                msg = unknown("stream", table.name, list(names.values()))
                refuse(msg, selected.text, offset_of(table.this), stream=table.name)
            windows_behind(statement, table, table.alias_or_name)
    except QueryError as error:
        raise in_file(error, selected, file) from error


def _check_rules(
    rules: CreateRules, script: Script, text: str, file: Path, ignored: Iterable[str]
) -> None:
    if rules.path is not None and not Path(rules.path).exists():
        msg = f"{file}, rules {rules.name!r}: cannot read rules from {rules.path!r}: not there"
        raise SourceError(msg, path=rules.path)
    streams = [
        *(stream.name for stream in script.streams),
        *(result.name for result in script.results),
    ]
    if rules.stream.lower() not in map(str.lower, [*streams, *ignored]):
        refuse(unknown("stream", rules.stream, streams), text, rules.start, stream=rules.stream)
    _check_start(f"rules {rules.name!r}", rules.options, file)


def start_arguments(written: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``Query.start`` that a script says; others are not among them."""
    arguments: dict[str, Any] = {}
    for option, value in written.items():
        start = next(filter(option.startswith, SINK_MAPPINGS), None)
        if start is None:
            arguments[option] = value
            continue
        name = SINK_MAPPINGS[start]
        if name in written:
            msg = f"{option!r} and {name!r} are both given; give one of them"
            raise OptionError(msg, option=option)
        values = arguments.setdefault(name, {})
        values[option.removeprefix(start)] = value
    return arguments


def _check_start(what: str, written: Mapping[str, str], file: Path) -> None:
    arguments = {"sink": "console", **start_arguments(written)}
    arguments.pop("checkpoint", None)
    try:
        spark_trigger(arguments.pop("trigger", None))
        check_sink(arguments.pop("sink"), arguments)
    except OptionError as error:
        raise OptionError(f"{file}, {what}: {error.message}", **error.facts) from error


def _check_rule(rule: CreateRule, functions: Mapping[str, Any], file: Path) -> None:
    try:
        check_rule(rule_source(rule.name, rule.rule, functions))
    except QueryError as error:
        raise in_file(error, rule, file) from error


def in_file(
    error: QueryError, created: CreateQuery | CreateResult | CreateRule, file: Path
) -> QueryError:
    """Return an error of a query or rule of a script that also says where in the file it stands."""
    what = f"query {created.name!r}, SELECT"
    if isinstance(created, CreateRule):
        what = f"rule {created.name!r} of {created.rules!r}, condition"
    return type(error)(
        f"{file}, {what} from line {created.line} on: {error.message}", **error.facts
    )


def _check_path(read: CreateStream | CreateTable) -> None:
    path = read.options.get("path")
    is_local = path is not None and not any(char in path for char in (":", "*", "?", "[", "{"))
    if read.options["format"] in FILE_FORMATS and is_local and not Path(str(path)).exists():
        msg = f"{read.name!r} reads from {path!r}, and there is no such file or folder"
        raise SourceError(msg, name=read.name, path=path)


_OF_FILES = """
    maxFilesPerTrigger maxBytesPerTrigger latestFirst maxFileAge fileNameOnly cleanSource
    sourceArchiveDir maxCachedFiles pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter
    ignoreCorruptFiles ignoreMissingFiles basePath mergeSchema compression
"""
_OF_TEXTS = """
    sep delimiter encoding charset quote escape comment header inferSchema enforceSchema nullValue
    ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace emptyValue nanValue positiveInf negativeInf
    dateFormat timestampFormat timestampNTZFormat maxColumns maxCharsPerColumn mode locale lineSep
    columnNameOfCorruptRecord multiLine charToEscapeQuoteEscaping samplingRatio primitivesAsString
    prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros
    allowBackslashEscapingAnyCharacter dropFieldIfAllNull timeZone wholetext datetimeRebaseMode
    int96RebaseMode preferDate enableDateTimeParsingFallback unescapedQuoteHandling
"""
_OPTIONS = [*_OF_FILES.split(), *_OF_TEXTS.split()]
"""Options of Spark's file sources."""


def _check_options(read: CreateStream | CreateTable) -> None:
    """Refuse misspelt options of Spark, because Spark ignores unknown options."""
    options = {option.lower() for option in _OPTIONS}
    for option in read.options if read.options["format"] in FILE_FORMATS else ():
        if option.lower() in options or option in _OF_SCRIPTS:
            continue
        if meant := hint(option, [(name, name) for name in (*_OPTIONS, *_OF_SCRIPTS)]):
            msg = f"{read.name!r}: Spark knows no option {option!r} of files{meant}"
            raise OptionError(msg, option=option)


_OF_SCRIPTS = ("format", "path", "schema", REFRESH, *OF_STREAMS)
"""Options that are not Spark's."""


def imported(name: str, target: str) -> Any:
    """Return the object that ``module:attribute`` names.

    Raises:
        QueryError: it cannot be imported.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        msg = (
            f"function {name!r}: cannot import {target!r}: {error}; modules are looked for beside "
            f"the script and where Python finds installed packages"
        )
        raise QueryError(msg, name=name, target=target) from error
