"""Aggregates of joins that follow from counts by key.

Sums by key serve as well.

In: the steps of a query. Out: the same steps, where the join may return *products* in the place of
combinations. A product stands for all combinations of some rows between two instants: it says how
many there are, and the sums of columns over them. Rows of each input with one key meet all rows of
the others with that key, so counts multiply: ``SUM(s.v)`` over the combinations of a key is the sum
of ``s.v`` times the number of rows of the other inputs.

A join that returns combinations gives each of them as a product of one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.query import (
    LAST,
    PRODUCT,
    AggregateCall,
    N,
    Products,
    RangeWindow,
    StayWindow,
    SummedColumn,
)
from eddyline.query.steps import AggregateStep, FilterStep, JoinStep, ProjectStep, ReadStep, made_by
from eddyline.sql.functions import drawn
from eddyline.sql.parsing import parse_column, parse_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.steps import Step

_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Bits of the types whose sums are whole numbers."""

_AVERAGED = 32
"""Most bits of values whose average is made of a whole sum; the sum fits into 64 bits."""

_EXACT = {*_WHOLE, "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"}
"""Types of columns whose equal values are the same for any expression."""


def with_products(
    steps: Sequence[Step],
    place: int,
    kinds: Mapping[str, Mapping[str, str]],
    times: Mapping[str, str | None],
) -> tuple[Step, ...]:
    """Return steps whose join may return products; the same ones if it may not.

    Args:
        steps: of the query.
        place: of the last step over several relations.
        kinds: Spark type of each column, by stream.
        times: the event time of each stream; None of a table.
    """
    join, rest = steps[place], steps[place + 1 :]
    if type(join) is not JoinStep or len(rest) < 3:
        return (*steps,)
    project, passing, aggregate, *others = rest
    is_plain = isinstance(passing, FilterStep) and not passing.predicates
    if not isinstance(project, ProjectStep) or not isinstance(aggregate, AggregateStep):
        return (*steps,)
    inputs = _inputs(steps, place, join, kinds, times)
    if not is_plain or inputs is None or not _is_by_key(join) or not _is_summed(aggregate):
        return (*steps,)
    of_products = _Reading(inputs, project).products(aggregate)
    if of_products is None:
        return (*steps,)
    products, called, summed = of_products
    return (
        *steps[:place],
        replace(join, products=products),
        replace(project, projections=called),
        passing,
        summed,
        *others,
    )


@dataclass(frozen=True, slots=True)
class _Input:
    kinds: Mapping[str, str]
    time: str


def _inputs(
    steps: Sequence[Step],
    place: int,
    join: JoinStep,
    kinds: Mapping[str, Mapping[str, str]],
    times: Mapping[str, str | None],
) -> dict[str, _Input] | None:
    """Return the inputs of a join by name; None if one is no stream that is read and filtered."""
    inputs = {}
    for joined in join.joined:
        first, *filters = made_by(steps[:place], place, joined.input)
        if not isinstance(first, ReadStep) or not all(isinstance(f, FilterStep) for f in filters):
            return None
        time = times.get(first.stream)
        if time is None or joined.window.counts is not None:
            return None
        inputs[joined.name] = _Input(kinds[first.stream], time)
    return inputs


def _is_by_key(join: JoinStep) -> bool:
    """Return whether rows of one key meet all others of that key, and results come once."""
    is_whole = join.kind == "inner" and join.emits == "istream" and not join.conditions
    return is_whole and [{*key.members} for key in join.keys] == [{j.name for j in join.joined}]


def _is_summed(step: AggregateStep) -> bool:
    """Return whether all that an aggregate asks for are counts, sums and averages."""
    is_plain = isinstance(step.window, StayWindow) and not (step.where or step.copies)
    return (
        is_plain
        and step.emits != "rstream"
        and all(
            call.function in ("count", "sum", "avg", "mean")
            and not (call.is_distinct or call.where or call.own)
            and len(call.arguments) <= 1
            for call in step.calls
        )
    )


class _Reading:
    """Reads which products an aggregate needs; names are those of the projected columns."""

    def __init__(self, inputs: Mapping[str, _Input], project: ProjectStep) -> None:
        self._inputs, self._project = inputs, project
        self._columns: dict[str, tuple[str, str]] = {}
        """Input and column of each projected column that is one."""
        for text in project.projections:
            tree = parse_column(text)
            inner = tree.unalias()
            if isinstance(inner, exp.Column) and len(inner.parts) == 2:
                name, column = (part.name for part in inner.parts)
                self._columns[tree.alias_or_name] = name, column
        self._sums: dict[tuple[str, bool], SummedColumn] = {}

    def products(
        self, step: AggregateStep
    ) -> tuple[Products, tuple[str, ...], AggregateStep] | None:
        """Return the products, the projected columns, and the aggregate of products."""
        assert isinstance(step.window, StayWindow)
        grouped = self._grouped(step)
        calls: list[AggregateCall] = []
        texts: dict[str, str] = {}
        for call in step.calls:
            of_products = self._summed(call)
            if not of_products or grouped is None:
                return None
            calls += of_products
            if len(of_products) > 1:
                total, number = (call_of.column for call_of in of_products)
                texts[call.column] = f"try_divide(CAST({total} AS DOUBLE), {number})"
        ended = step.window.inputs[0][0]
        names = {text for _, text in step.groups}
        kept = [
            text for text in self._project.projections if self._is_kept(text, [*names], step.window)
        ]
        fields = [N, *(column.field for column in self._sums.values())]
        called = (
            *(f"{PRODUCT}.{name} AS {PRODUCT}_{name}" for name in fields),
            f"{PRODUCT}.{LAST} AS {ended}",
            *kept,
        )

        def written(text: str) -> str:
            return re.sub(r"\b__agg\d+\b", lambda name: texts.get(name[0], name[0]), text)

        times = {name: stream.time for name, stream in self._inputs.items()}
        products = Products(times, *grouped, tuple(self._sums.values())) if grouped else None
        if products is None:
            return None
        summed = replace(
            step,
            calls=tuple(calls),
            window=StayWindow(
                ((ended, RangeWindow(0)),), step.window.length, written=step.window.text
            ),
            projections=tuple(map(written, step.projections)),
            having=written(step.having),
        )
        return products, called, summed

    def _is_kept(self, text: str, groups: Sequence[str], window: StayWindow) -> bool:
        """Return whether a projected column is a part of groups, or the event time."""
        name = parse_column(text).alias_or_name
        if name not in self._columns:
            return True
        read = {column for group in groups for column in _names(parse_output(group))}
        return name in read and name not in {ended for ended, _ in window.inputs}

    def _grouped(self, step: AggregateStep) -> tuple[str, tuple[str, ...]] | None:
        """Return the input that groups are of and their columns; None if they are of several."""
        columns: dict[str, None] = {}
        owners = set()
        for _, text in step.groups:
            tree = parse_output(text)
            if drawn(tree) is not None:
                return None
            for name in _names(tree):
                if name not in self._columns:
                    return None
                owner, column = self._columns[name]
                stream = self._inputs[owner]
                if stream.kinds.get(column, "") not in _EXACT or column == stream.time:
                    return None
                owners.add(owner)
                columns[column] = None
        if len(owners) > 1:
            return None
        return (owners.pop() if owners else "", tuple(columns))

    def _summed(self, call: AggregateCall) -> list[AggregateCall]:
        """Return the sums over products that a call is made of; none if it is not."""
        if not call.arguments:
            return [_sum(call, N, call.column)]
        (text,) = call.arguments
        tree = parse_output(text)
        name = tree.name if isinstance(tree, exp.Column) and len(tree.parts) == 1 else ""
        if name not in self._columns:
            return []
        owner, column = self._columns[name]
        bits = _WHOLE.get(self._inputs[owner].kinds.get(column, ""), 0)
        if call.function == "count":
            return [_sum(call, self._field(owner, column, is_count=True), call.column)]
        if not bits or (call.function != "sum" and bits > _AVERAGED):
            return []
        total = _sum(call, self._field(owner, column, is_count=False), call.column)
        if call.function == "sum":
            return [total]
        number = self._field(owner, column, is_count=True)
        return [total, _sum(call, number, f"{call.column}_n")]

    def _field(self, input: str, column: str, *, is_count: bool) -> str:
        key = f"{input}\0{column}", is_count
        if key not in self._sums:
            name = f"{'n' if is_count else 'sum'}_{len(self._sums)}"
            self._sums[key] = SummedColumn(name, input, column, is_count)
        return self._sums[key].field


@dataclass(frozen=True, slots=True)
class ProductCall(AggregateCall):
    """A sum over products that stands for a call of the query."""

    written: str = ""
    """The call as the query writes it."""

    @property
    def text(self) -> str:
        """The call as the query writes it."""
        return self.written


def _sum(call: AggregateCall, field: str, column: str) -> AggregateCall:
    return ProductCall("sum", (f"{PRODUCT}_{field}",), column, written=call.text)


def _names(tree: Expr) -> list[str]:
    """Return the names of the columns that an expression over plain columns reads."""
    return [node.parts[0].name for node in tree.find_all(exp.Column)]
