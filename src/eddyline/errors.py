"""The errors that users of eddyline can meet.

    EddylineError
    ├── OptionError(ValueError)      an option with an unknown name or a value out of range
    ├── QueryError(ValueError)       a predicate, query or script that cannot be understood
    │   └── NotSupportedError        valid SQL that eddyline does not run yet
    ├── PredicateError(RuntimeError) a predicate that raised, or returned something unusable
    ├── AggregateError(ArithmeticError) an aggregate's value that its type cannot hold
    ├── ModelError(ArithmeticError)  a value of a model that a double cannot hold
    ├── DuplicateKeyError(ValueError) a second row with a key that was declared
    ├── PlanError                    a plan that does not fit the query it is given to
    ├── StateError                   a checkpoint or snapshot that cannot be used
    ├── SourceError                  an input or output that cannot be read or written
    └── PluginError                  an extension from another package that failed to load

    EddylineWarning(UserWarning)
    ├── ChangedFunctionWarning       a function whose code has changed since the checkpoint
    ├── LatenessWarning              a stream without a lateness
    ├── LateRowsWarning              many rows came too late
    ├── MissingFieldsWarning         no rule of a set finds any of its fields
    ├── NullWarning                  NOT IN, whose values may have a NULL
    ├── RuleFilesWarning             a followed file of rules that cannot be read
    └── UnboundedStateWarning        state that only grows

A message says what is wrong, where, what was got and what to do. The facts it was built from are
kept in ``facts``. Every error survives pickling, as it has to travel from Spark's workers.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class EddylineError(Exception):
    """Base of all errors that eddyline raises on purpose.

    Args:
        message: what is wrong, where, what was got and what to do.
        **facts: the values that the message was built from.
    """

    def __init__(self, message: str, /, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        # The attributes too: notes that were added on the way are among them.
        return _rebuild, (type(self), self.message, self.facts), self.__dict__


def _rebuild(cls: type[EddylineError], message: str, facts: dict[str, Any]) -> EddylineError:
    return cls(message, **facts)


class OptionError(EddylineError, ValueError):
    """An option with an unknown name or a value out of range."""


class QueryError(EddylineError, ValueError):
    """A predicate, query or script that cannot be understood."""


class NotSupportedError(QueryError):
    """Valid SQL that eddyline does not run yet; the message carries its position."""


class PredicateError(EddylineError, RuntimeError):
    """A predicate that raised on a row that counts, or returned something unusable."""


class AggregateError(EddylineError, ArithmeticError):
    """An aggregate whose value its type cannot hold, as Spark raises in ANSI mode."""


class ModelError(EddylineError, ArithmeticError):
    """A value computed from models that a double cannot hold."""


class DuplicateKeyError(EddylineError, ValueError):
    """A row with the key of another one, in a stream of which a column was declared to be a key."""


class PlanError(EddylineError):
    """A plan that does not fit the query it is given to."""


class StateError(EddylineError):
    """A checkpoint or snapshot that cannot be used."""


class SourceError(EddylineError):
    """An input or output that cannot be read or written."""


class PluginError(EddylineError):
    """An extension from another package that failed to load."""


class EddylineWarning(UserWarning):
    """Base of all warnings of eddyline; each kind can be silenced by itself."""


class LatenessWarning(EddylineWarning):
    """A query that needs event time starts on a stream without a lateness."""


class UnboundedStateWarning(EddylineWarning):
    """A query keeps rows or values of a stream for ever, so its state only grows."""


class NullWarning(EddylineWarning):
    """A query asks ``NOT IN (SELECT …)``, where one NULL among the values drops every row."""


class LateRowsWarning(EddylineWarning):
    """Many rows of a stream came too late, and were left out."""


class RuleFilesWarning(EddylineWarning):
    """A file of rules that a set follows has changed and cannot be taken in."""


class ChangedFunctionWarning(EddylineWarning):
    """A query goes on from a checkpoint with a Python function whose code has changed."""


class MissingFieldsWarning(EddylineWarning):
    """No rule of a set finds any of its fields in the events."""


def own_frames() -> int:
    """Return the level of the stack at which the code of the user called, for ``warnings``."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("eddyline."):
        level, frame = level + 1, frame.f_back
    return level


def told_in_short(call: Callable[P, R]) -> Callable[P, R]:
    """Wrap a public function so that its errors of eddyline have short tracebacks.

    The message says what, where and what to do. The frames of parsers, of Spark and of its JVM
    would only hide it.
    """

    @wraps(call)
    def shortened(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except EddylineError as error:
            raise error.with_traceback(None) from None

    return shortened
