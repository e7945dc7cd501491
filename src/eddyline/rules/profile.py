"""The profile of a program: counts that add up, and the regions of sampled rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.stats.costs import CostSums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import BitmapBlockPlan

MAX_SAMPLED = 2_000
"""Newest sampled rows that a profile keeps, and that a plan is made from (τ)."""

_NOT_ADDED = ("sampled_regions", "blocks")
"""Fields of a profile that are no counts."""


@dataclass(frozen=True, slots=True)
class SelectionCounts:
    """Counts of a selection by one bitmap block; they add up."""

    n_rows: int
    """Rows that entered."""
    evaluated: Ints
    """Rows that each construct looked at ((n,))."""
    dropped: Ints
    """Rows whose last rule went with each construct ((n,))."""
    n_followed: int
    """Micro-arrows followed."""
    n_pairs: int
    """Pairs of row and rule that survived."""

    def __add__(self, other: SelectionCounts) -> SelectionCounts:
        return SelectionCounts(
            self.n_rows + other.n_rows,
            self.evaluated + other.evaluated,
            self.dropped + other.dropped,
            self.n_followed + other.n_followed,
            self.n_pairs + other.n_pairs,
        )

    @property
    def n_evaluated(self) -> int:
        """Evaluations of constructs."""
        return int(self.evaluated.sum())

    @property
    def drop_frac(self) -> float:
        """Share of the rows that no rule survived for ([0, 1]); 0 if there was no row."""
        return float(self.dropped.sum()) / self.n_rows if self.n_rows else 0.0


@dataclass(frozen=True, slots=True)
class AskedProfile:
    """Observations of the tests of Python whose order a plan may choose (``Program.ordered``)."""

    answers: NDArray[np.int8]
    """Answers for the newest sampled rows ((rows, tests)): a truth value of ``query.conditions``,
    0 where a test was not asked, 8 where it raised."""
    costs: CostSums
    """Calls of each test, without the first of a process, which loads what later ones find."""
    sampled_ns: int = 0
    """Time that asking for the sample alone took (ns)."""

    @classmethod
    def empty(cls, n_tests: int) -> Self:
        """Return the profile of no row."""
        return cls(np.zeros((0, n_tests), np.int8), CostSums.empty(n_tests))

    def __add__(self, newer: AskedProfile) -> AskedProfile:
        answers = np.concatenate([self.answers, newer.answers])[-MAX_SAMPLED:]
        return AskedProfile(answers, self.costs + newer.costs, self.sampled_ns + newer.sampled_ns)


@dataclass(frozen=True, slots=True)
class SharingProfile:
    """Observations of one or more batches of the rules of one program."""

    n_rows: int
    """Rows evaluated, as far as they were counted."""
    n_sampled: int
    """Rows that every construct looked at, whatever the plan."""
    pattern_counts: Ints
    """Of those, how many each pattern was met in."""
    sampled_regions: Int32s
    """Regions of the newest of them in each region construct ((rows, constructs))."""
    candidates: Ints
    """Rows that met each rule."""
    matches: Ints
    """Rows that each rule was true for."""
    construct_rows: Ints
    """Rows that each construct looked at: regions first, then texts."""
    construct_ns: Ints
    """Time that took (ns)."""
    asked: Ints
    """Rows that each external test was asked about."""
    asked_ns: Ints
    """Time that took (ns)."""
    value_rows: Ints
    """Rows in which the values of each text construct's column were counted."""
    distinct_values: Ints
    """Their number, batch by batch."""
    python: AskedProfile
    """Observations of the tests whose order is learned."""
    dropped: int = 0
    """Rows that no rule was met by."""
    evaluation_ns: int = 0
    """Time that all of it took (ns)."""
    n_uncounted: int = 0
    """Jobs whose rows nobody counted: one statement of Spark's tells those that it finds alone."""
    blocks: Mapping[BitmapBlockPlan, SelectionCounts] = field(default_factory=dict)
    """The counts of each bitmap block under each sequence."""

    @classmethod
    def empty(cls, program: Program) -> Self:
        """Return the profile of no rows."""

        def zeros(size: int) -> Ints:
            return np.zeros(size, np.int64)

        n_constructs = len(program.regions) + len(program.texts)
        n_externals = len(program.externals)
        return cls(
            n_rows=0,
            n_sampled=0,
            pattern_counts=zeros(program.n_patterns),
            sampled_regions=np.zeros((0, len(program.regions)), np.int32),
            candidates=zeros(program.n_rules),
            matches=zeros(program.n_rules),
            construct_rows=zeros(n_constructs),
            construct_ns=zeros(n_constructs),
            asked=zeros(n_externals),
            asked_ns=zeros(n_externals),
            value_rows=zeros(len(program.texts)),
            distinct_values=zeros(len(program.texts)),
            python=AskedProfile.empty(len(program.ordered.tests)),
        )

    @classmethod
    def stated(
        cls, program: Program, matches: Sequence[int], n_rows: int | None, n_matched: int | None
    ) -> Self:
        """Return what one statement of Spark's tells of a job.

        Args:
            program: the rules.
            matches: rows that each rule was true for.
            n_rows: rows of the job; None: not counted.
            n_matched: rows for which some rule was true, the candidates of all rules; None: not
                counted, and all rows are.
        """
        n_candidates = (n_rows or 0) if n_matched is None else n_matched
        return replace(
            cls.empty(program),
            n_rows=n_rows or 0,
            candidates=np.full(program.n_rules, n_candidates, np.int64),
            matches=np.array(matches, np.int64),
            dropped=0 if n_rows is None else n_rows - n_candidates,
            n_uncounted=int(n_rows is None),
        )

    def region_sums(self, construct: int, n_regions: int) -> Ints:
        """Return the sampled rows below each region, then their number ((n_regions + 1,))."""
        regions = self.sampled_regions[:, construct]
        sums = starts_of(np.bincount(regions, minlength=n_regions))
        return sums * max(1, self.n_sampled) // max(1, len(regions))

    def merge(self, *others: SharingProfile) -> SharingProfile:
        """Return the counts of all together; the sampled rows of the last are the newest."""
        merged = self
        for other in others:
            regions = np.concatenate([merged.sampled_regions, other.sampled_regions])
            merged = SharingProfile(
                sampled_regions=regions[-MAX_SAMPLED:],
                blocks=_added(merged.blocks, other.blocks),
                **{name: getattr(merged, name) + getattr(other, name) for name in _COUNTS},
            )
        return merged

    def without_sample(self) -> SharingProfile:
        """Return the counts alone: what may grow without end is left out."""
        python = replace(self.python, answers=self.python.answers[:0])
        return replace(self, sampled_regions=self.sampled_regions[:0], blocks={}, python=python)


_COUNTS = [count.name for count in fields(SharingProfile) if count.name not in _NOT_ADDED]


def _added(
    first: Mapping[BitmapBlockPlan, SelectionCounts],
    other: Mapping[BitmapBlockPlan, SelectionCounts],
) -> dict[BitmapBlockPlan, SelectionCounts]:
    added = dict(first)
    for plan, counts in other.items():
        added[plan] = added[plan] + counts if plan in added else counts
    return added
