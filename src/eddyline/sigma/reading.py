"""Reader of Sigma's YAML with pySigma, one document at a time.

A faulty document does not affect the others. Once all documents are read, rules become conditions
of our own (``translation``) and correlations become ``SigmaCorrelation``. Filters are applied to
the rules that they name.
"""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sigma.collection import deep_dict_update
from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionNOT,
    SigmaCorrelationRule,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import (
    SigmaCorrelationConditionError,
    SigmaCorrelationRuleError,
    SigmaDetectionError,
    SigmaError,
    SigmaTimespanError,
)
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule as PySigmaRule
from sigma.rule.base import SigmaYAMLLoader
from sigma.rule.detection import EmptySigmaDetections
from sigma.rule.logsource import EmptyLogSource

from eddyline.data.memory import made_of
from eddyline.errors import QueryError
from eddyline.query.correlations import AND, MAX_REFERENCES, NOT, OR, TESTS
from eddyline.query.query import MAX_SPAN, too_long
from eddyline.registry import unknown
from eddyline.sigma.fields import LogSource, said
from eddyline.sigma.files import documents
from eddyline.sigma.places import (
    Allowance,
    Fault,
    Place,
    check_fields,
    fault,
    line_of,
    mend,
    message,
    problems_of,
    read_yaml,
    yaml_fault,
)
from eddyline.sigma.rule import SigmaCorrelation, SigmaRule, SigmaRules, SkippedSigmaRule, fields_of
from eddyline.sigma.translation import condition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sigma.processing.pipeline import ProcessingPipeline
    from sigma.rule.base import SigmaRuleBase

    from eddyline.sigma.files import Content

    NamedT = TypeVar("NamedT", "SigmaRule", "Parsed")
    Progress = Callable[[int, int], None]
    """Is told how many files or rules are done, and of how many."""

    Known = Callable[[str], "Referred"]
    """Finds what a reference is to."""


def _policy() -> dict[str, Any]:
    """Return options that make pySigma 2 take all regular expressions, as version 1 does."""
    try:
        profiles = import_module("sigma.policy.profiles")  # only pySigma 2 has it
    except ImportError:
        return {}
    return {"policy": profiles.TrustedPolicy}


_POLICY = _policy()
_UUID = re.compile(r"[0-9a-fA-F-]{36}")

# -- correlations ----------------------------------------------------------------------------------

MEDIAN, PERCENTILE = "value_median", "value_percentile"
TEMPORAL, ORDERED = "temporal", "temporal_ordered"


MAX_NUMBER = 2**62
"""Numbers of conditions are below this."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A correlation as pySigma reads it, with all comparisons of its condition."""

    name: str
    text: str
    """The YAML document."""
    rule: SigmaCorrelationRule
    tests: tuple[tuple[str, int], ...]

    def named(self, name: str) -> Parsed:
        """Return the correlation under another name."""
        return replace(self, name=name)

    def connect(self, look_up: Known) -> None:
        """Let pySigma's correlation know its rules, which pipelines may ask for."""
        references = [SigmaRuleReference(name) for name in _references(self.rule)]
        for reference in references:
            reference.rule = look_up(reference.reference).rule
        self.rule.referenced_rules = references


@dataclass(frozen=True, slots=True)
class Referred:
    """A rule or a correlation that may be referred to."""

    n_file: int
    name: str
    rule: PySigmaRule | SigmaCorrelationRule


class References:
    """Rules and correlations by what correlations call them: their ids and names."""

    def __init__(self) -> None:
        self._referred: dict[str, list[Referred]] = {}
        self._refused: set[str] = set()

    def add(self, document: _Document, name: str, rule: PySigmaRule | SigmaCorrelationRule) -> None:
        """Take in what may be referred to."""
        referred = Referred(document.place.n_file, name, rule)
        for calling in dict.fromkeys(map(_calling_correlation, document.callings)):
            self._referred.setdefault(calling, []).append(referred)

    def refuse(self, callings: Iterable[str]) -> None:
        """Take note of what does not run."""
        self._refused.update(map(_calling_correlation, callings))

    def is_refused(self, reference: str) -> bool:
        """Return whether a reference is to what does not run."""
        return _calling_correlation(reference) in self._refused

    def of_file(self, n_file: int) -> Known:
        """Return what finds references of a file: in that file, and else in all."""
        return lambda reference: self._find(reference, n_file)

    def _find(self, reference: str, n_file: int) -> Referred:
        candidates = self._referred.get(_calling_correlation(reference), [])
        several = [
            candidate for candidate in candidates if candidate.n_file == n_file
        ] or candidates
        if len(several) == 1:
            return several[0]
        if several:
            names = ", ".join(candidate.name for candidate in several)
            msg = f"it refers to {reference!r}, and there are several of that name: {names}"
        elif self.is_refused(reference):
            msg = f"it refers to {reference!r}, which does not run"
        else:
            choices = unknown("rule", reference, self._referred)
            msg = f"it refers to a rule that is not there: {choices}"
        raise SigmaCorrelationRuleError(msg)


def _calling_correlation(reference: str) -> str:
    """Return a reference as it is looked up: ids in any case."""
    return reference.lower() if _UUID.fullmatch(reference) else reference


def parse(body: dict[str, Any], name: str, text: str) -> Parsed:
    """Return pySigma's correlation of a document.

    pySigma reads one comparison of a condition; the specification has ranges of two, which are
    read one by one.

    Raises:
        SigmaError: it cannot be read.
    """
    section = body["correlation"]
    if not isinstance(section, dict):
        msg = "'correlation' is a mapping of its type, rules, timespan and condition"
        raise SigmaCorrelationRuleError(msg)
    condition = section.get("condition")
    if not isinstance(condition, dict):
        rule = _correlation_of(body)
        default = rule.condition
        if isinstance(default, SigmaExtendedCorrelationCondition):
            return Parsed(name, text, rule, ())
        return Parsed(name, text, rule, ((default.op.name.lower(), default.count),))
    tests = tuple((op, _whole(condition[op])) for op in TESTS if op in condition)
    one = {key: value for key, value in condition.items() if key not in TESTS}
    if tests:
        op, number = tests[0]
        one[op] = number
    rule = _correlation_of({**body, "correlation": {**section, "condition": one}})
    return Parsed(name, text, rule, tests)


def _correlation_of(body: dict[str, Any]) -> SigmaCorrelationRule:
    """Return pySigma's rule; an odd title, tag or date does not keep it from running."""
    try:
        rule = SigmaCorrelationRule.from_dict(body, collect_errors=True)
    except SigmaError:
        raise
    except Exception:  # noqa: BLE001 - with an error before it, pySigma stumbles
        rule = SigmaCorrelationRule.from_dict(body, collect_errors=False)
    for error in rule.errors:
        if isinstance(error, SigmaCorrelationRuleError):
            raise error
    return rule


def _whole(number: Any) -> int:
    """Return the number of a comparison, which pySigma would round."""
    text = str(number).strip()
    digits = text.removeprefix("-")
    if isinstance(number, bool) or not (digits.isascii() and digits.isdigit()):
        msg = f"{number!r} is not a whole number"
        raise SigmaCorrelationConditionError(msg)
    if int(digits) >= MAX_NUMBER:
        msg = f"{number} is beyond the numbers that can be compared"
        raise SigmaCorrelationConditionError(msg)
    return int(text)


def correlation_of(parsed: Parsed, look_up: Known, facts: Mapping[str, Any]) -> SigmaCorrelation:
    """Return our correlation, after pipelines.

    Raises:
        SigmaError: it asks for what does not exist.
    """
    rule = parsed.rule
    kind = rule.type.name.lower()
    references = _references(rule)
    _check_references(kind, references)
    tests, program = _condition(parsed, kind, references)
    names = tuple(look_up(reference).name for reference in references)
    length = rule.timespan.seconds * 1_000_000
    if length > MAX_SPAN:
        raise SigmaTimespanError(too_long(f"timespan {rule.timespan.spec!r:.60}"))
    group_by = tuple(dict.fromkeys(rule.group_by or ()))
    info: dict[str, str | tuple[str, ...]] = {
        "type": kind,
        "rules": names,
        "group_by": group_by,
        "timespan": str(rule.timespan.spec),
        "condition": _condition_text(parsed),
    }
    return SigmaCorrelation(
        name=parsed.name,
        text=parsed.text,
        info={**facts, **info},
        kind=PERCENTILE if kind == MEDIAN else kind,
        refers_to=names,
        length=length,
        tests=tests,
        program=program,
        percentile=_percentile(kind, rule.condition),
        group_by=group_by,
        fields=_fields(kind, rule.condition),
        aliases={
            alias.alias: {
                look_up(reference.reference).name: str(field)
                for reference, field in alias.mapping.items()
            }
            for alias in rule.aliases
        },
        generate=bool(rule.generate),
    )


def standing(
    correlations: Sequence[SigmaCorrelation], rules: Collection[str]
) -> tuple[tuple[SigmaCorrelation, ...], dict[str, SigmaError]]:
    """Return the correlations that refer to what runs alone, and why others do not run."""
    by_name = {correlation.name: correlation for correlation in correlations}
    runs, before = set(rules), -1
    while len(runs) > before:
        before = len(runs)
        runs.update(
            correlation.name
            for correlation in correlations
            if runs.issuperset(correlation.refers_to)
        )
    why: dict[str, SigmaError] = {}
    for correlation in correlations:
        if correlation.name in runs:
            continue
        first = next(name for name in correlation.refers_to if name not in runs)
        msg = f"it refers to {first!r}, which does not run"
        if correlation.name in _reached(by_name, correlation.name):
            msg = f"it refers to itself, by {first!r}"
        why[correlation.name] = SigmaCorrelationRuleError(msg)
    return tuple(correlation for correlation in correlations if correlation.name in runs), why


def _reached(by_name: Mapping[str, SigmaCorrelation], name: str) -> set[str]:
    """Return all that a correlation refers to, directly or by others."""
    names: set[str] = set()
    waiting = [name]
    while waiting:
        correlation = by_name.get(waiting.pop())
        new = set() if correlation is None else set(correlation.refers_to) - names
        names |= new
        waiting += new
    return names


def _condition(
    parsed: Parsed, kind: str, references: Sequence[str]
) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
    """Return the comparisons of a condition, or the program of a boolean one."""
    condition = parsed.rule.condition
    if not isinstance(condition, SigmaExtendedCorrelationCondition):
        return parsed.tests, ()
    places = {name: place for place, name in enumerate(references)}
    program = tuple(_program(condition.parsed, places))
    if kind != ORDERED:
        return (), program
    if OR in program or NOT in program:
        msg = (
            "the order of rules under 'or' and 'not' is open; a temporal_ordered correlation joins "
            "its rules by 'and' alone"
        )
        raise SigmaCorrelationConditionError(msg)
    return (("gte", len(references)),), ()


def _references(rule: SigmaCorrelationRule) -> tuple[str, ...]:
    if rule.rules is not None:
        return tuple(str(reference.reference) for reference in rule.rules)
    condition = rule.condition
    assert isinstance(condition, SigmaExtendedCorrelationCondition)
    return tuple(condition.get_referenced_rules())


def _check_references(kind: str, references: Sequence[str]) -> None:
    """Refuse rules that no event, or too few, can ever be of."""
    if not references:
        msg = "it names no rules"
        raise SigmaCorrelationRuleError(msg)
    if len(references) > MAX_REFERENCES:
        msg = f"it names {len(references)} rules; {MAX_REFERENCES} are supported"
        raise SigmaCorrelationRuleError(msg)
    if kind not in (TEMPORAL, ORDERED):
        return
    # Each rule of a temporal one differs from all before it, of an ordered one from the last.
    twice = next(
        (
            name
            for place, name in enumerate(references)
            if name in references[0 if kind == TEMPORAL else max(0, place - 1) : place]
        ),
        None,
    )
    if twice is not None:
        msg = f"it names the rule {twice!r} twice, which one event is enough for; use event_count"
        raise SigmaCorrelationRuleError(msg)


def _percentile(kind: str, condition: Any) -> int:
    if kind == MEDIAN:
        return 50
    if kind != PERCENTILE:
        return 0
    percentile: int | None = condition.percentile
    if percentile is None or not 0 <= percentile <= 100:
        msg = (
            f"value_percentile needs 'percentile' from 0 to 100 in its condition, not {percentile}"
        )
        raise SigmaCorrelationConditionError(msg)
    return percentile


def _fields(kind: str, condition: Any) -> tuple[str, ...]:
    """Return the fields of a condition, of kinds that look at values."""
    if not kind.startswith("value_"):
        return ()
    field_names = condition.fieldref
    fields = (field_names,) if isinstance(field_names, str) else tuple(field_names)
    if kind != "value_count" and len(fields) > 1:
        msg = f"{kind} is of one field, not of {', '.join(fields)}"
        raise SigmaCorrelationConditionError(msg)
    return fields


def _program(node: Any, places: Mapping[str, int]) -> list[int]:
    """Return a boolean condition in postfix order."""
    if isinstance(node, SigmaRuleReference):
        return [places[node.reference]]
    if isinstance(node, CorrelationConditionNOT):
        return [*_program(node.args[0], places), NOT]
    op = AND if isinstance(node, CorrelationConditionAND) else OR
    parts = [_program(argument, places) for argument in node.args]
    return [*parts[0], *(code for part in parts[1:] for code in (*part, op))]


def _condition_text(parsed: Parsed) -> str:
    """Return the condition in words."""
    condition = parsed.rule.condition
    if isinstance(condition, SigmaExtendedCorrelationCondition):
        return str(condition.expression)
    return " and ".join(f"{TESTS[op]} {number}" for op, number in parsed.tests)


# -- rules and filters -----------------------------------------------------------------------------

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
        texts = (str(self.body.get(key) or "").strip() for key in ("id", "name"))
        return tuple(text for text in texts if text)

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
        ordered = sorted(self._skipped, key=lambda entry: (entry[0].n_file, entry[1]))
        return tuple(rule for _, _, rule in ordered)

    def documents(self, content: Content, n_file: int) -> list[_Document]:
        """Return the mappings in a file."""
        stem = re.sub(r".*[\\/]|\.[^.]*$", "", content.path) or "rule"
        try:
            text = content.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.skip(stem, Place(content.path, n_file), Fault(f"not UTF-8: {error}"), "")
            return []
        read_documents = []
        parts = list(documents(text))
        allowance = Allowance(len(text))
        for number, part in enumerate(parts, 1):
            place = Place(content.path, n_file, part.line, number, len(parts))
            try:
                body, size = read_yaml(part.text, SigmaYAMLLoader, allowance)
                if isinstance(body, dict):
                    document = _Document(body, part.text, content.path, stem, place, size)
                    document.check()
                    read_documents.append(document)
                elif body is not None:
                    self.skip(stem, place, Fault("not a rule, which is a mapping"), part.text)
            except QueryError as error:
                refused = Fault(error.message, error.facts.get("line"))
                self.skip(stem, place, refused, part.text)
            except Exception as error:  # noqa: BLE001 - strange YAML raises almost anything
                self.skip(stem, place, yaml_fault(part.text, error), part.text)
        if any("action" in item.body for item in read_documents):
            return self._merged(read_documents, allowance)
        return read_documents

    def _merged(self, file_documents: Sequence[_Document], allowance: Allowance) -> list[_Document]:
        """Return the rules of a file whose documents build on each other (``action:``)."""
        shared = before = _Document({}, "", "", "", Place(""))
        rules = []
        for document in file_documents:
            body = copy.deepcopy(document.body)
            action = body.pop("action", None)
            if action == "global":
                shared = before = replace(document, body=body)
            elif action == "reset":
                shared = replace(shared, body={}, size=0)
            elif action is None and "correlation" in body:
                rules.append(document)  # what rules have in common is none of its
            elif action in (None, "repeat"):
                base = before if action else shared
                if not allowance.spend(base.size):
                    msg = (
                        f"the text that it shares with others expands the file to more than "
                        f"{allowance.size:,} characters; put the documents in several files"
                    )
                    self.leave_out(document, msg)
                    continue
                parts = copy.deepcopy(base.body), body
                try:
                    whole = deep_dict_update(*(parts if action else reversed(parts)))
                except Exception as error:  # noqa: BLE001 - a part may be anything
                    self.leave_out(document, error)
                    continue
                before = replace(document, body=whole, size=base.size + document.size)
                rules.append(before)
            else:
                self.leave_out(document, f"unknown action {action!r:.60}", "action")
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
            self.leave_out(document, error)
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
            for sigma_filter in filters:
                _apply_filter(sigma_filter, rule)
            if pipeline is not None:
                pipeline.apply(rule)
            condition = condition_of(rule)
            log_source = rule.logsource
            source = LogSource(log_source.category, log_source.product, log_source.service)
            events = {"logsource": str(source), "events": said(source)}
            info = _facts(rule, document.path) | events | {"fields": fields_of(condition)}
        except Exception as error:  # noqa: BLE001 - pipelines are anybody's code
            self.leave_out(document, error)
            return None
        return SigmaRule(document.name, document.text, info, condition, source)

    def correlated(
        self, document: _Document, parsed: Parsed, pipeline: ProcessingPipeline | None
    ) -> SigmaCorrelation | None:
        """Return our correlation, or None if it asks for what does not exist."""
        look_up = self.references.of_file(document.place.n_file)
        try:
            if pipeline is not None:
                parsed.connect(look_up)
                pipeline.apply(parsed.rule)
            return correlation_of(parsed, look_up, _facts(parsed.rule, document.path))
        except Exception as error:  # noqa: BLE001 - pipelines are anybody's code
            self.leave_out(document, error)
            return None

    def leave_out(self, document: _Document, why: str | Exception, *path: str) -> None:
        """Note a rule that raised an error, or is not taken for what stands at a path of keys."""
        self.references.refuse(document.callings)
        text = document.text
        refusal = Fault(why, line_of(text, *path)) if isinstance(why, str) else fault(text, why)
        self.skip(document.name, document.place, refusal, text, document.title)

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
        others = {name for document in correlations for name in document.callings}
        for document, sigma_filter in filters:
            named = sigma_filter.filter.rules
            if isinstance(named, str):
                continue
            references = dict.fromkeys(reference.reference for reference in named)
            whys = [
                self._why_idle(reference, sigma_filter, by_calling, others)
                for reference in references
            ]
            reasons = [why for why in whys if why is not None]
            if reasons:
                some = len(reasons) < len(whys)
                end = "; the filter is in force for its other rules" if some else ""
                self.leave_out(document, "; ".join(reasons) + end, "filter", "rules")

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

    def skip(self, name: str, place: Place, refusal: Fault, text: str, title: str = "") -> None:
        """Note a rule that does not run."""
        reason = f"{place.at(refusal.line)}: {' '.join(refusal.reason[:MAX_REASON].split())}"
        line = place.first_line + (refusal.line or 1)
        self._skipped.append((place, line, SkippedSigmaRule(name, reason, text, title, place.path)))


def read_contents(
    contents: Iterable[Content],
    pipeline: ProcessingPipeline | None = None,
    progress: Progress | None = None,
) -> SigmaRules:
    """Return the rules of files, with the pipeline applied, and why others do not run."""
    reader = _Reader()
    files = list(contents)
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
            progress(number + 1, len(files))

    with warnings.catch_warnings():
        # What Python thinks of a rule's regular expression helps nobody here.
        warnings.simplefilter("ignore")
        made_of(parse, enumerate(files))
        # Filters are for rules of any file, so they all have to be known first.
        documents_of_correlations = [document for document, _ in correlations]
        reader.check_filters(filters, [rule for _, rule in rules], documents_of_correlations)
        applied = [sigma_filter for _, sigma_filter in filters]
        translated = made_of(
            lambda pair: (pair[0], reader.translated(*pair, applied, pipeline)), rules
        )
    named = _with_unique_names(
        [(read_document, rule) for read_document, rule in translated if rule is not None], reader
    )
    if not correlations:
        return SigmaRules(tuple(rule for _, rule in named), reader.skipped)
    read_by_pysigma = {id(document): rule for document, rule in rules}
    for document, rule in named:
        reader.references.add(document, rule.name, read_by_pysigma[id(document)])
    standing_correlations = _correlations(
        reader, correlations, {rule.name for _, rule in named}, pipeline
    )
    return SigmaRules(tuple(rule for _, rule in named), reader.skipped, standing_correlations)


def _correlations(
    reader: _Reader,
    parsed: Sequence[tuple[_Document, Parsed]],
    rules: Collection[str],
    pipeline: ProcessingPipeline | None,
) -> tuple[SigmaCorrelation, ...]:
    """Return the correlations whose rules run, and note why others do not."""
    named = _with_unique_names(parsed, reader, rules)
    for document, item in named:
        reader.references.add(document, item.name, item.rule)
    translated = {}
    for document, item in named:
        translation = reader.correlated(document, item, pipeline)
        if translation is not None:
            translated[item.name] = document, translation
    made_of_them, why_not = standing([correlation for _, correlation in translated.values()], rules)
    for name, error in why_not.items():
        reader.leave_out(translated[name][0], error)
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
    sigma_filter = SigmaFilter.from_dict(body, **_POLICY)
    mend(sigma_filter.filter)
    named = [] if isinstance(sigma_filter.filter.rules, str) else sigma_filter.filter.rules
    for reference in named:
        # pySigma takes a number for the position of a rule.
        if not isinstance(reference.reference, str):
            msg = f"'rules' of a filter are ids or names of rules; got {reference.reference!r:.60}"
            raise QueryError(msg, part=("filter", "rules"))
    return sigma_filter


def _calling(reference: str) -> str:
    """Return a reference as pySigma looks it up: an id in any of its spellings, or a name."""
    try:
        return str(UUID(reference))
    except ValueError:
        return reference


def _apply_filter(sigma_filter: SigmaFilter, rule: PySigmaRule) -> None:
    """Apply a filter to a rule, with a copy of the filter's detections.

    pySigma gives the same objects to every rule, and pipelines change them in place.
    """
    before = set(rule.detection.detections)
    sigma_filter.apply_on_rule(rule)
    for name, detection in rule.detection.detections.items():
        if name not in before:
            rule.detection.detections[name] = copy.deepcopy(detection)


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
    return tuple(str(value) for value in values) if isinstance(values, list) else ()


def _with_unique_names(
    rules: Sequence[tuple[_Document, NamedT]], reader: _Reader, taken: Collection[str] = ()
) -> list[tuple[_Document, NamedT]]:
    """Return the rules, the second called a as ``a#2``; one that repeats another is skipped."""
    by_name: dict[str, tuple[_Document, NamedT]] = {}
    seen: dict[str, dict[str, _Document]] = {}
    for document, rule in rules:
        earlier = seen.setdefault(rule.name, {})
        text = rule.text.strip()
        if text in earlier:
            reader.leave_out(document, f"the same rule as in {earlier[text].place.at(None)}")
            continue
        earlier[text] = document
        name, n_more = rule.name, max(2, len(earlier))
        while name in by_name or name in taken:
            name, n_more = f"{rule.name}#{n_more}", n_more + 1
        by_name[name] = document, rule.named(name)
    return list(by_name.values())
