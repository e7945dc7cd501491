"""Evaluation of a program over batches, under a fixed plan.

Bitmap blocks (``Selection``, along a sequence) and access predicates leave candidates: ``Pairs`` of
a row and a rule that may be true. Constructs that no access predicate needed are looked at only for
rows with candidates; then these are decided, and the residual tests are asked of Python
(``Asker``), the cheapest first. ``Batch`` is what is known of the rows of a batch so far.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from eddyline.data import jit
from eddyline.data.arrays import distinct, starts_of
from eddyline.query.conditions import ValueTest
from eddyline.rules.compile.bitmap_block import PLAIN, BitmapBlocks
from eddyline.rules.compile.formula import REGION, TEXT
from eddyline.rules.compile.patterns import Hits, find
from eddyline.rules.compile.regions import cut_tables, nulls_of
from eddyline.rules.match.bitmap_kernels import (
    CHUNK,
    SequenceArrays,
    Tally,
    regions_of,
    select_hybrid,
    select_macro,
)
from eddyline.rules.match.lower_case import as_text, plain
from eddyline.rules.match.pair_kernels import OPEN, TRUE_NOW, Postings, candidates, decide
from eddyline.rules.match.residual import ask, no_answers
from eddyline.rules.plan import AskedProfile, SelectionCounts, SelectionSequence, SharingProfile
from eddyline.stats.costs import CostSums, work_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.rules.compile.bitmap_block import BitmapBlock
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.bitmap_kernels import CutTables
    from eddyline.rules.plan import BitmapBlockPlan, SharingPlan


class Matcher:
    """A program under a plan; keeps what is worth keeping between batches."""

    def __init__(
        self, program: Program, plan: SharingPlan, blocks: BitmapBlocks | None = None
    ) -> None:
        self.program = program
        self._blocks = BitmapBlocks(program) if blocks is None else blocks
        self._tables = cut_tables([construct.cuts for construct in program.regions])
        self._tick = 1
        self._met = np.zeros(max(1, program.n_patterns), np.int64)
        self._met_again = np.zeros(max(1, program.n_patterns), np.int64)
        self._rule_stamps = np.zeros(max(1, program.n_rules), np.int64)
        self._asker = Asker(program)
        self._always = np.flatnonzero(program.constant == 1).astype(np.int32)
        needs = [external.needs for external in program.externals]
        self._needs_at = starts_of([len(need) for need in needs])
        self._needs = np.array([pattern for need in needs for pattern in need] or [0], np.int32)
        self.plan = plan
        self._lay(plan)
        jit.load()

    def follow(self, plan: SharingPlan) -> None:
        """Go on under another plan; blocks of the same rules are not built again."""
        if plan != self.plan:
            self.plan = plan
            self._lay(plan)

    def _lay(self, plan: SharingPlan) -> None:
        """Turn a plan into what kernels read."""
        blocks = {block.rules: self._blocks.of(block.rules) for block in plan.blocks}
        self._selections: tuple[tuple[BitmapBlockPlan, Int32s, Selection], ...] = tuple(
            (block, np.array(block.rules, np.int32), Selection(blocks[block.rules], block.sequence))
            for block in plan.blocks
        )
        self._postings = postings_of(self.program, plan)
        orders = {order.rule: order.tests for order in plan.python_orders}
        self._code = self.program.ordered.code(self.program, orders)
        self._block_attributes = sorted(
            {attribute for block in blocks.values() for attribute in block.attributes}
        )

    def match(
        self,
        columns: Sequence[pa.Array],
        *,
        n_rows: int,
        sample: Ints | None = None,
        asked_sample: Ints | None = None,
    ) -> tuple[Matches, SharingProfile]:
        """Evaluate a batch; return its matches, and what was observed.

        Every construct looks at the sampled rows, so that it is known how often each literal holds;
        they ascend. On those of ``asked_sample``, rules ask all tests whose order is learned.

        Raises:
            PredicateError: a rule hangs on a row on which a Python predicate or an expression
                raised.
        """
        started = time.perf_counter_ns()
        batch = Batch(self.program, self._tables, columns, n_rows)
        sampled, asked_sampled = (
            np.zeros(0, np.int64) if rows is None else rows for rows in (sample, asked_sample)
        )
        everything = np.arange(batch.n_rows)
        for construct in self._block_attributes:
            batch.take_keys(construct)
        for construct in self._postings.tables.constructs.tolist():
            batch.look_up(construct, everything)
        exact, checked = self._select(batch)
        for text in self._postings.texts:
            self._find(batch, text, everything)
        pairs = self._candidates(batch, checked)
        self._look_further(batch, pairs, sampled)
        matches = self._matches(batch.n_rows, exact, self._decide(batch, pairs, asked_sampled))
        seen = self._profile(batch, pairs, exact, matches, sampled)
        return matches, replace(seen, evaluation_ns=time.perf_counter_ns() - started)

    def _select(self, batch: Batch) -> tuple[Pairs, Pairs]:
        """Return the pairs that bitmap blocks decide, and those that they leave to be decided."""
        exact: list[Pairs] = []
        checked: list[Pairs] = []
        for plan, rules_of_bits, selection in self._selections:
            selected = selection.select(batch.keys, batch.key_nulls)
            pairs = Pairs(selected.rows, rules_of_bits[selected.rules])
            batch.blocks[plan] = selected.counts
            if not selection.block.needs_check.any():
                exact.append(pairs)
                continue
            needs_check: Mask = selection.block.needs_check[selected.rules]
            checked.append(pairs.where(needs_check))
            exact.append(pairs.where(np.logical_not(needs_check)))
        return joined(exact), gathered(checked)

    def _find(self, batch: Batch, text: int, rows: Ints) -> None:
        first = self.program.texts[text].first
        stamps = self._met[first : first + self.program.texts[text].n_patterns]
        is_by_value = text in self.plan.by_value
        batch.find(text, rows, stamps, self._next_tick(batch.n_rows), by_value=is_by_value)

    def _next_tick(self, n_rows: int) -> int:
        tick = self._tick
        self._tick += n_rows
        return tick

    def _candidates(self, batch: Batch, checked: Pairs) -> Pairs:
        """Return the pairs that access predicates find and bitmap blocks left."""
        n_rows = batch.n_rows
        rules = np.empty(4 * n_rows + 2 * len(self._rule_stamps), np.int32)
        starts = np.zeros(n_rows + 1, np.int64)
        row = n_pairs = 0
        tick = self._next_tick(n_rows)
        while True:
            row, n_pairs = candidates(
                row,
                n_rows,
                self._postings.units,
                batch.hits.starts,
                batch.hits.ends,
                batch.hits.patterns,
                batch.regions,
                self._postings.tables,
                self._rule_stamps,
                tick,
                rules,
                n_pairs,
                starts,
            )
            if row == n_rows:
                break
            rules = np.concatenate([rules, np.empty(len(rules), np.int32)])
        rows = np.repeat(np.arange(n_rows), np.diff(starts))
        return gathered([Pairs(rows, rules[:n_pairs]), checked])

    def _look_further(self, batch: Batch, pairs: Pairs, sampled: Ints) -> None:
        """Look at the constructs that candidates read and no access predicate needed."""
        # Rules are counted, not sorted: there are many more pairs than rules, or than rows.
        rules = np.flatnonzero(np.bincount(pairs.rules)).astype(np.int32)
        is_met = np.zeros(batch.n_rows, np.bool_)
        is_met[pairs.rows] = is_met[sampled] = True
        rows = np.flatnonzero(is_met)
        read = _read_by(self.program.reads_regions, rules)
        for construct in range(len(self.program.regions)):
            if construct not in batch.looked_up and (read[construct] or len(sampled)):
                batch.look_up(construct, rows if read[construct] else sampled)
        read = _read_by(self.program.reads_texts, rules)
        for text in range(len(self.program.texts)):
            if text not in batch.found and (read[text] or len(sampled)):
                self._find(batch, text, rows if read[text] else sampled)
        for external in distinct(self.program.externals_of(rules)[1]).tolist():
            if isinstance(self.program.externals[external].test, ValueTest):
                batch.null_of(self.program.externals[external].columns[0])

    def _decide(self, batch: Batch, pairs: Pairs, sampled: Ints) -> Pairs:
        """Return the pairs that are true; of sampled rows, rules ask more than they hang on."""
        true, open_pairs = [], pairs
        while len(open_pairs.rules):
            status, asks = self._status(batch, open_pairs)
            true.append(open_pairs.where(status == TRUE_NOW))
            is_open = status == OPEN
            open_pairs = open_pairs.where(is_open)
            if len(sampled):
                self._asker.ask_sample(batch, open_pairs, sampled)
                sampled = sampled[:0]
            else:
                self._asker.ask(batch, open_pairs, asks[is_open])
        return gathered(true)

    def _status(self, batch: Batch, pairs: Pairs) -> tuple[NDArray[np.int8], Int32s]:
        """Return the state of each pair, and the test that it hangs on if it is open."""
        status = np.empty(len(pairs.rules), np.int8)
        asks = np.empty(len(pairs.rules), np.int32)
        firsts = np.flatnonzero(np.diff(pairs.rows, prepend=-1))
        decide(
            pairs.rows[firsts],
            np.append(firsts, len(pairs.rows)),
            pairs.rules,
            self._code,
            self.program.literals,
            batch.hits.starts,
            batch.hits.ends,
            batch.hits.patterns,
            self._met_again,
            self._next_tick(batch.n_rows),
            batch.regions,
            batch.nulls,
            batch.answers,
            self._needs_at,
            self._needs,
            status,
            asks,
        )
        return status, asks

    def _matches(self, n_rows: int, exact: Pairs, decided: Pairs) -> Matches:
        parts = [exact, decided]
        if len(self._always):
            every = np.repeat(np.arange(n_rows), len(self._always))
            parts.append(Pairs(every, np.tile(self._always, n_rows)))
        return Matches(n_rows, *in_order(joined(parts)))

    def _profile(
        self, batch: Batch, pairs: Pairs, exact: Pairs, matches: Matches, sampled: Ints
    ) -> SharingProfile:
        n_rules = self.program.n_rules
        nothing = SharingProfile.empty(self.program)
        is_alive = np.zeros(batch.n_rows, np.bool_)
        is_alive[pairs.rows] = is_alive[exact.rows] = True
        if len(sampled):
            nothing.value_rows[:] = min(batch.n_rows, LOOKED_AT)
            nothing.distinct_values[:] = batch.distinct_values()
        return replace(
            nothing,
            n_rows=batch.n_rows,
            n_sampled=len(sampled),
            pattern_counts=batch.pattern_counts(sampled),
            sampled_regions=np.ascontiguousarray(
                batch.regions[: len(self.program.regions), sampled].T
            ),
            candidates=np.bincount(pairs.rules, minlength=n_rules)
            + np.bincount(exact.rules, minlength=n_rules),
            matches=np.bincount(matches.rules, minlength=n_rules),
            construct_rows=batch.construct_rows,
            construct_ns=batch.construct_ns,
            asked=batch.asked,
            asked_ns=batch.asked_ns,
            python=batch.python,
            blocks=batch.blocks,
            dropped=0 if len(self._always) else batch.n_rows - int(np.count_nonzero(is_alive)),
        )


def _read_by(reads: Mask, rules: Int32s) -> Mask:
    """Return a mask of the constructs that at least one of some rules reads."""
    is_read: Mask = np.logical_or.reduce(reads[rules], axis=0)
    return is_read


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
        keys_and_nulls = self.program.regions[construct].keys(values)
        self.keys[construct], self.key_nulls[construct] = keys_and_nulls
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
        regions = self.regions[construct] if is_all else np.empty(len(rows), np.int32)
        regions_of(keys, nulls, 0, np.arange(len(rows)), len(rows), self.tables, construct, regions)
        if not is_all:
            self.regions[construct, rows] = regions
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


@dataclass(frozen=True, slots=True)
class Selected:
    """The rules that survive for each row of a batch."""

    rows: Ints
    """Row of each pair, ascending."""
    rules: Int32s
    """Rule of each pair: its place in the block; ascending for each row."""
    counts: SelectionCounts
    """The counts of the selection."""


class Selection:
    """A bitmap block with a sequence, ready to select rows.

    Without a sequence, constructs stand in the order of their numbers.
    """

    def __init__(self, block: BitmapBlock, sequence: SelectionSequence | None = None) -> None:
        sequence = sequence or SelectionSequence.as_numbered(block.n_constructs)
        block.check(sequence)
        self.block = block
        self.sequence = sequence
        self._block = block.arrays()
        self._sequence = _sequence_arrays(block, sequence)

    def select(self, keys: Ints, nulls: Mask) -> Selected:
        """Return the rules that survive for each row of a batch, and counts.

        Keys are those of the attributes, rows of the matrix contiguous, and which are NULL
        ((attributes, R)).
        """
        # Others would be compiled for their kind of array: once per process is enough.
        keys, nulls = np.require(keys, np.int64, PLAIN), np.require(nulls, np.bool_, PLAIN)
        n, n_rows = self.block.n_constructs, keys.shape[1]
        kernel = select_hybrid if self.sequence.is_hybrid else select_macro
        tally = Tally(*(np.zeros(size, dtype=np.int64) for size in (n, n, 1)))
        room = 64 * self.block.n_words * CHUNK + n_rows
        rows, rules = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
        row = n_pairs = 0
        while row < n_rows:
            row, n_pairs = kernel(
                keys, nulls, self._block, self._sequence, tally, row, n_pairs, rows, rules
            )
            if row < n_rows:
                rows, rules = _twice(rows), _twice(rules)
        counts = SelectionCounts(
            n_rows, tally.evaluated, tally.dropped, int(tally.followed[0]), n_pairs
        )
        return Selected(rows[:n_pairs], rules[:n_pairs], counts)


def _sequence_arrays(block: BitmapBlock, sequence: SelectionSequence) -> SequenceArrays:
    macro = np.array(sequence.macro, dtype=np.int64)
    nodes = range(sequence.n_nodes)
    starts, arrows = _arrow_table(block, sequence)
    return SequenceArrays(
        macro=macro,
        position=np.argsort(macro),
        construct_of=np.array([sequence.construct_of(v) for v in nodes], dtype=np.int64),
        arrows_at=starts,
        arrows=arrows,
    )


def _arrow_table(block: BitmapBlock, sequence: SelectionSequence) -> tuple[Ints, Int32s]:
    """Return the start of each node's arrows, and all arrows: one per region of those nodes."""
    starts = np.full(max(sequence.n_nodes, 1), -1, dtype=np.int64)
    size = 0
    for node in dict.fromkeys(arrow.node for arrow in sequence.arrows):
        starts[node] = size
        size += block.n_regions(sequence.construct_of(node))
    arrows = np.full(size, -1, dtype=np.int32)
    for arrow in sequence.arrows:
        arrows[starts[arrow.node] + arrow.region] = arrow.target
    return starts, arrows


def _twice(old: NDArray[Any]) -> NDArray[Any]:
    new = np.empty(2 * len(old), dtype=old.dtype)
    new[: len(old)] = old
    return new


N_WARM = 8
"""Sampled rows of a call whose time does not count, where a test was not called before: the first
call of a process loads what later ones find."""


class Asker:
    """Asks the tests of a program in one process, and counts what that costs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._cold = set(program.ordered.tests.tolist())

    def ask_sample(self, batch: Batch, pairs: Pairs, sampled: Ints) -> None:
        """Ask each test whose order is learned, for the open pairs of sampled rows.

        What raises has no answer, and is an error only where a rule hangs on it.
        """
        ordered = self._program.ordered
        taken = np.flatnonzero(np.isin(pairs.rows, sampled) & np.isin(pairs.rules, ordered.rules))
        if not len(taken):
            return
        started = work_ns()
        places, tests = self._program.externals_of(pairs.rules[taken])
        is_ordered = np.isin(tests, ordered.tests)
        pair, tests = taken[places[is_ordered]], tests[is_ordered]
        asking = Pairs(pairs.rows[pair], pairs.rules[pair])
        seen = distinct(asking.rows)
        if self._cold:
            is_first = (asking.rows <= seen[:N_WARM][-1]) & np.isin(tests, list(self._cold))
            first = *asking.where(is_first), tests[is_first]
            self._cold -= set(ask(self._program, batch.columns, *first, batch.answers))
        self.ask(batch, asking, tests)
        answers = np.ascontiguousarray(batch.answers[np.ix_(ordered.tests, seen)].T)
        batch.python = replace(batch.python, answers=answers, sampled_ns=work_ns() - started)

    def ask(self, batch: Batch, pairs: Pairs, asks: Int32s) -> None:
        """Ask, for each open pair of row and rule, a test; see ``residual.ask``."""
        asked = ask(self._program, batch.columns, *pairs, asks, batch.answers)
        if not asked:
            return
        tests = np.array(list(asked))
        n_rows, spent_ns = np.array(list(asked.values()), np.int64).T
        batch.asked[tests] += n_rows
        batch.asked_ns[tests] += spent_ns
        timed = {test: asked[test] for test in asked if test not in self._cold}
        self._cold -= set(asked)
        ordered = self._program.ordered.tests
        if len(ordered) and timed:
            calls = np.array([timed.get(test, (0, 0)) for test in ordered.tolist()], np.float64).T
            costs = batch.python.costs + CostSums.of_calls(*calls)
            batch.python = replace(batch.python, costs=costs)


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of a row and a rule that is true for it, by row and then by rule."""

    n_rows: int
    """Rows of the batch."""
    rows: Ints
    """Row of each pair, from 0."""
    rules: Int32s
    """Rule of each pair: its place in the set."""


class Pairs(NamedTuple):
    """Pairs of a row and a rule."""

    rows: Ints
    rules: Int32s

    def where(self, keep: Mask) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.rows[keep], self.rules[keep])


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Return pairs of several kinds as one, one kind after the other."""
    full = [part for part in parts if len(part.rows)]
    if len(full) == 1:
        return full[0]
    rows = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in full)])
    return Pairs(rows, np.concatenate([np.zeros(0, np.int32), *(part.rules for part in full)]))


def in_order(pairs: Pairs) -> Pairs:
    """Return pairs by row and then by rule."""
    # As one number each, which numpy sorts in a tenth of the time of a sort by two keys.
    both = (pairs.rows << 32) | pairs.rules
    if (both[1:] > both[:-1]).all():
        return pairs
    both.sort()
    return Pairs(both >> 32, both.astype(np.int32))


def gathered(parts: Sequence[Pairs]) -> Pairs:
    """Return pairs of several kinds, each by row, as one by row."""
    full = [part for part in parts if len(part.rows)]
    return full[0] if len(full) == 1 else in_order(joined(full))


# -- postings --------------------------------------------------------------------------------------
# Access predicates turned round: for each pattern and region, the rules that it may make true.
#
# A literal on regions can hold in many of them; so a construct's regions are the leaves of a binary
# tree, and a rule stands at the few nodes that together cover its regions: memory grows with the
# rules and not with rules times regions, and a row looks at one node per level that has rules.


@dataclass(frozen=True, slots=True)
class AccessIndex:
    """The access predicates of a plan, and the constructs in which they are looked up."""

    tables: Postings
    texts: tuple[int, ...]
    """The text constructs with access predicates."""
    units: Ints
    """Their walks."""


def postings_of(program: Program, plan: SharingPlan) -> AccessIndex:
    """Return the postings of a plan."""
    by_pattern: list[tuple[int, int]] = []
    by_region: dict[int, list[tuple[int, int, int]]] = {}
    literals = program.literals
    kinds, places = literals.kinds.tolist(), literals.places.tolist()
    starts, low, high = (array.tolist() for array in (literals.starts, literals.low, literals.high))
    blocked = {rule for block in plan.blocks for rule in block.rules}
    everywhere = []
    for rule, access in enumerate(plan.access_predicates):
        if access is None and rule not in blocked and program.constant[rule] < 0:
            everywhere.append(rule)
        for literal in access or ():
            place = places[literal]
            if kinds[literal] == REGION:
                intervals = by_region.setdefault(place, [])
                for number in range(starts[literal], starts[literal + 1]):
                    intervals.append((low[number], high[number], rule))
            elif kinds[literal] == TEXT:
                by_pattern.append((place, rule))
            else:
                by_pattern += [(need, rule) for need in program.externals[place].needs]
    pattern_at, pattern_rules = _listed(by_pattern, program.n_patterns)
    text_of = [text for text, construct in enumerate(program.texts) for _ in construct.patterns]
    texts = tuple(sorted({text_of[pattern] for pattern, _ in by_pattern}))
    units = [
        unit
        for text in texts
        for unit in range(program.first_units[text], program.first_units[text + 1])
    ]
    tables = Postings(
        pattern_at=pattern_at,
        pattern_rules=pattern_rules,
        everywhere=np.array(everywhere, np.int32),
        **_trees(program, by_region),
    )
    return AccessIndex(tables, texts, np.array(units, np.int64))


def _trees(program: Program, by_region: dict[int, list[tuple[int, int, int]]]) -> dict[str, Any]:
    """Return the fields of ``Postings`` about regions."""
    constructs = sorted(by_region)
    leaves, firsts, levels, met = [], [], [], [np.zeros(0, np.bool_)]
    at_nodes: list[tuple[int, int]] = []
    first = 0
    for construct in constructs:
        n_leaves = 1 << max(0, program.regions[construct].n_regions - 1).bit_length()
        has_rules = 0
        is_met = np.zeros(2 * n_leaves, np.bool_)
        for low, high, rule in by_region[construct]:
            for node in _cover(low, high, n_leaves):
                at_nodes.append((first + node, rule))
                is_met[node] = True
                has_rules |= 1 << (n_leaves.bit_length() - node.bit_length())
        for level in range(1, n_leaves.bit_length()):
            is_met[1 << level : 2 << level] |= np.repeat(is_met[1 << level - 1 : 1 << level], 2)
        met.append(is_met)
        leaves.append(n_leaves)
        firsts.append(first)
        levels.append(has_rules)
        first += 2 * n_leaves
    rules_at, rules = _listed(at_nodes, first)
    return {
        "constructs": np.array(constructs, np.int32),
        "leaf_at": np.array(leaves, np.int64),
        "node_at": np.array(firsts, np.int64),
        "levels": np.array(levels, np.int64),
        "is_met": np.concatenate(met),
        "rules_at": rules_at,
        "region_rules": rules,
    }


def _cover(low: int, high: int, n_leaves: int) -> Iterator[int]:
    """Yield the fewest nodes that together are the leaves from low to high.

    >>> list(_cover(1, 3, 4))
    [5, 3]
    """
    left, right = low + n_leaves, high + n_leaves + 1
    while left < right:
        if left & 1:
            yield left
            left += 1
        if right & 1:
            right -= 1
            yield right
        left >>= 1
        right >>= 1


def _listed(pairs: list[tuple[int, int]], n_keys: int) -> tuple[Ints, Int32s]:
    """Return the rules of each key, one key after the other, and where each key's start."""
    table = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
    starts = starts_of(np.bincount(table[:, 0], minlength=n_keys))
    return starts, np.ascontiguousarray(table[:, 1]).astype(np.int32)
