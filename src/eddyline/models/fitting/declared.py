"""Declared models: equations in ``t`` over a row's columns.

An equation gives the value from the instant of the row on. ``lon = lon + vlon * t`` makes a row a
segment with the coefficients ``[lon, vlon]``: on the right a name is the value in the row, and
``t`` the seconds since its instant. The segment is valid until the next row of its entity, and no
longer than the horizon (Pulse 2.4).

With bounds, rows that say nothing new are dropped. If the values of a row are as near
to the model of its entity as they have to be, the row begins no model: the model goes on, for a
horizon from the latest row that it predicts. The first row that is not near enough begins the next
one (Pulse 3.12). Rows are taken by entity and time. So neither their order nor the cut into batches
changes what becomes of them.

Where an attribute is declared by its rate (``rates``), each row makes a model, and ``within`` says
how near its pieces are to the solution. Models become pieces once it is known where they end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from eddyline.data.arrays import distinct
from eddyline.data.jit import compiled
from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import timeline
from eddyline.models.fitting.bounds import MAX_DEGREE, Bound, assumed_in_words, tightest
from eddyline.models.fitting.fit import FitReport, Part
from eddyline.models.fitting.rates import TIME, Rate, is_rate, read_rate, solved
from eddyline.models.segments import (
    Keyed,
    Segments,
    entity_blocks,
    entity_ids,
    gathered,
    ids_together,
    in_seconds,
    list_matrix,
    micros_of,
    table_of,
)
from eddyline.models.solving import polynomials
from eddyline.registry import checked_text, unknown
from eddyline.sql.parsing import SparkText, at, deep, offset_of, parse_condition, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sqlglot import Expr

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.solving.expressions import Range, Ranges

ENDLESS_US = 2**55
"""The horizon of models without one (µs): longer than any stream lasts."""

Powers = dict[int, Any]
"""The coefficient of each power of ``t``, as an expression over columns."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An attribute as a polynomial of ``t`` whose coefficients are of the row."""

    text: str
    coefs: tuple[str, ...]
    """SQL of each coefficient, by ascending powers."""

    @property
    def column(self) -> str | None:
        """The column that is the attribute's value in the row; None if it is computed."""
        tree = parse_condition(self.coefs[0]).unnest()
        is_column = isinstance(tree, exp.Column) and len(tree.parts) == 1
        return tree.name if is_column else None

    def said(self, name: str) -> str:
        """Return the whole equation."""
        return f"{name} = {self.text}"


def read_equations(equations: Mapping[str, str]) -> dict[str, Equation | Rate]:
    """Return the equations of attributes.

    Args:
        equations: for each attribute the right side of its equation, such as
            ``"lon + vlon * t"``, or its rate, ``"d(lon) = vlon"``.

    Raises:
        OptionError: they are not given by name.
        QueryError: one cannot be read.
        NotSupportedError: one is no polynomial of ``t``, or of a degree above 4.
    """
    if not hasattr(equations, "items") or not equations:
        msg = (
            "a model has an equation for each attribute, such as {'lon': 'lon + vlon * t'}; got "
            f"{equations!r:.60}"
        )
        raise OptionError(msg, model=repr(equations))
    trees = {
        checked_text("attribute of a model", name): _tree(name, checked_text("equation", text))
        for name, text in equations.items()
    }
    rated = [name for name, tree in trees.items() if is_rate(tree)]
    others = [name for name in trees if name not in rated]
    return {
        name: read_rate(name, equations[name], tree, rated, others)
        if name in rated
        else _read(name, equations[name], tree)
        for name, tree in trees.items()
    }


@deep
def _tree(name: str, text: str) -> Expr:
    return parse_condition(text, f"the equation of {name!r}")


@deep
def _read(name: str, text: str, tree: Expr) -> Equation:
    reader = _Reader(name, text)
    powers = reader.powers(tree)
    degree = max(powers)
    if degree > MAX_DEGREE:
        msg = f"the equation of {name!r} is of degree {degree}; {MAX_DEGREE} is the highest"
        raise NotSupportedError(msg, attribute=name, degree=degree)
    zero = exp.Literal.number(0)
    coefs = (powers.get(power, zero).sql(SparkText) for power in range(degree + 1))
    return Equation(" ".join(text.split()), tuple(coefs))


class _Reader:
    """Takes the powers of ``t`` out of an equation."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def powers(self, node: Expr) -> Powers:
        """Return the coefficients of a part of the equation."""
        node = node.unnest()
        if not self._has_time(node):
            return {0: exp.paren(node.copy())}
        if isinstance(node, exp.Column):
            return {1: exp.Literal.number(1)}
        if isinstance(node, exp.Neg):
            return _product({0: exp.Literal.number(-1)}, self.powers(node.this))
        if isinstance(node, exp.Add | exp.Sub):
            sign = {0: exp.Literal.number(1 if isinstance(node, exp.Add) else -1)}
            return _sum(self.powers(node.left), _product(sign, self.powers(node.right)))
        if isinstance(node, exp.Mul):
            return _product(self.powers(node.left), self.powers(node.right))
        return self._other(node)

    def _other(self, node: Expr) -> Powers:
        """Return the coefficients of a quotient or a power."""
        if isinstance(node, exp.Div) and not self._has_time(node.right):
            one, divisor = exp.Literal.number("1.0D"), exp.paren(node.right.copy())
            factor = {0: exp.paren(exp.Div(this=one, expression=divisor))}
            return _product(self.powers(node.left), factor)
        is_call = isinstance(node, exp.Anonymous) and str(node.this).lower() in {"pow", "power"}
        if is_call and len(node.expressions) == 2:
            base, exponent = node.expressions
            is_whole = isinstance(exponent, exp.Literal) and exponent.name.isdigit()
            if is_whole and int(exponent.name) <= MAX_DEGREE:
                powers: Powers = {0: exp.Literal.number(1)}
                for _ in range(int(exponent.name)):
                    powers = _product(powers, self.powers(base))
                return powers
        raise self._refused(node)

    @staticmethod
    def _is_time(node: exp.Column) -> bool:
        return node.name.lower() == TIME and not node.table

    def _has_time(self, node: Expr) -> bool:
        return any(self._is_time(column) for column in node.find_all(exp.Column))

    def _refused(self, node: Expr) -> QueryError:
        offset = offset_of(
            next(column for column in node.find_all(exp.Column) if self._is_time(column))
        )
        message = (
            f"the equation of {self._name!r} is no polynomial of t: {node.sql(SparkText)}; it may "
            f"have sums, products, and pow(t, n) up to {MAX_DEGREE}"
        )
        return NotSupportedError(at(message, self._text, offset), **place(self._text, offset))


def _sum(one: Powers, other: Powers) -> Powers:
    total = {**one}
    for power, term in other.items():
        is_there = power in total
        total[power] = exp.paren(exp.Add(this=total[power], expression=term)) if is_there else term
    return total


def _product(one: Powers, other: Powers) -> Powers:
    product: Powers = {}
    for power, factor in one.items():
        for more, right in other.items():
            term = exp.paren(exp.Mul(this=factor.copy(), expression=right.copy()))
            product = _sum(product, {power + more: term})
    return product


@dataclass(frozen=True)
class Declared:
    """How rows become segments by equations."""

    keys: tuple[str, ...]
    time: str
    equations: Mapping[str, Equation | Rate]
    horizon_us: int
    """How long a row says something, at most (µs); ``ENDLESS_US``: until the next one."""
    within: Mapping[str, Bound] = field(default_factory=dict)
    """How far a row's values may be from the model before, so that it makes no new one; empty:
    every row makes one. Of rates: how near pieces are to the solution; every row makes a model."""
    assumed: Mapping[str, Range] = field(default_factory=dict)
    """As of ``Fit``."""

    def __post_init__(self) -> None:
        for name, bound in self.within.items():
            if name not in self.equations:
                raise OptionError(unknown("attribute in within", name, list(self.equations)))
            if bound.is_relative and bound.value >= 1:
                msg = (
                    f"within[{name!r}] is {bound}: a value that is off by all of itself says "
                    "nothing of how far it is; give less than 100 %, or a distance"
                )
                raise OptionError(msg, attribute=name)
        for name in self.rates:
            distance = self.within.get(name)
            if distance is None or distance.is_relative or not distance.value:
                msg = (
                    f"{name!r} is declared by its rate, and solved as near as within says: give a "
                    f"distance above 0, such as within={{{name!r}: 0.5}}"
                    + ("" if distance is None else f"; got {distance}")
                )
                raise OptionError(msg, attribute=name)
        if self.rates and (bounded := [name for name in self.within if name not in self.rates]):
            msg = (
                f"within[{bounded[0]!r}] would drop rows that are as predicted, which is not "
                "supported beside attributes that are declared by their rate; leave it out"
            )
            raise OptionError(msg, attribute=bounded[0])

    @cached_property
    def rates(self) -> dict[str, Rate]:
        """The attributes that are declared by their rates."""
        equations = self.equations.items()
        return {name: equation for name, equation in equations if isinstance(equation, Rate)}

    def near_enough(self, asked: Mapping[str, Bound], read: set[str], ranges: Ranges) -> Declared:
        """Return how rows become segments that are near enough for what is asked of them.

        Of attributes that nothing reads no model is made. Arguments and errors as of ``Fit``.
        """
        if not asked:
            return self
        if self.rates:  # attributes read each other, and equations say what is
            rate_bounds = {name: bound for name, bound in asked.items() if name in self.rates}
            return replace(self, within=tightest(self.within, rate_bounds, ranges))
        bounds = tightest(self.within, asked, ranges)
        equations = {
            name: equation
            for name, equation in self.equations.items()
            if name in read or name in bounds
        }
        return replace(self, equations=equations, within=bounds)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are read, as SQL, besides keys and time."""
        return {
            name: f"array({', '.join(f'CAST({coef} AS DOUBLE)' for coef in equation.coefs)})"
            for name, equation in self.equations.items()
        }

    @property
    def is_endless(self) -> bool:
        """Whether a row says something until the next one of its entity, whenever that is."""
        return self.horizon_us >= ENDLESS_US

    @property
    def wait_us(self) -> int:
        """How long after a row it is certain that no later one is needed for its segment (µs)."""
        return self.horizon_us - 1

    def tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the segments of the rows of a task, which come by entity."""
        for table in entity_blocks(gathered(batches), self.keys):
            yield table_of(declared(table, self), table.column(self.time).type.tz)

    def part(self, rows: pa.Table, until: int, carried_rows: pa.Table | None) -> Part:
        """Return the segments of rows that no row from an instant on changes; as of ``Fit``."""
        models = _models_of(rows, self, carried_rows)
        segments = models.segments
        waits = timeline.is_last(segments.keys) & (segments.hi > until)
        # Of an open model its own row comes again, and the latest one that it predicts.
        held = distinct(np.concatenate([models.first[waits], models.last[waits]]))
        n_done, n_new = len(models.places) - len(held), int((~waits).sum())
        final, cut = _in_pieces(segments.take(~waits), self)
        report = FitReport(
            n_done,
            n_new,
            models.n_without,
            len(rows) - models.n_without - len(models.places),
            n_dropped=n_done - n_new,
            n_broken=int(models.is_broken[~waits].sum()),
            n_cut=int(cut.sum()),
        )
        done = Keyed(final, models.entities)
        # The rows between these two said that it goes on: they may be a horizon apart.
        reached = models.places[models.last[waits & (models.last > models.first)]]
        again = rows.take(pa.array(reached)).select([*self.keys, self.time])
        return Part(done, rows.take(pa.array(models.places[held])), again, report)

    def __str__(self) -> str:
        equations = ", ".join(equation.said(name) for name, equation in self.equations.items())
        near = ", ".join(f"{name} within {bound}" for name, bound in self.within.items())
        action = "rates solved" if self.rates else "rows dropped"
        door = f"; {action} with {near}" if near else ""
        assumed = assumed_in_words(self.assumed)
        until = "until the next row" if self.is_endless else f"horizon {self.horizon_us * 1e-6:g} s"
        return f"model {equations}; {until}{door}{assumed}"


def declared(table: pa.Table, how: Declared) -> Keyed:
    """Return the segments of rows that come by entity and time, with all of each entity's.

    Of rows of an entity at one instant the one of the greatest coefficients counts: which of them
    came last is not known. Without a horizon the last row of an entity says what is at its instant.

    Args:
        table: keys, times, and a list of coefficients for each attribute.
        how: what they mean.
    """
    models = _models_of(table, how)
    segments = models.segments
    if how.is_endless:
        instants = micros_of(table.column(how.time))[models.places[models.last]]
        ends = np.where(timeline.is_last(segments.keys), instants + 1, segments.hi)
        segments = segments.cut(segments.lo, ends)
    return Keyed(_in_pieces(segments, how)[0], models.entities)


def _in_pieces(segments: Segments, how: Declared) -> tuple[Segments, Mask]:
    """Return models as polynomials, and which of them are cut before their end."""
    if not how.rates:
        return segments, np.zeros(len(segments), np.bool_)
    return solved(segments, how.rates, {name: how.within[name].value for name in how.rates})


@dataclass(frozen=True)
class _Models:
    """What rows make.

    Attributes:
        segments: models by entity and time; their error is the bound where they stand for several
            rows, and else 0.
        first: the row that each begins with, by its place below, ``[m]``.
        last: the latest row that each predicts, or its own, ``[m]``.
        is_broken: whether a row was too far from it, and began the next one, ``[m]``.
        places: the row of each instant of an entity in the table, by entity and time.
        entities: the keys of each entity.
        n_without: rows without a value.
    """

    segments: Segments
    first: Indices
    last: Indices
    is_broken: Mask
    places: Indices
    entities: pa.Table
    n_without: int


def _models_of(table: pa.Table, how: Declared, carried_rows: pa.Table | None = None) -> _Models:
    ids, first = entity_ids(table, how.keys)
    times = micros_of(table.column(how.time))
    coefs = {name: _complete(list_matrix(table.column(name))) for name in how.equations}
    says = np.zeros(len(times), np.bool_)
    for coef in coefs.values():
        says |= ~np.isnan(coef[:, 0])
    for name in how.rates:  # those that read each other are solved together
        says &= ~np.isnan(coefs[name][:, 0])
    ranks = [matrix[:, column] for matrix in coefs.values() for column in range(matrix.shape[1])]
    order = np.lexsort((*reversed(ranks), times, ids))
    order = order[says[order]]
    places = order[timeline.is_last(ids[order]) | timeline.is_last(times[order])]
    keys, lo = ids[places], times[places]
    hi = lo + how.horizon_us
    follows = keys[1:] == keys[:-1]
    hi[:-1][follows] = np.minimum(hi[:-1], lo[1:])[follows]
    none = np.zeros(len(lo), np.bool_)
    segments = Segments(
        keys, lo, lo.copy(), hi, none, none.copy(),
        {name: matrix[places] for name, matrix in coefs.items()},
        {name: np.zeros(len(lo)) for name in coefs},
    )  # fmt: skip
    rows = np.arange(len(lo))
    models: tuple[Segments, Indices, Indices, Mask] = segments, rows, rows, none
    if how.within and not how.rates:
        reached = None if carried_rows is None else _reached(table, how, carried_rows, keys, lo)
        models = _predicting(segments, how, reached)
    entities = table.select(list(how.keys)).take(pa.array(first))
    return _Models(*models, places, entities, int((~says).sum()))


def _reached(table: pa.Table, how: Declared, carried_rows: pa.Table, keys: Ints, lo: Ints) -> Mask:
    """Return which instants of entities a model is known to go on to."""
    ids = ids_together([table, carried_rows], how.keys)[1]
    until = np.full(int(max(keys.max(initial=0), ids.max(initial=0))) + 1, np.iinfo(np.int64).min)
    until[ids] = micros_of(carried_rows.column(how.time))
    is_reached: Mask = lo <= until[keys]
    return is_reached


def _complete(coefs: Floats) -> Floats:
    """Return coefficients of which one that is not there (NULL, NaN, infinite) makes all so."""
    whole: Mask = np.asarray(np.isfinite(coefs).all(axis=1))
    return np.where(whole[:, None], coefs, np.nan)


# -- rows that say nothing new --------------------------------------------------------------------


def _predicting(
    segments: Segments, how: Declared, is_reached: Mask | None
) -> tuple[Segments, Indices, Indices, Mask]:
    """Return the models of the rows that the models before do not predict, as in ``_Models``.

    Args:
        segments: a model for each row, by entity and time, which ends where the next one begins or
            its horizon is over.
        how: ``within`` says how far values may be off; without a bound, not at all.
        is_reached: rows to which the model before is known to go on, by others that are not there
            any more, ``[n]``; None: no row.
    """
    n = len(segments)
    goes_on = np.zeros(n, np.bool_)
    goes_on[1:] = segments.lo[1:] - segments.lo[:-1] < how.horizon_us
    if is_reached is not None:
        goes_on[1:] |= is_reached[1:]
    goes_on &= ~timeline.is_first(segments.keys)
    bounds = {name: how.within.get(name, Bound(0.0)) for name in segments.coefs}
    leader = _leaders(segments, [*bounds.values()], goes_on)
    first, last = timeline.ends_of_runs(leader == np.arange(n))
    kept = segments.take(first)
    kept = kept.cut(kept.lo, segments.hi[last])
    errors = {
        name: np.where(last > first, _error(bound, kept, name), 0.0)
        for name, bound in bounds.items()
    }
    is_broken = np.append(goes_on[first[1:]], np.False_)[: len(first)]
    return replace(kept, errors=errors), first, last, is_broken


def _leaders(segments: Segments, bounds: Sequence[Bound], goes_on: Mask) -> Indices:
    """Return for each row the one whose model predicts it; ``bounds`` are those of attributes."""
    width = max(matrix.shape[1] for matrix in segments.coefs.values())
    coefs = np.stack([polynomials.padded(matrix, width) for matrix in segments.coefs.values()])
    values = np.array([bound.value for bound in bounds])
    are_shares = np.array([bound.is_relative for bound in bounds])
    far, shares = np.where(are_shares, 0.0, values), np.where(are_shares, values, 0.0)
    return leaders(coefs, segments.origin, segments.lo, goes_on, far, shares)


def _error(bound: Bound, segments: Segments, name: str) -> Floats:
    """Return how far rows may be from models: a share of a row's value by that of the model.

    A row that is off by no more than ``share |row|`` is no farther from 0 than
    ``|model| / (1 - share)``.
    """
    if not bound.is_relative:
        return np.full(len(segments), bound.value)
    since = polynomials.shifted(segments.coefs[name], segments.seconds(segments.lo))
    low, high = polynomials.extremes(since, in_seconds(segments.hi - segments.lo))
    errors: Floats = np.maximum(np.abs(low), np.abs(high)) * bound.value / (1 - bound.value)
    return errors


# -- compiled: rows against the model that goes on ------------------------------------------------


@compiled
def is_predicted(
    coefs: Floats, leader: int, row: int, since_s: float, far: Floats, shares: Floats
) -> bool:
    """Return whether the model of one row is as near to the values of another as it has to be.

    Args:
        coefs: the model of each row, whose lowest coefficients are the row's values, (attributes,
            rows, degree + 1); a value that is not finite says nothing.
        leader: the row of the model.
        row: the row of the values.
        since_s: seconds from the origin of the model to the row.
        far: how far each attribute may be off, (attributes,).
        shares: what is added to that, as a share of the row's value, (attributes,).
    """
    for attribute in range(coefs.shape[0]):
        value = coefs[attribute, row, 0]
        if not np.isfinite(value):
            continue
        model = coefs[attribute, leader, coefs.shape[2] - 1]
        for power in range(coefs.shape[2] - 2, -1, -1):
            model = model * since_s + coefs[attribute, leader, power]
        if not abs(value - model) <= far[attribute] + shares[attribute] * abs(value):
            return False
    return True


@compiled
def leaders(
    coefs: Floats,
    origins: Ints,
    times: Ints,
    goes_on: NDArray[np.bool_],
    far: Floats,
    shares: Floats,
) -> Ints:
    """Return for each row the one whose model predicts it: itself, if none before does.

    ``goes_on`` says whether the model of the row before may predict a row. ``origins`` and
    ``times`` are of each row's model and of the row (µs). Other arguments as of ``is_predicted``.
    """
    leading_rows = np.empty(times.size, np.int64)
    leader = 0
    for row in range(times.size):
        since_s = np.float64(times[row] - origins[leader]) * 1e-6
        if not goes_on[row] or not is_predicted(coefs, leader, row, since_s, far, shares):
            leader = row
        leading_rows[row] = leader
    return leading_rows
