"""The route table: which class of rows takes which order.

A plan like an order: immutable, it can change the work and never the answer, because each order
has every filter once. Classes that take the same order form an *order group*; executors run one
selection per group. [Bizarro05 4.2; per class instead of per tuple]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from eddyline.errors import PlanError
from eddyline.routing.partitions import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Bytes, Floats, Indices, Mask
    from eddyline.stats.profile import Order

    Labels = Mapping[str, Mapping[float, str]]


MAX_GROUPS = 16
"""Most order groups: each is a branch of generated code and a call of each filter per batch."""

MAX_CLASSES = 2**20
"""Most classes: the table is looked up by their number."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Gives each class of rows one of a few orders.

    >>> cut = Partition("light", "ranges", (500.0,))
    >>> table = RouteTable((cut,), ((0, 1), (1, 0)), (0, 1, 0))
    >>> table.group_of(np.array([[3.0], [500.0], [np.nan]]))
    array([0, 1, 0], dtype=uint8)

    Raises:
        PlanError: an order has not every filter once, or classes and groups do not fit.
    """

    partitions: tuple[Partition, ...]
    """Partition of each attribute in use (U)."""
    orders: tuple[Order, ...]
    """The order of each group. The first is the order of all rows, for classes that want no other
    and so follow it when it changes; a class that keeps its order whatever becomes of that one is
    of another group, even while the two are equal."""
    groups: tuple[int, ...]
    """The group of each class; a class is its bins in mixed radix, the last one fastest."""
    _lookup: Bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        filters = list(range(len(self.orders[0]))) if self.orders else []
        for order in self.orders:
            if sorted(order) != filters:
                msg = f"{order} is no order of {len(filters)} filters; another answer would follow"
                raise PlanError(msg, order=order)
        n_classes = prod(part.n_bins for part in self.partitions)
        fits = 1 <= len(self.orders) <= MAX_GROUPS and n_classes <= MAX_CLASSES
        known = set(self.groups) <= set(range(len(self.orders)))
        if not (fits and known) or len(self.groups) != n_classes:
            msg = (
                f"{len(self.groups)} classes in {len(self.orders)} groups do not fit partitions "
                f"of {n_classes} classes; at most {MAX_GROUPS} groups and {MAX_CLASSES} classes"
            )
            raise PlanError(msg, classes=n_classes, groups=len(self.orders))
        object.__setattr__(self, "_lookup", np.array(self.groups, dtype=np.uint8))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes in use, in the order of the partitions."""
        return tuple(part.attribute for part in self.partitions)

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.orders[0])

    @property
    def n_groups(self) -> int:
        """Number of order groups, the default one included."""
        return len(self.orders)

    @property
    def n_classes(self) -> int:
        """Number of classes of rows."""
        return len(self.groups)

    def classes(self, values: Floats) -> Indices:
        """Return the class of each row ((N,)); see ``class_of``."""
        return class_of(self.partitions, values)

    def group_of(self, values: Floats) -> Bytes:
        """Return the order group of each row ((N,)): ``orders[group]`` is its order.

        Args:
            values: values of ``attributes``, nan for NULL ((N, U)).
        """
        if self.n_groups == 1:
            return np.zeros(len(values), dtype=np.uint8)
        return self._lookup[self.classes(values)]

    def conditions(self, exprs: Sequence[str]) -> list[str]:
        """Return Spark SQL that is true for exactly the rows of each group but the first.

        The conditions exclude each other and are never NULL; rows of which none is true take
        ``orders[0]``. Each of ``attributes`` is told by an expression of type DOUBLE.
        """
        shape = [part.n_bins for part in self.partitions]
        groups = self._lookup.reshape(shape)
        told = [self._condition(exprs, groups == g, 0) for g in range(1, self.n_groups)]
        # Nothing negates a part that a NULL makes NULL, so what is NULL in the end is false.
        return [f"COALESCE({sql}, FALSE)" for sql in told]

    def _condition(self, exprs: Sequence[str], wanted: Mask, depth: int) -> str:
        """Return SQL for a set of classes: bins with the same rest are asked for together."""
        if depth == len(self.partitions):
            return "TRUE" if wanted.any() else "FALSE"
        parts = []
        for bins in _alike(wanted):
            mine = self.partitions[depth].condition(exprs[depth], bins)
            rest = self._condition(exprs, wanted[bins[0]], depth + 1)
            told = [sql for sql in (mine, rest) if sql != "TRUE"]
            if not told:
                return "TRUE"
            parts.append(told[0] if len(told) == 1 else f"({mine}) AND ({rest})")
        if len(parts) == 1:
            return parts[0]
        return " OR ".join(f"({part})" for part in parts) if parts else "FALSE"

    def compact(self) -> Self:
        """Return the same routes with fewer bins, attributes and orders where none differ."""
        own: dict[Order, int] = {}
        for group in sorted({*self.groups} - {0}):
            own.setdefault(self.orders[group], len(own) + 1)
        orders = (self.orders[0], *own)
        renamed = np.array([0, *(own.get(order, 0) for order in self.orders[1:])], dtype=np.uint8)
        shape = [part.n_bins for part in self.partitions]
        groups = renamed[self._lookup].reshape(shape)
        partitions: list[Partition] = []
        for part in self.partitions:
            axis = len(partitions)
            table = np.moveaxis(groups, axis, 0).reshape(part.n_bins, -1)
            if (table == table[0]).all():
                groups = np.take(groups, [0], axis=axis).squeeze(axis)
                continue
            useless = _useless_points(part, table)
            partitions.append(part.without(useless))
            groups = np.delete(groups, sorted(useless), axis=axis)
        return type(self)(tuple(partitions), orders, tuple(groups.ravel().tolist()))

    def with_default(self, order: Order) -> Self:
        """Return the table with another order for rows of no class in particular.

        Raises:
            PlanError: it is no order of the filters.
        """
        return self if order == self.orders[0] else replace(self, orders=(order, *self.orders[1:]))

    def rows_in_words(self, labels: Labels | None = None) -> list[str]:
        """Return the rows of each group, as a person would say it; see ``Partition.words``.

        >>> cut = Partition("light", "ranges", (500.0,))
        >>> RouteTable((cut,), ((0, 1), (1, 0)), (0, 1, 0)).rows_in_words()
        ['other rows', '500 <= light']
        """
        shape = [part.n_bins for part in self.partitions]
        groups = self._lookup.reshape(shape)
        known = labels or {}
        told = [self._words(groups == number, 0, known) for number in range(1, self.n_groups)]
        return ["other rows", *told]

    def _words(self, wanted: Mask, depth: int, labels: Labels) -> str:
        if depth == len(self.partitions):
            return ""
        told = []
        for bins in _alike(wanted):
            part = self.partitions[depth]
            # That an attribute may have any value but NULL is of no interest to a person.
            is_any = len(set(bins) - {part.n_bins - 1}) == part.n_bins - 1
            mine = "" if is_any else part.words(bins, labels.get(part.attribute))
            rest = self._words(wanted[bins[0]], depth + 1, labels)
            told.append(f"({mine}) and ({rest})" if mine and rest else mine or rest)
        return "; ".join(filter(None, told)) or "any row"

    def to_state(self) -> dict[str, Any]:
        """Return plain values (JSON)."""
        return {
            "partitions": [part.to_state() for part in self.partitions],
            "orders": [list(order) for order in self.orders],
            "groups": list(self.groups),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the table that ``to_state`` saved.

        Raises:
            PlanError: the state is of no table.
        """
        return cls(
            tuple(Partition.from_state(part) for part in state["partitions"]),
            tuple(tuple(map(int, order)) for order in state["orders"]),
            tuple(map(int, state["groups"])),
        )


def class_of(partitions: Sequence[Partition], values: Floats) -> Indices:
    """Return the class of each row ((N,)): its bins in mixed radix, the last one fastest.

    Values of the attributes are nan for NULL ((N, U)).
    """
    found = np.zeros(len(values), dtype=np.intp)
    for column, part in enumerate(partitions):
        bins = part.bins(values[:, column])
        found = found * part.n_bins + bins if column else bins
    return found


def _useless_points(part: Partition, table: Bytes) -> set[int]:
    """Return points whose bin takes everywhere the order of the one it would merge with.

    ``table`` has the groups by bin of the partition and by the rest of the class ((D, …)).
    """
    n = len(part.points)
    if part.kind == "ranges":  # edge i parts bins i and i + 1
        return {i for i in range(n) if (table[i] == table[i + 1]).all()}
    return {i for i in range(n) if (table[i] == table[n]).all()}


def _alike(wanted: Mask) -> list[list[int]]:
    """Return the bins of which some classes are wanted, those with the same rest together."""
    by_rest: dict[bytes, list[int]] = {}
    for number, rest in enumerate(wanted):
        if rest.any():
            by_rest.setdefault(rest.tobytes(), []).append(number)
    return list(by_rest.values())
