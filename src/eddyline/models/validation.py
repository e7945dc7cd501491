"""Which new rows say nothing new: those that are as near to models as they have to be.

A row that is within the distance that its entity's model allows is dropped without any work of a
query. The first one that is not makes a new model, for which the query runs, and the rows of that
entity go on against the new one (Pulse 3.12, 7.3). All entities are walked at once; a round ends
with at most one violator of each. Rows are taken in the order in which they come, so what becomes
of them does not depend on how they are cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, validation_kernels
from eddyline.models.bounds import Bound
from eddyline.models.segments import Segments
from eddyline.models.validation_kernels import LATE, NO_MODEL, VIOLATES, WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    Remodel = Callable[[Indices], "Live"]
    """Gives models that begin with rows, by their places: one violator of an entity each."""

__all__ = ["LATE", "NO_MODEL", "VIOLATES", "WITHIN", "Live", "Validated", "leaders", "validated"]


@dataclass(frozen=True)
class Live:
    """The models that rows are held against, and how far from them rows may be.

    Distances are polynomials of time as models are, so that they may be as far as a predicate is
    from being true: on the segments' origins, ``[m, degree + 1]``, in the attribute's unit. An
    infinite one (as the lowest coefficient, others 0) is any distance. One below 0 leaves no room
    on either side: what holds of the models themselves is not sure.

    Attributes:
        segments: models in the order of entities and time; those of an entity do not overlap.
        below: for each attribute how far below it values may be.
        above: how far above.
        shares: what is added to both, as a share of the row's value, ``[m]``.
        is_strict: whether a row has to be nearer than that, ``[m]``: at that distance a predicate
            may be true.
    """

    segments: Segments
    below: Mapping[str, Floats]
    above: Mapping[str, Floats]
    shares: Mapping[str, Floats]
    is_strict: Mask

    def __len__(self) -> int:
        return len(self.segments)

    @classmethod
    def within(cls, segments: Segments, bounds: Mapping[str, Bound | Floats]) -> Live:
        """Return models with the bounds of attributes: what an output's precision asks for.

        Args:
            segments: models in any order; tombstones are left out.
            bounds: a bound, or a distance for each segment, ``[n]``; an attribute without one may
                be anywhere.
        """
        n = len(segments)
        far, shares = {}, {}
        for name in segments.coefs:
            bound = bounds.get(name, np.full(n, np.inf))
            is_share = isinstance(bound, Bound) and bound.is_relative
            value = bound.value if isinstance(bound, Bound) else bound
            far[name] = np.zeros((n, 1)) if is_share else np.full(n, value)[:, None]
            shares[name] = np.full(n, value if is_share else 0.0)
        made = cls(segments, far, far, shares, np.zeros(n, np.bool_))
        alive = np.flatnonzero(~segments.is_tombstone)
        return made.take(alive[np.lexsort((segments.lo[alive], segments.keys[alive]))])

    def take(self, rows: Indices | Mask) -> Live:
        """Return the models at places or under a mask, in that order."""
        below, above, shares = (
            {name: each[rows] for name, each in of.items()}
            for of in (self.below, self.above, self.shares)
        )
        return Live(self.segments.take(rows), below, above, shares, self.is_strict[rows])

    @classmethod
    def joined(cls, parts: Sequence[Live]) -> Live:
        """Return the models of several, in the order of entities and time."""

        def column(of: Callable[[Live], Mapping[str, Floats]]) -> dict[str, Floats]:
            return {name: _behind([of(each)[name] for each in parts]) for name in of(parts[0])}

        made = cls(
            _segments([each.segments for each in parts]),
            column(lambda each: each.below),
            column(lambda each: each.above),
            column(lambda each: each.shares),
            np.concatenate([each.is_strict for each in parts]),
        )
        return made.take(made.segments.by_time)

    def pieces(self, names: Sequence[str]) -> validation_kernels.Pieces:
        """Return the arrays that kernels take, of the attributes that rows have."""
        segments = self.segments
        spans = (segments.lo, segments.ends, segments.origin, self.is_strict)
        columns = [[of[name] for of in (segments.coefs, self.below, self.above)] for name in names]
        width = max((each.shape[1] for three in columns for each in three), default=1)
        numbers = np.empty((len(self), len(names), 3 * width + 1))
        for at, (name, three) in enumerate(zip(names, columns, strict=True)):
            padded = [polynomials.padded(each, width) for each in three]
            numbers[:, at] = np.concatenate([*padded, self.shares[name][:, None]], axis=1)
        return np.stack(spans, axis=1).astype(np.int64), numbers


@dataclass(frozen=True)
class Validated:
    """What became of rows.

    Attributes:
        codes: of each row, ``[n]``: ``WITHIN`` is dropped; ``VIOLATES`` was too far from its model
            and ``NO_MODEL`` had none, both began a new one; ``LATE`` is before all that is kept of
            its entity, and changes nothing.
        live: the models for the rows that come next.
        rounds: how often new models were asked for.
    """

    codes: NDArray[np.int8]
    live: Live
    rounds: int


def validated(
    live: Live,
    keys: Ints,
    times: Ints,
    values: Mapping[str, Floats],
    remodel: Remodel,
) -> Validated:
    """Return which rows are near enough to models, with new models where they are not.

    Args:
        live: the models there are.
        keys: entities, dense ids, ``[n]``, in the order in which rows come.
        times: microseconds, ``[n]``; those of an entity do not fall, or rows may be late.
        values: of attributes that models have, ``[n]`` each; one that is not finite says nothing.
        remodel: gives models that begin with violators. From there on they replace all that there
            is of their entities.

    Example:
        >>> one = np.zeros(1, np.int64)
        >>> never = np.zeros(1, np.bool_)
        >>> def constant(at):
        ...     return Live.within(
        ...         Segments(one, times[at], times[at], times[at] + 9_000_000, never, never,
        ...                  {"v": rows["v"][at][:, None]}, {"v": np.zeros(1)}),
        ...         {"v": Bound(1.0)})
        >>> times, rows = np.arange(4) * 1_000_000, {"v": np.array([5.0, 5.5, 7.0, 6.5])}
        >>> start = constant(one).take(np.zeros(1, bool))
        >>> validated(start, np.zeros(4, np.int64), times, rows, constant).codes.tolist()
        [2, 0, 1, 0]
    """
    names = list(values)
    matrix = _matrix(values, len(keys))
    codes = np.full(len(keys), WITHIN, np.int8)
    n = 1 + max(int(keys.max(initial=-1)), int(live.segments.keys.max(initial=-1)))
    found, rest = validation_kernels.first_pass(
        live.pieces(names), _starts(live, n), keys, times, matrix, codes
    )
    order, groups = validation_kernels.by_entity(rest, keys, n)
    parts, latest = [live], np.zeros(n, np.int64)
    while found.size:
        made = remodel(found)
        latest[keys[found]] = len(parts)
        parts.append(made)
        found = validation_kernels.next_pass(
            made.pieces(names), _starts(made, n), order, groups, keys, times, matrix, codes
        )
        groups = groups[groups[:, 0] < groups[:, 1]]
    kept = [each.take(latest[each.segments.keys] == at) for at, each in enumerate(parts)]
    return Validated(codes, Live.joined(kept) if len(kept) > 1 else live, len(parts) - 1)


def leaders(live: Live, goes_on: Mask, times: Ints, values: Mapping[str, Floats]) -> Indices:
    """Return for each row the one whose model it is near enough to: itself, if there is none.

    Args:
        live: the model of each row, in their order, with how far rows may be from it.
        goes_on: whether the model of the row before may stand for a row, ``[n]``.
        times: microseconds, ``[n]``; those of an entity do not fall.
        values: of attributes that models have, ``[n]`` each; one that is not finite says nothing.
    """
    matrix = _matrix(values, len(times))
    return validation_kernels.led(live.pieces(list(values)), goes_on, times, matrix)


def _matrix(values: Mapping[str, Floats], n: int) -> Floats:
    return np.array([*values.values()], np.float64).reshape(len(values), n)


def _starts(live: Live, n: int) -> Ints:
    """Return the first piece of each of ``n`` entities, and the number of pieces."""
    return np.searchsorted(live.segments.keys, np.arange(n + 1)).astype(np.int64)


def _behind(columns: Sequence[Floats]) -> Floats:
    if columns[0].ndim == 1:
        return np.concatenate(columns)
    size = max(each.shape[1] for each in columns)
    return np.concatenate([polynomials.padded(each, size) for each in columns])


def _segments(parts: Sequence[Segments]) -> Segments:
    """Return segments behind each other; degrees may differ."""
    made = {
        each.name: np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(Segments)
        if each.name not in {"coefs", "errors"}
    }
    coefs = {name: _behind([each.coefs[name] for each in parts]) for name in parts[0].coefs}
    errors = {name: _behind([each.errors[name] for each in parts]) for name in parts[0].errors}
    return replace(parts[0], **made, coefs=coefs, errors=errors)
