"""Warnings of state that grows for as long as a query runs.

A stream without a window keeps all of its rows in a join, and lists over an unbounded window keep
all of their values. That is what SQL says, and it is rarely meant. So a person is told when the
query is made and when it starts.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from eddyline.errors import UnboundedStateWarning
from eddyline.spark.lateness import own_frames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.spark.operator import Operator


def warn_of_unbounded_state(query: str, operators: Iterable[Operator]) -> None:
    """Warn once for each part of the state that grows without a bound.

    Args:
        query: name of the query.
        operators: those of the query.
    """
    for state in dict.fromkeys(state for each in operators for state in each.unbounded):
        msg = f"query {query!r}: {state.grows}; {state.bounds}"
        warnings.warn(msg, UnboundedStateWarning, stacklevel=own_frames())
