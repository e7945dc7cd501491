"""View of a stream's models: counts, bounds and curves for people.

The report, the page and the progress read ``ModelView`` and ``ModelRecord``. ``pictures`` makes
curves of a sketch: rows, pieces of polynomials, their bounds, and results. A curve has values at
instants; None interrupts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddyline.models import graph
from eddyline.models.entities.kept import CODE, codes_of
from eddyline.models.fitting.declared import ENDLESS_US
from eddyline.models.planning.watching import SAME, bounds_of_results
from eddyline.models.segments import (
    COEF,
    ERR,
    Layout,
    in_seconds,
    keyed,
    list_matrix,
    micros_of,
    values_of,
)
from eddyline.models.solving.expressions import Attribute
from eddyline.models.steps import SINCE, TIME, UNTIL, Extremum, Integral, Project
from eddyline.models.streams.plan import COMPONENT, Sketch
from eddyline.runtime.records import Numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Floats, Ints
    from eddyline.models.fitting.bounds import Bound
    from eddyline.models.planning.choice import JoinView, StepView
    from eddyline.models.planning.watching import Work
    from eddyline.models.segments import Segments
    from eddyline.models.streams.plan import BucketState, ModelCounts, StreamPlan


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """State of models after a batch, as numbers."""

    n_rows: int
    """Rows that segments stand for."""
    n_segments: int
    n_waiting: int
    """Rows of which no segment is final yet."""
    n_bytes: int
    """Size of what is kept (bytes)."""
    n_kept: int = 0
    """Segments that later results look back at."""
    n_dropped: int = 0
    """Of the rows, those that declared models predicted near enough."""
    n_broken: int = 0
    """Declared models that a row broke."""
    n_early: int = 0
    """Results that were given before they were final."""
    n_taken_back: int = 0
    """Rows that took results back."""
    n_outside: int = 0
    """Rows with values that they were said not to have."""
    n_beyond: int = 0
    """Results whose error is above the bound that was asked of them."""
    ns: Mapping[str, int] = field(default_factory=dict)
    """Time of tasks by step (ns)."""
    component: str = COMPONENT
    plan: Mapping[str, Any] | None = None
    """What joins ask before, by their texts; None if there is nothing to plan."""
    n_open: int = 0
    """Number of waiting rows in open runs."""
    open_until: int | None = None
    """Event time at which open runs are final if no more rows of their entity come (µs)."""
    n_cut: int = 0
    """Models that end where the rate that they are declared by has no solution any more."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return what is kept; its rows and segments are of all batches, and so no counts."""
        n_kept = self.n_waiting + self.n_kept
        kept = {"n_kept": n_kept, "n_waiting": self.n_waiting, "n_bytes": self.n_bytes}
        kept["n_in_open_runs"] = self.n_open
        every = {"n_rows_in_all": self.n_rows, "n_segments_in_all": self.n_segments}
        every |= {"n_early_in_all": self.n_early, "n_taken_back_in_all": self.n_taken_back}
        every |= {"n_dropped_in_all": self.n_dropped, "n_broken_in_all": self.n_broken}
        every |= {"n_outside_in_all": self.n_outside, "n_beyond_in_all": self.n_beyond}
        every |= {"n_cut_in_all": self.n_cut} if self.n_cut else {}
        task_seconds = {"task_seconds_in_all": sum(self.ns.values()) / 1e9}
        return Numbers({"n_rows": n_rows}, {**kept, **every, **task_seconds})

    def with_earlier(self, earlier: ModelRecord, share: float) -> ModelRecord:  # noqa: ARG002
        """Return one record for several batches: the last one, for all counts go on."""
        return self


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows of an input that are in no final segment, and why."""

    stream: str
    n_ahead: int
    """Rows that event time has not passed."""
    n_open: int
    """Rows of open runs."""
    until: int | None
    """Event time at which open runs are final if no more rows of their entity come (µs)."""
    wait_us: int
    """Time after its last row at which a run ends (µs): ``max_gap``, or the horizon."""
    prefix_rows: int | None
    """Rows that a run needs to choose its method; None if the method is given."""
    is_fitted: bool = True
    """Whether segments are fitted, and not declared."""
    is_endless: bool = False
    """Whether only the next row of its entity ends a run."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """Models as they stand."""

    name: str
    step: str
    """What is fitted and solved, in words."""
    counts: ModelCounts
    """Of all batches of the run."""
    n_kept: int
    """Segments that later results look back at."""
    n_bytes: int
    waiting: tuple[WaitingRows, ...] = ()
    """One for each input that segments are made from."""
    bounds: str = ""
    """The bounds that results were given, and those in which inputs are, in words."""
    asked: tuple[AskedBound, ...] = ()
    """The bound of each attribute, of models and of results."""
    sketch: Sketch = field(default_factory=Sketch)
    """What is drawn."""
    plan: StreamPlan | None = None
    """By which it is drawn."""
    steps: tuple[StepView, ...] = ()
    """What steps give, and what that was estimated to be."""
    joins: tuple[JoinView, ...] = ()
    """What joins ask before."""
    ways: Mapping[str, Any] | None = None
    """The plan of these as plain values; None: there is nothing to plan."""
    notes: tuple[str, ...] = ()

    @property
    def n_waiting(self) -> int:
        """Number of rows that are in no final segment."""
        return sum(waiting.n_ahead + waiting.n_open for waiting in self.waiting)

    @property
    def record(self) -> ModelRecord:
        """The record after a batch."""
        counts, total = self.counts, self.counts.total
        untils = [
            waiting.until
            for waiting in self.waiting
            if waiting.n_open and waiting.until is not None
        ]
        return ModelRecord(
            total.n_rows, total.n_segments, self.n_waiting, self.n_bytes, self.n_kept,
            total.n_dropped, total.n_broken, counts.n_early, counts.n_taken_back,
            total.n_outside, counts.work.n_beyond, counts.work.ns, plan=self.ways,
            n_open=sum(waiting.n_open for waiting in self.waiting),
            open_until=max(untils, default=None), n_cut=total.n_cut,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskedBound:
    """A bound, and where the largest error that there is stands in ``Work``."""

    name: str
    """The attribute, with its input if there are several."""
    bound: str
    """What was given, "" if nothing was."""
    key: str
    is_of_result: bool = False

    def largest(self, work: Work) -> float | None:
        """Return the largest error so far; None if nothing has one."""
        return (work.off if self.is_of_result else work.errors).get(self.key)


def waiting_rows(
    plan: StreamPlan, inputs: Sequence[str], states: Sequence[BucketState], offset: int
) -> tuple[WaitingRows, ...]:
    """Return how many rows of each input wait, until when, and why.

    Args:
        plan: the plan of the query.
        inputs: the names of its inputs.
        states: the states of the buckets after a batch.
        offset: from the time of a row to its instant (µs).
    """
    waiting = []
    for number, (source, stream) in enumerate(zip(plan.inputs, inputs, strict=True)):
        if source.maker is None:
            continue
        counts = [state.counted(number) for state in states]
        # All rows of open runs are before ``since``, up to which a bucket has read rows.
        until = max((state.since for state in states if state.counted(number).open), default=None)
        wait, options = source.maker.wait_us, getattr(source.maker, "options", None)
        waiting.append(
            WaitingRows(
                stream,
                sum(count.ahead for count in counts),
                sum(count.open for count in counts),
                None if until is None or wait >= ENDLESS_US - 1 else until + offset + wait,
                wait,
                options.prefix_rows if options and options.method == "auto" else None,
                is_fitted=options is not None,
                is_endless=wait >= ENDLESS_US - 1,
            )
        )
    return tuple(waiting)


def told_bounds(plan: StreamPlan, inputs: Sequence[str]) -> tuple[AskedBound, ...]:
    """Return the bounds of models and of results."""
    bounds = []
    for number, (source, stream) in enumerate(zip(plan.inputs, inputs, strict=True)):
        for name in source.shape.attributes if source.maker else ():
            bound = source.maker.within.get(name) if source.maker else None
            label = name if len(inputs) == 1 else f"{stream}.{name}"
            bounds.append(
                AskedBound(label, "" if bound is None else str(bound), f"{number} {name}")
            )
    result_bounds = bounds_of_results(plan.node)
    for name in plan.node.shape.attributes:
        bound = result_bounds.get(name)
        bounds.append(AskedBound(name, "" if bound is None else str(bound), name, True))
    return tuple(bounds)


# -- curves ---------------------------------------------------------------------------------------


MOST_ATTRIBUTES = 3
"""Attributes of an input, and of results, that are drawn."""
PER_PIECE = 12
"""Points of a piece that is no line."""
_GAP = np.iinfo(np.int64).min

Kind = Literal["rows", "model", "bound", "answer"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at instants (µs), in the order in which they are drawn; None is an interruption."""

    kind: Kind
    name: str
    times: tuple[int | None, ...]
    values: tuple[float | None, ...]
    is_dotted: bool = False
    """Whether values are points, and no line."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Curves of one attribute of an entity."""

    entity: str
    attribute: str
    curves: tuple[Curve, ...]


def pictures(sketch: Sketch, plan: StreamPlan) -> tuple[Picture, ...]:
    """Return the pictures of a sketch, entity by entity: of inputs, and of other results."""
    drawings: list[Picture] = []
    for code in sketch.codes:
        drawings += _Drawing(sketch, plan, int(code)).pictures()
    return tuple(drawings)


class _Drawing:
    """The pictures of one entity."""

    def __init__(self, sketch: Sketch, plan: StreamPlan, code: int) -> None:
        self._plan = plan
        self._rows = {number: _rows_of_entity(table, code) for number, table in sketch.rows.items()}
        self._segments = {
            number: _rows_of_entity(table, code) for number, table in sketch.segments.items()
        }
        self._results = None if sketch.results is None else _rows_of_entity(sketch.results, code)
        tables = [*self._rows.values(), *self._segments.values()]
        self._entity = _name(next(table for table in tables if len(table)), plan.keys)
        firsts = [self._times(number).min() for number, table in self._rows.items() if len(table)]
        self._since = int(min(firsts)) if firsts else _GAP

    def pictures(self) -> list[Picture]:
        """Return them: an attribute of an input with what was asked of it, then other results."""
        answers = self._answers()
        drawings = []
        for number, source in enumerate(self._plan.inputs):
            for name in source.shape.attributes[:MOST_ATTRIBUTES]:
                input_answers = [curve for place, curve in answers if place == (number, name)]
                curves = [*self._of_input(number, name), *input_answers]
                label = name if len(self._plan.inputs) == 1 else f"{name} of input {number + 1}"
                drawings.append(Picture(self._entity, label, tuple(curves)))
        others: dict[str, list[Curve]] = {}
        for place, curve in answers:
            if isinstance(place, str):
                others.setdefault(place, []).append(curve)
        drawings += [Picture(self._entity, name, tuple(group)) for name, group in others.items()]
        full = [
            replace(picture, curves=tuple(curve for curve in picture.curves if curve.times))
            for picture in drawings
        ]
        return [picture for picture in full if picture.curves]

    def _times(self, number: int) -> Ints:
        return micros_of(self._rows[number].column(self._plan.row_times[number]))

    # -- inputs -----------------------------------------------------------------------------------

    def _of_input(self, number: int, name: str) -> list[Curve]:
        curves = []
        maker = self._plan.inputs[number].maker
        pieces = self._pieces(number, name)
        if pieces is not None:
            bound = None if maker is None else maker.within.get(name)
            times, values = _points_of(pieces)
            far = _far(values, bound, pieces.errors[name])
            curves = [_area(times, values, far), _line("model", times, values)]
        rows = self._rows.get(number)
        if rows is not None and name in rows.column_names:
            curves.append(_dots("rows", self._times(number), _values(rows, name)))
        return curves

    def _pieces(self, number: int, name: str) -> Segments | None:
        table = self._segments.get(number)
        if table is None or COEF + name not in table.column_names or not len(table):
            return None
        return _pieces_of(table, name, self._since)

    # -- results ----------------------------------------------------------------------------------

    def _answers(self) -> list[tuple[tuple[int, str] | str, Curve]]:
        """Return curves of results, and where each is drawn: on an attribute, or by itself."""
        table, node = self._results, self._plan.node
        if table is None or not len(table):
            return []
        answers: list[tuple[tuple[int, str] | str, Curve]] = []
        for name in node.shape.attributes[:MOST_ATTRIBUTES]:
            source = _source(node, name)
            is_alone = source is None or source == (0, name, True)
            label = "answer" if is_alone or len(node.shape.attributes) == 1 else f"answer {name}"
            place = name if source is None else source[:2]
            plain = source[:2] if source is not None and source[2] else None
            if node.shape.kind == "changes":
                curves = self._of_changes(table, name, label, plain)
            elif node.shape.kind == "samples":
                curves = _of_samples(table, name, label, self._since, has_bound=source is None)
            else:
                pieces = _pieces_of(table, name, self._since)
                times, values = _points_of(pieces)
                curves = [_line("answer", times, values, label), *_instants(pieces, label)]
                if source is None:
                    far = np.broadcast_to(pieces.errors[name][:, None], values.shape)
                    curves.insert(0, _area(times, values, far, "error"))
            answers += [(place, curve) for curve in curves]
        return answers

    def _of_changes(
        self, table: pa.Table, name: str, label: str, source: tuple[int, str] | None
    ) -> list[Curve]:
        """Return the model where a condition holds; without one the value with which it began."""
        since, until = (micros_of(table.column(column)) for column in (SINCE, UNTIL))
        pieces = None if source is None else self._pieces(*source)
        if pieces is None:
            starts = np.maximum(since, self._since)
            kept = np.flatnonzero(until >= self._since)
            times = np.stack([starts, until], axis=1)[kept]
            values = values_of(table, [name])[name][kept]
            return [_line("answer", times, np.stack([values, values], axis=1), label)]
        rows, ranges = np.nonzero(
            (pieces.lo[:, None] <= until) & (pieces.hi[:, None] >= since[None, :])
        )
        cut = pieces.take(rows)
        cut = cut.cut(np.maximum(cut.lo, since[ranges]), np.minimum(cut.hi, until[ranges]))
        return [_line("answer", *_points_of(cut), label), *_instants(cut, label)]


def _source(node: graph.Node, name: str) -> tuple[int, str, bool] | None:
    """Return the attribute of an input whose unit a result has, and whether it is that itself."""
    match node:
        case graph.Input(at):
            return at, name, True
        case graph.Unary(step, of) if isinstance(step, Project):
            expression = step.columns[name]
            return _source(of, expression.name) if isinstance(expression, Attribute) else None
        case graph.Unary(step, of):
            is_mean = isinstance(step, Extremum) or (isinstance(step, Integral) and step.is_average)
            source = _source(of, name) if is_mean or isinstance(step, SAME) else None
            return None if source is None else (*source[:2], source[2] and not is_mean)
        case graph.SameEntity():
            at, attribute = graph.sides_of(node)[name]
            return _source((node.left, node.right)[at], attribute)
    return None


def _of_samples(
    table: pa.Table, name: str, label: str, since: int, *, has_bound: bool
) -> list[Curve]:
    times, values = micros_of(table.column(TIME)), values_of(table, [name])[name]
    far = values_of(table, [ERR + name])[ERR + name]
    kept = np.flatnonzero(times >= since)
    times, values, far = times[kept], values[kept], far[kept]
    curves = [_dots("answer", times, values, label)]
    if has_bound and np.isfinite(far).all() and len(times) > 1:
        curves.insert(0, _area(times[None, :], values[None, :], far[None, :], "error"))
    return curves


def _rows_of_entity(table: pa.Table, code: int) -> pa.Table:
    return table.filter(pa.array(codes_of(table) == code))


def _name(table: pa.Table, keys: Sequence[str]) -> str:
    row = table.slice(0, 1).to_pylist()[0]
    phrases = [f"{key} {'NULL' if row[key] is None else row[key]}" for key in keys if key != CODE]
    return ", ".join(phrases) or "all rows"


def _pieces_of(table: pa.Table, name: str, since: int) -> Segments:
    """Return the segments of one attribute behind an instant."""
    segments = keyed(table, Layout((), (name,))).segments
    cut = segments.cut(np.maximum(segments.lo, since), segments.hi)
    return cut.take(cut.hi >= since)


def _points_of(pieces: Segments) -> tuple[Ints, Floats]:
    """Return instants of each segment of one attribute, and values there, ``[n, points]`` each."""
    (coefs,) = pieces.coefs.values()
    n = 2 if coefs.shape[1] <= 2 else PER_PIECE
    length = (pieces.hi - pieces.lo)[:, None]
    times = pieces.lo[:, None] + (length * np.linspace(0, 1, n)).astype(np.int64)
    since = in_seconds(times - pieces.origin[:, None])
    values = np.zeros(times.shape)
    for power in range(coefs.shape[1] - 1, -1, -1):
        values = values * since + coefs[:, power : power + 1]
    return times, values


def _values(table: pa.Table, name: str) -> Floats:
    column = table.column(name)
    return list_matrix(column)[:, 0] if pt.is_list(column.type) else values_of(table, [name])[name]


def _far(values: Floats, bound: Bound | None, error: Floats) -> Floats:
    """Return how far rows may be from a model: by its bound, or by its error if it has none."""
    if bound is None:
        return np.broadcast_to(error[:, None], values.shape)
    if bound.is_relative:
        return np.abs(values) * bound.value / (1 + bound.value)
    return np.full(values.shape, bound.value)


def _line(kind: Kind, times: Ints, values: Floats, name: str = "") -> Curve:
    """Return a curve of several pieces, ``[n, points]``, with an interruption between them."""
    n = len(times)
    broken = np.hstack([times, np.full((n, 1), _GAP)]), np.hstack([values, np.full((n, 1), np.nan)])
    return _curve(kind, *(array.ravel() for array in broken), name=name)


def _area(times: Ints, values: Floats, far: Floats, name: str = "") -> Curve:
    """Return the curve around areas, one for each piece."""
    high, low = values + far, values - far
    around = np.hstack([times, times[:, ::-1]]), np.hstack([high, low[:, ::-1]])
    return _line("bound", *around, name)


def _dots(kind: Kind, times: Ints, values: Floats, name: str = "") -> Curve:
    return _curve(kind, times, values, name=name, is_dotted=True)


def _instants(pieces: Segments, name: str) -> list[Curve]:
    """Return the segments that are one instant, which no line shows."""
    instants = pieces.take(pieces.lo == pieces.hi)
    times, values = _points_of(instants)
    return [_dots("answer", times[:, 0], values[:, 0], name)] if len(instants) else []


def _curve(
    kind: Kind, times: Ints, values: Floats, *, name: str = "", is_dotted: bool = False
) -> Curve:
    is_known = (times != _GAP) & np.isfinite(values)
    return Curve(
        kind,
        name or kind,
        tuple(t if k else None for t, k in zip(times.tolist(), is_known.tolist(), strict=True)),
        tuple(v if k else None for v, k in zip(values.tolist(), is_known.tolist(), strict=True)),
        is_dotted,
    )
