"""Asks the tests of Python that pairs hang on, and of sampled rows those whose order is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.rules.match.residual import ask
from eddyline.stats.costs import CostSums, work_ns

if TYPE_CHECKING:
    from eddyline.data.arrays import Int32s, Ints
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.batch import Batch
    from eddyline.rules.match.pairs import Pairs

N_WARM = 8
"""Sampled rows of a call whose time does not count, where a test was not called before: the first
call of a process loads what later ones find."""


class Asker:
    """Asks the tests of a program in one process, and counts what that costs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._cold = set(program.ordered.tests.tolist())

    def ask(self, batch: Batch, pairs: Pairs, asks: Int32s) -> None:
        """Ask, for each open pair of row and rule, the test on which it hangs first.

        For ``asks`` and errors see ``residual.ask``.
        """
        self._ask(batch, pairs.row_of, pairs.rules, asks)

    def ask_sample(self, batch: Batch, pairs: Pairs, sampled: Ints) -> None:
        """Ask each test whose order is learned, for the open pairs of sampled rows.

        What raises has no answer, and is an error only where a rule hangs on it.
        """
        ordered, row_of = self._program.ordered, pairs.row_of
        taken = np.flatnonzero(np.isin(row_of, sampled) & np.isin(pairs.rules, ordered.rules))
        if not len(taken):
            return
        started = work_ns()
        places, tests = self._program.externals_of(pairs.rules[taken])
        is_ordered = np.isin(tests, ordered.tests)
        pair, tests = taken[places[is_ordered]], tests[is_ordered]
        rows, rules = row_of[pair], pairs.rules[pair]
        seen = distinct(rows)
        if self._cold:
            is_first = (rows <= seen[:N_WARM][-1]) & np.isin(tests, list(self._cold))
            first = rows[is_first], rules[is_first], tests[is_first]
            self._cold -= set(ask(self._program, batch.columns, *first, batch.answers))
        self._ask(batch, rows, rules, tests)
        answers = np.ascontiguousarray(batch.answers[np.ix_(ordered.tests, seen)].T)
        batch.python = replace(batch.python, answers=answers, sampled_ns=work_ns() - started)

    def _ask(self, batch: Batch, rows: Ints, rules: Int32s, asks: Int32s) -> None:
        asked = ask(self._program, batch.columns, rows, rules, asks, batch.answers)
        if not asked:
            return
        tests = np.array(list(asked))
        n_rows, spent_ns = np.array(list(asked.values()), np.int64).T
        batch.asked[tests] += n_rows
        batch.asked_ns[tests] += spent_ns
        timed = {each: asked[each] for each in asked if each not in self._cold}
        self._cold -= set(asked)
        ordered = self._program.ordered.tests
        if len(ordered) and timed:
            calls = np.array([timed.get(each, (0, 0)) for each in ordered.tolist()], np.float64).T
            costs = batch.python.costs + CostSums.of_calls(*calls)
            batch.python = replace(batch.python, costs=costs)
