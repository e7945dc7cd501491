"""What tasks did with models in a batch: time by step, errors of models and results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from eddyline.models import graph
from eddyline.models.rows import ERR
from eddyline.models.steps import Changes, Sample, Where, Within

if TYPE_CHECKING:
    from eddyline.models.bounds import Bound
    from eddyline.models.declared import Declared
    from eddyline.models.fitted import Fit
    from eddyline.models.segments import Segments

Clock = Callable[[], int]
"""Nanoseconds of a clock that only goes on."""

STATE = "rows and state"
"""What takes the time that no step does: rows that wait, files, tables of results."""


SAME = (Where, Within, Sample, Changes)
"""Steps of which attributes come out as they are."""


class Work(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What tasks did; work of several adds up."""

    ns: dict[str, int] = {}
    """Time by step (ns)."""
    errors: dict[str, float] = {}
    """The largest error that a segment of an attribute has, by ``"<input> <attribute>"``."""
    off: dict[str, float] = {}
    """The largest error that a result has, by attribute."""
    n_beyond: int = 0
    """Results whose error is above the bound that was asked of them."""
    n_looked_at: int = 0
    """Entities that were looked at, once for each batch."""
    n_asked: dict[str, int] = {}
    """Segments that a join asked before it, by ``"<join>: <side>"``."""
    n_left_out: dict[str, int] = {}
    """Of these, those that are in no result."""

    def __add__(self, other: Work) -> Work:
        return Work(
            dict(Counter(self.ns) + Counter(other.ns)),
            _largest(self.errors, other.errors),
            _largest(self.off, other.off),
            self.n_beyond + other.n_beyond,
            self.n_looked_at + other.n_looked_at,
            dict(Counter(self.n_asked) + Counter(other.n_asked)),
            dict(Counter(self.n_left_out) + Counter(other.n_left_out)),
        )


class Stopwatch(graph.Watch):
    """The time of a task by what it does."""

    def __init__(self, clock: Clock = time.perf_counter_ns) -> None:
        self._clock, self._began = clock, clock()
        self.ns: Counter[str] = Counter()

    @contextmanager
    def on(self, what: object) -> Iterator[None]:
        """Count the time of something by its name."""
        began = self._clock()
        yield
        self.ns[str(what)] += self._clock() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of others."""
        began = self._clock()
        yield
        self._began += self._clock() - began

    def spent(self) -> dict[str, int]:
        """Return the time so far; what nothing has counted is of ``STATE``."""
        others = self._clock() - self._began - self.ns.total()
        return dict(self.ns + Counter({STATE: others}))


def made_by(maker: Fit | Declared) -> str:
    """Return how segments are made as the name of a step."""
    return f"make segments of {', '.join(maker.columns)}"


def errors_of(at: int, segments: Segments) -> dict[str, float]:
    """Return the largest error of each attribute of the segments of an input."""
    largest = {
        f"{at} {name}": float(np.fmax.reduce(each, initial=0.0))
        for name, each in segments.errors.items()
        if len(each)
    }
    return _finite(largest)


def bounds_of_results(node: graph.Node) -> dict[str, Bound]:
    """Return the bounds that were asked of results, the least of each; a share if that is all."""
    found: dict[str, Bound] = {}
    while isinstance(node, graph.Unary) and isinstance(node.step, SAME):
        for name, bound in node.step.bounds.items() if isinstance(node.step, Within) else ():
            found[name] = min(bound, found.get(name, bound), key=_rank)
        node = node.of
    return found


def _rank(bound: Bound) -> tuple[bool, float]:
    return bound.is_relative, bound.value


def work_of_results(table: pa.Table, bounds: Mapping[str, Bound]) -> Work:
    """Return how near results are to what rows would give, and how many are not near enough.

    Args:
        table: of results.
        bounds: that were asked of them; shares of values are not looked at.
    """
    names = [each for each in table.column_names if each.startswith(ERR)]
    largest = {each.removeprefix(ERR): pc.max(table.column(each)).as_py() for each in names}
    beyond = np.zeros(len(table), np.bool_)
    for name, bound in bounds.items():
        if ERR + name in names and not bound.is_relative:
            beyond |= table.column(ERR + name).to_numpy() > bound.value
    return Work(off=_finite(largest), n_beyond=int(beyond.sum()))


def _finite(given: Mapping[str, float | None]) -> dict[str, float]:
    """Return what is a number: what is saved as text has no others."""
    return {name: each for name, each in given.items() if each is not None and each < np.inf}


def _largest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {
        name: max(one.get(name, 0.0), other.get(name, 0.0))
        for name in dict.fromkeys([*one, *other])
    }
