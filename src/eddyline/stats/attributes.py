"""Attributes of sampled rows: their values beside the outcomes of all filters.

The profile keeps outcomes only of rows that some filter drops. To see whether an attribute tells
which filter will drop a row, every sampled row is needed, with the attribute's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data import outcomes as outcome
from eddyline.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class AttributeSample:
    """M sampled rows, oldest first: values of K attributes, outcomes of F filters."""

    attributes: tuple[str, ...]
    """Names of the attributes; column k of ``values`` is ``attributes[k]``."""
    values: Floats
    """Values as numbers, nan for NULL; of texts, a hash ((M, K))."""
    codes: outcome.Codes
    """Outcome codes; zero for a row that passes every filter ((M, B))."""
    weights: Floats
    """Input rows that each sampled row stands for ((M,))."""

    @classmethod
    def empty(cls, attributes: Sequence[str], n_filters: int) -> Self:
        """Return a sample of no rows."""
        return cls(
            tuple(attributes),
            np.zeros((0, len(attributes))),
            np.zeros((0, outcome.n_bytes(n_filters)), dtype=np.uint8),
            np.zeros(0),
        )

    @property
    def n_rows(self) -> int:
        """M, the number of sampled rows."""
        return len(self.weights)

    def bits(self, n_filters: int) -> outcome.Bits:
        """Return a mask of the filters that drop each row ((M, F))."""
        return outcome.unpack(self.codes, n_filters)

    def take(self, rows: Indices | slice) -> Self:
        """Return the rows at some places, in that order."""
        return type(self)(self.attributes, self.values[rows], self.codes[rows], self.weights[rows])

    def last(self, n_rows: int) -> Self:
        """Return the newest rows."""
        return self if n_rows >= self.n_rows else self.take(slice(self.n_rows - n_rows, None))

    def of(self, attributes: Sequence[str]) -> Self:
        """Return the sample with these attributes alone; nan where one was not observed."""
        place = {name: k for k, name in enumerate(self.attributes)}
        values = np.full((self.n_rows, len(attributes)), np.nan)
        for column, name in enumerate(attributes):
            if name in place:
                values[:, column] = self.values[:, place[name]]
        return type(self)(tuple(attributes), values, self.codes, self.weights)


def interleaved(samples: Sequence[AttributeSample]) -> AttributeSample:
    """Return one sample of rows that came side by side, as from the partitions of a batch.

    The first rows of each come first and the last rows last, so that the newest rows of the whole
    are of all of them.

    Raises:
        PlanError: there is none, or they are of different attributes.
    """
    return joined(samples).take(side_by_side([each.n_rows for each in samples]))


def side_by_side(lengths: Sequence[int]) -> Indices:
    """Return the order that interleaves series of some lengths which stand one behind the other.

    >>> side_by_side([2, 4])
    array([2, 0, 3, 4, 1, 5])
    """
    place = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in lengths])
    return np.argsort(place, kind="stable")


def joined(samples: Sequence[AttributeSample]) -> AttributeSample:
    """Return one sample of all rows, in that order.

    Raises:
        PlanError: there is none, or they are of different attributes.
    """
    if not samples:
        msg = "cannot join no samples; start from AttributeSample.empty(attributes, n_filters)"
        raise PlanError(msg)
    first = samples[0]
    for sample in samples:
        if sample.attributes != first.attributes:
            msg = f"cannot join samples of {first.attributes} and {sample.attributes}"
            raise PlanError(msg, left=first.attributes, right=sample.attributes)
    if len(samples) == 1:
        return first
    return AttributeSample(
        first.attributes,
        np.concatenate([sample.values for sample in samples]),
        np.concatenate([sample.codes for sample in samples]),
        np.concatenate([sample.weights for sample in samples]),
    )
