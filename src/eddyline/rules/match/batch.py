"""One batch, and what is known of its rows so far."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from eddyline.rules.compile.keys import nulls_of
from eddyline.rules.compile.patterns import Hits, find
from eddyline.rules.match.lower_case import as_text, plain
from eddyline.rules.match.region_kernels import regions_of
from eddyline.rules.match.residual import no_answers
from eddyline.rules.profile import AskedProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from eddyline.data.arrays import Ints
    from eddyline.rules.compile.program import Program
    from eddyline.rules.compile.region_tables import CutTables
    from eddyline.rules.plan import BitmapBlockPlan
    from eddyline.rules.profile import SelectionCounts

LOOKED_AT = 500
"""First rows of a batch whose values are counted."""


class Batch:
    """One batch, and what is known of its rows so far."""

    def __init__(
        self, program: Program, tables: CutTables, columns: Sequence[pa.Array], n_rows: int
    ) -> None:
        self.program = program
        self.tables = tables
        self.columns = [plain(values) for values in columns]
        self.n_rows = n_rows
        n_regions = len(program.regions)
        self.keys = np.zeros((max(1, n_regions), n_rows), np.int64)
        self.key_nulls = np.zeros((max(1, n_regions), n_rows), np.bool_)
        self.regions = np.zeros((max(1, n_regions), n_rows), np.int32)
        self.nulls = np.zeros((max(1, len(columns)), n_rows), np.bool_)
        self.hits = Hits(max(1, program.first_units[-1]), n_rows)
        self.answers = no_answers(program, n_rows)
        self.keyed: set[int] = set()
        self.looked_up: set[int] = set()
        self.found: set[int] = set()
        self.blocks: dict[BitmapBlockPlan, SelectionCounts] = {}
        n_constructs = n_regions + len(program.texts)
        self.construct_rows = np.zeros(n_constructs, np.int64)
        self.construct_ns = np.zeros(n_constructs, np.int64)
        self.asked, self.asked_ns = np.zeros((2, len(program.externals)), np.int64)
        self.python = AskedProfile.empty(len(program.ordered.tests))

    def take_keys(self, construct: int) -> None:
        """Find the keys of all rows in a region construct."""
        started = time.perf_counter_ns()
        values = self.columns[self.program.region_columns[construct]]
        found = self.program.regions[construct].keys(values)
        self.keys[construct], self.key_nulls[construct] = found
        self.keyed.add(construct)
        self._count(construct, self.n_rows, started)

    def look_up(self, construct: int, rows: Ints) -> None:
        """Find the regions of some rows in a region construct."""
        started = time.perf_counter_ns()
        is_all = len(rows) == self.n_rows
        is_keyed = construct in self.keyed
        chosen = slice(None) if is_all else rows
        if is_keyed:
            keys, nulls = self.keys[construct, chosen], self.key_nulls[construct, chosen]
        else:
            values = self.columns[self.program.region_columns[construct]]
            keys, nulls = self.program.regions[construct].keys(
                values if is_all else values.take(rows)
            )
        found = self.regions[construct] if is_all else np.empty(len(rows), np.int32)
        regions_of(keys, nulls, 0, np.arange(len(rows)), len(rows), self.tables, construct, found)
        if not is_all:
            self.regions[construct, rows] = found
        self.looked_up.add(construct)
        self._count(construct, 0 if is_keyed else len(rows), started)

    def find(self, text: int, rows: Ints, stamps: Ints, tick: int, *, by_value: bool) -> None:
        """Find the patterns of a text construct in some rows; see ``patterns.find``."""
        started = time.perf_counter_ns()
        construct = self.program.texts[text]
        column = self.program.text_columns[text]
        values = self.columns[column]
        self.nulls[column] = nulls_of(values)
        units = slice(self.program.first_units[text], self.program.first_units[text + 1])
        starts, ends = self.hits.starts[units], self.hits.ends[units]
        if by_value and len(rows) == self.n_rows:
            coded = as_text(values).dictionary_encode()
            texts, every = construct.texts(coded.dictionary), np.arange(len(coded.dictionary))
            value_starts, value_ends = np.zeros((2, len(starts), len(every)), np.int64)
            find(construct, texts, every, self.hits, value_starts, value_ends, stamps, tick)
            there = np.flatnonzero(~self.nulls[column])
            codes = coded.indices.drop_null().to_numpy()
            starts[:, there], ends[:, there] = value_starts[:, codes], value_ends[:, codes]
        else:
            find(construct, construct.texts(values), rows, self.hits, starts, ends, stamps, tick)
        self.found.add(text)
        self._count(len(self.program.regions) + text, len(rows), started)

    def null_of(self, column: int) -> None:
        """Find out which values of a column are NULL."""
        values = self.columns[column]
        self.nulls[column] = nulls_of(values)

    def distinct_values(self) -> list[int]:
        """Return the number of values of the first rows in the column of each text construct."""
        first = [self.columns[column].slice(0, LOOKED_AT) for column in self.program.text_columns]
        return [pc.count_distinct(values, mode="all").as_py() for values in first]

    def _count(self, construct: int, n_rows: int, started: int) -> None:
        self.construct_rows[construct] += n_rows
        self.construct_ns[construct] += time.perf_counter_ns() - started

    def pattern_counts(self, rows: Ints) -> Ints:
        """Return the number of rows, of some, in which each pattern was found."""
        starts, ends = self.hits.starts[:, rows].ravel(), self.hits.ends[:, rows].ravel()
        sizes = ends - starts
        if not sizes.any():
            return np.zeros(self.program.n_patterns, np.int64)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = np.repeat(starts, sizes) + within
        return np.bincount(self.hits.patterns[places], minlength=self.program.n_patterns)
