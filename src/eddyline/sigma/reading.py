"""Reads the YAML of rules with pySigma, one document at a time: a bad one spoils no other."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sigma.collection import deep_dict_update
from sigma.exceptions import SigmaDetectionError
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule as PySigmaRule
from sigma.rule.base import SigmaYAMLLoader
from sigma.rule.detection import EmptySigmaDetections
from sigma.rule.logsource import EmptyLogSource

from eddyline.data.gc_pause import made_of
from eddyline.errors import QueryError
from eddyline.registry import unknown
from eddyline.sigma.conditions import fields_of
from eddyline.sigma.correlation_reading import (
    Parsed,
    References,
    correlation_of,
    parse,
    standing,
)
from eddyline.sigma.documents import documents
from eddyline.sigma.log_sources import LogSource, said
from eddyline.sigma.modifiers import check_fields, mend, problems_of
from eddyline.sigma.places import Fault, Place, fault, line_of, message, yaml_fault
from eddyline.sigma.rule import SigmaRule, SigmaRules, SkippedSigmaRule
from eddyline.sigma.translation import condition_of
from eddyline.sigma.yaml_bodies import Allowance, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sigma.correlations import SigmaCorrelationRule
    from sigma.processing.pipeline import ProcessingPipeline
    from sigma.rule.base import SigmaRuleBase

    from eddyline.sigma.correlations import SigmaCorrelation
    from eddyline.sigma.documents import Content

    NamedT = TypeVar("NamedT", SigmaRule, Parsed)
    Progress = Callable[[int, int], None]
    """Is told how many files or rules are done, and of how many."""


def _policy() -> dict[str, Any]:
    """Return options that make pySigma 2 take all regular expressions, as version 1 does."""
    try:
        profiles = import_module("sigma.policy.profiles")  # only pySigma 2 has it
    except ImportError:
        return {}
    return {"policy": profiles.TrustedPolicy}


_POLICY = _policy()
_UUID = re.compile(r"[0-9a-fA-F-]{36}")


MAX_REASON = 2_000
"""Characters of a reason: some repeat a whole value of a rule."""


@dataclass(frozen=True, slots=True)
class _Document:
    body: dict[str, Any]
    text: str
    path: str
    stem: str
    place: Place
    size: int = 0
    """Nodes and characters, with aliases expanded."""

    def check(self) -> None:
        """Raise Python's error on a value that has no text, such as a huge whole number."""
        self.name, self.callings, self.title  # noqa: B018 - properties

    @property
    def name(self) -> str:
        """The id; without one the title as a word, or the file's name."""
        said_id = str(self.body.get("id") or "").strip()
        if said_id:
            return said_id.lower() if _UUID.fullmatch(said_id) else said_id
        words = re.sub(r"\W+", "_", str(self.body.get("title") or "").lower()).strip("_")
        return words or self.stem

    @property
    def callings(self) -> tuple[str, ...]:
        """What correlations can call it: its id and its name."""
        found = (str(self.body.get(key) or "").strip() for key in ("id", "name"))
        return tuple(each for each in found if each)

    @property
    def title(self) -> str:
        """Its title on one line; empty if it has none."""
        return " ".join(str(self.body.get("title") or "").split())


@dataclass(slots=True)
class _Reader:
    """Goes through documents, and keeps what cannot be used with the reason."""

    _skipped: list[tuple[Place, int, SkippedSigmaRule]] = field(default_factory=list)
    references: References = field(default_factory=References)
    """What correlations can refer to."""

    @property
    def skipped(self) -> tuple[SkippedSigmaRule, ...]:
        """The documents that cannot be used, by file and line."""
        ordered = sorted(self._skipped, key=lambda each: (each[0].n_file, each[1]))
        return tuple(rule for _, _, rule in ordered)

    def documents(self, content: Content, n_file: int) -> list[_Document]:
        """Return the mappings in a file."""
        stem = re.sub(r".*[\\/]|\.[^.]*$", "", content.path) or "rule"
        try:
            text = content.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.skip(stem, Place(content.path, n_file), Fault(f"not UTF-8: {error}"), "")
            return []
        found = []
        parts = list(documents(text))
        allowance = Allowance(len(text))
        for number, each in enumerate(parts, 1):
            place = Place(content.path, n_file, each.line, number, len(parts))
            try:
                body, size = read_yaml(each.text, SigmaYAMLLoader, allowance)
                if isinstance(body, dict):
                    document = _Document(body, each.text, content.path, stem, place, size)
                    document.check()
                    found.append(document)
                elif body is not None:
                    self.skip(stem, place, Fault("not a rule, which is a mapping"), each.text)
            except QueryError as error:
                refused = Fault(error.message, error.facts.get("line"))
                self.skip(stem, place, refused, each.text)
            except Exception as error:  # noqa: BLE001 - strange YAML raises almost anything
                self.skip(stem, place, yaml_fault(each.text, error), each.text)
        if any("action" in each.body for each in found):
            return self._merged(found, allowance)
        return found

    def _merged(self, found: Sequence[_Document], allowance: Allowance) -> list[_Document]:
        """Return the rules of a file whose documents build on each other (``action:``)."""
        shared = before = _Document({}, "", "", "", Place(""))
        rules = []
        for each in found:
            body = copy.deepcopy(each.body)
            action = body.pop("action", None)
            if action == "global":
                shared = before = replace(each, body=body)
            elif action == "reset":
                shared = replace(shared, body={}, size=0)
            elif action is None and "correlation" in body:
                rules.append(each)  # what rules have in common is none of its
            elif action in (None, "repeat"):
                base = before if action else shared
                if not allowance.spend(base.size):
                    msg = (
                        f"the text that it shares with others expands the file to more than "
                        f"{allowance.size:,} characters; put the documents in several files"
                    )
                    self._skip(each, msg)
                    continue
                parts = copy.deepcopy(base.body), body
                try:
                    whole = deep_dict_update(*(parts if action else reversed(parts)))
                except Exception as error:  # noqa: BLE001 - a part may be anything
                    self.refuse(each, error)
                    continue
                before = replace(each, body=whole, size=base.size + each.size)
                rules.append(before)
            else:
                self._skip(each, f"unknown action {action!r:.60}", "action")
        return rules

    def parsed(self, document: _Document) -> PySigmaRule | SigmaFilter | Parsed | None:
        """Return pySigma's rule of a document, or None if it is of no use."""
        body = copy.deepcopy(document.body)
        try:
            if "correlation" in body:
                return parse(body, document.name, document.text)
            if "filter" in body:
                return _filter_of(body)
            return _rule_of(body)
        except Exception as error:  # noqa: BLE001 - strange rules make pySigma raise almost anything
            self.refuse(document, error)
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
                _apply_filter(each, rule)
            if pipeline is not None:
                pipeline.apply(rule)
            condition = condition_of(rule)
            of = rule.logsource
            source = LogSource(of.category, of.product, of.service)
            info = _info(rule, source, document.path) | {"fields": fields_of(condition)}
        except Exception as error:  # noqa: BLE001 - pipelines are anybody's code
            self.refuse(document, error)
            return None
        return SigmaRule(document.name, document.text, info, condition, source)

    def refer_to(
        self, document: _Document, name: str, rule: PySigmaRule | SigmaCorrelationRule
    ) -> None:
        """Let correlations refer to a rule or correlation."""
        self.references.add(document.callings, document.place.n_file, name, rule)

    def correlated(
        self, document: _Document, parsed: Parsed, pipeline: ProcessingPipeline | None
    ) -> SigmaCorrelation | None:
        """Return our correlation, or None if it asks for what does not exist."""
        known = self.references.of_file(document.place.n_file)
        try:
            if pipeline is not None:
                parsed.connect(known)
                pipeline.apply(parsed.rule)
            return correlation_of(parsed, known, _facts(parsed.rule, document.path))
        except Exception as error:  # noqa: BLE001 - pipelines are anybody's code
            self.refuse(document, error)
            return None

    def _skip(self, document: _Document, reason: str, *path: str) -> None:
        """Note a rule that is not taken for what stands at a path of keys."""
        self.references.refuse(document.callings)
        found = Fault(reason, line_of(document.text, *path))
        self.skip(document.name, document.place, found, document.text, document.title)

    def refuse(self, document: _Document, error: Exception) -> None:
        """Note a rule that raised an error."""
        self.references.refuse(document.callings)
        found = fault(document.text, error)
        self.skip(document.name, document.place, found, document.text, document.title)

    def repeats(self, document: _Document, earlier: _Document) -> None:
        """Note a rule that is an earlier one word for word."""
        self._skip(document, f"the same rule as in {earlier.place.at(None)}")

    def check_filters(
        self,
        filters: Sequence[tuple[_Document, SigmaFilter]],
        rules: Iterable[PySigmaRule],
        correlations: Iterable[_Document],
    ) -> None:
        """Report the rules that filters name without effect."""
        by_calling: dict[str, list[PySigmaRule]] = {}
        for rule in rules:
            for calling in (rule.id, rule.name):
                if isinstance(calling, str | UUID):
                    by_calling.setdefault(str(calling), []).append(rule)
        others = {each for document in correlations for each in document.callings}
        for document, sigma_filter in filters:
            named = sigma_filter.filter.rules
            if isinstance(named, str):
                continue
            references = dict.fromkeys(each.reference for each in named)
            whys = [self._why_idle(each, sigma_filter, by_calling, others) for each in references]
            reasons = [why for why in whys if why is not None]
            if reasons:
                some = len(reasons) < len(whys)
                end = "; the filter is in force for its other rules" if some else ""
                self._skip(document, "; ".join(reasons) + end, "filter", "rules")

    def _why_idle(
        self,
        reference: str,
        sigma_filter: SigmaFilter,
        rules: Mapping[str, Sequence[PySigmaRule]],
        correlations: Collection[str],
    ) -> str | None:
        """Return why a filter has no effect on a rule that it names; None if it has one."""
        called, source = rules.get(_calling(reference), []), sigma_filter.logsource
        if any(rule.logsource in source for rule in called):
            return None
        if called:
            words = ", ".join(f"{key} {word}" for key, word in source.to_dict().items())
            return f"its log source ({words}) is not that of rule {reference!r}"
        if reference in correlations:
            return f"it names the correlation {reference!r}; filters are for rules"
        if self.references.is_refused(reference):
            return f"it names {reference!r}, which does not run"
        return f"it names a rule that is not there: {unknown('rule', reference, rules)}"

    def skip(self, name: str, place: Place, found: Fault, text: str, title: str = "") -> None:
        """Note a rule that does not run."""
        reason = f"{place.at(found.line)}: {' '.join(found.reason[:MAX_REASON].split())}"
        line = place.first_line + (found.line or 1)
        self._skipped.append((place, line, SkippedSigmaRule(name, reason, text, title, place.path)))


def read_contents(
    contents: Iterable[Content],
    pipeline: ProcessingPipeline | None = None,
    progress: Progress | None = None,
) -> SigmaRules:
    """Return the rules of files, with the pipeline applied, and why others do not run."""
    reader = _Reader()
    known = list(contents)
    rules: list[tuple[_Document, PySigmaRule]] = []
    correlations: list[tuple[_Document, Parsed]] = []
    filters: list[tuple[_Document, SigmaFilter]] = []

    def parse(numbered: tuple[int, Content]) -> None:
        number, content = numbered
        for document in reader.documents(content, number):
            parsed = reader.parsed(document)
            if isinstance(parsed, SigmaFilter):
                filters.append((document, parsed))
            elif isinstance(parsed, Parsed):
                correlations.append((document, parsed))
            elif parsed is not None:
                rules.append((document, parsed))
        if progress is not None:
            progress(number + 1, len(known))

    with warnings.catch_warnings():
        # What Python thinks of a rule's regular expression helps nobody here.
        warnings.simplefilter("ignore")
        made_of(parse, enumerate(known))
        # Filters are for rules of any file, so they all have to be known first.
        documents_of_correlations = [document for document, _ in correlations]
        reader.check_filters(filters, [rule for _, rule in rules], documents_of_correlations)
        applied = [each for _, each in filters]
        found = made_of(lambda each: (each[0], reader.translated(*each, applied, pipeline)), rules)
    named = _with_unique_names([(each, rule) for each, rule in found if rule is not None], reader)
    if not correlations:
        return SigmaRules(tuple(rule for _, rule in named), reader.skipped)
    read_by_pysigma = {id(document): rule for document, rule in rules}
    for document, rule in named:
        reader.refer_to(document, rule.name, read_by_pysigma[id(document)])
    made = _correlations(reader, correlations, {rule.name for _, rule in named}, pipeline)
    return SigmaRules(tuple(rule for _, rule in named), reader.skipped, made)


def _correlations(
    reader: _Reader,
    parsed: Sequence[tuple[_Document, Parsed]],
    rules: Collection[str],
    pipeline: ProcessingPipeline | None,
) -> tuple[SigmaCorrelation, ...]:
    """Return the correlations whose rules run, and note why others do not."""
    named = _with_unique_names(parsed, reader, rules)
    for document, each in named:
        reader.refer_to(document, each.name, each.rule)
    found = {}
    for document, each in named:
        made = reader.correlated(document, each, pipeline)
        if made is not None:
            found[each.name] = document, made
    made_of_them, why_not = standing([each for _, each in found.values()], rules)
    for name, error in why_not.items():
        reader.refuse(found[name][0], error)
    return made_of_them


def _rule_of(body: dict[str, Any]) -> PySigmaRule:
    """Return pySigma's rule; an odd title, tag or date does not keep it from running."""
    if "detection" in body and not isinstance(body["detection"], dict):
        msg = "'detection' is a mapping of names to what they look for"
        raise SigmaDetectionError(msg)
    check_fields(body.get("detection") or {})
    if body.get("id") is not None:
        # Of an id that YAML reads as a number or a day, pySigma makes an error of Python's.
        body = body | {"id": str(body["id"])}
    rule = PySigmaRule.from_dict(body, collect_errors=True, **_POLICY)
    is_empty = isinstance(rule.detection, EmptySigmaDetections)
    if is_empty or isinstance(rule.logsource, EmptyLogSource):
        # The error of the last part that was read: metadata, log source, detection.
        raise rule.errors[-1]
    mend(rule.detection)
    rule.errors.extend(map(SigmaDetectionError, problems_of(rule.detection)))
    return rule


def _filter_of(body: dict[str, Any]) -> SigmaFilter:
    """Return pySigma's filter; it refers to rules by texts."""
    check_fields({} if not isinstance(body["filter"], dict) else body["filter"])
    made = SigmaFilter.from_dict(body, **_POLICY)
    mend(made.filter)
    named = [] if isinstance(made.filter.rules, str) else made.filter.rules
    for each in named:
        # pySigma takes a number for the position of a rule.
        if not isinstance(each.reference, str):
            msg = f"'rules' of a filter are ids or names of rules; got {each.reference!r:.60}"
            raise QueryError(msg, part=("filter", "rules"))
    return made


def _calling(reference: str) -> str:
    """Return a reference as pySigma looks it up: an id in any of its spellings, or a name."""
    try:
        return str(UUID(reference))
    except ValueError:
        return reference


def _apply_filter(each: SigmaFilter, rule: PySigmaRule) -> None:
    """Apply a filter to a rule, with a copy of the filter's detections.

    pySigma gives the same objects to every rule, and pipelines change them in place.
    """
    before = set(rule.detection.detections)
    each.apply_on_rule(rule)
    for name, detection in rule.detection.detections.items():
        if name not in before:
            rule.detection.detections[name] = copy.deepcopy(detection)


def _info(rule: PySigmaRule, source: LogSource, path: str) -> dict[str, Any]:
    return _facts(rule, path) | {"logsource": str(source), "events": said(source)}


def _facts(rule: SigmaRuleBase, path: str) -> dict[str, Any]:
    """Return what is known of a rule or a correlation."""
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
        "path": path,
        "problems": tuple(message(error) for error in rule.errors),
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _word(value: Any) -> str | None:
    """Return a level or status: what is none of pySigma's is shown as the rule has it."""
    return None if value is None else str(getattr(value, "name", value)).lower()


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in values) if isinstance(values, list) else ()


def _with_unique_names(
    rules: Sequence[tuple[_Document, NamedT]], reader: _Reader, taken: Collection[str] = ()
) -> list[tuple[_Document, NamedT]]:
    """Return the rules, the second called a as ``a#2``; one that repeats another is skipped."""
    known: dict[str, tuple[_Document, NamedT]] = {}
    seen: dict[str, dict[str, _Document]] = {}
    for document, rule in rules:
        earlier = seen.setdefault(rule.name, {})
        text = rule.text.strip()
        if text in earlier:
            reader.repeats(document, earlier[text])
            continue
        earlier[text] = document
        name, n_more = rule.name, max(2, len(earlier))
        while name in known or name in taken:
            name, n_more = f"{rule.name}#{n_more}", n_more + 1
        known[name] = document, rule.named(name)
    return list(known.values())
