"""In which order a block's constructs are visited: one order for all rows, or by region as well.

A plan: immutable, it changes the work and never which rules survive, because bitmaps are ANDed and
whatever the arrows leave out the macro-sequence visits [ASC 4].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from eddyline.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Row


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
        told = [", ".join(names[construct] for construct in self.macro)]
        for arrow in sorted(self.arrows):
            here = place(self.construct_of(arrow.node), arrow.region)
            path = f"{before[arrow.node]} and {here}" if arrow.node in before else here
            if arrow.target >= len(self.macro):
                before.setdefault(arrow.target, path)
            told.append(f"{path}: {names[self.construct_of(arrow.target)]} next")
        return told
