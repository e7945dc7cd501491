"""Attributes that are declared by their rate.

``d(x) = a - b * x`` is solved into polynomials. On the right, an attribute of the model is its
value at the instant, ``t`` the seconds since the row, and any other name a column of the row. The
value of the column ``x`` in the row is where ``x`` begins. Attributes may read each other: ``d(h) =
v`` and ``d(v) = -9.81``.

All rows are solved at once by the pair of Runge and Kutta of Dormand and Prince, as scipy has it
(``scipy.integrate.RK45``), with a step of its own for each row. Within a step its dense output is a
polynomial of degree 4, which is a piece of the segment. Errors of steps grow or shrink behind
them, so the tolerance of a step bounds nothing. Each row is therefore solved again with
``FINER`` times less tolerance. A piece is done where both solutions are within half of the bound
at four instants of it, and the coarser one is the answer. Otherwise the finer one is compared with
a still finer one. After ``MOST_ROUNDS`` the row is cut where they part: it says nothing behind. The
same happens where a solution explodes, or its rate has no value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.integrate import RK45
from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.segments import in_seconds
from eddyline.models.solving import polynomials
from eddyline.sql.parsing import SparkText, at, deep, offset_of, place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Segments

Program = tuple[Any, ...]
"""An operator and what it takes: ``("+", ("state", "x"), ("column", 0))``."""

_BINARY: dict[type[Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "+": (2, np.add), "-": (2, np.subtract), "*": (2, np.multiply), "/": (2, np.divide),
    "0-": (1, np.negative),
    "pow": (2, np.power), "power": (2, np.power), "exp": (1, np.exp), "ln": (1, np.log),
    "sqrt": (1, np.sqrt), "abs": (1, np.abs), "sin": (1, np.sin), "cos": (1, np.cos),
    "tan": (1, np.tan), "tanh": (1, np.tanh), "least": (2, np.minimum), "greatest": (2, np.maximum),
}  # fmt: skip
_CALLED = [name for name in _FUNCTIONS if name.isalpha()]
TIME = "t"
"""The variable of equations: seconds since the instant of a row."""

FINER = 64.0
"""By what a tolerance is divided to see how far a solution may be off."""
MOST_ROUNDS = 6
MOST_PIECES = 2_000
"""Most pieces of a row in one solution; behind them it is cut."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The change of an attribute per second."""

    text: str
    column: str
    """Where the attribute begins: the column of the row that is called as it is."""
    coefs: tuple[str, ...]
    """SQL of the value in the row, and of what the rate reads of the row."""
    program: Program

    def __str__(self) -> str:
        return self.text

    def said(self, name: str) -> str:  # noqa: ARG002 - the text has it
        """Return the whole equation."""
        return self.text


def is_rate(tree: Expr) -> bool:
    """Return whether an equation is ``d(…) = …``."""
    return isinstance(tree, exp.EQ) and _called(tree.left.unnest()) == "d"


@deep
def read_rate(name: str, text: str, tree: Expr, rates: Collection[str], others: Collection[str]
              ) -> Rate:  # fmt: skip
    """Return the rate of an attribute.

    Args:
        name: of the attribute.
        text: ``d(x) = a - b * x``.
        tree: the same.
        rates: the attributes of the model that are declared by their rates.
        others: those that are declared by equations.

    Raises:
        QueryError: it is that of another attribute.
        NotSupportedError: something in it is neither arithmetic nor a function that rates have.
    """
    assert isinstance(tree, exp.EQ)
    return _Reader(name, text, rates, others).rate(tree)


class _Reader:
    def __init__(
        self, name: str, text: str, rates: Collection[str], others: Collection[str]
    ) -> None:
        self._name, self._text = name, text
        self._rates = {attribute.lower(): attribute for attribute in rates}
        self._others = {attribute.lower() for attribute in others}
        self._columns: dict[str, int] = {}

    def rate(self, tree: exp.EQ) -> Rate:
        call = tree.left.unnest()
        (argument,) = call.expressions if len(call.expressions) == 1 else (None,)
        if not isinstance(argument, exp.Column) or argument.name.lower() != self._name.lower():
            message = f"the rate of {self._name!r} is written d({self._name}) = …, got {_sql(call)}"
            raise self._refused(QueryError, message, call)
        program = self._program(tree.right)
        begins = exp.column(exp.to_identifier(self._name, quoted=True)).sql(SparkText)
        return Rate(" ".join(self._text.split()), self._name, (begins, *self._columns), program)

    def _program(self, node: Expr) -> Program:
        node = node.unnest()
        columns = [node] if isinstance(node, exp.Column) else [*node.find_all(exp.Column)]
        kinds = [self._kind(column) for column in columns]
        if isinstance(node, exp.Literal) and not node.is_string:
            return ("number", float(node.name))
        if kinds and {*kinds} == {"column"}:
            sql = f"({node.sql(SparkText)})"
            return ("column", self._columns.setdefault(sql, len(self._columns)))
        if isinstance(node, exp.Column):
            return ("t",) if kinds == ["t"] else ("state", self._rates[node.name.lower()])
        if isinstance(node, exp.Neg):
            return ("0-", self._program(node.this))
        if type(node) in _BINARY:
            assert isinstance(node, exp.Binary)
            return (_BINARY[type(node)], self._program(node.left), self._program(node.right))
        name = _called(node)
        if name in _CALLED and len(node.expressions) == _FUNCTIONS[name][0]:
            return (name, *map(self._program, node.expressions))
        message = (
            f"the rate of {self._name!r} has {_sql(node)}; beside + - * / of attributes, t and "
            f"columns it may have {', '.join(_CALLED)}"
        )
        raise self._refused(NotSupportedError, message, node)

    def _kind(self, node: exp.Column) -> str:
        name = node.name.lower()
        if len(node.parts) > 1:
            return "column"
        if name in self._others:
            message = (
                f"the rate of {self._name!r} reads {node.name!r}, which is declared by an equation "
                "in t; write that equation here, or declare its rate"
            )
            raise self._refused(NotSupportedError, message, node)
        return "state" if name in self._rates else "t" if name == TIME else "column"

    def _refused(self, kind: type[QueryError], message: str, node: Expr) -> QueryError:
        offset = offset_of(node)
        message = at(message, self._text, offset)
        return kind(message, attribute=self._name, **place(self._text, offset))


def _called(node: Expr) -> str:
    is_call = isinstance(node, exp.Anonymous)
    return str(node.this).lower() if is_call else ""


def _sql(node: Expr) -> str:
    return str(node.sql(SparkText))


# -- solutions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """The rates of rows: of each attribute its program, and what it reads of the rows."""

    names: Sequence[str]
    programs: Sequence[Program]
    columns: Sequence[Floats]
    """For each attribute the values of rows that its rate reads, ``[n, columns]``."""
    begins: Floats
    """``[n, attributes]``."""
    span: Ints
    """For how long each row is solved (µs), ``[n]``."""
    bounds: Floats
    """``[attributes]``."""

    def take(self, rows: Indices) -> _System:
        """Return the system of some rows."""
        columns = [column[rows] for column in self.columns]
        return replace(self, columns=columns, begins=self.begins[rows], span=self.span[rows])

    @deep
    def change(self, rows: Indices, values: Floats, seconds: Floats) -> Floats:
        """Return the change per second of some rows at values ``[m, attributes]``."""
        states = dict(zip(self.names, values.T, strict=True))
        changes = np.empty_like(values)
        for at_, (program, columns) in enumerate(zip(self.programs, self.columns, strict=True)):
            changes[:, at_] = _evaluated(program, states, columns, rows, seconds)
        return changes


def _evaluated(
    program: Program, states: Mapping[str, Floats], columns: Floats, rows: Indices, seconds: Floats
) -> Any:
    kind, *parts = program
    match kind:
        case "number":
            return parts[0]
        case "t":
            return seconds
        case "state":
            return states[parts[0]]
        case "column":
            return columns[rows, parts[0]]
    arguments = (_evaluated(part, states, columns, rows, seconds) for part in parts)
    return _FUNCTIONS[kind][1](*arguments)


@dataclass(frozen=True)
class _Pieces:
    """Solutions in pieces, by row and time."""

    rows: Ints
    since: Ints
    """µs after the row."""
    length: Ints
    coefs: Floats
    """By ascending powers of seconds since the begin of the piece, ``[n, attributes, 5]``."""

    def take(self, which: Indices | Mask) -> _Pieces:
        """Return some of the pieces."""
        return _Pieces(self.rows[which], self.since[which], self.length[which], self.coefs[which])

    def at(self, pieces: Indices, micros: Ints) -> Floats:
        """Return values of pieces, ``micros`` after their rows, ``[n, attributes]``."""
        seconds = in_seconds(micros - self.since[pieces])[:, None]
        coefs = self.coefs[pieces]
        values = coefs[:, :, -1]
        for power in range(coefs.shape[2] - 2, -1, -1):
            values = values * seconds + coefs[:, :, power]
        return np.asarray(values)

    def places(self, rows: Ints, micros: Ints) -> tuple[Indices, Mask]:
        """Return the piece of each instant of a row, and whether there is one."""
        n = len(self.rows)
        order = np.lexsort((
            np.append(np.zeros(n, np.int8), np.ones(len(rows), np.int8)),
            np.append(self.since, micros),
            np.append(self.rows, rows),
        ))  # fmt: skip
        places = np.cumsum(order < n) - 1
        latest = np.empty(len(order), np.int64)
        latest[order] = places
        pieces = np.maximum(latest[n:], 0)
        if not n:
            return pieces, np.zeros(len(rows), np.bool_)
        there = (self.rows[pieces] == rows) & (micros <= self.since[pieces] + self.length[pieces])
        return pieces, there & (latest[n:] >= 0)


def solved(
    segments: Segments, rates: Mapping[str, Rate], bounds: Mapping[str, float]
) -> tuple[Segments, Mask]:
    """Return the pieces of rows that say where attributes begin, and how fast they change.

    Args:
        segments: one for each row, whose origin is its instant; its "coefficients" of such an
            attribute are its value in the row and what its rate reads of the row.
        rates: of these attributes.
        bounds: how far pieces may be from the solution.

    Returns:
        The pieces, by segment and time, and which segments are cut before their end, ``[n]``.
    """
    names = [*rates]
    system = _System(
        names,
        [rate.program for rate in rates.values()],
        [segments.coefs[name][:, 1:] for name in names],
        np.stack([segments.coefs[name][:, 0] for name in names], axis=1),
        segments.hi - segments.lo,
        np.array([bounds[name] for name in names]),
    )
    with np.errstate(all="ignore"):
        pieces = _within_bounds(system)
    reached = np.zeros(len(segments), np.int64)
    np.maximum.at(reached, pieces.rows, pieces.since + pieces.length)
    taken = segments.take(pieces.rows)
    lo = taken.lo + pieces.since
    shift = in_seconds(pieces.since)
    coefs = {
        name: _plain(pieces.coefs[:, names.index(name)], pieces.length, bounds[name])
        if name in rates
        else polynomials.shifted(matrix, shift)
        for name, matrix in taken.coefs.items()
    }
    errors = {
        name: np.full(len(taken), bounds[name]) if name in rates else error
        for name, error in taken.errors.items()
    }
    solution = replace(taken, origin=lo, lo=lo, hi=lo + pieces.length, coefs=coefs, errors=errors)
    return solution, reached < system.span


def _plain(coefs: Floats, length: Ints, bound: float) -> Floats:
    """Return coefficients without those that say nothing, as of a rate that is constant."""
    powers = np.arange(coefs.shape[1])
    most = np.abs(coefs) * in_seconds(length)[:, None] ** powers
    plain = np.where((most < 1e-6 * bound) & (powers > 0), 0.0, coefs)
    degree = max(np.flatnonzero(plain.any(axis=0)), default=0)
    return np.ascontiguousarray(plain[:, : degree + 1])


def _within_bounds(system: _System) -> _Pieces:
    """Return solutions that are within the bounds, as far as they can be had."""
    open_rows = np.arange(len(system.span))
    tolerance = system.bounds / 8
    coarser = _integrated(system, tolerance)
    done: list[_Pieces] = []
    for number in range(MOST_ROUNDS):
        tolerance = tolerance / FINER
        open_system = system.take(open_rows)
        finer = _integrated(open_system, tolerance)
        is_near = _near(coarser, finer, open_system.bounds)
        ends = np.zeros(len(open_rows), np.int64)
        np.maximum.at(ends, coarser.rows[is_near], (coarser.since + coarser.length)[is_near])
        is_done = (ends >= open_system.span) | (number == MOST_ROUNDS - 1)
        kept = coarser.take(is_near & is_done[coarser.rows])
        done.append(replace(kept, rows=open_rows[kept.rows]))
        open_places = np.flatnonzero(~is_done)
        if not open_places.size:
            break
        number_of = np.full(len(open_rows), -1)
        number_of[open_places] = np.arange(open_places.size)
        coarser = finer.take(~is_done[finer.rows])
        coarser = replace(coarser, rows=number_of[coarser.rows])
        open_rows = open_rows[open_places]
    both = _joined(done)
    return both.take(np.lexsort((both.since, both.rows)))


def _near(coarser: _Pieces, finer: _Pieces, bounds: Floats) -> Mask:
    """Return which pieces, and all before them of their row, are within half of the bounds."""
    is_near = np.ones(len(coarser.rows), np.bool_)
    for share in (0.25, 0.5, 0.75, 1.0):
        micros = coarser.since + np.asarray(share * coarser.length, np.int64)
        places, there = finer.places(coarser.rows, micros)
        if not len(finer.rows):
            return ~is_near
        values = coarser.at(np.arange(len(micros)), micros)
        off = np.abs(values - finer.at(places, micros)) / bounds
        is_near &= there & np.asarray((off <= 0.5).all(axis=1))
    if is_near.all():
        return is_near
    broken = np.full(int(coarser.rows.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(broken, coarser.rows[~is_near], coarser.since[~is_near])
    return np.asarray(coarser.since < broken[coarser.rows])


def _integrated(system: _System, tolerance: Floats) -> _Pieces:
    """Return the solutions of all rows with steps whose estimated errors are tolerated."""
    n, n_attributes = system.begins.shape
    begun = np.zeros(n, np.int64)
    length = system.span.copy()
    values = system.begins.copy()
    changes = system.change(np.arange(n), values, np.zeros(n))
    n_pieces = np.zeros(n, np.int64)
    rows = np.flatnonzero((system.span > 0) & np.isfinite(changes).all(axis=1))
    parts: list[_Pieces] = []
    while rows.size:
        micros = np.minimum(length[rows], system.span[rows] - begun[rows])
        step = in_seconds(micros)[:, None]
        since = in_seconds(begun[rows])
        stages = np.empty((7, rows.size, n_attributes))
        stages[0] = changes[rows]
        for stage in range(1, 6):
            sums = np.tensordot(RK45.A[stage, :stage], stages[:stage], 1)
            at_ = since + RK45.C[stage] * step[:, 0]
            stages[stage] = system.change(rows, values[rows] + step * sums, at_)
        after = values[rows] + step * np.tensordot(RK45.B, stages[:6], 1)
        stages[6] = system.change(rows, after, since + step[:, 0])
        error = np.abs(step * np.tensordot(RK45.E, stages, 1)) / tolerance
        worst = error.max(axis=1)
        is_whole = np.isfinite(stages).all(axis=(0, 2)) & np.isfinite(after).all(axis=1)
        taken = is_whole & (worst <= 1.0)
        taken_rows = rows[taken]
        dense = np.tensordot(stages[:, taken], RK45.P, (0, 0))  # of θ, as changes
        powers = step[taken][:, :, None] ** np.arange(dense.shape[2])
        coefs = np.concatenate([values[taken_rows][:, :, None], dense / powers], axis=2)
        parts.append(_Pieces(taken_rows, begun[taken_rows], micros[taken], coefs))
        values[taken_rows], changes[taken_rows] = after[taken], stages[6][taken]
        begun[taken_rows] += micros[taken]
        n_pieces[taken_rows] += 1
        factor = np.clip(0.9 * np.maximum(worst, 1e-10) ** -0.2, 0.1, 10.0)
        factor = np.where(is_whole, factor, 0.1)
        length[rows] = np.maximum(np.asarray(micros * factor, np.int64), 1)
        is_stuck = ~taken & (micros <= 1)
        goes_on = (begun[rows] < system.span[rows]) & (n_pieces[rows] < MOST_PIECES) & ~is_stuck
        rows = rows[goes_on]
    pieces = _joined(parts) if parts else _none(n_attributes)
    return pieces.take(np.lexsort((pieces.since, pieces.rows)))


def _joined(parts: Sequence[_Pieces]) -> _Pieces:
    return _Pieces(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.since for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.coefs for part in parts]),
    )


def _none(n_attributes: int) -> _Pieces:
    none = np.zeros(0, np.int64)
    return _Pieces(none, none, none, np.zeros((0, n_attributes, 5)))
