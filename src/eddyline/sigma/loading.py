"""Loading of a folder as a rule set.

It has the options, and a cache of earlier readings. A cache is never needed: what cannot be read is
read anew from the rules, and what cannot be written is not kept. Its files, in the user's cache
folder, hold values alone, no code: another program can write to the folder.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.files import replace_file
from eddyline.data.memory import collector_paused
from eddyline.errors import EddylineWarning, OptionError, PluginError, QueryError, SourceError
from eddyline.options import SharingOptions, check_names
from eddyline.query.rules.rule import Rule
from eddyline.sigma.files import RuleFolder, contents, every_s
from eddyline.sigma.rule import Reading, SigmaRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sigma.processing.pipeline import ProcessingPipeline

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sigma.files import Content, Source
    from eddyline.sigma.reading import Progress
    from eddyline.spark.rules.rule_set import RuleSet

    Pipeline = ProcessingPipeline | Mapping[str, Any] | str | Path
    """A pipeline of pySigma's, its YAML as a mapping, or the path of its YAML."""

SHOWN_REASONS = 5
"""Skipped rules that an error shows."""


class _JsonRule(msgspec.Struct, forbid_unknown_fields=True):
    """A rule in JSON; see ``Rule``."""

    condition: str
    level: str | None = None
    tags: list[str] = []  # msgspec makes a new one each time
    title: str | None = None


def load(
    source: Source | Sequence[Source],
    pipeline: Pipeline | Sequence[Pipeline] | None = None,
    *,
    restrict: str | bool = "auto",
    missing: str = "null",
    cache: bool = True,
    on_error: str = "skip",
    name: str = "rules",
    functions: Mapping[str, Callable[..., Any]] | None = None,
    watch: str | bool = False,
    **options: Any,
) -> RuleSet:
    """Return Sigma rules as a rule set; its names are the rules' ids.

    Args:
        source: a folder (with the folders below it), a file, YAML text, or several of these.
        pipeline: processing pipelines of pySigma, their YAML as mappings, or paths of their
            YAML, applied in this order. Loading does not change them.
        restrict: whether a rule meets only events of its log source: ``auto`` (as far as the
            events carry a channel and an event id), True (they have to) or False.
        missing: what a test is whose field an event lacks: ``null`` (unknown, as in SQL: a rule
            with ``not filter`` does not fire) or ``false`` (then it does).
        cache: whether rules that were read before come from the user's cache folder.
        on_error: ``skip`` lists rules that do not run in ``skipped`` and warns that there are some;
            ``raise`` raises.
        name: what the set is called in journals and reports.
        functions: what SQL rules that are added to the set may call, as for ``RuleSet``.
        watch: whether the set follows its folder or file: what came, went or changed there is in
            force from the next micro-batch on, what cannot be taken in is told and changes nothing.
            An interval, such as ``10 seconds``, is the least time between two looks; True is one
            second.
        **options: of the rule set, as for ``RuleSet``: ``method``, ``sequence``, ``adaptive``,
            ``sample_prob`` and the others of ``eddyline.options.SharingOptions``.

    Raises:
        SourceError: the source or a pipeline cannot be read.
        PluginError: the extra ``sigma`` is not installed.
        OptionError: an unknown option, or one that has no such value.
        QueryError: ``on_error="raise"`` and a rule does not run.

    Example:
        >>> rules = el.sigma.load("rules/windows")  # doctest: +SKIP
        >>> events.transform(rules.matches("matches"))  # doctest: +SKIP
    """
    # Reading needs no pyspark.
    from eddyline.spark.python_workers import start_workers_ahead  # noqa: PLC0415
    from eddyline.spark.rules.rule_set import RuleSet  # noqa: PLC0415

    _check_options(options)
    start_workers_ahead()
    how: dict[str, Any] = {"restrict": restrict, "missing": missing}
    followed = None
    if watch is not False:
        # Made before rules are read: what changes meanwhile is a change.
        followed = RuleFolder(
            _watched(source),
            lambda files: read(files, pipeline, **how, cache=False),
            every_s=every_s(watch),
        )
        source = followed.files or source
    sigma_rules = read(source, pipeline, **how, cache=cache, on_error=on_error)
    if sigma_rules.skipped:
        n_rules = (
            len(sigma_rules.sources) + len(sigma_rules.correlations) + len(sigma_rules.skipped)
        )
        msg = (
            f"{len(sigma_rules.skipped):,} of {n_rules:,} Sigma rules do not run; see .skipped of "
            f"the set. The first: {sigma_rules.skipped[0].reason}"
        )
        warnings.warn(msg, EddylineWarning, stacklevel=2)
    options = {**options, "on_error": on_error, "name": name, "functions": functions}
    rule_set = RuleSet.of(
        sigma_rules.sources, sigma_rules.skipped, correlations=sigma_rules.correlations, **options
    )
    if followed is not None:
        followed.correlations = {correlation.text for correlation in sigma_rules.correlations}
        rule_set.store.follower = followed
    return rule_set


def _watched(source: Source | Sequence[Source]) -> Path:
    """Return the folder or file that a set follows."""
    if isinstance(source, str | Path) and "\n" not in str(source):
        if Path(source).exists():
            return Path(source)
        msg = f"no file or folder {source}; watch=True follows one that is there already"
        raise SourceError(msg, path=str(source))
    msg = f"watch follows one folder or file, got {source!r:.100}"
    raise OptionError(msg, watch=True)


def load_rules(
    path: Path,
    *,
    name: str,
    functions: Mapping[str, FunctionPredicate] | None = None,
    **options: Any,
) -> RuleSet:
    """Return the rules of a file or folder: Sigma rules, or SQL conditions by names in JSON.

    A ``.json`` file is an object such as ``{"r1": "a > 5"}``; instead of a text there may be an
    object with ``condition`` and some of ``level``, ``tags`` and ``title``. Options are as for
    ``load``.

    Raises:
        SourceError: the file cannot be read, or is no JSON object of texts.
        QueryError: a text in JSON is no condition.
        PluginError: the extra ``sigma`` is not installed.
    """
    from eddyline.spark.rules.rule_set import RuleSet  # noqa: PLC0415

    if path.suffix != ".json":
        return load(path, name=name, functions=functions, **options)
    try:
        # Not by msgspec: of two rules with one name it takes the last.
        conditions = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)
        rules = {name: _json_rule(condition) for name, condition in conditions.items()}
    except RecursionError as error:
        msg = f"cannot read rules from {path}: it is nested too deeply; write texts or flat objects"
        raise SourceError(msg, path=str(path)) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        msg = (
            f"cannot read rules from {path}: {error}; write an object of conditions by their "
            f'names, such as {{"r1": "a > 5", "r2": {{"condition": "b < 0", "level": "high", '
            f'"tags": ["pii"], "title": "…"}}}}'
        )
        raise SourceError(msg, path=str(path)) from error
    return RuleSet(rules, functions=functions, name=name, **options)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        msg = f"{twice!r} stands there twice"
        raise ValueError(msg)
    return mapping


def _json_rule(value: Any) -> str | Rule:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        msg = f"a rule is a text or an object, got {value!r:.60}"
        raise TypeError(msg)
    rule = msgspec.convert(value, type=_JsonRule)
    return Rule(rule.condition, level=rule.level, tags=rule.tags, title=rule.title)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise OptionError before anything is read; an unknown option says what there is."""
    of_load = "pipeline", "restrict", "missing", "cache", "on_error", "name", "functions", "watch"
    check_names("option", options, [*of_load, *(field.name for field in fields(SharingOptions))])
    SharingOptions.of(**options)


def read(
    source: Source | Sequence[Source],
    pipeline: Pipeline | Sequence[Pipeline] | None = None,
    *,
    restrict: str | bool = "auto",
    missing: str = "null",
    cache: bool = True,
    on_error: str = "skip",
    progress: Progress | None = None,
) -> SigmaRules:
    """Return Sigma rules that know no events yet; needs no Spark.

    Arguments and errors are as for ``load``; with a pipeline nothing is kept, as it may depend on
    anything. ``progress`` is told how many files are read, and of how many.
    """
    reading = Reading(restrict, missing)
    if on_error not in ("skip", "raise"):
        msg = f"on_error is 'skip' or 'raise', not {on_error!r}"
        raise OptionError(msg, on_error=on_error)
    check_pysigma()
    sigma_rules = _read(source, pipeline, cache, progress)
    if sigma_rules.skipped and on_error == "raise":
        reasons = "\n".join(f"  {rule.reason}" for rule in sigma_rules.skipped[:SHOWN_REASONS])
        rest = len(sigma_rules.skipped) - SHOWN_REASONS
        more = f"\n  and {rest} more" if rest > 0 else ""
        msg = f"{len(sigma_rules.skipped)} Sigma rules do not run:\n{reasons}{more}"
        raise QueryError(msg, rules=tuple(rule.name for rule in sigma_rules.skipped))
    sources = tuple(rule.read_as(reading) for rule in sigma_rules.sources)
    return SigmaRules(sources, sigma_rules.skipped, sigma_rules.correlations)


def check_pysigma() -> None:
    """Raise PluginError if the extra is not installed."""
    # Namespace packages of other projects may be called sigma, too.
    if find_spec("sigma") is None or find_spec("sigma.collection") is None:
        msg = "Sigma rules need pySigma: pip install 'eddyline[sigma]'"
        raise PluginError(msg)


def _read(
    source: Source | Sequence[Source],
    pipeline: Pipeline | Sequence[Pipeline] | None,
    cache: bool,
    progress: Progress | None,
) -> SigmaRules:
    files = contents(source)
    key = key_of(files, _versions()) if cache and pipeline is None else None
    kept = None if key is None else recall(key)
    if kept is not None:
        if progress is not None:
            progress(len(files), len(files))
        return kept
    from eddyline.sigma.reading import read_contents  # noqa: PLC0415 - pySigma loads slowly

    sigma_rules = read_contents(files, _pipeline(pipeline), progress)
    if key is not None:
        keep(key, sigma_rules)
    return sigma_rules


def _versions() -> tuple[str, ...]:
    """Return the versions of all that reads rules: pySigma's, and the code of this room."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return version("pysigma"), version("eddyline"), code.hexdigest()


def _pipeline(pipeline: Pipeline | Sequence[Pipeline] | None) -> ProcessingPipeline | None:
    """Return all pipelines as one, or None."""
    if pipeline is None:
        return None
    from sigma.processing.pipeline import ProcessingPipeline as PySigmaPipeline  # noqa: PLC0415

    if not isinstance(pipeline, list | tuple):
        pipeline = [pipeline]  # type: ignore[list-item]  # anything else is refused below
    if not pipeline:
        return None
    whole = PySigmaPipeline()
    for number, part in enumerate(pipeline, 1):
        # A sum takes the items out of its pipelines, so sum copies.
        if isinstance(part, PySigmaPipeline):
            whole += _copied(part)
        elif isinstance(part, Mapping):
            whole += _pipeline_of(copy.deepcopy(dict(part)), f"number {number}")
        elif isinstance(part, str | Path):
            whole += _pipeline_file(Path(part))
        else:
            msg = (
                "a pipeline is a ProcessingPipeline of pySigma's, a mapping of what its YAML says, "
                f"or the path of its YAML, not {part!r:.60}"
            )
            raise OptionError(msg)
    return whole


def _copied(pipeline: ProcessingPipeline) -> ProcessingPipeline:
    try:
        return copy.deepcopy(pipeline)
    except Exception:  # noqa: BLE001 - a user's transformation may contain anything
        return pipeline


def _pipeline_file(path: Path) -> ProcessingPipeline:
    import yaml  # noqa: PLC0415 - the extra brings it

    from eddyline.sigma.places import Allowance, read_yaml  # noqa: PLC0415

    try:
        text = path.read_text("utf-8")
        body, _ = read_yaml(text, yaml.SafeLoader, Allowance(len(text)))
    except Exception as error:  # strange YAML raises almost anything
        msg = f"pipeline {path} cannot be read: {error}"
        raise SourceError(msg, path=str(path)) from error
    return _pipeline_of(body, str(path))


def _pipeline_of(body: Any, name: str) -> ProcessingPipeline:
    from sigma.processing.pipeline import ProcessingPipeline as PySigmaPipeline  # noqa: PLC0415

    try:
        return PySigmaPipeline.from_dict(body)
    except Exception as error:  # a pipeline's YAML makes pySigma raise almost anything
        msg = f"pipeline {name} cannot be read: {error}"
        raise SourceError(msg, path=name) from error


FORMAT = 3
"""Counts changes of what is kept."""


def key_of(contents: Iterable[Content], versions: Iterable[str]) -> str:
    """Return the name of what is kept of these files.

    Paths count, as errors and ``info`` show them; versions are those of all that reads rules.
    """
    digest = hashlib.sha256(repr((FORMAT, sys.version_info[:3], *versions)).encode())
    for content in contents:
        path = content.path.encode("utf-8", "surrogateescape")
        for part in (path, content.data):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def recall(key: str) -> SigmaRules | None:
    """Return the rules that were kept under a key, or None if there are none."""
    # Also without a home. A file that is cut off or was written by others does not decode.
    with suppress(OSError, RuntimeError, msgspec.MsgspecError), collector_paused():
        return msgspec.msgpack.decode(_file_of(key).read_bytes(), type=SigmaRules)
    return None


def keep(key: str, rules: SigmaRules) -> None:
    """Keep rules; a reader finds all of them or nothing."""
    # A path or rule may hold what is not UTF-8, a rule a number of more than 64 bits.
    with suppress(OSError, RuntimeError, UnicodeError, OverflowError):
        packed = msgspec.msgpack.encode(rules)
        file = _file_of(key)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, packed)


def _file_of(key: str) -> Path:
    """Return a file in the folder of caches: ``XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "eddyline" / "sigma" / f"{key}.msgpack"
