"""Identity of a query, to which its checkpoint belongs.

It is made of values that can be compared. Two texts have one identity if they mean the same over
the columns that they read. Comments, white space, the case of keywords and names, the order of
conditions and the names of inputs do not count. Columns that the query does not read do not count
either. An identity notes hashes of the code of functions, but they are not compared.

Files of durable state contain names and orders that have no meaning. ``as_before`` gives steps the
names and orders of the query that began the checkpoint.

The hash of a function covers bytecode, constants, names, defaults and plain values. It also covers
the functions that the code encloses or calls by a global name. It does not cover file names, line
numbers and docstrings.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import json
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate, MixedPredicate, SqlPredicate
from eddyline.query.query import PLACEHOLDER, UNBOUNDED
from eddyline.query.reading import columns_by_stream
from eddyline.query.select.statement import identifier
from eddyline.query.steps import (
    RESULT,
    AggregateStep,
    CallsFunctions,
    FilterStep,
    JoinStep,
    OverStep,
    ProjectStep,
    ReadStep,
    UnionStep,
    name_of,
)
from eddyline.sql.functions import NON_DETERMINISTIC, names_among
from eddyline.sql.parsing import deep, on_one_line, parse_column, parse_output
from eddyline.sql.rendering import conjuncts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.query.predicates import Predicate
    from eddyline.query.query import AggregateCall, Window
    from eddyline.query.steps import Step

MOST_SHOWN = 4
"""Differences that an error lists; it counts further ones."""


class Fact(msgspec.Struct, frozen=True):
    """One part of the meaning of a query."""

    key: str
    """Its subject, independent of the names of inputs; several facts may share a key."""
    label: str
    """The subject in words: ``the window of s``."""
    shown: str
    """Its text as written, on one line."""
    form: str
    """Its normal form."""
    is_kept: bool = False
    """Whether durable state depends on it."""
    before: str = ""
    """A form in a checkpoint from which the query may go on all the same; empty: there is none.

    A derived window may follow an unbounded one, because the state of that has more rows. Earlier
    versions derived no windows."""

    def same(self, now: Fact, *, by_text: bool) -> bool:
        """Return whether a fact of a checkpoint is the same now.

        Args:
            now: the fact of the query that starts.
            by_text: whether forms do not compare.
        """
        return self.key == now.key and (by_text or self.form in (now.form, now.before or now.form))


class Identity(msgspec.Struct, frozen=True):
    """The facts of a query, the columns that it reads, and the code of its functions."""

    text: str
    """The query as it was written, on one line."""
    facts: tuple[Fact, ...]
    columns: dict[str, tuple[tuple[str, str], ...]]
    """Name and type of each column that the query reads, by stream or table."""
    functions: dict[str, FunctionCode] = {}
    """The code of each Python function by its name in the query."""
    whole: tuple[str, ...] = ()
    """The streams and tables of which all columns count, in their order."""
    keeps_rows: bool = False
    """Whether durable state has rows with all columns that are read."""
    names: tuple[tuple[str, ...], ...] = ()
    """Kind, names and orders of each step; see ``as_before``."""
    layout: tuple[tuple[str, ...], ...] = ()
    """The part of ``names`` that files of durable state contain."""
    is_stateful: bool = False
    """Whether it keeps durable state."""
    legacy: str = ""
    """The identity in checkpoints of versions that stored only the text."""
    wall_clocks: tuple[str, ...] = ()
    """Streams whose event time is a TIMESTAMP_NTZ, if state is kept by the reading of its clock.
    Earlier versions kept the instant of that reading in the time zone of the session."""
    parser: str = version("sqlglot")
    """Version of the parser that made the normal forms."""

    @property
    def mark(self) -> str:
        """The text, and behind `` #`` a hash of what the query means."""
        meaning = sorted([fact.key, fact.form] for fact in self.facts), sorted(self.columns.items())
        digest = hashlib.blake2b(json.dumps(meaning).encode(), digest_size=8).hexdigest()
        return f"{self.text} #{digest}"


def hash_of(mark: str) -> str:
    """Return the hash in a mark, which stands for the meaning of the query."""
    return mark.rpartition(" #")[2]


class Difference(msgspec.Struct, frozen=True):
    """One difference between two queries."""

    words: str
    is_kept: bool
    """Whether durable state depends on it."""


def differences(before: Identity, now: Identity) -> list[Difference]:
    """Return how a query differs from that of a checkpoint; empty if both mean the same."""
    changes: list[Difference] = []
    old, new = list(before.facts), []
    by_text = before.parser != now.parser and before.text == now.text
    for fact in now.facts:
        same = next((other for other in old if other.same(fact, by_text=by_text)), None)
        if same is None:
            new.append(fact)
        else:
            old.remove(same)
    for fact in new:
        shown, other = _clipped(fact.shown), next((o for o in old if o.key == fact.key), None)
        if other is None:
            changes.append(Difference(f"{fact.label} {shown} is new", fact.is_kept))
        else:
            old.remove(other)
            words = f"{fact.label} was {_clipped(other.shown)} and is {shown}"
            changes.append(Difference(words, fact.is_kept or other.is_kept))
    changes += [
        Difference(f"{fact.label} {_clipped(fact.shown)} is gone", fact.is_kept) for fact in old
    ]
    return changes + _changed_columns(before, now)


def _changed_columns(before: Identity, now: Identity) -> list[Difference]:
    changes = []
    is_kept = before.keeps_rows or now.keeps_rows
    for stream in [stream for stream in now.columns if stream in before.columns]:
        was, is_ = dict(before.columns[stream]), dict(now.columns[stream])
        whole = " (the query reads all columns)" if stream in now.whole else ""
        for name in [*was, *(name for name in is_ if name not in was)]:
            what = f"column {name} of {stream}"
            if name not in is_:
                words = f"is gone{whole}" if whole else "is no longer read"
                changes.append(Difference(f"{what} {words}", is_kept))
            elif name not in was:
                words = f"is new{whole}" if whole else "was not read before"
                changes.append(Difference(f"{what} {words}", is_kept))
            elif was[name] != is_[name]:
                words = f"{what} was {was[name]} and is {is_[name]}"
                changes.append(Difference(words, is_kept=True))
        if was == is_ and [*was] != [*is_]:
            words = f"the columns of {stream} have another order{whole}"
            changes.append(Difference(words, is_kept))
    return changes


def in_words(changes: Sequence[Difference]) -> str:
    """Return differences as a sentence without its full stop."""
    words = "; ".join(change.words for change in changes[:MOST_SHOWN])
    n_more = len(changes) - MOST_SHOWN
    return words + (f"; and {n_more} more" if n_more > 0 else "")


def _clipped(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


# -- a query as an identity -----------------------------------------------------------------------


@deep
def identity_of(
    text: str,
    steps: Sequence[Step],
    columns: Mapping[str, Mapping[str, str]],
    times: Mapping[str, str | None],
    *,
    ignores_case: bool = True,
    is_stateful: bool = False,
    legacy: str = "",
) -> Identity:
    """Return the identity of a query.

    Args:
        text: as it was written; empty if it is made of steps.
        steps: of the query.
        columns: name and type of each column, by stream or table.
        times: their event times.
        ignores_case: whether names are the same in any case.
        is_stateful: whether it keeps durable state.
        legacy: see ``Identity``.
    """
    facts = _Facts(steps, ignores_case=ignores_case)
    read = columns_by_stream(steps, {name: [*types] for name, types in columns.items()})
    kept: dict[str, tuple[tuple[str, str], ...]] = {}
    for name, types in sorted(columns.items()):
        chosen = read.get(name, ())
        if chosen is None:
            kept[name] = tuple(types.items())  # their order counts
        else:
            time = times.get(name)
            kept_columns = {*chosen, *([] if time is None else [time])}
            # Files of rows have their columns in the order of the stream.
            order = types if facts.keeps_rows else sorted(kept_columns)
            kept[name] = tuple(
                (column, types[column]) for column in order if column in kept_columns
            )
    all_facts = [*facts.found]
    for name, time in sorted(times.items()):
        all_facts.append(
            Fact(f"time {name}", f"the event time of {name}", str(time), str(time), True)
        )
    return Identity(
        on_one_line(text) or "; ".join(map(str, steps)),
        tuple(all_facts),
        kept,
        {name: code_of(function) for name, function in sorted(facts.functions.items())},
        tuple(sorted(name for name, names in read.items() if names is None)),
        facts.keeps_rows,
        tuple(_names_of(step, facts) for step in steps),
        tuple(
            (step.output, *_orders_of(step, facts))
            for step in steps
            if not isinstance(step, _PLAIN_STEPS)
        ),
        is_stateful,
        legacy,
        tuple(
            name
            for name, time in sorted(times.items())
            if is_stateful and time is not None and columns[name].get(time) == "timestamp_ntz"
        ),
    )


def together(text: str, members: Mapping[str, Identity], legacy: str) -> Identity:
    """Return the identity of queries that share their state.

    Args:
        text: a description of the queries.
        members: identities by the names of the queries.
        legacy: see ``Identity``.
    """
    facts: list[Fact] = []
    columns: dict[str, tuple[tuple[str, str], ...]] = {}
    functions: dict[str, FunctionCode] = {}
    for name, member in members.items():
        facts.append(Fact(f"query {name}", "query", name, name, True))
        for fact in member.facts:
            key, label = f"{name} {fact.key}", f"{fact.label} in {name}"
            facts.append(msgspec.structs.replace(fact, key=key, label=label))
        for stream, types in member.columns.items():
            columns[stream] = tuple(sorted({*columns.get(stream, ()), *types}))
        functions |= member.functions
    whole = {name for identity in members.values() for name in identity.whole}
    return Identity(
        text,
        tuple(facts),
        columns,
        functions,
        tuple(sorted(whole)),
        layout=tuple(
            (name, *layout) for name, identity in members.items() for layout in identity.layout
        ),
        is_stateful=any(identity.is_stateful for identity in members.values()),
        legacy=legacy,
        wall_clocks=tuple(
            sorted({name for identity in members.values() for name in identity.wall_clocks})
        ),
    )


class _Facts:
    """The facts of steps; relations have numbers, because their names have no meaning."""

    def __init__(self, steps: Sequence[Step], *, ignores_case: bool) -> None:
        self.found: list[Fact] = []
        self.functions: dict[str, Any] = {}
        self._conditions: set[tuple[str, str]] = set()
        """Keys and forms of the conditions so far."""
        self.keeps_rows = False
        """Whether durable state has rows with all columns that are read."""
        self._ignores_case = ignores_case
        self._numbers: dict[str, str] = {RESULT: "result"}
        self._qualifiers: dict[str, dict[str, str]] = {}
        """Qualifiers of columns, by the relation of a join's results."""
        self._places: dict[str, str] = {}
        """The forms of groups and calls, by their columns."""
        kept = [place for place, step in enumerate(steps) if not isinstance(step, _PLAIN_STEPS)]
        for position, step in enumerate(steps):
            self._keeps = any(position < other for other in kept)
            self._is_last = position == len(steps) - 1
            self._take(step)

    def relation(self, name: str) -> str:
        """Return the number of a relation."""
        return self._numbers.setdefault(name, f"r{len(self._numbers)}")

    def _add(
        self,
        key: str,
        label: str,
        shown: str,
        form: str,
        *,
        is_kept: bool = False,
        before: str = "",
    ) -> None:
        self.found.append(Fact(key, label, " ".join(shown.split()), form, is_kept, before))

    def _add_window(self, key: str, input_name: str, window: Window) -> None:
        self.keeps_rows = self.keeps_rows or window.counts is not None
        texts = window.text, UNBOUNDED.text if window.shown != window.text else ""
        form, before = map(str.lower, texts) if self._ignores_case else texts
        label, shown = f"the window of {input_name}", window.shown
        self._add(f"window {key}", label, shown, form, is_kept=True, before=before)

    def _add_condition(
        self, key: str, label: str, condition: Predicate | str, form: str, *, is_kept: bool = False
    ) -> None:
        """Add a condition; a repeated one changes nothing, unless it draws lots."""
        if (key, form) not in self._conditions or _draws_lots(condition):
            self._conditions.add((key, form))
            text = condition if isinstance(condition, str) else condition.text
            self._add(key, label, text, form, is_kept=is_kept)

    def form(self, text: str, relation: str = "") -> str:
        """Return the normal form of SQL over a relation."""
        return "AND".join(self.forms(text, relation))

    def forms(self, text: str, relation: str = "") -> list[str]:
        """Return the normal forms of conditions over a relation."""
        qualifiers = self._qualifiers.get(relation, {})
        normal_forms = conjuncts(
            text, ignores_case=self._ignores_case, qualifier=lambda name: qualifiers.get(name, name)
        )
        return [
            PLACEHOLDER.sub(lambda match: self._places.get(match[0].lower(), match[0]), x)
            for x in normal_forms
        ]

    def output(self, text: str, relation: str) -> str:
        """Return the normal form of an output column; a subquery keeps the case of its name."""
        exact = "" if self._is_last else f" {_output_name(text)}"
        return self.form(text, relation) + exact

    def predicate(self, predicate: Predicate, relation: str) -> list[str]:
        """Return the normal forms of the conditions of a predicate."""
        if isinstance(predicate, FunctionPredicate):
            self._note(predicate.label, predicate)
            reads = [self.form(text, relation) for text in predicate.reads]
            negated = "NOT " * predicate.negated
            return [f"{negated}FUNCTION {predicate.label} {predicate.arrays} {reads}"]
        if isinstance(predicate, MixedPredicate):
            for name, function in predicate.functions.items():
                if re.search(rf"\b{re.escape(name)}\b", predicate.text, re.IGNORECASE):
                    self._note(function.called or name, function)
        return self.forms(predicate.text, relation)

    def _note(self, label: str, predicate: FunctionPredicate) -> None:
        name, number = label, 1
        while self.functions.setdefault(name, predicate.fn) is not predicate.fn:
            number += 1
            name = f"{label}#{number}"

    def _take(self, step: Step) -> None:  # noqa: C901 - a case for each kind of step
        match step:
            case ReadStep():
                relation = self.relation(step.output)
                self._add(f"read {relation}", "the input", step.stream, step.stream, is_kept=True)
            case FilterStep():
                relation, input_name = self.relation(step.input), _name(step.input)
                for predicate in step.predicates:
                    for form in self.predicate(predicate, step.input):
                        self._add_condition(
                            f"where {relation}", f"the condition of {input_name}", predicate, form
                        )
            case JoinStep():
                self._of_join(step)
            case AggregateStep():
                self._of_aggregates(step)
            case OverStep():
                self.keeps_rows = True
                relation, input_name = self.relation(step.input), _name(step.input)
                by = [self.form(text) for text in step.partition_by]
                shown = ", ".join(step.partition_by) or "nothing"
                self._add(
                    f"over {relation}",
                    f"PARTITION BY of {input_name}",
                    shown,
                    str(by),
                    is_kept=True,
                )
                for number, over in enumerate(step.calls):
                    form = f"{self.call(over.call)} OVER {over.window.text.lower()}"
                    shown = f"{over.call.text} over {over.window.text}"
                    self._places[over.call.column.lower()] = form
                    key = f"over call {relation} {number}"
                    self._add(key, f"the aggregate of {input_name}", shown, form, is_kept=True)
            case UnionStep():
                parts = [self.relation(part) for part in step.inputs]
                key = f"union {self.relation(step.output)}"
                self._add(key, "UNION ALL", f"of {len(parts)} parts", str(parts), is_kept=True)
            case ProjectStep():
                self._of_columns(step)
            case _:
                self._of_other(step)

    def _of_other(self, step: Step) -> None:
        if isinstance(step, CallsFunctions):
            for name, function in step.functions.items():
                self._note(name, function)
        self.keeps_rows = True
        plain = step.renamed(self.relation)
        key = f"{type(step).__name__} {self.relation(step.output)}"
        self._add(key, "the step", str(step), f"{plain} {plain!r}", is_kept=True)

    def _of_join(self, step: JoinStep) -> None:
        relation = self.relation(step.output)
        qualifiers = {item.name.lower(): f"q{n}" for n, item in enumerate(step.joined)}
        self._qualifiers[step.output] = qualifiers
        self._add(f"kind {relation}", "the kind of join", step.kind, step.kind, is_kept=True)
        self._add(f"emits {relation}", "what the join gives", step.emits, step.emits, is_kept=True)
        for n, joined in enumerate(step.joined):
            input_name, key = _name(joined.name), f"{relation} {n}"
            self._add_window(key, input_name, joined.window)
            inner = self.relation(joined.input)
            self._add(f"joined {key}", "the joined input", joined.input, inner, is_kept=True)
            names = sorted(self.form(identifier(name)) for name in joined.columns)
            shown = ", ".join(joined.columns)
            self._add(
                f"needs {key}", f"the columns kept of {input_name}", shown, str(names), is_kept=True
            )
        for key_class in step.keys:
            form = self.key(step, key_class)
            self._add(f"key {relation}", "the key", str(key_class), form, is_kept=True)
        for text in step.conditions:
            for form in self.forms(text, step.output):
                label = "the condition of the join"
                self._add_condition(f"on {relation}", label, text, form, is_kept=True)

    def key(self, step: JoinStep, key: Any) -> str:
        """Return the normal form of a key class."""
        members = {
            n: sorted(self.form(text) for text in key.members.get(joined.name, ()))
            for n, joined in enumerate(step.joined)
        }
        return str(members)

    def call(self, call: AggregateCall) -> str:
        """Return the normal form of a call, independent of its column."""
        if call.own is not None:
            self.functions.setdefault(call.function, call.own)
        arguments = [self.form(argument) for argument in call.arguments]
        where = self.form(call.where) if call.where else ""
        return f"{call.function.upper()} {call.is_distinct} {arguments} {where}"

    def _of_aggregates(self, step: AggregateStep) -> None:
        relation, input_name = self.relation(step.output), _name(step.input)
        self._add_window(relation, input_name, step.window)
        emits = step.emits or "values of windows"
        self._add(f"emits {relation}", "what the aggregates give", emits, emits, is_kept=True)
        shown = ", ".join(text for _, text in step.groups) or "nothing"
        groups = [self.form(text) for _, text in step.groups]
        self._add(f"groups {relation}", "GROUP BY", shown, str(groups), is_kept=True)
        if step.where:
            for form in self.forms(step.where):
                self._add(
                    f"where {relation}",
                    f"the condition of {input_name}",
                    step.where,
                    form,
                    is_kept=True,
                )
        for (name, _), form in zip(step.groups, groups, strict=True):
            self._places[name.lower()] = form
        for call in step.calls:
            form = self.call(call)
            self._places[call.column.lower()] = form
            self._add(f"call {relation}", "the aggregate", call.text, form, is_kept=True)
        columns = [self.output(projection, "") for projection in step.projections]
        shown = step.in_words(", ".join(step.projections))
        self._add(
            f"columns {relation}", "the SELECT list", shown, str(columns), is_kept=self._keeps
        )
        for form in self.forms(step.having) if step.having else ():
            self._add(f"having {relation}", "HAVING", step.in_words(step.having), form)
        if step.copies:
            copies = step.in_words(step.copies)
            self._add(f"copies {relation}", "the set operation", copies, self.form(step.copies))

    def _of_columns(self, step: ProjectStep) -> None:
        relation = self.relation(step.output)
        for name, call in step.calls.items():
            self._note(call.label, call)
            self._places[name.lower()] = call.text
        columns = [self.output(projection, step.input) for projection in step.projections]
        if step.words:
            columns = [step.words]
        calls = {self._places[name.lower()] for name in step.calls}
        form = f"{columns} {sorted(calls)} {step.time}"
        _, _, shown = str(step).partition(": ")
        self._add(f"columns {relation}", "the SELECT list", shown, form, is_kept=self._keeps)


_PLAIN_STEPS = ReadStep, FilterStep, ProjectStep, UnionStep
"""Steps that keep no state."""


def _name(relation: str) -> str:
    return "the results" if relation == RESULT else relation


# -- names and orders as they were ----------------------------------------------------------------


def _names_of(step: Step, facts: _Facts) -> tuple[str, ...]:
    """Return the kind of a step, the name of its relation, and its names and forms in order."""
    names: list[str] = []
    if isinstance(step, FilterStep):
        names += [str(facts.predicate(predicate, step.input)) for predicate in step.predicates]
        names += [predicate.name for predicate in step.predicates]
    elif isinstance(step, AggregateStep | ProjectStep):
        names += map(_output_name, step.projections)
    return type(step).__name__, step.output, *names, *_orders_of(step, facts)


def _orders_of(step: Step, facts: _Facts) -> tuple[str, ...]:
    """Return the names and orders in the files of a step."""
    match step:
        case JoinStep():
            joined = [json.dumps([item.name, *item.columns]) for item in step.joined]
            keys = [facts.key(step, key) for key in step.keys]
            return *joined, *keys, *(facts.form(text, step.output) for text in step.equalities)
        case AggregateStep():
            return tuple(map(facts.call, step.calls))
    return ()


@deep
def as_before(
    steps: Sequence[Step], before: Identity, *, ignores_case: bool = True
) -> tuple[Step, ...]:
    """Return steps with the names and orders of an earlier text of the same query.

    The names are those of inputs and output columns. The orders are those of conditions, keys,
    aggregates and the columns of joins.

    Args:
        steps: of a query that means the same as ``before``.
        before: the query that began the checkpoint.
        ignores_case: whether names are the same in any case.
    """
    kinds = [type(step).__name__ for step in steps]
    if kinds != [kind for kind, *_ in before.names]:
        return tuple(steps)
    facts = _Facts(steps, ignores_case=ignores_case)
    names = {step.output: entry[1] for step, entry in zip(steps, before.names, strict=True)}
    qualifiers: dict[str, dict[str, str]] = {}
    earlier_steps: list[Step] = []
    for step, (_, _, *listed) in zip(steps, before.names, strict=True):
        earlier: Step = step
        match step:
            case FilterStep():
                forms = {
                    str(facts.predicate(predicate, step.input)): predicate
                    for predicate in step.predicates
                }
                mapping = qualifiers.get(step.input, {})
                n = len(listed) // 2
                ordered = _as_listed(listed[:n], forms, step.predicates)
                if listed[:n] == [
                    str(facts.predicate(predicate, step.input)) for predicate in ordered
                ]:
                    ordered = list(map(_called_as, ordered, listed[n:]))
                earlier = replace(
                    step,
                    predicates=tuple(_requalified(predicate, mapping) for predicate in ordered),
                )
            case JoinStep():
                mapping, earlier = _join_as_before(step, listed, facts)
                qualifiers[step.output] = mapping
            case AggregateStep():
                earlier = _aggregates_as_before(step, listed, facts)
            case ProjectStep():
                mapping = qualifiers.get(step.input, {})
                texts = [requalified(text, mapping) for text in step.projections]
                earlier = replace(step, projections=_named_as_before(texts, listed))
        earlier_steps.append(earlier.renamed(lambda name: names.get(name, name)))
    return tuple(earlier_steps)


def _in_order(forms: Sequence[str], by_form: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    """Return values in the order of earlier forms if the forms are the same, else as they are."""
    if Counter(forms) != Counter(by_form.keys()) or len(by_form) != len(values):
        return list(values)
    return [by_form[form] for form in forms]


def _as_listed(
    forms: Sequence[str], by_form: Mapping[str, Any], values: Sequence[Any]
) -> list[Any]:
    """Return conditions in the order of earlier forms, repeated as they were there.

    Conditions that draw lots are repeated as they are now; then all conditions stay unchanged, if
    they were repeated otherwise.
    """
    if any(map(_draws_lots, values)):
        return _in_order(forms, by_form, values)
    is_same = {*forms} == by_form.keys()
    return [by_form[form] for form in forms] if is_same else list(values)


def _draws_lots(condition: Predicate | str) -> bool:
    """Return whether a condition may get two answers for one row."""
    text = condition if isinstance(condition, str) else condition.text
    is_declared = not isinstance(condition, str) and condition.deterministic is False
    return is_declared or bool(names_among(NON_DETERMINISTIC, [text]))


def _join_as_before(
    step: JoinStep, listed: Sequence[str], facts: _Facts
) -> tuple[dict[str, str], JoinStep]:
    n = len(step.joined)
    was = [json.loads(text) for text in listed if text.startswith("[")]
    if len(was) != n:
        return {}, step
    mapping = {side.name: name for side, (name, *_) in zip(step.joined, was, strict=True)}
    joined = []
    for item, (name, *columns) in zip(step.joined, was, strict=True):
        spellings = {column.lower(): column for column in item.columns}
        order = [spellings.get(column.lower(), column) for column in columns]
        ordered = order if Counter(order) == Counter(item.columns) else item.columns
        joined.append(replace(item, name=name, columns=tuple(ordered)))
    n_keys = len(step.keys)
    keys = [
        replace(key, members={mapping[name]: texts for name, texts in key.members.items()})
        for key in _in_order(
            listed[n : n + n_keys], {facts.key(step, key): key for key in step.keys}, step.keys
        )
    ]
    forms = {facts.form(text, step.output): text for text in step.equalities}
    equalities = _as_listed(listed[n + n_keys :], forms, step.equalities)
    join = replace(
        step,
        joined=tuple(joined),
        keys=tuple(keys),
        equalities=tuple(requalified(text, mapping) for text in equalities),
        conditions=tuple(requalified(text, mapping) for text in step.conditions),
    )
    return mapping, join


def _aggregates_as_before(
    step: AggregateStep, listed: Sequence[str], facts: _Facts
) -> AggregateStep:
    n = len(step.projections)
    calls = _in_order(listed[n:], {facts.call(call): call for call in step.calls}, step.calls)
    columns = [call.column for call in step.calls]
    names = {call.column: column for call, column in zip(calls, columns, strict=True)}

    def renamed(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: names.get(match[0], match[0]), text)

    return replace(
        step,
        calls=tuple(replace(call, column=names[call.column]) for call in calls),
        projections=_named_as_before([*map(renamed, step.projections)], listed[:n]),
        having=renamed(step.having),
        copies=renamed(step.copies),
    )


def _called_as(predicate: Predicate, name: str) -> Predicate:
    """Return a predicate with its earlier name, if its own name comes from its text."""
    if (
        isinstance(predicate, FunctionPredicate)
        or predicate.name != SqlPredicate(predicate.text).name
    ):
        return predicate
    return replace(predicate, name=name)


def _requalified(predicate: Predicate, mapping: Mapping[str, str]) -> Predicate:
    if not mapping or isinstance(predicate, FunctionPredicate):
        return predicate
    return replace(predicate, text=requalified(predicate.text, mapping))


def requalified(text: str, names: Mapping[str, str]) -> str:
    """Return SQL with other qualifiers of its columns.

    >>> requalified("x.v > y.v AND x.x.y = 1", {"x": "s", "y": "y"})
    's.v > y.v AND s.x.y = 1'
    """
    new = {old.lower(): name for old, name in names.items() if old != name}
    try:
        tree = parse_output(text) if new else None
    except QueryError:
        return text
    places = []
    for column in tree.find_all(exp.Column) if tree is not None else ():
        first = column.parts[0]
        if len(column.parts) > 1 and first.name.lower() in new and "start" in first.meta:
            places.append((first.meta["start"], first.meta["end"], new[first.name.lower()]))
    for start, end, name in sorted(places, reverse=True):
        text = text[:start] + identifier(name) + text[end + 1 :]
    return text


def _named_as_before(texts: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(named_as, texts, names)) if len(texts) == len(names) else tuple(texts)


def _output_name(text: str) -> str:
    with suppress(QueryError):
        return name_of(text)
    return ""


def named_as(text: str, name: str) -> str:
    """Return an output column with its name in the case of ``name``.

    >>> named_as("V", "v"), named_as("V + 1 AS N", "n"), named_as("v", "v"), named_as("*", "*")
    ('V AS v', 'V + 1 AS n', 'v', '*')
    """
    output_name = _output_name(text)
    if output_name in (name, "") or output_name.lower() != name.lower():
        return text
    alias = parse_column(text).args.get("alias")
    if alias is None:
        return f"{text} AS {identifier(name)}"
    return text[: alias.meta["start"]] + identifier(name) + text[alias.meta["end"] + 1 :]


@deep
def steps_differ(one: Sequence[Step], other: Sequence[Step]) -> bool:
    """Return whether the texts of steps differ."""
    return [f"{step} {step!r}" for step in one] != [f"{step} {step!r}" for step in other]


_PLAIN = bool, int, float, complex, str, bytes, type(None), type(...)

_EMPTY = {"EXTENDED_ARG", "CACHE", "RESUME", "NOP"}
"""Instructions without a meaning of their own."""

_OF_PLACE = {"__doc__", "__module__", "__qualname__", "__firstlineno__"}
"""Attributes of a class that tell its place, not its behaviour."""


class FunctionCode(msgspec.Struct, frozen=True):
    """The hash of a function's code; those of two versions of Python cannot be compared."""

    digest: str
    python: str
    """Version of Python, such as ``3.12``: bytecode differs from version to version."""

    def differs(self, other: FunctionCode) -> bool:
        """Return whether the functions certainly differ."""
        return self.python == other.python and self.digest != other.digest


def code_of(function: Any) -> FunctionCode:
    """Return the code of a function, of an object that is called, or of an aggregate's methods.

    >>> code_of(lambda v: v > 1).differs(code_of(lambda v: v > 2))
    True
    """
    description = repr(_Walk().said(function))
    digest = hashlib.blake2b(
        description.encode("utf-8", "surrogatepass"), digest_size=8
    ).hexdigest()
    return FunctionCode(digest, f"{sys.version_info.major}.{sys.version_info.minor}")


class _Walk:
    """Describes values by plain values that are the same in every process."""

    def __init__(self) -> None:
        self._descriptions: dict[int, Any] = {}
        """Descriptions of functions, classes and objects, by id; None while one is made."""

    def said(self, value: Any) -> Any:  # noqa: PLR0911 - a case for each kind of value
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value)
        if isinstance(value, list | tuple):
            return type(value).__name__, [self.said(item) for item in value]
        if isinstance(value, set | frozenset):
            return "set", sorted(repr(self.said(item)) for item in value)
        if isinstance(value, dict):
            items = [(self.said(key), self.said(item)) for key, item in value.items()]
            return "dict", sorted(items, key=repr)
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, BuiltinFunctionType | ModuleType):
            return "named", getattr(value, "__module__", None), value.__name__
        if id(value) not in self._descriptions:
            self._descriptions[id(value)] = None  # one that calls itself ends here
            description = repr(self._parts(value)).encode("utf-8", "surrogatepass")
            self._descriptions[id(value)] = hashlib.blake2b(description, digest_size=8).hexdigest()
        return self._descriptions[id(value)]

    def _parts(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return "partial", self.said([value.func, value.args, value.keywords])
        if isinstance(value, MethodType):
            return "method", self.said(value.__func__), self.said(value.__self__)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return "type", value.__qualname__, self._methods(value)
        return self._object(value)

    def _function(self, value: FunctionType) -> Any:
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(self.said(cell.cell_contents))
            except ValueError:  # it is not filled yet
                cells.append("empty")
        used_globals = {
            name: self.said(value.__globals__[name])
            for name in _names(value.__code__)
            if name in value.__globals__ and _counts(value.__globals__[name])
        }
        defaults = self.said([value.__defaults__, value.__kwdefaults__])
        return "function", self._code(value.__code__), defaults, cells, used_globals

    def _code(self, code: CodeType) -> Any:
        sizes = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags
        return sizes, [
            (instruction.opname, self._argument(instruction))
            for instruction in dis.get_instructions(code)
            if instruction.opname not in _EMPTY
        ]

    def _argument(self, instruction: dis.Instruction) -> Any:
        if instruction.opcode in dis.hasconst:
            return self.said(instruction.argval)
        return instruction.argval if instruction.opcode in dis.hasname else instruction.arg

    def _methods(self, value: type) -> list[Any]:
        if _is_installed(value.__module__):
            return [value.__module__]
        kinds = (FunctionType, staticmethod, classmethod, *_PLAIN)
        return [
            (name, self.said(getattr(member, "__func__", member)))
            for name, member in sorted(vars(value).items())
            if isinstance(member, kinds) and name not in _OF_PLACE
        ]

    def _object(self, value: Any) -> Any:
        kind = type(value)
        inner = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
        if inner is not None:  # as of numba and functools.cache
            return "wrapped", kind.__qualname__, self.said(inner)
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):  # an array
            return "array", str(value.dtype), hashlib.blake2b(value.tobytes()).hexdigest()
        if _is_installed(kind.__module__):
            return "object", kind.__module__, kind.__qualname__
        plain = sorted(getattr(value, "__dict__", {}).items())
        return "object", kind.__qualname__, self._methods(kind), self.said(plain)


def _names(code: CodeType) -> list[str]:
    """Return the global names that code and what it encloses may read."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return sorted({*code.co_names, *(name for constant in inner for name in _names(constant))})


def _counts(value: Any) -> bool:
    """Return whether a global value is part of a function's code; packages are not."""
    if isinstance(value, FunctionType | type):
        return not _is_installed(value.__module__)
    return isinstance(value, (*_PLAIN, list, tuple, set, frozenset, dict, functools.partial))


def _is_installed(module: str | None) -> bool:
    """Return whether a module is one of Python's or of an installed package."""
    stem = (module or "").partition(".")[0]
    file = str(getattr(sys.modules.get(stem), "__file__", "") or "")
    is_known = stem in {*sys.stdlib_module_names, "eddyline"} - {"__main__"}
    return is_known or "site-packages" in file
