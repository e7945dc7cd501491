"""The step of a query that finds the rules which are true for each row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from eddyline.query.steps import RESULT, OverOne

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eddyline.options import SharingOptions
    from eddyline.query.predicates import FunctionPredicate


class Rules(Protocol):
    """A set of rules that may change while it runs; on Spark, ``el.RuleSet``."""

    @property
    def name(self) -> str:
        """The set's name."""

    @property
    def text(self) -> str:
        """The rules as they were written, each on a line, the first of many."""

    @property
    def options(self) -> SharingOptions:
        """Options by which plans are made."""

    @property
    def functions(self) -> Mapping[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""

    def operator(self, step: RuleStep, site: Any) -> Any:
        """Return the operator of a step with these rules."""


@dataclass(frozen=True, slots=True)
class RuleStep(OverOne):
    """Adds the names of the rules that are true for each row of a relation."""

    rules: Rules = field(repr=False)
    column: str = "matches"
    """The new column: an array of names, in the order of the set; or of ``as_struct``."""
    keep_unmatched: bool = False
    """Whether rows for which no rule is true stay, with an empty array."""
    output: str = RESULT
    as_struct: bool = field(default=False, repr=False)
    """Whether it is an array of id, title and level of rules."""

    @property
    def functions(self) -> Mapping[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""
        return self.rules.functions

    def renamed(self, names: Callable[[str], str]) -> RuleStep:
        """Return the step over relations of other names."""
        return replace(self, input=names(self.input), output=names(self.output))

    def __str__(self) -> str:
        which = "every row" if self.keep_unmatched else "rows with a match"
        name = "" if self.rules.name == "rules" else f" {self.rules.name}"
        told = f"{self.column} (id, title, level)" if self.as_struct else self.column
        return f"rules{name} over {self.input}: {told} of {which}"
