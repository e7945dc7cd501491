"""The errors that eddyline meant, where Spark has wrapped them."""

from __future__ import annotations

import re

from eddyline.errors import EddylineError, PredicateError, StateError

_STATE_ERROR = re.compile(r"eddyline\.errors\.StateError: (.*)")
_PREDICATE_ERROR = re.compile(r"eddyline\.errors\.PredicateError: (.*)")
_RAISED = re.compile(r"(predicate '.*? raised .*?; handle that value[^\n]*)", re.DOTALL)


def reworded(error: BaseException, query: str) -> BaseException:
    """Return the error of eddyline that another one tells of; that one itself if it tells of none.

    Args:
        error: as it was raised; by Spark, its text holds the traces of workers.
        query: name of the query that failed.
    """
    if isinstance(error, EddylineError):
        return error.with_traceback(None)
    text = str(error)
    if match := _STATE_ERROR.search(text):
        return StateError(match[1], query=query)
    for pattern in (_PREDICATE_ERROR, _RAISED):
        if match := pattern.search(text):
            return PredicateError(match[1], query=query)
    return error
