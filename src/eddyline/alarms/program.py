"""Alarms of one moment, sorted by what they share.

``program_of`` takes alarms over the same keys and attributes and returns an ``AlarmProgram``: one
``Template`` for all conditions that differ in constants alone, and the conditions on keys as rules
over entities (``EntityRules``).

A comparison ``e - c op 0`` is split into the expression ``e`` and the constant ``c``. The mirrored
comparison of ``-e + c`` shares its template: both give the same numbers with opposite signs.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.memory import LastUsed
from eddyline.models.solving import where
from eddyline.models.solving.expressions import (
    MIRRORED,
    And,
    Attribute,
    Comparison,
    Condition,
    Expression,
    Number,
    Product,
    Sum,
)
from eddyline.stats.costs import CostSums, work_ns
from eddyline.stats.profile import FilterProfile, both, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from eddyline.alarms.alarm_set import Alarm
    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.estimates.histograms import CoefHistogram, ValueSketch
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.matcher import Matcher


@dataclass(frozen=True, eq=False)
class AlarmProgram:
    """Alarms over segments with some keys and attributes.

    Attributes:
        names: of the alarms, ``[n]``.
        definitions: ``Alarm.definition`` of each, ``[n]``.
        key_of: the condition on keys of each by its place among ``keys``, -1 for none, ``[n]``.
        keys: the conditions on keys; None if there are none.
        bases: the expressions that are compared with constants.
        templates: the conditions on models.
        whole: the alarms without one, by their places.
    """

    names: tuple[str, ...]
    definitions: Ints
    key_of: Ints
    keys: EntityRules | None
    bases: tuple[Expression, ...]
    templates: tuple[Template, ...]
    whole: Ints


def program_of(
    alarms: Sequence[Alarm], compiled: Callable[[Mapping[str, str]], EntityRules]
) -> AlarmProgram:
    """Return the program of alarms over the same keys and attributes.

    Args:
        alarms: their names differ.
        compiled: compiles conditions on keys, each with the first alarm that has it; called if
            there are some.
    """
    templates, texts = Templates(), dict[str, str]()
    for number, alarm in enumerate(alarms):
        if alarm.condition is not None:
            templates.add(number, alarm.condition)
        if alarm.keys is not None:
            texts.setdefault(alarm.keys, alarm.name)
    places = {text: place for place, text in enumerate(texts)}
    key_of = [-1 if alarm.keys is None else places[alarm.keys] for alarm in alarms]
    return AlarmProgram(
        names=tuple(alarm.name for alarm in alarms),
        definitions=np.array([alarm.definition for alarm in alarms], np.int64),
        key_of=np.array(key_of, np.int64),
        keys=compiled(texts) if texts else None,
        bases=tuple(templates.bases),
        templates=templates.all(),
        whole=np.flatnonzero([alarm.condition is None for alarm in alarms]),
    )


def threshold_of(comparison: Comparison) -> tuple[Expression, str, float]:
    """Return a comparison with 0 as ``base op constant``, the base without its last constant."""
    base, op, constant = comparison.expression, comparison.op, 0.0
    match base:
        case Sum(part, Number(value)) | Sum(Number(value), part):
            base, constant = part, -value
    match base:
        case Product(Number(-1.0), part):
            return part, MIRRORED[op], -constant
    return base, op, constant


@dataclass(frozen=True, eq=False)
class Template:
    """Alarms whose conditions differ in constants alone.

    Attributes:
        condition: comparisons of slots, which are attributes ``"0"``, ``"1"``, … in it.
        bases: for each slot the place of its expression among those of all templates.
        ops: for each slot its comparison.
        alarms: the alarms by their places in the set, ``[n]``.
        constants: what each slot of an alarm is compared with, ``[n, slots]``.
    """

    condition: Condition
    bases: tuple[int, ...]
    ops: tuple[str, ...]
    alarms: Ints
    constants: Floats
    text: str = ""
    """The condition with question marks for constants: what plans call the template by."""
    conjuncts: tuple[Conjunct, ...] = ()
    """The parts of an AND as they were written; of any other condition there is one."""

    def __len__(self) -> int:
        return len(self.alarms)

    @cached_property
    def program(self) -> Ints:
        """The condition as ``models.solving.where`` read it, over slots."""
        return where.program_of(self.condition, [slot(number) for number in range(len(self.bases))])

    @property
    def is_threshold(self) -> bool:
        """Whether it is one comparison that holds above its constant, or below it."""
        return isinstance(self.condition, Comparison) and self.ops[0] not in {"=", "<>"}


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A part of an AND of slots."""

    condition: Condition
    text: str


@dataclass
class Templates:
    """Sorts conditions by their templates."""

    bases: dict[Expression, int] = field(default_factory=dict)
    """The places of the expressions that are compared."""
    _found: dict[Condition, tuple[list[int], list[list[float]]]] = field(default_factory=dict)

    def add(self, alarm: int, condition: Condition) -> None:
        """Take in the condition of an alarm, which is called by its place."""
        constants: list[float] = []
        shape = self._without_constants(_flat(condition), constants)
        alarms, rows = self._found.setdefault(shape, ([], []))
        alarms.append(alarm)
        rows.append(constants)

    def all(self) -> tuple[Template, ...]:
        """Return the templates of all conditions that were taken in."""
        templates = []
        for shape, (alarms, rows) in self._found.items():
            slots: list[Comparison] = []
            condition = _with_slots(shape, slots)
            bases = tuple(self.bases[comparison.expression] for comparison in slots)
            ops = tuple(comparison.op for comparison in slots)
            parts = condition.parts if isinstance(condition, And) else (condition,)
            written = shape.parts if isinstance(shape, And) else (shape,)
            texts = _distinct([text_of(part) for part in written])
            templates.append(
                Template(
                    condition,
                    bases,
                    ops,
                    np.array(alarms, np.int64),
                    np.array(rows, float),
                    " AND ".join(texts),
                    tuple(map(Conjunct, parts, texts)),
                )
            )
        return tuple(templates)

    def _without_constants(self, condition: Condition, constants: list[float]) -> Condition:
        if isinstance(condition, Comparison):
            base, op, constant = threshold_of(condition)
            self.bases.setdefault(base, len(self.bases))
            constants.append(constant)
            return Comparison(base, op)
        parts = (self._without_constants(part, constants) for part in condition.parts)
        return replace(condition, parts=tuple(parts))


def _distinct(texts: list[str]) -> list[str]:
    """Return texts, those that come again with their number: parts may differ in constants."""
    seen: dict[str, int] = {}
    labels = []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        labels.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return labels


def text_of(condition: Condition) -> str:
    """Return a condition without its constants in words."""
    if isinstance(condition, Comparison):
        return f"{condition.expression} {condition.op} ?"
    word = " AND " if isinstance(condition, And) else " OR "
    return f"({word.join(map(text_of, condition.parts))})"


def _with_slots(condition: Condition, slots: list[Comparison]) -> Condition:
    """Return a condition over slots, and put what was compared into a list."""
    if isinstance(condition, Comparison):
        slots.append(condition)
        return Comparison(slot(len(slots) - 1), condition.op)
    return replace(condition, parts=tuple(_with_slots(part, slots) for part in condition.parts))


def slot(number: int) -> Attribute:
    """Return the expression that stands for a slot."""
    return Attribute(str(number))


def _flat(condition: Condition) -> Condition:
    """Return a condition without ANDs that stand right in an AND, and likewise of ORs."""
    if isinstance(condition, Comparison):
        return condition
    parts: list[Condition] = []
    for part in map(_flat, condition.parts):
        parts += part.parts if isinstance(part, type(condition)) else [part]
    return parts[0] if len(parts) == 1 else replace(condition, parts=tuple(dict.fromkeys(parts)))


def slots_in(condition: Condition) -> list[int]:
    """Return the slots of a condition of a template."""
    if isinstance(condition, Comparison):
        assert isinstance(condition.expression, Attribute)
        return [int(condition.expression.name)]
    return [slot for part in condition.parts for slot in slots_in(part)]


MAX_KEPT = 4
"""Compiled conditions that a process keeps; the one unused for longest goes first."""

_kept: LastUsed[str, Matcher] = LastUsed(MAX_KEPT)


@dataclass(frozen=True, eq=False)
class EntityRules:
    """Conditions on keys, compiled together."""

    program: Program
    columns: tuple[str, ...]
    """The key that each column of the program is."""
    digest: str
    """Tells them from others."""

    def of(self, entities: pa.Table) -> Mask:
        """Return which conditions are true of which entities, ``[conditions, entities]``."""
        n = entities.num_rows
        columns = [entities.column(column).combine_chunks() for column in self.columns]
        matches, _ = self._matcher().match(columns, n_rows=n)
        allowed = np.zeros((self.program.n_rules, n), np.bool_)
        allowed[matches.rules, matches.rows] = True
        return allowed

    def _matcher(self) -> Matcher:
        # Few sets have conditions on keys, and most workers need no matcher.
        from eddyline.options import SharingOptions  # noqa: PLC0415
        from eddyline.rules.compile.bitmap_block import BitmapBlocks  # noqa: PLC0415
        from eddyline.rules.match.matcher import Matcher  # noqa: PLC0415
        from eddyline.rules.planning.planner import make_plan  # noqa: PLC0415

        def made() -> Matcher:
            return Matcher(self.program, make_plan(BitmapBlocks(self.program), SharingOptions()))

        return _kept.get_or_make(self.digest, made)


# -- the profile of solving alarms -------------------------------------------------------------
# Profiles of solving alarms: small, mergeable, keyed by texts.
#
# ``Tally`` counts and times the work of a block of segments by its kinds; ``AlarmProfile`` sums
# up blocks, for the loop that plans.


BOUNDS, TESTS, PAIRS, SOLVED = range(4)
KINDS = ("bounds", "tests", "pairs", "solved")
"""Kinds of work: an expression is computed on a segment; a segment is held against constants; a
pair of a segment and an alarm is looked at; one is solved. All ways to share are made of these, so
what one of them took says what another would."""


@dataclass(frozen=True, slots=True)
class TemplateCounts:
    """What one template took."""

    sharing: str
    """How it was solved."""
    n_rows: int
    """Segments that its alarms were asked of."""
    n_held: int
    """Ranges that were found, before they were put together."""
    ns: int
    """Time in all (ns)."""

    def merged(self, other: TemplateCounts) -> TemplateCounts:
        """Return the counts of both; those of another way to solve it are left out."""
        if other.sharing != self.sharing:
            return self
        return TemplateCounts(
            self.sharing,
            self.n_rows + other.n_rows,
            self.n_held + other.n_held,
            self.ns + other.ns,
        )


@dataclass(frozen=True)
class AlarmProfile:
    """What blocks of segments showed."""

    n_rows: int = 0
    """Segments."""
    n_blocks: int = 0
    costs: CostSums = field(default_factory=lambda: CostSums.empty(len(KINDS)))
    """Of calls by kind of work."""
    templates: Mapping[str, TemplateCounts] = field(default_factory=dict)
    """By the text of a template."""
    values: Mapping[str, ValueSketch] = field(default_factory=dict)
    """The least and greatest values of sampled segments, by the text of an expression."""
    coefs: Mapping[str, CoefHistogram] = field(default_factory=dict)
    """Their coefficients."""
    outcomes: Mapping[str, FilterProfile] = field(default_factory=dict)
    """Which conjuncts leave out which sampled segments, by the text of a template."""

    def merged(self, other: AlarmProfile) -> AlarmProfile:
        """Return the profile of all blocks of both."""
        return AlarmProfile(
            self.n_rows + other.n_rows,
            self.n_blocks + other.n_blocks,
            self.costs + other.costs,
            both(self.templates, other.templates, lambda a, b: a.merged(b)),
            both(self.values, other.values, lambda a, b: a.merged(b)),
            both(self.coefs, other.coefs, lambda a, b: a.merged(b)),
            both(self.outcomes, other.outcomes, lambda a, b: merge([a, b])),
        )

    def without_values(self) -> AlarmProfile:
        """Return the same without a segment: what work costs stays known."""
        return replace(self, n_rows=0, n_blocks=0, values={}, coefs={})

    def decayed(self, share: float) -> AlarmProfile:
        """Return the same with sketches in which a segment counts that share of what it did."""
        return replace(
            self,
            n_rows=round(self.n_rows * share),
            n_blocks=max(round(self.n_blocks * share), min(self.n_blocks, 1)),
            values={name: sketch.decayed(share) for name, sketch in self.values.items()},
            coefs={name: histogram.decayed(share) for name, histogram in self.coefs.items()},
        )


@dataclass
class Tally:
    """Counts and times the work of a block of segments by its kinds."""

    clock: Callable[[], int] = work_ns
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    """Kind, rows and time (ns) of each call."""

    @contextmanager
    def on(self, kind: int, n_rows: int) -> Iterator[None]:
        """Count the work inside; what is counted inside of that is left out of its time."""
        first, began = len(self.calls), self.clock()
        yield
        inner = sum(ns for _, _, ns in self.calls[first:])
        self.calls.append((kind, n_rows, max(self.clock() - began - inner, 0)))

    @property
    def costs(self) -> CostSums:
        """The sums over calls, by kind; calls without rows are left out."""
        sums = CostSums.empty(len(KINDS)).sums
        if not self.calls:
            return CostSums(sums)
        kinds, rows, ns = np.array([call for call in self.calls if call[1]] or [(0, 1, 0)]).T
        for kind in range(len(KINDS)):
            n, time = rows[kinds == kind].astype(float), ns[kinds == kind].astype(float)
            if len(n) and time.any():
                per_row = (1 / n).sum(), (time / n).sum()
                sums[:, kind] = [len(n), n.sum(), time.sum(), *per_row, n.min(), n.max()]
        return CostSums(sums)


def aged(costs: CostSums, share: float) -> CostSums:
    """Return costs in which each call counts that share of what it did ([0, 1])."""
    if share == 0.0:
        return CostSums.empty(costs.n_filters)
    sums = costs.sums.copy()
    sums[:5] *= share
    return CostSums(sums)
