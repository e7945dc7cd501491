"""The rows of the table of nodes: type and errors, text, form without errors of each type of node.

A module for each family of nodes ends with its rows of the table; ``table`` has all of them. A new
kind of expression is a row and its functions in one module. Imports ``sql/`` below
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
