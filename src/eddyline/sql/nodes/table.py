"""The table of all types of nodes, and of the functions that have rules of their own.

A type of node without a row may raise, and Spark evaluates it as it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.sql.nodes import arithmetic, calls, logic, text_patterns

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.sql.nodes import Call, Node

NODES: dict[type[Expr], Node] = {
    **logic.NODES,
    **text_patterns.NODES,
    **arithmetic.NODES,
    **calls.NODES,
}
CALLS: dict[tuple[str, int], Call] = {
    **logic.CALLS,
    **text_patterns.CALLS,
    **arithmetic.CALLS,
    **calls.CALLS,
}
"""By name and number of arguments (-1: any); other functions are in ``sql.functions``."""

INFER = {kind: node.infer for kind, node in NODES.items()}
WRITE = {kind: node.write for kind, node in NODES.items() if node.write is not None}
BINDS = {kind: node.binds for kind, node in NODES.items()}
FREE = {kind: node.free for kind, node in NODES.items() if node.free is not None}
INFER_CALLS = {key: call.infer for key, call in CALLS.items()}
FREE_CALLS = {key: call.free for key, call in CALLS.items() if call.free is not None}
"""The table by column, as each pass takes it."""
