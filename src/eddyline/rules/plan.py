"""The plan of a set of rules: an immutable value that changes the work, never the answer.

msgspec encodes plans and decodes them by these types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eddyline.rules.planning.sequence import (
    SelectionSequence,  # noqa: TC001 - saved plans are decoded by these types
)


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
