"""Boolean rules as trees of tests on one operand each.

They follow SQL's three-valued logic. A rule is true, false or unknown (NULL) for a row, and fires
where it is true. Readers (SQL text in ``query.rules``, Sigma in the room ``sigma``) make trees over
the columns of an input; the room ``rules`` evaluates thousands of them together. Every node has
``children``, ``map`` and ``walk``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from eddyline.query.rules.rule import Described
from eddyline.sql.regexes import ANY, MIN_LITERAL, Wild, necessary_literals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType

TRUE, FALSE, UNKNOWN = 1, 2, 4
"""The three truth values as bits; a set of them is their sum."""


class _Leaf:
    """A node without children; the base of the others."""

    __slots__ = ()

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes directly below this one, from left to right."""
        return ()

    def map(self, change: Callable[[Node], Node]) -> Node:  # noqa: ARG002 - there is no child
        """Return this node with each child replaced by what ``change`` returns for it."""
        return cast("Node", self)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, each before its children, from left to right."""
        # A loop and not a recursion: thousands of nodes may stand one in the other.
        waiting = [cast("Node", self)]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class _Wrapped(_Leaf):
    """A node with one child."""

    part: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.part,)

    def map(self, change: Callable[[Node], Node]) -> Node:
        return cast("Node", replace(self, part=change(self.part)))


@dataclass(frozen=True, slots=True)
class _Connected(_Leaf):
    """A node with one child or more."""

    parts: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def map(self, change: Callable[[Node], Node]) -> Node:
        return cast("Node", replace(self, parts=tuple(map(change, self.parts))))


@dataclass(frozen=True, slots=True)
class Operand:
    """The subject of a test: a column, or an expression over columns that never raises."""

    sql: str
    """As Spark SQL; equal texts are one operand."""
    type: SqlType
    columns: tuple[str, ...] = ()
    """The columns that it reads."""


@dataclass(frozen=True, slots=True)
class Constant(_Leaf):
    """A truth value that no row changes."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare(_Leaf):
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
class OneOf(_Leaf):
    """``operand IN (values)`` without NULL among the values."""

    operand: Operand
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class IsNull(_Leaf):
    """``operand IS NULL``; never unknown."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class TextTest(_Leaf):
    """Whether a whole text is of a pattern: ``x%`` is a prefix, ``%x%`` means contains.

    Wildcards match every character, line ends too. Folded, both sides are compared in lower case
    as ``str.lower`` makes it (full mappings, final sigma), which is Spark's ``lower``.
    """

    operand: Operand
    parts: tuple[str | Wild, ...]
    """Literals (not empty, never two in a row, in lower case if folded) and wildcards."""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class ValueTest(_Leaf):
    """A test of one text that Python decides value by value: a regular expression or a network.

    ``regex``: Python's ``re.search`` with the flags. ``cidr``: an IP address within the network.
    """

    operand: Operand
    kind: str
    """``regex`` or ``cidr``."""
    pattern: str
    flags: int = 0
    needs: tuple[TextTest, ...] = ()
    """Necessary: at least one of these is true wherever the test is; none: nothing is known."""


@dataclass(frozen=True, slots=True)
class NativeTest(_Leaf):
    """A condition that Spark evaluates, over any columns; it raises only if it is a whole rule."""

    sql: str
    columns: tuple[str, ...] = ()
    reason: str = field(default="", compare=False)
    """Reason why nothing but Spark evaluates it."""
    may_raise: bool = field(default=False, compare=False)
    """Whether it may raise; then Spark must evaluate it from left to right."""
    needs: tuple[str, ...] = field(default=(), compare=False)
    """Columns whose NULL keeps it from being true, if it may raise; see ``sql.error_free``."""


@dataclass(frozen=True, slots=True)
class FunctionTest(_Leaf):
    """A Python predicate: true where it says true, false where false, unknown where NULL."""

    predicate: FunctionPredicate


@dataclass(frozen=True, slots=True)
class Raise(_Leaf):
    """The error of an expression: never true nor false, an error on the rows that hang on it."""

    operand: Operand
    """The values that the expression raises on, as JSON; NULL on rows on which it does not."""
    text: str = field(default="", compare=False)
    """The expression."""
    reason: str = field(default="", compare=False)
    """Cause of the error."""
    advice: str = field(default="", compare=False)
    """Advice: another way to write it."""


@dataclass(frozen=True, slots=True)
class MayRaise(_Leaf):
    """A test of an expression that may raise: where it does, the rule hangs on an error."""

    test: ValueComparison | IsNull | NativeTest
    """The same test of the form that is NULL where the expression raises. All but ``IsNull`` are
    unknown there."""
    error: Raise

    @property
    def children(self) -> tuple[Node, ...]:
        """The test and the error."""
        return self.test, self.error

    def map(self, change: Callable[[Node], Node]) -> Node:
        """Return this node with its test and its error changed."""
        test, error = cast("Any", change(self.test)), cast("Any", change(self.error))
        return replace(self, test=test, error=error)


class Not(_Wrapped):
    """Three-valued NOT."""

    __slots__ = ()


class And(_Connected):
    """Three-valued AND of one or more."""

    __slots__ = ()


class Or(_Connected):
    """Three-valued OR of one or more."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Is(_Wrapped):
    """Whether a part has one of some truth values: ``IS NOT TRUE``; never unknown itself."""

    outcomes: int
    """A sum of ``TRUE``, ``FALSE`` and ``UNKNOWN``."""


ValueComparison = Compare | OneOf | TextTest | ValueTest
Test = ValueComparison | IsNull | NativeTest | FunctionTest | Raise
Node = Test | MayRaise | Constant | Not | And | Or | Is


def necessary_tests(
    operand: Operand, pattern: str, flags: int = 0, *, min_length: int = MIN_LITERAL
) -> tuple[TextTest, ...]:
    """Return the necessary literals of a regular expression as tests, for ``ValueTest.needs``."""
    around = Wild(ANY)
    return tuple(
        TextTest(operand, (around, literal.text, around), literal.folded)
        for literal in necessary_literals(pattern, flags, min_length=min_length)
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over the columns of one input."""

    name: str
    tree: Node
    text: str = ""
    """As its author wrote it."""
    noun: str = "rule"
    """What its author calls it, for errors: the condition of a query runs as a rule, too."""
    conjuncts: tuple[str, ...] | None = field(default=None, compare=False)
    """SQL conditions that Spark may evaluate in the tree's place, all of which hold wherever the
    rule does; None if one may raise, is not deterministic, or is no SQL."""

    @property
    def called(self) -> str:
        """The rule in an error."""
        return f"{self.noun} {self.name!r}"


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that does not run, and why."""

    name: str
    reason: str
    text: str = ""


class RuleSource(Described, Protocol):
    """A rule that does not know the columns of an input yet.

    Two are equal if they are true for the same rows of every input, whatever else is known of them.
    """

    @property
    def meaning(self) -> str:
        """What it means, without further facts, as it is saved with what was learned."""

    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:
        """Return the rule over an input.

        Args:
            columns: name and Spark type of each column.
            ansi: whether Spark raises where ANSI SQL does.

        Raises:
            QueryError: it does not fit; the message names the rule and the position.
        """


@dataclass(frozen=True, slots=True)
class MissingFields:
    """Fields that rules ask for and an input lacks; they are NULL for every row."""

    n_asking: int
    """Rules that ask for fields."""
    by_rule: Mapping[str, tuple[str, ...]]
    """Missing fields by rule, of rules that lack some."""
    blind: tuple[str, ...]
    """Rules that find none of their fields."""
    hints: Mapping[str, str]
    """Likely columns of missing fields, by field."""

    @property
    def counts(self) -> Counter[str]:
        """How many rules ask for each missing field."""
        return Counter(field for fields in self.by_rule.values() for field in fields)

    @property
    def text(self) -> str:
        """The most frequent missing fields, and their likely columns."""
        n_rules = self.counts
        most = [name for name, _ in n_rules.most_common(MOST_FIELDS)]
        field_counts = ", ".join(f"{name} ({n_rules[name]:,})" for name in most)
        more = len(n_rules) - len(most)
        mapped = ", ".join(f"{name} to {self.hints[name]}" for name in most if name in self.hints)
        hint = f"; a pipeline may map {mapped}" if mapped else ""
        return f"{field_counts}{f' and {more:,} more' if more else ''}{hint}"


MOST_FIELDS = 5
"""Missing fields that a text shows."""


@dataclass(frozen=True, slots=True)
class BoundRules:
    """The rules of a set over one input, and those that do not run."""

    rules: tuple[Rule, ...]
    skipped: tuple[SkippedRule, ...] = field(default=())
    missing: MissingFields | None = None
    """The fields that rules ask for and the input lacks; None if there is none."""
