"""Values of rule sets for reports and pages.

Their parts have words here. First the values, from which reports and pages are written; then tests,
attributes and regions of a program in words. ``description`` makes these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eddyline.query.conditions import FunctionTest, TextTest, ValueTest
from eddyline.rules.compile.regions import HIGHEST, LOWEST, value_of
from eddyline.runtime.records import Numbers
from eddyline.sql.regexes import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.conditions import SkippedRule
    from eddyline.rules.compile.program import Program
    from eddyline.rules.compile.regions import RegionConstruct


COMPONENT = "rules"
"""Name of what decides, in the journal."""

MAX_NAMED = 20
"""Rules that a journal entry names."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A set of rules after one micro-batch."""

    n_rules: int
    plan: str
    """The plan in words."""
    n_met: int
    """Pairs of a row of the batch and a rule that had to be decided."""
    n_matches: int
    """Pairs of a row of the batch and a rule that is true for it."""
    component: str = COMPONENT
    n_skipped: int = 0
    """Rules that do not run."""
    n_troubles: int = 0
    """Changes of rule files that could not be taken in."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return its counts."""
        counts = {"n_rows": n_rows, "n_met": self.n_met, "n_matches": self.n_matches}
        return Numbers(counts, {"n_rules": self.n_rules, "n_skipped": self.n_skipped})

    def with_earlier(self, earlier: RuleRecord, share: float) -> RuleRecord:  # noqa: ARG002
        """Return one record for several batches: counts add up."""
        n_matches = self.n_matches + earlier.n_matches
        return replace(self, n_met=self.n_met + earlier.n_met, n_matches=n_matches)


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The counts of one rule."""

    name: str
    n_rows: int | None
    """Rows that it was there for; None: not counted, see ``SharingProfile.n_uncounted``."""
    n_met: int
    """Of those, the rows for which it had to be decided."""
    n_matches: int
    """Rows that it was true for."""

    def __add__(self, other: RuleCount) -> RuleCount:
        return RuleCount(
            self.name,
            added(self.n_rows, other.n_rows),
            self.n_met + other.n_met,
            self.n_matches + other.n_matches,
        )


def added(first: int | None, other: int | None) -> int | None:
    """Return the sum of two counts; None if one is not known."""
    return None if first is None or other is None else first + other


@dataclass(frozen=True, slots=True)
class ConstructView:
    """One attribute that rules look at."""

    name: str
    """The column or expression."""
    kind: str
    """``regions`` (where its value lies), ``patterns`` (found in one walk), ``Python``, or
    ``errors`` (on which rows an expression raises)."""
    n_tests: int
    """Regions that rules tell apart, patterns, or tests."""
    n_rules: int
    """Rules that read it."""
    n_rows: int
    """Rows that it was looked at for."""
    share: float
    """The same as a share of all rows (nan: there was none)."""
    hits_per_row: float
    """Patterns met in a sampled row (nan: it has none, or no row was sampled)."""
    cost_ns: float
    """Time for each row that it was looked at for (ns; nan: for none)."""


@dataclass(frozen=True, slots=True)
class BitmapBlockView:
    """Rules that are evaluated together by bitmaps."""

    n_rules: int
    sequence: tuple[str, ...]
    """The order of its attributes in words, then one sentence for each region with its own."""
    is_learned: bool
    """Whether the sequence was learned; else attributes stand as they are numbered."""
    n_rows: int
    """Rows that entered it lately."""
    look_ups_per_row: float
    """Attributes that a row was looked up in (nan: there was no row)."""
    drop_frac: float
    """Share of the rows that left it without a rule ([0, 1]; nan: there was no row)."""


@dataclass(frozen=True, slots=True)
class TestView:
    """A test that Python decides row by row, or a pattern."""

    text: str
    n_rows: int
    """Rows that it was asked about; of a pattern, sampled rows that it was met in."""
    share: float
    """The same as a share: of all rows, or of the sampled ones (nan: there was none)."""
    cost_ns: float
    """Time for each row that it was asked about (ns; nan: not asked, or a pattern)."""
    users: tuple[str, ...]
    """The first rules that use it; of a pattern, those that are met by it."""
    n_users: int


@dataclass(frozen=True, slots=True)
class OrderView:
    """The order in which a rule asks its tests of Python."""

    rule: str
    tests: tuple[str, ...]
    is_changed: bool
    """Whether it was learned to be cheaper than the order written."""


@dataclass(frozen=True, slots=True)
class NativeView:
    """A test that is left to Spark, which hands over a column for it alone."""

    text: str
    reason: str
    """The reason why Spark evaluates it."""
    users: tuple[str, ...]
    """The first rules that use it."""
    n_users: int


@dataclass(frozen=True, slots=True)
class RuleView:
    """A set of rules as it stands."""

    name: str
    n_rules: int
    """Rules that run."""
    skipped: tuple[SkippedRule, ...]
    plan: str
    """The plan in words."""
    is_adaptive: bool
    is_measured: bool
    """Whether the plan was made from rows, and not from guesses."""
    is_statement: bool
    """Whether the rules are one statement of Spark's."""
    n_rows: int | None
    """Rows evaluated since the rules are what they are; None: not counted."""
    n_sampled: int
    """Of those, rows that every attribute was looked at for."""
    n_dropped: int
    """Of those, rows that met no rule."""
    n_met: int
    """Pairs of a row and a rule that had to be decided."""
    n_matches: int
    """Pairs of a row and a rule that is true for it."""
    constructs: tuple[ConstructView, ...]
    blocks: tuple[BitmapBlockView, ...]
    tests: tuple[TestView, ...]
    """The dearest first."""
    orders: tuple[OrderView, ...]
    """Of rules that may ask several tests, those whose order was changed first."""
    patterns: tuple[TestView, ...]
    """Those by which a rule is met, the most often met first."""
    natives: tuple[NativeView, ...]
    """Tests that are left to Spark."""
    rules: tuple[RuleCount, ...]
    """In the order of the set."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """The titles of rules, where they have one."""
    notes: tuple[str, ...] = ()
    """Other things worth knowing."""
    n_rows_before: int | None = 0
    """Rows evaluated before the rules last changed or the run started again; they count in
    ``rules`` as far as a rule was there, and in no other number."""

    def label(self, name: str) -> str:
        """Return the title of a rule, or else its name."""
        return self.titles.get(name) or name


# -- words -----------------------------------------------------------------------------------------

MAX_CONSTANTS = 4
"""Texts of one region that are named."""


def construct_name(program: Program, construct: RegionConstruct) -> str:
    """Return the column or expression whose regions or errors a construct tells apart."""
    error = program.errors.get(construct.operand.sql)
    return _region_name(construct) if error is None else f"errors of {error.text}"


def column_name(sql: str, *, folded: bool) -> str:
    """Return a column or expression, in lower case if it is folded."""
    return f"lower({sql})" if folded else sql


def _region_name(construct: RegionConstruct) -> str:
    return column_name(construct.operand.sql, folded=construct.folded)


def region_text(construct: RegionConstruct, keys: tuple[int, int] | None) -> str:
    """Return the region of two keys and all between in words: ``a in (5, 10]``; None: NULL."""
    name = _region_name(construct)
    if keys is None:
        return f"{name} is NULL"
    low, high = keys
    if construct.constants is not None and construct.ranks is None:
        return _text_region(name, tuple(map(str, construct.constants)), low, high)
    if low == high and construct.ranks is None:
        return f"{name} = {value_of(construct.operand.type, low)}"
    return f"{name} {_range(_bound(construct, low, -1), _bound(construct, high, 1))}"


def _range(lower: tuple[str, bool], upper: tuple[str, bool]) -> str:
    """Return the values between two bounds in words; see ``_bound``."""
    (left, opens), (right, closes) = lower, upper
    if lower == upper != ("", False):  # the rank of a constant
        return f"= {left}"
    if not left and not right:
        return "is not NULL"
    if not left:
        return f"{'<' if closes else '<='} {right}"
    if not right:
        return f"{'>' if opens else '>='} {left}"
    return f"in {'(' if opens else '['}{left}, {right}{')' if closes else ']'}"


def _bound(construct: RegionConstruct, key: int, step: int) -> tuple[str, bool]:
    """Return the lower (step -1) or upper (1) bound of a region, and whether it is outside.

    The text is empty where there is no bound. An odd rank is a constant, an even one lies between
    two. Of floats, the bound is the one that is shorter to write.
    """
    kind, constants = construct.operand.type, construct.constants
    if constants is not None:
        place = (key - 1 if step < 0 else key) // 2
        if not 0 <= place < len(constants):
            return "", False
        value = constants[place]
        return repr(value) if isinstance(value, str) else str(value_of(kind, value)), key % 2 == 0
    if key in (LOWEST, HIGHEST):
        return "", False
    inside = str(value_of(kind, key))
    outside = str(value_of(kind, key + step)) if kind.family == "float" else inside
    return (outside, True) if len(outside) < len(inside) else (inside, False)


def _text_region(name: str, constants: tuple[str, ...], low: int, high: int) -> str:
    named = [repr(text) for text in constants[max(low, 0) : high + 1]]
    if low < 0:
        return f"{name} is any other text"
    if len(named) == 1:
        return f"{name} = {named[0]}"
    more = f", … {len(named) - MAX_CONSTANTS:,} more" if len(named) > MAX_CONSTANTS else ""
    return f"{name} in ({', '.join(named[:MAX_CONSTANTS])}{more})"


def test_text(test: Any) -> str:
    """Return a test as a person would write it."""
    if isinstance(test, TextTest):
        parts = "".join(
            part if isinstance(part, str) else ("%" if part.what == ANY else "_")
            for part in test.parts
        )
        return f"{column_name(test.operand.sql, folded=test.folded)} LIKE {parts!r}"
    if isinstance(test, ValueTest):
        verb = "RLIKE" if test.kind == "regex" else "IN NETWORK"
        return f"{test.operand.sql} {verb} {test.pattern!r}"
    if isinstance(test, FunctionTest):
        return test.predicate.text
    return str(test)
