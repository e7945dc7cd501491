"""Warm-up of the kernels that rules need, before the first rows come.

The first call of numba takes half a second in each process. Compiling all kernels takes several
seconds, once on a machine. A tiny set of rules is run, which calls every kernel as batches will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.options import SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Rule, TextTest
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import MIN_ROWS
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import INT, STRING

if TYPE_CHECKING:
    from eddyline.query.conditions import Node

_A, _B, _S = Operand("a", INT), Operand("b", INT), Operand("s", STRING)

_TEXTS = TextTest(_S, (Wild(ANY), "x", Wild(ANY), "y"), folded=True)
_NUMBERS = And((Compare(_A, "=", 1), Compare(_B, "=", 2)))

_WAYS: tuple[tuple[str, Node], ...] = (("witnesses", _TEXTS), ("blocks", _NUMBERS))
"""Methods, and a rule for each; both take about as long to compile."""


def load_kernels(first: int = 0) -> None:
    """Load the kernels that most rules need, and have those compiled that are not kept yet.

    Processes that start with different halves share the work, as the second finds what the first
    has compiled.
    """
    for way in range(len(_WAYS)):
        _run(*_WAYS[(first + way) % len(_WAYS)])


def _run(method: str, tree: Node) -> None:
    """Match rows by one rule, and plan from them."""
    columns = {"a": pa.array([1, 1], pa.int32()), "b": pa.array([2, 3], pa.int32())}
    columns["s"] = pa.array(["xy", "xz"])
    rows = np.arange(MIN_ROWS)
    program = compile_rules([Rule("rule", tree, "")])
    choice = RuleChoice(program, SharingOptions(method=method).resolved())
    batch = [columns[name].take(pa.array(rows % 2)) for name in program.columns]
    _, seen = Matcher(program, choice.sharing).match(batch, n_rows=len(rows), sample=rows)
    choice.step(seen)
