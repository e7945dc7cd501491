"""Boolean SQL over input columns, as a tree of tests.

``Reading`` has one rule. A leaf of its text becomes a test of one operand where exact mathematics
on values is what Spark does; any other leaf stays a condition that Spark evaluates. An operand that
may raise is written in a form that is NULL instead (``sql.error_free``), and its error stands
beside each test of it. ``READERS`` has the function that turns each type of node into tests. Calls
of Python predicates are taken out of the text before.

What draws lots, or may raise and has no form that gives NULL instead, is not taken apart at all:
Spark evaluates the whole rule as it was written, with its own short-circuits.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    IsNull,
    MayRaise,
    NativeTest,
    Not,
    OneOf,
    Operand,
    Or,
    Raise,
    TextTest,
    ValueTest,
    necessary_tests,
)
from eddyline.sql.analysis import Expression, resolve_columns
from eddyline.sql.error_free import NoFormError, is_surely_evaluated, needed_columns
from eddyline.sql.functions import as_call, joined_by, says_collation
from eddyline.sql.literals import constant_of, scalars_for
from eddyline.sql.nodes import patterns_of
from eddyline.sql.parsing import SparkText, offset_of, refuse, slice_of, tokens_of
from eddyline.sql.regexes import (
    ANY,
    Wild,
    is_folded_alike,
    is_lower,
    is_whole_text,
    like_parts,
    python_regex,
    regex_effort,
)
from eddyline.sql.rendering import UnwritableError, string_literal
from eddyline.sql.types import BOOLEAN, MAX_PRECISION, NULL, STRING, TIMES, common_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.functions import ColumnRef
    from eddyline.sql.literals import Scalar, SqlConstant
    from eddyline.sql.types import SqlType

    NodeReader = Callable[["Reading", Any], Node | None]
    """Returns the tests of a node; None where Spark must evaluate it."""

COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
"""Comparisons that are NULL where a side is."""

_SIMPLE = ("integer", "decimal", "float", "string", "boolean", "date", *TIMES)
"""Families of types whose values are worth handing over."""

_WHY_NATIVE = "it is no comparison of one expression with constants that is known to be exact"

_MAX_SHOWN = 100
"""Characters of a text that an error shows."""


class Reading:
    """One rule's text over the columns of an input, which has to be a condition.

    It may call the Python predicates by their names; other arguments are as for ``Expression``.
    """

    def __init__(
        self,
        text: str,
        what: str,
        columns: Mapping[str, str],
        functions: Mapping[str, FunctionPredicate],
        *,
        ansi: bool,
    ) -> None:
        by_name = {name.lower(): predicate for name, predicate in functions.items()}
        self.expression = Expression(
            text, what, columns, ansi=ansi, qualifiers=None, functions=by_name
        )
        self._columns = columns
        self._predicates = _take_out_calls(self.expression, columns, by_name)
        """By the ``id`` of the nodes that stand for their calls."""
        self._errors: dict[int, tuple[Operand | NativeTest, Raise]] = {}  # by id of the first
        calls = self.expression.calls.values()
        self.first_call, self._first_offset = min(calls, key=lambda call: call[1], default=("", 0))
        """The first Python function that it calls ("" if it calls none), and its offset."""
        self._check_is_condition(self.expression.tree)

    @property
    def whole(self) -> NativeTest:
        """The rule as Spark evaluates it, as it was written."""
        # Without a comment at its end, which would hide what comes after it.
        text, tree = self.expression.text, self.expression.tree
        written = slice_of(text, tokens_of(text, self.expression.what))
        columns = self.expression.columns_of(tree)
        # A text that Spark may read otherwise, or that draws lots, is evaluated on every row.
        has_needs = self.risk and not self.doubt and not self.chance
        needs = needed_columns(tree, self.expression.references) if has_needs else ()
        return NativeTest(written, columns, may_raise=bool(self.risk), needs=tuple(sorted(needs)))

    @property
    def chance(self) -> str:
        """Reason why equal rows may get different answers; empty if they do not."""
        return self.expression.chance_in(self.expression.tree)

    @property
    def doubt(self) -> str:
        """Reason why it may be read otherwise than here; empty if it is not."""
        if _VARIABLE.search(self.expression.text):
            return "Spark replaces ${…} by a variable"
        if self.expression.is_read_alike:
            return ""
        return "which of its operators binds tighter is not clear; write parentheses"

    @property
    def risk(self) -> str:
        """Reason why it may raise; empty if it does not."""
        return self.expression.facts(self.expression.tree).reason

    def refuse_calls(self, reason: str) -> NoReturn:
        """Refuse a rule that calls a Python function although it must stay whole."""
        name = self.first_call
        message = (
            f"{self.expression.what} calls the Python function {name} and cannot be taken apart: "
            f"{reason}; use forms that never raise, such as try_cast or try_divide, or make two "
            "rules of it"
        )
        refuse(message, self.expression.text, self._first_offset, NotSupportedError, function=name)

    def tree(self) -> Node:
        """Return the rule as a tree of tests.

        Raises:
            UnwritableError: it holds what is not known well enough, or may raise and has no form
                that gives NULL instead.
            NotSupportedError: it calls a Python function inside a larger expression.
        """
        tree = self.node(self.expression.tree)
        return self._with_errors(tree) if self._errors else tree

    def node(self, node: Expr) -> Node:
        """Return the tests of a condition."""
        while isinstance(node, exp.Paren):
            node = node.this
        if id(node) in self._predicates:
            return function_test(self._predicates[id(node)])
        self._check_is_condition(node)
        read = READERS.get(type(node))
        tests = None if read is None else read(self, node)
        return self._native(node) if tests is None else tests

    def is_read(self, node: Expr) -> bool:
        """Return whether a condition may become tests, or stays with Spark for sure."""
        return self._is_call(node) or type(node) in READERS

    def _is_call(self, node: Expr) -> bool:
        return id(node) in self._predicates

    def _check_is_condition(self, node: Expr) -> None:
        """Refuse what surely is not a condition, but of another type."""
        expression = self.expression
        kind = expression.type_of(node)
        is_root = node is expression.tree
        # In ANSI mode Spark reads a string as a boolean, but not as a whole condition.
        is_read = kind.family == "string" and expression.ansi and not is_root
        is_part = kind.family == "null" and not is_root
        if kind.family in ("boolean", "other") or is_part or is_read:
            return
        message = f"{expression.what} is not a condition: it is of type {kind.text}"
        if not is_root:
            message = f"{expression.what}: this part is not a condition, but of type {kind.text}"
        refuse(message, expression.text, offset_of(node))

    # Operands and constants

    def constant(self, node: Expr) -> SqlConstant | None:
        """Return the constant that a node is (None: it is none)."""
        return None if self._is_call(node.unnest()) else constant_of(node)

    def text(self, node: Expr) -> str | None:
        """Return the text that a node is (None: it is no literal, or none of a text)."""
        constant = self.constant(node)
        return str(constant.value) if constant and constant.family == "string" else None

    def operand(self, node: Expr) -> Operand | None:
        """Return the operand of a test, or None if its values should stay in Spark."""
        inner = node.unnest()
        is_plain = not self._is_call(inner) and not says_collation(inner)
        if not is_plain or not inner.find(exp.Column, exp.Anonymous):
            return None
        facts = self.expression.facts(inner)
        columns = self.expression.columns_of(inner)
        if facts.type.family not in _SIMPLE or not columns or any(map(self._is_odd, columns)):
            return None
        if facts.type.family in TIMES and not isinstance(inner, exp.Column):
            return None  # which of the two a TIMESTAMP is, is a setting of the session
        if facts.reason:
            return self._operand_that_may_raise(inner)
        return Operand(self.expression.write(inner), facts.type, columns)

    def text_operand(self, node: Expr) -> Operand | None:
        """Return the operand of a test of texts, or None."""
        operand = self.operand(node)
        return operand if operand is not None and operand.type.family == "string" else None

    def _is_odd(self, column: str) -> bool:
        """Return whether texts of a column are not compared byte by byte."""
        kind = self._columns[column].lower()
        return "collate" in kind or "char(" in kind

    def scalars(self, operand: Operand, constants: Sequence[SqlConstant]) -> list[Scalar] | None:
        """Return the values that an operand is compared with, or None if Spark must compare.

        Raises:
            NoFormError: the operand may raise, and Spark may know an answer without it.
        """
        values = scalars_for(operand.type, constants)
        is_risky = id(operand) in self._errors and values is not None
        if is_risky and not is_surely_evaluated(operand.type, values or ()):
            raise NoFormError("a comparison with a constant of another type")
        return values

    def as_met(self, node: Expr, others: Sequence[Expr]) -> Expr:
        """Return a side of a comparison with the cast that Spark puts in where it is a string."""
        type_of = self.expression.type_of
        if not self.expression.ansi or type_of(node) != STRING or constant_of(node):
            return node
        met = [kind for kind in map(type_of, others) if kind.family != "null"]
        kinds = {common_type(STRING, kind) for kind in met}
        common = next(iter(kinds)) if len(kinds) == 1 else STRING
        is_same = common == STRING or not common.is_known
        return node if is_same else self.expression.cast(node, common)

    # Conditions of Spark, and errors

    def _native(self, node: Expr) -> NativeTest:
        facts = self.expression.facts(node)
        is_read = facts.type.family == "string"  # as a boolean, by AND, OR and NOT
        if facts.reason or (self.expression.ansi and is_read):
            return self._native_that_may_raise(node, BOOLEAN if is_read else None)
        if facts.type.family == "other" and node is not self.expression.tree:
            raise NoFormError(f"a condition of type {facts.type.text}")
        text = self.expression.write(node)
        text = f"CAST({text} AS BOOLEAN)" if is_read else text
        return NativeTest(text, self.expression.columns_of(node), _WHY_NATIVE)

    def _native_that_may_raise(self, node: Expr, kind: SqlType | None) -> NativeTest:
        sides = [node.this, node.expression] if type(node) in COMPARED else []
        kinds = {self.expression.type_of(side).text for side in sides} - {STRING.text}
        if len(kinds) > 1 and not all(side.find(exp.Column) for side in sides):
            raise NoFormError("a comparison with a constant of another type")  # see scalars
        form, error = self._error(node, kind)
        test = NativeTest(form, self.expression.columns_of(node), _WHY_NATIVE)
        self._errors[id(test)] = test, error
        return test

    def _operand_that_may_raise(self, node: Expr) -> Operand:
        kind = self.expression.type_of(node)
        if kind.family == "decimal" and not isinstance(node, exp.Cast):
            raise NoFormError("arithmetic of decimals")  # its type is wider here than in Spark
        form, error = self._error(node, None)
        operand = Operand(form, kind, self.expression.columns_of(node))
        self._errors[id(operand)] = operand, error
        return operand

    def _error(self, node: Expr, kind: SqlType | None) -> tuple[str, Raise]:
        """Return the form of an expression that gives NULL where it raises, and its error."""
        if not self.expression.ansi:
            raise NoFormError(type(node).__name__)
        form, advice = self.expression.error_free(node, kind)
        references = self.expression.references_in(node)
        shown = {ref.text: ref for ref in references if ref.type.family in _SIMPLE}
        if not shown or form.raised is None:
            raise NoFormError("an expression of which it is not known where it raises")
        fields = ", ".join(_field(shown[text]) for text in sorted(shown))
        sql = f"CASE WHEN {form.raised} THEN to_json(named_struct({fields})) END"
        operand = Operand(sql, STRING, self.expression.columns_of(node))
        text = node.sql(SparkText, normalize_functions=False, comments=False)
        reason = self.expression.facts(node).reason or f"{text} is read as a boolean"
        return form.sql, Raise(operand, text, reason, ", ".join(advice))

    def _with_errors(self, node: Node) -> Node:
        """Return a tree in which each test of what may raise has its error."""
        subject = node if isinstance(node, NativeTest) else getattr(node, "operand", None)
        _, error = self._errors.get(id(subject), (None, None))
        if error is None:
            return node.map(self._with_errors)
        return MayRaise(node, error)  # type: ignore[arg-type]  # only tests have a subject


def _field(ref: ColumnRef) -> str:
    """Return a column as a field of a struct that an error shows."""
    value = f"left({ref.text}, {_MAX_SHOWN})" if ref.type == STRING else ref.text
    return f"{string_literal(ref.text.replace('`', ''))}, {value}"


_MIRRORED: dict[type[Expr], type[Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_SIGNS: dict[type[Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


def _and_or(reading: Reading, node: Expr) -> Node:
    parts = tuple(map(reading.node, joined_by(type(node), node)))
    return And(parts) if isinstance(node, exp.And) else Or(parts)


def _not(reading: Reading, node: Expr) -> Node:
    part = reading.node(node.this)
    return part.part if isinstance(part, Not) else Not(part)


def _constant(_reading: Reading, node: Expr) -> Node:
    return Constant(bool(node.this) if isinstance(node, exp.Boolean) else None)


def _flag(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a boolean column."""
    operand = reading.operand(node)
    is_flag = operand is not None and operand.type.family == "boolean"
    return Compare(operand, "=", True) if is_flag and operand is not None else None


def _is(reading: Reading, node: Expr) -> Node | None:
    wanted = node.expression
    if isinstance(wanted, exp.Boolean):
        return Is(reading.node(node.this), TRUE if wanted.this else FALSE)
    return _null_test(reading, node.this)


def _null_test(reading: Reading, node: Expr) -> Node | None:
    inner = node.unnest()
    facts = reading.expression.facts(inner)
    if facts.reason:
        raise NoFormError("IS NULL")  # of what is never NULL, Spark knows it and never raises
    operand = reading.operand(inner)
    if isinstance(inner, exp.Column) and operand is not None:
        return IsNull(operand)
    if facts.type.family == "boolean" and reading.is_read(inner):
        return Is(reading.node(inner), UNKNOWN)
    return None if operand is None else IsNull(operand)


def _unless_rounded(read: NodeReader) -> NodeReader:
    """Return a reader that leaves to Spark what Spark rounds: no type has all the digits."""

    def guarded(reading: Reading, node: Expr) -> Node | None:
        sides = [node.args.get(key) for key in ("this", "expression", "low", "high")]
        operands = [operand for operand in (*sides, *node.expressions) if operand is not None]
        common = reduce(common_type, map(reading.expression.type_of, operands), NULL)
        return None if common.precision > MAX_PRECISION else read(reading, node)

    return guarded


@_unless_rounded
def _compared(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a comparison with a constant on either side."""
    operand, right, kind = node.this, node.expression, type(node)
    constant = reading.constant(right)
    if constant is None:
        operand, right, kind = right, operand, _MIRRORED[kind]
        constant = reading.constant(right)
    if constant is None:
        return None
    operand = reading.as_met(operand, [right])
    if kind not in (exp.EQ, exp.NEQ):
        return _ordered(reading, operand, _SIGNS[kind], constant)
    equal = _equal(reading, operand, constant)
    return Not(equal) if equal is not None and kind is exp.NEQ else equal


@_unless_rounded
def _same(reading: Reading, node: Expr) -> Node | None:
    """Return the test of ``<=>`` and IS [NOT] DISTINCT FROM with a constant."""
    outcomes = TRUE if isinstance(node, exp.NullSafeEQ) else FALSE | UNKNOWN
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        constant = reading.constant(other)
        if constant is None:
            continue
        if constant.family == "null":
            null = _null_test(reading, one)
            return null if null is None or outcomes == TRUE else Not(null)
        equal = _equal(reading, reading.as_met(one, [other]), constant)
        return None if equal is None else Is(equal, outcomes)
    return None


@_unless_rounded
def _between(reading: Reading, node: Expr) -> Node | None:
    """Return the tests of BETWEEN with constant bounds."""
    bounds = [node.args[key] for key in ("low", "high")]
    constants = [reading.constant(bound) for bound in bounds]
    inner = reading.as_met(node.this, bounds) if None not in constants else node.this
    parts = [
        None if constant is None else _ordered(reading, inner, sign, constant)
        for sign, constant in zip((">=", "<="), constants, strict=True)
    ]
    tests = [part for part in parts if part is not None]
    return And(tuple(tests)) if len(tests) == len(parts) else None


@_unless_rounded
def _in_list(reading: Reading, node: Expr) -> Node | None:
    """Return the test of IN with a list of constants."""
    items = [reading.constant(value) for value in node.expressions]
    constants = [constant for constant in items if constant is not None]
    if len(constants) < len(items) or not items:
        return None
    kind = reading.expression.type_of(node.this)
    is_text = kind.family in TIMES and any(constant.family == "string" for constant in constants)
    if is_text and not reading.expression.ansi:
        return None  # Spark compares the timestamps as texts
    values = [constant for constant in constants if constant.family != "null"]
    if not values:
        return Constant(None)
    test = _one_of(reading, reading.as_met(node.this, node.expressions), values)
    if test is None or len(values) == len(constants):
        return test
    return Or((test, Constant(None)))


def _equal(reading: Reading, node: Expr, constant: SqlConstant) -> Node | None:
    if constant.family == "null":
        return Constant(None)
    inner = node.unnest()
    if constant.family == "boolean" and reading.expression.type_of(inner).family == "boolean":
        part = reading.node(inner)
        return part if constant.value else Not(part)
    return _one_of(reading, inner, [constant])


def _ordered(reading: Reading, node: Expr, sign: str, constant: SqlConstant) -> Node | None:
    if constant.family == "null":
        return Constant(None)
    operand = reading.operand(node)
    if operand is None or operand.type.family == "boolean":
        return None
    if not is_whole_text(str(constant.value)):
        return None
    values = reading.scalars(operand, [constant])
    return None if values is None else Compare(operand, sign, values[0])


def _one_of(reading: Reading, node: Expr, constants: Sequence[SqlConstant]) -> Node | None:
    """Return the test whether an operand is equal to one of some constants."""
    operand = reading.operand(node)
    scalars = None if operand is None else reading.scalars(operand, constants)
    if operand is None or scalars is None:
        return None
    values = tuple(dict.fromkeys(scalars))
    if len(values) > 1 and operand.type.family == "float" and 0.0 in values:
        return None  # of long lists Spark makes a hash set, in which -0.0 is not 0.0
    folded = _lower_case_tests(reading, node, values)
    if folded is not None:
        return folded
    return Compare(operand, "=", values[0]) if len(values) == 1 else OneOf(operand, values)


_LOWER = ("lower", "lcase")

_AROUND: dict[str, tuple[tuple[Wild, ...], tuple[Wild, ...]]] = {
    "contains": ((Wild(ANY),), (Wild(ANY),)),
    "startswith": ((), (Wild(ANY),)),
    "endswith": ((Wild(ANY),), ()),
}
"""The wildcards before and after the text that a function looks for."""


def _escaped(reading: Reading, node: Expr) -> Node | None:
    """Return the tests of LIKE with ESCAPE."""
    constant = reading.constant(node.expression)
    character = constant.value if constant is not None else None
    is_plain = isinstance(character, str) and len(character) == 1 and character not in "%_"
    return _like(reading, node.this, str(character)) if is_plain else None


def _like(reading: Reading, node: Expr, escape: str = "\\") -> Node | None:
    ignores_case = isinstance(node, exp.ILike)
    tests: list[Node] = []
    for pattern in patterns_of(node):
        text = reading.text(pattern)
        if text is None:
            return None
        # Spark compares lower(value) with lower(pattern), escapes and all.
        parts = like_parts(text.lower() if ignores_case else text, escape)
        test = None if parts is None else _text_test(reading, node.this, parts, ignores_case)
        if test is None:
            return None
        tests.append(Not(test) if node.args.get("negate") else test)
    joined = Or if isinstance(node.expression, exp.Any) else And
    return tests[0] if len(tests) == 1 else joined(tuple(tests))


def _around(reading: Reading, args: Sequence[Expr], name: str) -> Node | None:
    """Return the test of ``contains``, ``startswith`` or ``endswith`` with a literal."""
    text = reading.text(args[1])
    if text is None:
        return None
    before, after = _AROUND[name]
    return _text_test(reading, args[0], (*before, *([text] if text else []), *after), False)


def _text_test(
    reading: Reading, node: Expr, parts: tuple[str | Wild, ...], folded: bool
) -> TextTest | None:
    operand = reading.text_operand(node)
    if not folded and is_lower(parts) and is_folded_alike(parts):
        inside = _lowered(reading, node)
        operand, folded = (operand, False) if inside is None else (inside, True)
    if operand is None or (folded and not is_folded_alike(parts)):
        return None
    return TextTest(operand, parts, folded)


def _lower_case_tests(reading: Reading, node: Expr, values: Sequence[Any]) -> Node | None:
    """Return ``lower(x) IN (…)`` as tests of x; what is not in lower case is never equal."""
    inside = _lowered(reading, node)
    if inside is None:
        return None
    texts = [(str(value),) if value else () for value in values]
    possible = [text for text in texts if is_lower(text)]
    if not possible or not all(map(is_folded_alike, possible)):
        return None
    tests = tuple(TextTest(inside, text, folded=True) for text in possible)
    return tests[0] if len(tests) == 1 else Or(tests)


def _lowered(reading: Reading, node: Expr) -> Operand | None:
    """Return the operand x of ``lower(x)``."""
    called = as_call(node.unnest())
    if called is None or called[0] not in _LOWER or len(called[1]) != 1:
        return None
    return reading.text_operand(called[1][0])


def _regex(reading: Reading, args: Sequence[Expr]) -> Node | None:
    """Return the test of a regular expression that Python surely reads as Java does."""
    operand, text = reading.text_operand(args[0]), reading.text(args[1])
    translated = None if operand is None or text is None else python_regex(text)
    if operand is None or translated is None:
        return None
    pattern, flags = translated.pattern, translated.flags
    needs = necessary_tests(operand, pattern, flags)
    if not needs and not regex_effort(str(text)).reason:
        return None
    return ValueTest(operand, "regex", pattern, flags, needs)


def _take_out_calls(
    expression: Expression,
    columns: Mapping[str, str],
    functions: Mapping[str, FunctionPredicate],
) -> dict[int, FunctionPredicate]:
    """Put a TRUE in the place of every call of a Python predicate; return these by their ``id``.

    The tree of the rule is changed; functions are found by their names in lower case.
    """
    taken: dict[int, FunctionPredicate] = {}
    for call in list(expression.tree.find_all(exp.Anonymous)):
        predicate = functions.get(str(call.name).lower())
        if predicate is not None:
            args = [arg for arg in call.expressions if not isinstance(arg, exp.Star)]
            if args:
                predicate = _with_arguments(expression, predicate, call, args, functions)
            else:
                checked_reads(predicate, expression.what, columns, ansi=expression.ansi)
            taken[id(expression.take_out(call))] = predicate
    return taken


def _with_arguments(
    expression: Expression,
    predicate: FunctionPredicate,
    call: exp.Anonymous,
    args: list[Expr],
    functions: Mapping[str, FunctionPredicate],
) -> FunctionPredicate:
    name, n_reads = str(call.name), len(predicate.reads)
    if len(args) != n_reads:
        takes = f"{name}({', '.join(predicate.reads)})"
        message = f"{expression.what}: {takes} takes {n_reads} argument(s), got {len(args)}"
        refuse(message, expression.text, offset_of(call), function=name)
    for arg in args:
        for node in arg.find_all(exp.Anonymous):
            if str(node.name).lower() in functions:
                message = f"{expression.what}: a Python function as an argument is not supported"
                refuse(message, expression.text, offset_of(node), NotSupportedError)
    return replace(predicate, reads=tuple(_argument(expression, name, arg) for arg in args))


def _argument(expression: Expression, name: str, arg: Expr) -> str:
    """Return an argument: a column's name, or an expression that never raises."""
    why = expression.facts(arg).reason or expression.chance_in(arg)
    if why:
        message = (
            f"{expression.what}: an argument of {name} can raise or differs from time to time "
            f"({why}); use the form that gives NULL instead, such as try_cast or try_divide"
        )
        refuse(message, expression.text, offset_of(arg), function=name)
    reference = expression.references.get(id(arg))
    if reference is not None and isinstance(arg, exp.Column) and len(arg.parts) == 1:
        return reference.column
    try:
        return expression.write(arg)
    except UnwritableError as unknown:
        message = f"{expression.what}: {unknown} in an argument of {name} is not supported"
        refuse(message, expression.text, offset_of(arg), NotSupportedError, function=name)


def checked_reads(
    predicate: FunctionPredicate, what: str, columns: Mapping[str, str], *, ansi: bool
) -> FunctionPredicate:
    """Return the predicate; the columns that it reads have to exist, and never raise."""
    for text in predicate.reads:
        if text in columns:
            continue  # a column by its exact name, which need not be SQL
        analysis = resolve_columns(text, columns, name=predicate.name, ansi=ansi, qualifiers=None)
        if analysis.may_raise or not analysis.is_deterministic:
            msg = (
                f"{what}: predicate {predicate.name!r} reads {text!r}, which can raise or differs "
                f"from time to time ({analysis.reason}); use a form that gives NULL, such as "
                "try_cast"
            )
            raise QueryError(msg, name=predicate.name, reads=text)
    return predicate


def function_test(predicate: FunctionPredicate) -> Node:
    """Return the test of a Python predicate; a negated one is NOT of the plain one."""
    return Not(FunctionTest(~predicate)) if predicate.negated else FunctionTest(predicate)


_VARIABLE = re.compile(r"\$\{\S+?\}")
"""A variable, which Spark puts in before it reads a text (``spark.sql.variable.substitute``)."""


def _called(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a function."""
    name, args = as_call(node) or ("", [])
    if name in ("isnull", "isnotnull") and len(args) == 1:
        null = _null_test(reading, args[0])
        return null if null is None or name == "isnull" else Not(null)
    if name in ("rlike", "regexp", "regexp_like") and len(args) == 2:
        return _regex(reading, args)
    if name in _AROUND and len(args) == 2:
        return _around(reading, args, name)
    return None


READERS: dict[type[Expr], NodeReader] = {
    exp.And: _and_or,
    exp.Or: _and_or,
    exp.Not: _not,
    exp.Boolean: _constant,
    exp.Null: _constant,
    exp.Is: _is,
    exp.Column: _flag,
    **dict.fromkeys(COMPARED, _compared),
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _same,
    exp.Between: _between,
    exp.In: _in_list,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escaped,
    exp.RegexpLike: lambda reading, node: _regex(reading, [node.this, node.expression]),
    exp.Anonymous: _called,
}
"""The function that turns each type of node into tests; Spark evaluates all other nodes."""
