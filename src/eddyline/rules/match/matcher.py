"""Evaluates a program over batches under a plan: moves rows, decides nothing.

Bitmap blocks and access predicates leave candidates: pairs of a row and a rule that may be true.
Constructs that no access predicate needed are looked at only for rows with candidates; then these
are decided, and the residual tests are asked of Python, the cheapest first.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data import jit
from eddyline.data.arrays import distinct
from eddyline.query.conditions import ValueTest
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.postings import postings_of
from eddyline.rules.compile.region_tables import cut_tables
from eddyline.rules.match.asking import Asker
from eddyline.rules.match.batch import LOOKED_AT, Batch
from eddyline.rules.match.pair_kernels import OPEN, TRUE_NOW, candidates, decide
from eddyline.rules.match.pairs import Matches, Pairs, gathered, in_order, joined, where
from eddyline.rules.match.selection import Selection
from eddyline.rules.profile import SharingProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.pairs import Found
    from eddyline.rules.plan import BitmapBlockPlan, SharingPlan


class Matcher:
    """A program under a plan; keeps what is worth keeping between batches."""

    def __init__(
        self, program: Program, plan: SharingPlan, blocks: BitmapBlocks | None = None
    ) -> None:
        self.program = program
        self._blocks = BitmapBlocks(program) if blocks is None else blocks
        self._tables = cut_tables([each.cuts for each in program.regions])
        self._tick = 1
        self._met = np.zeros(max(1, program.n_patterns), np.int64)
        self._met_again = np.zeros(max(1, program.n_patterns), np.int64)
        self._rule_stamps = np.zeros(max(1, program.n_rules), np.int64)
        self._asker = Asker(program)
        self._always = np.flatnonzero(program.constant == 1).astype(np.int32)
        needs = [each.needs for each in program.externals]
        self._needs_at = np.cumsum([0, *map(len, needs)]).astype(np.int64)
        self._needs = np.array([each for need in needs for each in need] or [0], np.int32)
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
        blocks = {each.rules: self._blocks.of(each.rules) for each in plan.blocks}
        self._selections: tuple[tuple[BitmapBlockPlan, Int32s, Selection], ...] = tuple(
            (each, np.array(each.rules, np.int32), Selection(blocks[each.rules], each.sequence))
            for each in plan.blocks
        )
        self._postings = postings_of(self.program, plan)
        orders = {each.rule: each.tests for each in plan.python_orders}
        self._code = self.program.ordered.code(self.program, orders)
        self._access_texts = self._postings.texts
        self._block_attributes = sorted({at for each in blocks.values() for at in each.attributes})

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
            np.zeros(0, np.int64) if each is None else each for each in (sample, asked_sample)
        )
        everything = np.arange(batch.n_rows)
        for construct in self._block_attributes:
            batch.take_keys(construct)
        for construct in self._postings.tables.constructs.tolist():
            batch.look_up(construct, everything)
        exact, checked = self._select(batch)
        for text in self._access_texts:
            self._find(batch, text, everything)
        pairs = self._candidates(batch, checked)
        self._look_further(batch, pairs, sampled)
        decided = self._decide(batch, pairs, asked_sampled)
        matches = self._matches(batch.n_rows, exact, decided)
        seen = self._profile(batch, pairs, exact, matches, sampled)
        return matches, replace(seen, evaluation_ns=time.perf_counter_ns() - started)

    def _select(self, batch: Batch) -> tuple[Found, Pairs]:
        """Return the pairs that bitmap blocks decide, and those that they leave to be decided."""
        exact: list[Found] = []
        checked: list[Found] = []
        for plan, rules_of_bits, selection in self._selections:
            found = selection.select(batch.keys, batch.key_nulls)
            pairs = found.rows, rules_of_bits[found.rules]
            batch.blocks[plan] = found.counts
            if not selection.block.needs_check.any():
                exact.append(pairs)
                continue
            needs_check: Mask = selection.block.needs_check[found.rules]
            checked.append(where(pairs, needs_check))
            exact.append(where(pairs, np.logical_not(needs_check)))
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
        return gathered([(rows, rules[:n_pairs]), (checked.row_of, checked.rules)])

    def _look_further(self, batch: Batch, pairs: Pairs, sampled: Ints) -> None:
        """Look at the constructs that candidates read and no access predicate needed."""
        # Rules are counted, not sorted: there are many more pairs than rules, or than rows.
        rules = np.flatnonzero(np.bincount(pairs.rules)).astype(np.int32)
        rows = distinct(np.concatenate([pairs.rows, sampled]))
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
        true, left = [], pairs
        while len(left.rules):
            status, asks = self._status(batch, left)
            true.append(left.where(status == TRUE_NOW))
            is_open = status == OPEN
            left = left.where(is_open)
            if len(sampled):
                self._asker.ask_sample(batch, left, sampled)
                sampled = sampled[:0]
            else:
                self._asker.ask(batch, left, asks[is_open])
        return gathered([(each.row_of, each.rules) for each in true])

    def _status(self, batch: Batch, pairs: Pairs) -> tuple[NDArray[np.int8], Int32s]:
        """Return the state of each pair, and the test that it hangs on if it is open."""
        status = np.empty(len(pairs.rules), np.int8)
        asks = np.empty(len(pairs.rules), np.int32)
        decide(
            pairs.rows,
            pairs.starts,
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

    def _matches(self, n_rows: int, exact: Found, decided: Pairs) -> Matches:
        found = [exact, (decided.row_of, decided.rules)]
        if len(self._always):
            every = np.repeat(np.arange(n_rows), len(self._always))
            found.append((every, np.tile(self._always, n_rows)))
        return Matches(n_rows, *in_order(*joined(found)))

    def _profile(
        self,
        batch: Batch,
        pairs: Pairs,
        exact: Found,
        matches: Matches,
        sampled: Ints,
    ) -> SharingProfile:
        n_rules = self.program.n_rules
        nothing = SharingProfile.empty(self.program)
        exact_rows, exact_rules = exact
        met = np.bincount(pairs.rules, minlength=n_rules) + np.bincount(
            exact_rules, minlength=n_rules
        )
        is_alive = np.zeros(batch.n_rows, np.bool_)
        is_alive[pairs.rows] = is_alive[exact_rows] = True
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
            candidates=met,
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
    found: Mask = np.logical_or.reduce(reads[rules], axis=0)
    return found
