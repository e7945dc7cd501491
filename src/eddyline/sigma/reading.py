"""Reads the YAML of rules with pySigma, one document at a time: a bad one spoils no other."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import yaml
from sigma.collection import deep_dict_update
from sigma.exceptions import SigmaError
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule as PySigmaRule
from sigma.rule.base import SigmaYAMLLoader
from sigma.rule.detection import EmptySigmaDetections
from sigma.rule.logsource import EmptyLogSource

from eddyline.errors import EddylineError
from eddyline.query.rules import SkippedRule
from eddyline.sigma.conditions import fields_of
from eddyline.sigma.documents import documents
from eddyline.sigma.log_sources import LogSource, said
from eddyline.sigma.rule import SigmaRule
from eddyline.sigma.translation import condition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sigma.processing.pipeline import ProcessingPipeline

    from eddyline.sigma.documents import Content

    Progress = Callable[[int, int], None]
    """Is told how many files or rules are done, and of how many."""


def _policy() -> dict[str, Any]:
    """Return what makes pySigma 2 take all regular expressions of Python's, as version 1 does."""
    try:
        profiles = import_module("sigma.policy.profiles")  # only pySigma 2 has it
    except ImportError:
        return {}
    return {"policy": profiles.TrustedPolicy}


_POLICY = _policy()
_UUID = re.compile(r"[0-9a-fA-F-]{36}")


@dataclass(frozen=True, slots=True)
class ReadRules:
    """What became of the documents."""

    rules: tuple[SigmaRule, ...]
    skipped: tuple[SkippedRule, ...]


@dataclass(frozen=True, slots=True)
class _Document:
    body: dict[str, Any]
    text: str
    path: str
    stem: str
    place: str
    """File and line, for messages."""

    @property
    def name(self) -> str:
        """The id; without one the title as a word, or the file's name."""
        said_id = str(self.body.get("id") or "").strip()
        if said_id:
            return said_id.lower() if _UUID.fullmatch(said_id) else said_id
        words = re.sub(r"\W+", "_", str(self.body.get("title") or "").lower()).strip("_")
        return words or self.stem


@dataclass(slots=True)
class _Reader:
    """Goes through documents, and keeps what cannot be used with the reason."""

    skipped: list[SkippedRule] = field(default_factory=list)

    def documents(self, content: Content) -> list[_Document]:
        """Return the mappings in a file."""
        stem = re.sub(r".*[\\/]|\.[^.]*$", "", content.path) or "rule"
        try:
            text = content.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.skip(stem, content.path, f"not UTF-8: {error}", "")
            return []
        found = []
        for each in documents(text):
            place = f"{content.path}:{each.line}" if content.path else f"line {each.line}"
            try:
                body = yaml.load(each.text, SigmaYAMLLoader)
            except Exception as error:  # noqa: BLE001 - strange YAML raises almost anything
                self.skip(stem, place, f"not YAML: {error}", each.text)
                continue
            if isinstance(body, dict):
                found.append(_Document(body, each.text, content.path, stem, place))
            elif body is not None:
                self.skip(stem, place, "not a rule, which is a mapping", each.text)
        return self._merged(found) if any("action" in each.body for each in found) else found

    def _merged(self, found: Sequence[_Document]) -> list[_Document]:
        """Return the rules of a file whose documents build on each other (``action:``)."""
        shared: dict[str, Any] = {}
        before: dict[str, Any] = {}
        rules = []
        for each in found:
            body = copy.deepcopy(each.body)
            action = body.pop("action", None)
            if action == "global":
                shared = before = body
            elif action == "reset":
                shared = {}
            elif action in (None, "repeat"):
                base = copy.deepcopy(before) if action else body
                before = deep_dict_update(base, copy.deepcopy(body if action else shared))
                rules.append(_Document(before, each.text, each.path, each.stem, each.place))
            else:
                self.skip(each.name, each.place, f"unknown action {action!r}", each.text)
        return rules

    def parsed(self, document: _Document) -> PySigmaRule | SigmaFilter | None:
        """Return what pySigma reads in a document, or None if it is of no use."""
        body = copy.deepcopy(document.body)
        if "correlation" in body:
            reason = "correlation rules (several events at once) are not supported"
            self._skip(document, reason)
            return None
        try:
            if "filter" in body:
                return SigmaFilter.from_dict(body, **_POLICY)
            return _rule_of(body)
        except Exception as error:  # noqa: BLE001 - strange rules make pySigma raise almost anything
            self._skip(document, _message(error))
            return None

    def translated(
        self,
        document: _Document,
        rule: PySigmaRule,
        filters: Sequence[SigmaFilter],
        pipeline: ProcessingPipeline | None,
    ) -> SigmaRule | None:
        """Return our rule, or None if it asks for what does not exist."""
        try:
            for each in filters:
                each.apply_on_rule(rule)
            if pipeline is not None:
                pipeline.apply(rule)
            condition = condition_of(rule)
            of = rule.logsource
            source = LogSource(of.category, of.product, of.service)
            info = _info(rule, source, document.path) | {"fields": fields_of(condition)}
        except Exception as error:  # noqa: BLE001 - pipelines are anybody's code
            self._skip(document, _message(error))
            return None
        return SigmaRule(document.name, document.text, info, condition, source)

    def _skip(self, document: _Document, reason: str) -> None:
        self.skip(document.name, document.place, reason, document.text)

    def skip(self, name: str, place: str, reason: str, text: str) -> None:
        """Note a rule that does not run."""
        self.skipped.append(SkippedRule(name, f"{place}: {' '.join(reason.split())}", text))


def read_contents(
    contents: Iterable[Content],
    pipeline: ProcessingPipeline | None = None,
    progress: Progress | None = None,
) -> ReadRules:
    """Return the rules of files, and those that do not run with the reason.

    Args:
        contents: the files.
        pipeline: applied to each rule before it is translated.
        progress: is told how many files are read.
    """
    reader = _Reader()
    known = list(contents)
    rules: list[tuple[_Document, PySigmaRule]] = []
    filters: list[SigmaFilter] = []
    with warnings.catch_warnings():
        # What Python thinks of a rule's regular expression helps nobody here.
        warnings.simplefilter("ignore")
        for n_done, content in enumerate(known, 1):
            for document in reader.documents(content):
                parsed = reader.parsed(document)
                if isinstance(parsed, SigmaFilter):
                    filters.append(parsed)
                elif parsed is not None:
                    rules.append((document, parsed))
            if progress is not None:
                progress(n_done, len(known))
        # Filters are for rules of any file, so they all have to be known first.
        found = [reader.translated(*each, filters, pipeline) for each in rules]
    named = _with_unique_names([each for each in found if each is not None], reader)
    return ReadRules(tuple(named), tuple(reader.skipped))


def _rule_of(body: dict[str, Any]) -> PySigmaRule:
    """Return pySigma's rule; an odd title, tag or date does not keep it from running."""
    if "detection" in body and not isinstance(body["detection"], dict):
        msg = "'detection' is a mapping of names to what they look for"
        raise SigmaError(msg)
    rule = PySigmaRule.from_dict(body, collect_errors=True, **_POLICY)
    is_empty = isinstance(rule.detection, EmptySigmaDetections)
    if is_empty or isinstance(rule.logsource, EmptyLogSource):
        # The error of the last part that was read: metadata, log source, detection.
        raise rule.errors[-1]
    return rule


def _message(error: Exception) -> str:
    if isinstance(error, EddylineError):
        return error.message
    if isinstance(error, SigmaError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _info(rule: PySigmaRule, source: LogSource, path: str) -> dict[str, Any]:
    return {
        "title": _text(rule.title),
        "level": _word(rule.level),
        "status": _word(rule.status),
        "tags": _texts(rule.tags),
        "author": _text(rule.author),
        "description": _text(rule.description),
        "falsepositives": _texts(rule.falsepositives),
        "references": _texts(rule.references),
        "date": _text(rule.date),
        "logsource": str(source),
        "events": said(source),
        "path": path,
        "problems": tuple(_message(error) for error in rule.errors),
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _word(value: Any) -> str | None:
    """Return a level or status: what is none of pySigma's is shown as the rule has it."""
    return None if value is None else str(getattr(value, "name", value)).lower()


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in values) if isinstance(values, list) else ()


def _with_unique_names(rules: Sequence[SigmaRule], reader: _Reader) -> list[SigmaRule]:
    """Return the rules under different names: the second that is called a is ``a#2``.

    A rule that repeats an earlier one word for word is skipped.
    """
    known: dict[str, SigmaRule] = {}
    seen: dict[str, list[SigmaRule]] = {}
    for rule in rules:
        earlier = seen.setdefault(rule.name, [])
        same = next((each for each in earlier if each.text.strip() == rule.text.strip()), None)
        if same is not None:
            place = rule.info["path"] or "text"
            reason = f"the same rule as in {same.info['path'] or 'the text'}"
            reader.skip(rule.name, place, reason, rule.text)
            continue
        earlier.append(rule)
        name, n_more = rule.name, len(earlier)
        while name in known:
            name, n_more = f"{rule.name}#{n_more}", n_more + 1
        known[name] = rule.named(name)
    return list(known.values())
