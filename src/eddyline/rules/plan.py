"""Plan of a set of rules, as an immutable value.

It changes the work, never the answer. Each rule is found by an access predicate, in a bitmap block,
or on every row. A block visits its constructs in a sequence: one order for all rows, or by region
as well. Whatever the sequence, the same rules survive, because bitmaps are ANDed, and what the
arrows leave out the macro-sequence visits [ASC 4]. msgspec encodes plans and decodes them by these
types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from eddyline.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Row


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
