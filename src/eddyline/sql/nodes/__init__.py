"""The rules for each type of node: its type and errors, its text, its form without errors.

In: a node of a tree and the pass that asks (``inference``, ``rendering`` or ``error_free``). Out:
what the pass asks for. Invariant: a type of node without a row may raise, and Spark evaluates it as
it was written.

Each family of nodes has a file, whose functions stand above the rows that use them: ``logic``,
``arithmetic``, ``text_patterns`` and ``calls``. Read ``calls`` first, as it has the smallest rules,
then ``table``, which puts all rows together. A new kind of expression is a ``Node`` in ``NODES`` of
one file; a function with rules of its own is a ``Call`` in ``CALLS``. Imports ``sql/`` below
``sql.analysis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eddyline.sql.rendering import CLOSED

if TYPE_CHECKING:
    from eddyline.sql import error_free, inference, rendering


class Node(NamedTuple):
    """The rules for one type of node."""

    infer: inference.NodeRule
    """Returns the node's type, and why it may raise."""
    write: rendering.NodeRule | None = None
    """Returns the node as Spark SQL; None: it cannot be written."""
    binds: int = CLOSED
    """Rank by which it binds, if it is an operator."""
    free: error_free.NodeRule | None = None
    """Returns the form that does not raise, where the node may; None: it has none."""


class Call(NamedTuple):
    """The rules for one function."""

    infer: inference.CallRule
    """Returns the type of a call, and why it may raise."""
    free: error_free.CallRule | None = None
    """Returns the form that does not raise, where a call may; None: it has none."""
