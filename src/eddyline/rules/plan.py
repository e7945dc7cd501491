"""How a set of rules is evaluated: an immutable value that changes the work, never the answer.

msgspec encodes plans and decodes them by these types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eddyline.rules.planning.sequence import (
    SelectionSequence,  # noqa: TC001 - saved plans are decoded by these types
)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Rules that are evaluated together by bitmaps, and in which sequence."""

    rules: tuple[int, ...]
    """Their places in the set, in the order of their bits."""
    sequence: SelectionSequence | None = None
    """The order of the block's constructs; None: as they are numbered."""


@dataclass(frozen=True, slots=True)
class SharingPlan:
    """For each rule, how the rows are found that may make it true."""

    witnesses: tuple[tuple[int, ...] | None, ...]
    """Of each rule, literals of which one holds wherever the rule is true; only rows with one of
    them meet the rule. None: it is in a block, or every row meets it, or no row changes it."""
    blocks: tuple[BlockPlan, ...] = ()
    by_value: frozenset[int] = frozenset()
    """Text constructs that look at each distinct value of a batch once, as values repeat."""
    n_witnessed: int = field(default=0, init=False, compare=False, repr=False)
    """Rules that are found by a witness; counted once, as each batch asks for it."""

    def __post_init__(self) -> None:
        n_witnessed = len(self.witnesses) - self.witnesses.count(None)
        object.__setattr__(self, "n_witnessed", n_witnessed)

    @property
    def n_blocked(self) -> int:
        """Rules that are evaluated in blocks."""
        return sum(len(block.rules) for block in self.blocks)

    def __str__(self) -> str:
        rest = len(self.witnesses) - self.n_witnessed - self.n_blocked
        parts = [
            f"{self.n_witnessed} by a witness" if self.n_witnessed else "",
            f"{self.n_blocked} in {len(self.blocks)} block(s)" if self.blocks else "",
            f"{rest} met by every row or by none" if rest else "",
            f"{len(self.by_value)} attribute(s) by distinct value" if self.by_value else "",
        ]
        return ", ".join(part for part in parts if part) or "no rules"
