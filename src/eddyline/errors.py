"""The errors that users of eddyline can meet.

    EddylineError
    ├── OptionError(ValueError)      an option with an unknown name or a value out of range
    ├── QueryError(ValueError)       a predicate, query or script that cannot be understood
    │   └── NotSupportedError        valid SQL that eddyline does not run yet
    ├── PredicateError(RuntimeError) a predicate that raised, or returned something unusable
    ├── AggregateError(ArithmeticError) an aggregate's value that its type cannot hold
    ├── DuplicateKeyError(ValueError) a second row with a key that was declared
    ├── PlanError                    a plan that does not fit the query it is given to
    ├── StateError                   a checkpoint or snapshot that cannot be used
    ├── SourceError                  an input or output that cannot be read or written
    └── PluginError                  an extension from another package that failed to load

Categories of warnings can be silenced apart: LatenessWarning, LateRowsWarning, RuleFilesWarning,
MissingFieldsWarning.

A message says what is wrong, where, what was got and what to do. The facts it was built from are
kept in ``facts``. Every error survives pickling, as it has to travel from Spark's workers.
"""

from __future__ import annotations

from typing import Any


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


class LatenessWarning(UserWarning):
    """A query starts to ask for the event time of a stream that was given no lateness."""


class LateRowsWarning(UserWarning):
    """Many rows of a stream came too late, and were left out."""


class RuleFilesWarning(UserWarning):
    """A file of rules that a set follows has changed and cannot be taken in."""


class MissingFieldsWarning(UserWarning):
    """No rule of a set finds a field that it asks for in the events."""
