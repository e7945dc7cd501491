"""The errors that eddyline meant, where Spark has wrapped them."""

from __future__ import annotations

import re

from pyspark.errors.exceptions.captured import CapturedException

from eddyline.errors import EddylineError, PredicateError, SourceError, StateError
from eddyline.spark.analysis import reason_of

_STATE_ERROR = re.compile(r"eddyline\.errors\.StateError: (.*)")
_PREDICATE_ERROR = re.compile(r"eddyline\.errors\.PredicateError: (.*)")
_RAISED = re.compile(
    r"(predicate '.*? raised .*?; (?:handle that value|this function is written)[^\n]*)", re.DOTALL
)

_DISK = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_SINK = re.compile(
    r"\[TASK_WRITE_FAILED\] Task failed while writing rows to (?:file:)?(\S+?)/_eddyline/"
)


def reworded(
    error: BaseException, query: str, cause: BaseException | None = None, failed_in: str = ""
) -> BaseException:
    """Return the error of eddyline that another one tells of; that one itself if it tells of none.

    An error of Spark then begins with one sentence: which query failed, where and why.

    Args:
        error: as it was raised; by Spark, its text holds the traces of workers.
        query: name of the query that failed.
        cause: the error of the batch, if Spark wrapped it.
        failed_in: where it failed, such as `` in batch 3``.
    """
    if isinstance(error, EddylineError):
        return error.with_traceback(None)
    text = str(error)
    if match := _STATE_ERROR.search(text):
        return StateError(match[1], query=query)
    for pattern in (_PREDICATE_ERROR, _RAISED):
        if match := pattern.search(text):
            return PredicateError(match[1], query=query)
    if match := _DISK.search(text):
        return _disk_error(match[0], text, query)
    if isinstance(error, CapturedException) and error._desc is not None:
        lead = f"query {query!r} failed{failed_in}: "
        if not error._desc.startswith(lead):
            error._desc = f"{lead}{reason_of(error if cause is None else cause)}\n\n{error._desc}"
    return error


def _disk_error(reason: str, text: str, query: str) -> SourceError:
    """Return the error of a full disk, with the folder of the sink if that is full."""
    sink = _SINK.search(text)
    where = f"its sink's folder {sink[1]}" if sink else "a disk, such as that of spark.local.dir"
    once = ", and no row is lost or written twice" if sink else ""
    msg = (
        f"query {query!r} cannot write to {where}: {reason}; make room and start the query again "
        f"with its checkpoint: the batch runs again{once}"
    )
    return SourceError(msg, query=query, folder=sink[1] if sink else None)
