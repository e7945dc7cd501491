"""Warnings of state that grows for as long as a query runs.

A join keeps all rows of a stream without a window, and lists over an unbounded window keep all
values. SQL asks for that, but the author rarely wants it. So the query warns when it is made and
when it starts.
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
        operators: the operators of the query.
    """
    for state in dict.fromkeys(state for each in operators for state in each.unbounded):
        msg = f"query {query!r}: {state.grows}; {state.bounds}"
        warnings.warn(msg, UnboundedStateWarning, stacklevel=own_frames())
