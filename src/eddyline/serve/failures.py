"""What a run failed with, and what of it may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eddyline.errors import (
    EddylineError,
    NotSupportedError,
    OptionError,
    PlanError,
    PluginError,
    QueryError,
    SourceError,
    StateError,
)
from eddyline.report.formatting import one_line

WIDTH = 2_000
"""Most characters of an error that are shown."""

PLAIN = {
    each.__name__
    for each in (
        NotSupportedError,
        OptionError,
        PlanError,
        PluginError,
        QueryError,
        SourceError,
        StateError,
    )
}
"""Errors that name queries, files and options. Predicates and aggregates raise on a row and quote
it, and so may any error of Spark's."""

HIDDEN = (
    "Its text may quote rows and is hidden; run.exception() has it, and serve(values=True), or "
    "--values, shows it."
)

_PREDICATE = re.compile(r"^predicate '([^']*)'")
_CONDITION = re.compile(r"^\[([A-Z][A-Z0-9_.]*)\]")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a run failed with."""

    kind: str
    """The type of the error."""
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return an error as a value."""
        text = error.message if isinstance(error, EddylineError) else str(error)
        return cls(type(error).__name__, text)

    def told(self, *, values: bool) -> str:
        """Return the failure in words; without values, what may quote a row is left out."""
        if values or self.kind in PLAIN:
            return one_line(self.text)[:WIDTH]
        predicate, condition = _PREDICATE.search(self.text), _CONDITION.search(self.text)
        who = f" of predicate {predicate[1]}" if predicate else ""
        which = f" ({condition[1]})" if condition else ""
        return one_line(f"{self.kind}{which}{who}. {HIDDEN}")
