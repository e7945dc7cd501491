"""Boolean rules as values: trees of tests on one operand each, in SQL's three-valued logic.

A rule is true, false or unknown (NULL) for a row, and fires where it is true. Readers (SQL text in
``rule_reader``, Sigma in the room ``sigma``) make trees over the columns of an input; the room
``sharing`` evaluates thousands of them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.types import SqlType

TRUE, FALSE, UNKNOWN = 1, 2, 4
"""The three truth values as bits; a set of them is their sum."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time as a rule writes it; when that is, a session says (``query.moments``)."""

    text: str
    kind: str = "timestamp"
    """As what the text is read, before it is a ``timestamp``: that, ``timestamp_ntz`` or
    ``date``, which is a day at its start in the session's time zone."""


Scalar = bool | int | float | Decimal | str | date | Moment
"""A constant that an operand is compared with; never NULL and never NaN."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a test looks at: a column, or an expression over columns that never raises."""

    sql: str
    """As Spark SQL; equal texts are one operand."""
    type: SqlType
    columns: tuple[str, ...] = ()
    """The columns that it is made of."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A truth value that no row changes."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    """``operand op value``; unknown where the operand is NULL.

    Numbers are compared exactly, NaN is equal to itself and above all numbers; texts by their
    bytes, which is by their code points.
    """

    operand: Operand
    op: str
    """One of ``= < <= > >=``."""
    value: Scalar
    """int or Decimal for whole numbers and decimals, float for floats, str, bool, date.

    For a timestamp it is int: microseconds since 1970 (of a timestamp with a time zone: in UTC),
    or a ``Moment`` as long as no session has said when that is.
    """


@dataclass(frozen=True, slots=True)
class OneOf:
    """``operand IN (values)`` without NULL among the values."""

    operand: Operand
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """``operand IS NULL``; never unknown."""

    operand: Operand


ANY, ONE = "%", "_"


@dataclass(frozen=True, slots=True)
class Wild:
    """A wildcard in a text pattern: ``%`` (any characters, also none) or ``_`` (exactly one)."""

    what: str


@dataclass(frozen=True, slots=True)
class TextTest:
    """Whether a whole text is of a pattern: ``x%`` is a prefix, ``%x%`` means contains.

    Wildcards match every character, line ends too. Folded, both sides are compared in lower case
    as ``str.lower`` makes it (full mappings, final sigma), which is Spark's ``lower``.
    """

    operand: Operand
    parts: tuple[str | Wild, ...]
    """Literals (not empty, never two in a row, in lower case if folded) and wildcards."""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class ValueTest:
    """A test of one text that Python decides value by value: a regular expression or a network.

    ``regex``: Python's ``re.search`` with the flags. ``cidr``: an IP address within the network.
    """

    operand: Operand
    kind: str
    """``regex`` or ``cidr``."""
    pattern: str
    flags: int = 0
    """Flags of ``re``."""
    needs: tuple[TextTest, ...] = ()
    """Necessary: at least one of these is true wherever the test is; none: nothing is known."""


@dataclass(frozen=True, slots=True)
class NativeTest:
    """A condition that Spark evaluates, over any columns; only a whole rule may raise."""

    sql: str
    columns: tuple[str, ...] = ()
    reason: str = field(default="", compare=False)
    """Why nothing but Spark evaluates it."""


@dataclass(frozen=True, slots=True)
class FunctionTest:
    """A Python predicate: true where it says true, false where false, unknown where NULL."""

    predicate: FunctionPredicate


@dataclass(frozen=True, slots=True)
class Raise:
    """The error of an expression: never true nor false, an error on the rows that hang on it."""

    operand: Operand
    """The values that the expression raises on, as JSON; NULL on rows on which it does not."""
    text: str = field(default="", compare=False)
    """The expression."""
    reason: str = field(default="", compare=False)
    """Why it raises."""
    advice: str = field(default="", compare=False)
    """What to write instead."""


@dataclass(frozen=True, slots=True)
class MayRaise:
    """A test of an expression that may raise: where it does, the rule hangs on an error."""

    test: ValueComparison | IsNull | NativeTest
    """The same test of the form that is NULL where the expression raises. All but ``IsNull`` are
    unknown there."""
    error: Raise


@dataclass(frozen=True, slots=True)
class Not:
    """Three-valued NOT."""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """Three-valued AND of one or more."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Three-valued OR of one or more."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Is:
    """Whether a part has one of some truth values: ``IS TRUE``, ``IS NOT TRUE``, ``IS UNKNOWN``.

    Never unknown itself.
    """

    part: Node
    outcomes: int
    """A sum of ``TRUE``, ``FALSE`` and ``UNKNOWN``."""


ValueComparison = Compare | OneOf | TextTest | ValueTest
Test = ValueComparison | IsNull | NativeTest | FunctionTest | Raise
Node = Test | MayRaise | Constant | Not | And | Or | Is


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over the columns of one input."""

    name: str
    tree: Node
    text: str = ""
    """As its author wrote it."""


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that does not run, and why."""

    name: str
    reason: str
    text: str = ""


class RuleSource(Protocol):
    """A rule that does not know the columns of an input yet."""

    @property
    def name(self) -> str:
        """The rule's name, unique in its set."""
        ...

    @property
    def text(self) -> str:
        """The rule as its author wrote it."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """What else is known of it: title, level, tags."""
        ...

    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:
        """Return the rule over an input.

        Args:
            columns: name and Spark type of each column.
            ansi: whether Spark raises where ANSI SQL does.

        Raises:
            QueryError: it does not fit; the message names the rule and the position.
        """
        ...


@dataclass(frozen=True, slots=True)
class BoundRules:
    """The rules of a set over one input, and those that do not run."""

    rules: tuple[Rule, ...]
    skipped: tuple[SkippedRule, ...] = field(default=())
