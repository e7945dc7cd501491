"""Plan of a set of rules, as an immutable value.

It changes the work, never the answer. Each rule is found by an access predicate, in a bitmap block,
or on every row. A block visits its constructs in a sequence: one order for all rows, or by region
as well. Whatever the sequence, the same rules survive, because bitmaps are ANDed, and what the
arrows leave out the macro-sequence visits [ASC 4]. msgspec encodes plans and decodes them by these
types.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.errors import PlanError
from eddyline.stats.costs import CostSums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Sequence as Row

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.rules.compile.program import Program


@dataclass(frozen=True, slots=True)
class BitmapBlockPlan:
    """A bitmap block: rules that are evaluated together by bitmaps, along a sequence."""

    rules: tuple[int, ...]
    """Their places in the set, in the order of their bits."""
    sequence: SelectionSequence | None = None
    """The order of the block's constructs; None: as they are numbered."""


@dataclass(frozen=True, slots=True)
class PythonOrder:
    """The order in which a rule asks its tests of Python."""

    rule: int
    """Its place in the set."""
    tests: tuple[int, ...]
    """All those that it may ask (``Program.ordered``)."""


@dataclass(frozen=True, slots=True)
class SharingPlan:
    """For each rule, the way to the rows that may make it true."""

    access_predicates: tuple[tuple[int, ...] | None, ...]
    """Of each rule, literals of which one holds wherever the rule is true; only rows with one of
    them meet the rule. None: it is in a bitmap block, every row meets it, or no row changes it."""
    blocks: tuple[BitmapBlockPlan, ...] = ()
    by_value: frozenset[int] = frozenset()
    """Text constructs that look at each distinct value of a batch once, because values repeat."""
    python_orders: tuple[PythonOrder, ...] = ()
    """Orders of tests of Python that differ from the code's own."""
    is_statement: bool = False
    """Whether Spark evaluates all rules in one statement, and no row goes to Python."""
    n_accessed: int = field(default=0, init=False, compare=False, repr=False)
    """Rules with an access predicate; counted once, because each batch asks for it."""

    def __post_init__(self) -> None:
        n_accessed = len(self.access_predicates) - self.access_predicates.count(None)
        object.__setattr__(self, "n_accessed", n_accessed)

    @property
    def n_blocked(self) -> int:
        """Rules that are evaluated in bitmap blocks."""
        return sum(len(block.rules) for block in self.blocks)

    def __str__(self) -> str:
        if self.is_statement:
            return f"{len(self.access_predicates):,} in one statement of Spark's"
        rest = len(self.access_predicates) - self.n_accessed - self.n_blocked
        blocks = _counted(len(self.blocks), "bitmap block")
        by_value = _counted(len(self.by_value), "attribute")
        parts = [
            f"{self.n_accessed:,} by an access predicate" if self.n_accessed else "",
            f"{self.n_blocked:,} in {blocks}" if self.blocks else "",
            f"{rest:,} without an access predicate" if rest else "",
            f"{by_value} by distinct value" if self.by_value else "",
            f"{len(self.python_orders)} with Python tests reordered" if self.python_orders else "",
        ]
        return ", ".join(part for part in parts if part) or "no rules"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@dataclass(frozen=True, slots=True, order=True)
class Arrow:
    """A micro-arrow: where rows of a region go next, instead of along the macro-sequence."""

    node: int
    """The node at which it starts."""
    region: int
    """The region of the node's construct, 0 for NULL."""
    target: int
    """The node it leads to. If a row has visited its construct already, the row ignores the arrow
    and goes on with the macro-sequence."""


@dataclass(frozen=True, slots=True)
class SelectionSequence:
    """A macro-sequence, and perhaps micro-arrows, over n constructs.

    Nodes 0 to n - 1 are the constructs themselves. The paper has one micro-arrow per construct and
    region, from and to these. Further nodes are constructs as reached along one path: their arrows
    hold only for rows that took it.

    >>> sequence = SelectionSequence((0, 1, 2), arrows=(Arrow(0, 3, 2),))
    >>> sequence.in_words(["a", "b", "c"])
    ['a, b, c', 'a in region 3: c next']

    Raises:
        PlanError: the macro-sequence has not every construct once, or an arrow does not fit.
    """

    macro: tuple[int, ...]
    """Constructs in the order in which they are visited (n)."""
    further: tuple[int, ...] = ()
    """Construct of each further node; the first of them is node n."""
    arrows: tuple[Arrow, ...] = ()
    """Micro-arrows, at most one per node and region, by node and region."""

    def __post_init__(self) -> None:
        n = len(self.macro)
        if sorted(self.macro) != list(range(n)):
            msg = f"{self.macro} is no order of {n} constructs; use each number below {n} once"
            raise PlanError(msg, macro=self.macro)
        nodes = range(self.n_nodes)
        starts = [(arrow.node, arrow.region) for arrow in self.arrows]
        fits = all(a.node in nodes and a.target in nodes and a.region >= 0 for a in self.arrows)
        if not fits or starts != sorted(set(starts)) or not set(self.further) <= set(range(n)):
            msg = (
                f"arrows do not fit {self.n_nodes} nodes over {n} constructs: each starts and ends "
                "at a node, one per node and region, in ascending order"
            )
            raise PlanError(msg, nodes=self.n_nodes, arrows=len(self.arrows))

    @classmethod
    def as_numbered(cls, n: int) -> Self:
        """Return n constructs in the order of their numbers."""
        return cls(tuple(range(n)))

    @property
    def n_constructs(self) -> int:
        """n, the number of constructs."""
        return len(self.macro)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.macro) + len(self.further)

    @property
    def is_hybrid(self) -> bool:
        """Whether it has micro-arrows."""
        return bool(self.arrows)

    def construct_of(self, node: int) -> int:
        """Return the construct of a node."""
        n = len(self.macro)
        return node if node < n else self.further[node - n]

    def without_arrows(self) -> Self:
        """Return its macro-sequence alone."""
        return type(self)(self.macro)

    def in_words(
        self, names: Row[str], region_name: Callable[[int, int], str] | None = None
    ) -> list[str]:
        """Return the macro-sequence and then each micro-arrow, as a person would say it."""

        def place(construct: int, region: int) -> str:
            if region_name is not None:
                return region_name(construct, region)
            return f"{names[construct]} in region {region}"

        before: dict[int, str] = {}
        phrases = [", ".join(names[construct] for construct in self.macro)]
        for arrow in sorted(self.arrows):
            here = place(self.construct_of(arrow.node), arrow.region)
            path = f"{before[arrow.node]} and {here}" if arrow.node in before else here
            if arrow.target >= len(self.macro):
                before.setdefault(arrow.target, path)
            phrases.append(f"{path}: {names[self.construct_of(arrow.target)]} next")
        return phrases


# -- the profile of a program ------------------------------------------------------------------
# The profile of a program: counts that add up, and the regions of sampled rows.


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
