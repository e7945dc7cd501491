"""The conditions of a plan of rules: for which share of rows each literal holds.

Of many literals that hold for few rows each, no single one tells two situations apart. So it is a
condition, too, how many rows the literals of one column select together, and on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.rules.compile.formula import REGION, TEXT
from eddyline.rules.planning.access_predicates import MIN_ROWS, counted_rates
from eddyline.runtime.situations import Conditions

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.rules.compile.program import Program
    from eddyline.rules.profile import SharingProfile
    from eddyline.runtime.situations import Situation

MOST_LITERALS = 2_000
"""Literals up to which their rates are kept for each situation: numbers of ten bytes each."""

DIGITS = 5
"""Decimals of the rates that are kept."""


class RuleConditions:
    """The rates of a program's literals since they last changed.

    Args:
        program: the rules.
        identity: what is the same as long as they mean the same, also in another process.
    """

    def __init__(self, program: Program, identity: str) -> None:
        self.program, self.identity = program, identity
        self.n_literals = n = len(program.literals.kinds)
        self.known = Conditions()
        self.why_not = ""
        """Why nothing is kept; empty if it is."""
        if n > MOST_LITERALS:
            self.why_not = f"rates of {n:,} literals would be kept for each situation"
            return
        columns, of = np.unique(_columns_of(program), return_inverse=True)
        self._of = of
        self.names = (
            *(f"rows that tests of {each} select together" for each in columns.tolist()),
            *(f"rows that a test of {each} selects" for each in columns.tolist()),
            *(f"literal {at} holds" for at in range(n)),
        )

    def step(self, fresh: SharingProfile) -> None:
        """Take in what a batch observed."""
        if not fresh.n_sampled or self.why_not or not self.n_literals:
            return
        n = float(fresh.n_sampled)
        rates = np.minimum(counted_rates(self.program, fresh), 1.0)
        sums = np.bincount(self._of, rates)
        means = sums / np.bincount(self._of)
        shares = np.concatenate([np.minimum(sums, 1.0), means, rates])
        self.known.step(self.names, shares, np.full(len(shares), n), n)

    def rates(self, evidence: Any) -> Floats:
        """Return the rates of literals by the evidence of a situation.

        Raises:
            ValueError: it is of other rules.
        """
        found = np.array(evidence, np.float64)
        if found.shape != (self.n_literals,):
            msg = f"rates of {self.n_literals} literals have the shape {found.shape}"
            raise ValueError(msg)
        return found

    def situation(self) -> Situation | None:
        """Return the conditions as the log knows them; None while no row was sampled."""
        if not self.known.n_sampled:
            return None
        rates = self.known.shares[-self.n_literals :]
        evidence = [round(each, DIGITS) for each in rates.tolist()]
        return self.known.situation(evidence, MIN_ROWS)


def _columns_of(program: Program) -> list[str]:
    """Return the column that each literal looks at; tests of Python count as one."""
    firsts = [each.first for each in program.texts]
    found = []
    pairs = zip(program.literals.kinds.tolist(), program.literals.places.tolist(), strict=True)
    for kind, place in pairs:
        if kind == REGION:
            found.append(program.columns[program.region_columns[place]])
        elif kind == TEXT:
            text = int(np.searchsorted(firsts, place, "right")) - 1
            found.append(program.columns[program.text_columns[text]])
        else:
            found.append("Python")
    return found
