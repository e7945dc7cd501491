"""Rows, segments and results of a few entities, kept to be drawn: no part of any answer.

The entities are those of the least codes, which are hashes of keys: so they are the same however
rows come, and whichever bucket has them. Of each the newest rows are kept, and what is over these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models.kept import codes_of
from eddyline.models.rows import micros_of, table_of
from eddyline.models.steps import SINCE, TIME, UNTIL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.fitted import Part

MOST_ENTITIES = 3
MOST_ROWS = 200
"""Rows, segments and results of an entity that are kept, the newest ones of each."""
ANY = np.iinfo(np.int64).max
"""The code up to which entities are kept, as long as there are few."""


@dataclass(frozen=True)
class Sketch:
    """What is kept of a few entities, in tables with ``CODE``.

    Attributes:
        rows: by input.
        segments: by input.
        results: all of them have the same columns.
        n_entities: how many entities are kept at most.
        n_rows: how many rows of each.
    """

    rows: Mapping[int, pa.Table] = field(default_factory=dict)
    segments: Mapping[int, pa.Table] = field(default_factory=dict)
    results: pa.Table | None = None
    n_entities: int = MOST_ENTITIES
    n_rows: int = MOST_ROWS

    @property
    def codes(self) -> Ints:
        """The entities of which something is known, ascending."""
        every = [*self.rows.values(), *self.segments.values()]
        found = [codes_of(each) for each in every if len(each)]
        return distinct(np.concatenate(found)) if found else np.zeros(0, np.int64)

    @property
    def cut(self) -> int:
        """The greatest code of an entity that would be kept."""
        codes = self.codes
        return int(codes[self.n_entities - 1]) if len(codes) >= self.n_entities else ANY

    def with_later(self, later: Iterable[Sketch], times: Sequence[str]) -> Sketch:
        """Return what is kept when more has come; ``times`` as for ``sketched``."""
        every = [self, *later]
        whole = Sketch(
            _by_input([each.rows for each in every]),
            _by_input([each.segments for each in every]),
            _joined(each.results for each in every),
            self.n_entities,
            self.n_rows,
        )
        return whole.of(whole.codes[: self.n_entities], times)

    def of(self, codes: Ints, times: Sequence[str]) -> Sketch:
        """Return the newest of some entities; ``times`` as for ``sketched``."""
        rows = {at: newest(each, codes, times[at], self.n_rows) for at, each in self.rows.items()}
        segments = {
            at: newest(each, codes, "lo", self.n_rows) for at, each in self.segments.items()
        }
        results = self.results
        if results is not None:
            results = newest(results, codes, time_of_results(results), self.n_rows)
        return Sketch(rows, segments, results, self.n_entities, self.n_rows)


def sketched(
    times: Sequence[str],
    due: Sequence[pa.Table | None],
    parts: Sequence[Part | None],
    results: pa.Table | None,
    codes: Ints,
    zone: str | None,
) -> Sketch:
    """Return what one batch of a bucket brings of a few entities.

    Args:
        times: for each input the column that says when a row was.
        due: the rows of each input that were looked at.
        parts: what came of them.
        results: with ``CODE``.
        codes: of the entities, ascending.
        zone: of timestamps; see ``table_of``.
    """
    if not codes.size:
        return Sketch()
    rows = {at: each for at, each in enumerate(due) if each is not None}
    segments = {}
    for at, part in enumerate(parts):
        if part is not None:
            given = part.segments
            few = np.isin(codes_of(given.entities), codes)[given.segments.keys]
            segments[at] = table_of(type(given)(given.segments.take(few), given.entities), zone)
    # Results that are none may have no columns, either.
    has_results = results is not None and len(results) > 0
    return Sketch(rows, segments, results if has_results else None).of(codes, times)


def time_of_results(table: pa.Table) -> str:
    """Return the column that says when results are, or begin; keys may have names of others."""
    names = table.column_names
    if "lo" in names:
        return "lo"
    return SINCE if {SINCE, UNTIL} <= {*names} else TIME


def newest(table: pa.Table, codes: Ints, time: str, n: int) -> pa.Table:
    """Return the last rows of each of some entities, by entity and time.

    Args:
        table: with ``CODE``.
        codes: of the entities, ascending.
        time: the column of instants.
        n: how many of each at most.
    """
    # Of many rows few are below the greatest code: a comparison costs less than a look-up.
    every = codes_of(table)
    few = np.flatnonzero(every <= codes[-1]) if len(codes) else np.zeros(0, np.int64)
    table = table.take(pa.array(few[np.isin(every[few], codes)]))
    own = codes_of(table)
    order = np.lexsort((micros_of(table.column(time)), own))
    ends = np.searchsorted(own[order], own[order], "right")
    return table.take(pa.array(order[ends - np.arange(len(order)) <= n]))


def _by_input(given: Sequence[Mapping[int, pa.Table]]) -> dict[int, pa.Table]:
    inputs = sorted({at for each in given for at in each})
    return {at: _joined(each.get(at) for each in given) for at in inputs}


def _joined(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    known = [each for each in tables if each is not None]
    filled = [each for each in known if len(each)] or known[:1]
    return pa.concat_tables(filled).combine_chunks() if filled else None
