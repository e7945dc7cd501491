"""Plan of an aggregate's buckets for one batch, and their reports.

``AggregatePlan`` goes to workers and ``BucketReport`` comes back. ``AggregatePart`` is the state
between batches. ``Lift`` says how a task makes a partial aggregate of a row from a column of the
shuffle. Several aggregates read the same column, so each column crosses from Spark to Python once.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.aggregates.cells import Span
from eddyline.aggregates.functions import UserMonoid
from eddyline.aggregates.monoids import MONOIDS
from eddyline.data.arrays import whole
from eddyline.state.manifest import StatePart
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.aggregates.monoids import Monoid
    from eddyline.data.arrays import Ints
    from eddyline.query.correlations import Correlation
    from eddyline.query.query import Emits, SlideWindow, Window

COMPONENT = "aggregate"

INSTANT, FIRST = "__instant", "__first"
"""Columns of results: the end of their window, or their instant (µs); and, for sessions and several
queries, the start of the window (µs)."""

PLACE = "__place"
"""The column of results of several queries: the number of the query."""

IS, WAS = "__is", "__was"
"""Columns of results that come with the result before: whether there is one now, and was before."""

PASSES = "__passes"
"""The column of counted rows that says whether WHERE is true."""

OWN_CODE, OWN_CHECK = "__own_code", "__own_check"
"""The two hashes of the group of a counted row, where windows count by other columns; see
``cells``."""

LAST = "__last"
"""The column of joined rows with the last instant at which a row is there (µs)."""

OLD = "__old"
"""Prefix of the columns that have the partial aggregates of the result before."""


@dataclass(frozen=True, slots=True)
class Partials:
    """Columns of partial aggregates, and how they are put together."""

    monoids: Mapping[str, str | Monoid]
    """The monoid of each column: its name in the table, or a user's."""
    ansi: bool = True
    """Whether Spark raises where a value does not fit its type."""

    @property
    def made(self) -> dict[str, Monoid]:
        """The monoid of each column."""
        return {
            name: replace(MONOIDS[monoid] if isinstance(monoid, str) else monoid, ansi=self.ansi)
            for name, monoid in self.monoids.items()
        }


@dataclass(frozen=True, slots=True)
class Frame:
    """The windows of rows that some aggregates before OVER are of."""

    window: Window
    partials: Partials
    """By the columns of rows that have them, which several frames may have in common."""
    values: Mapping[str, str]
    """The columns of its values, and those of their partials."""


@dataclass(frozen=True, slots=True)
class Share:
    """The windows of one of several queries whose cells are the same."""

    window: SlideWindow
    columns: tuple[str, ...]
    """The columns of partial aggregates that it needs."""
    groups: tuple[str, ...]
    """The columns of its groups."""
    presence: str = ""
    """The column that counts its rows, where it does not take all; empty if it does."""
    level: int = 0
    """The place of its groups among those that cells have codes of; see ``cells.coarser``."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns of partial aggregates that it reads, that of its rows included."""
        return tuple(dict.fromkeys([*self.columns, *([self.presence] if self.presence else [])]))


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """The work of every bucket in one batch; goes to workers."""

    before: int
    """Watermark before the batch (µs): no earlier row can still arrive."""
    after: int
    """Watermark after the batch (µs)."""
    groups: tuple[str, ...]
    """The columns of groups."""
    partials: Partials
    """Those of the aggregates by group; see ``frames``."""
    window: Window
    emits: Emits | None = None
    frames: tuple[Frame, ...] = ()
    """The frames of aggregates before OVER, in place of ``window`` and ``partials``."""
    ties: tuple[str, ...] = ()
    """The columns that order rows of one instant, where rows are counted."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The column of partials of each column of results, where rows are counted: several results
    may share one. Empty: both have the same name."""
    spans: bool = False
    """Whether a group may have rows of several partitions, where rows are counted."""
    shares: tuple[Share, ...] = ()
    """The windows of several queries, in place of ``window``."""
    correlations: tuple[tuple[int, Correlation], ...] = ()
    """Correlations of rules by their places, in place of ``window``."""
    lifts: Mapping[str, Lift] = field(default_factory=dict)
    """How tasks make the columns of rows. Empty: the columns arrive ready, as those of cells do."""
    reduces: bool = False
    """Whether rows arrive, and tasks make cells of them."""
    is_alone: bool = False
    """Whether windows that count rows need only the rows of the batch: tasks read and keep none."""
    compares: bool = False
    """Whether output rows differ if and only if their values do: then tasks send only results whose
    values changed, and no results before."""

    @property
    def users(self) -> dict[str, UserMonoid]:
        """The monoids of users' aggregates, by column."""
        every = (self.partials, *(frame.partials for frame in self.frames))
        return {
            name: monoid
            for partials in every
            for name, monoid in partials.monoids.items()
            if isinstance(monoid, UserMonoid)
        }

    @property
    def tells_old(self) -> bool:
        """Whether tasks need the result before each result."""
        return self.emits in ("istream", "dstream")


class BucketState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of one bucket after a batch."""

    waiting: tuple[RunFile, ...] = ()
    """Cells, or rows, that wait for the watermark."""
    history: dict[str, tuple[Span, ...]] = struct_field(default_factory=dict)
    """Cells of before, which later windows reach back to; by ``History.kind``."""

    @property
    def files(self) -> list[RunFile]:
        """All files."""
        kept = [file for spans in self.history.values() for span in spans for file in span.files]
        return [*self.waiting, *kept]


class AggregatePart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of an aggregate after a batch."""

    n_buckets: int
    buckets: dict[int, BucketState] = struct_field(default_factory=dict)
    """The files of each bucket, by its number."""

    def packed(self) -> StatePart:
        """Return the part as a manifest holds it."""
        names = {file.name for state in self.buckets.values() for file in state.files}
        return StatePart.from_content(self, sorted(names))


@dataclass(frozen=True, slots=True)
class AggregateProfile:
    """What a bucket, a batch or several batches did; profiles add up."""

    n_rows: int = 0
    """Rows that were aggregated."""
    n_cells: int = 0
    """Cells that they became, one for each group and slice; or rows where these stay rows."""
    n_read: int = 0
    """Cells of before that were read."""
    n_results: int = 0
    work_ns: int = 0
    """Time in which buckets computed results and kept cells (ns)."""
    n_bytes: int = 0
    """Size of the cells and of the results."""

    def merge(self, *others: AggregateProfile) -> AggregateProfile:
        """Return what several batches, or parts of one, showed together."""
        return AggregateProfile(*map(sum, zip(*map(astuple, (self, *others)), strict=True)))

    @property
    def n_handled(self) -> int:
        """Cells and results that buckets handled."""
        return self.n_cells + self.n_read + self.n_results

    @property
    def rows_per_cell(self) -> float:
        """Rows that became one cell; nan if there was none."""
        return self.n_rows / self.n_cells if self.n_cells else float("nan")


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What a bucket did in a batch."""

    bucket: int
    after: BucketState
    """Its files after the batch."""
    profile: AggregateProfile = AggregateProfile()


Way = Literal["same", "number", "true", "present", "one", "mean", "moments", "timed"]
"""How a column is made: ``same`` is the column itself, ``number`` another type, ``true`` and
``present`` 1 where a value is true or not NULL and 0 elsewhere, ``one`` always 1; others are
partials of their monoids."""

WAYS: Mapping[tuple[str, str], Way] = {
    ("{x}", "min"): "same",
    ("{x}", "max"): "same",
    ("{x}", "sum"): "number",
    ("{x}", "count"): "present",
    ("1", "count"): "one",
    ("CAST({x} AS {number})", "mean"): "mean",
    ("CAST({x} AS DOUBLE)", "moments"): "moments",
    ("struct({t} AS t, {x} AS x)", "first"): "timed",
    ("struct({t} AS t, {x} AS x)", "last"): "timed",
}
"""By lift and monoid of a partial, how it is made of the argument."""


@dataclass(frozen=True, slots=True)
class Lift:
    """How a column of rows is made."""

    way: Way = "same"
    source: str = ""
    """The column that travels; none of ``one``."""
    kind: pa.DataType | None = None
    """Type of a number, and of the sum of a ``mean``."""

    def column(self, travelled: pa.Table, instants: Ints) -> pa.Array | pa.ChunkedArray:
        """Return the column of some rows.

        Args:
            travelled: the columns that travel.
            instants: of the rows (µs).
        """
        if self.way == "one":
            return pa.array(np.ones(instants.size, np.int64))
        column = travelled[self.source]
        return column if self.way == "same" else self._lifted(whole(column), instants)

    def _lifted(self, array: pa.Array, instants: Ints) -> pa.Array:
        """Return what is made of values."""
        if self.way == "true":
            return pc.fill_null(array, False).cast(pa.int64())
        if self.way == "present":
            return _present(array)
        if self.way == "timed":
            return pa.StructArray.from_arrays([pa.array(instants), array], ["t", "x"])
        numbers = _cast(array, self.kind)
        if self.way == "mean":
            return pa.StructArray.from_arrays([numbers, _present(array)], ["sum", "n"])
        if self.way == "number":
            return numbers
        # The deviation of a row from itself: NaN of infinity, as Spark has it.
        parts = [_present(array), numbers, pc.subtract(numbers, numbers)]
        return pa.StructArray.from_arrays(parts, ["n", "mean", "m2"])


def lifted(
    travelled: pa.Table, instants: Ints, lifts: Mapping[str, Lift]
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return the columns of rows, by name; see ``Lift``."""
    return {name: lift.column(travelled, instants) for name, lift in lifts.items()}


def _present(array: pa.Array) -> pa.Array:
    """Return 1 where something is there, 0 where not."""
    if not array.null_count:
        return pa.array(np.ones(len(array), np.int64))
    return pc.is_valid(array).cast(pa.int64())


def _cast(array: pa.Array, kind: pa.DataType | None) -> pa.Array:
    """Return numbers as a type that holds them; of whole ones the nearest doubles, as in Java."""
    if kind is None or array.type == kind:
        return array
    return array.cast(kind, safe=not pa.types.is_floating(kind))
