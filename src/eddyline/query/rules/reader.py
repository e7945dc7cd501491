"""From boolean SQL over the columns of an input to a rule tree.

A leaf becomes a test of one operand where exact mathematics on values is what Spark does; any
other leaf stays a condition that Spark evaluates. What may raise is looked at in a form that gives
NULL instead, beside its error (``null_form``). What draws lots, or may raise and has no such form,
is not taken apart at all: Spark evaluates the whole rule as it was written, with its own
short-circuits.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

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
from eddyline.sql.analysis import check_is_row_wise, resolve_columns
from eddyline.sql.error_free import NoFormError, NullForms, is_surely_evaluated
from eddyline.sql.functions import NON_DETERMINISTIC
from eddyline.sql.inference import FactsReader, as_call, as_name
from eddyline.sql.java_regex import python_regex
from eddyline.sql.like import ANY, Wild, is_folded_alike, is_lower, is_whole_text, like_parts
from eddyline.sql.literals import SqlConstant, constant_of, scalars_for
from eddyline.sql.names import Columns
from eddyline.sql.parsing import (
    SparkText,
    offset_of,
    parse_condition,
    refuse,
    slice_of,
    tokens_of,
)
from eddyline.sql.rendering import (
    SqlWriter,
    UnwritableError,
    is_read_alike,
    join_literals,
    string_literal,
)
from eddyline.sql.types import (
    BOOLEAN,
    MAX_PRECISION,
    NULL,
    STRING,
    TIMES,
    SqlType,
    common_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.literals import Scalar
    from eddyline.sql.names import ColumnRef

_SIMPLE = ("integer", "decimal", "float", "string", "boolean", "date", *TIMES)
"""Families of types whose values are worth handing over."""

_VARIABLE = re.compile(r"\$\{\S+?\}")
"""What Spark looks for before it reads a text (``spark.sql.variable.substitute``)."""

_MIRRORED: dict[type, type] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_COMPARISONS = (*_MIRRORED, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_SIGNS: dict[type, str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_OUTCOMES = {True: TRUE, False: FALSE}
_WHY_NATIVE = "it is no comparison of one expression with constants that is known to be exact"
_MAX_SHOWN = 100
"""Characters of a text that an error shows."""
_LOWER = ("lower", "lcase")


class RuleText:
    """One rule's text over the columns of an input.

    Args:
        text: the rule.
        what: what it is, for errors: ``rule 'big'``.
        columns: name and Spark type of each column.
        functions: Python predicates that it may call, by name.
        ansi: whether Spark raises where ANSI SQL does.

    Raises:
        QueryError: it cannot be read, names an unknown column or is not a condition.
        NotSupportedError: it needs more than one row.
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
        self._text = text
        self._what = what
        self._columns = columns
        self._ansi = ansi
        self._functions = {name.lower(): made for name, made in functions.items()}
        self._tree = parse_condition(text, what)
        check_is_row_wise(self._tree, text, what, self._functions)
        if self._tree.find(exp.Concat):
            self._tree = join_literals(self._tree, text, tokens_of(text, what))
        resolver = Columns(columns, None)
        self._references = resolver.references(self._tree, text, what)
        self._facts = FactsReader(self._references, ansi=ansi)
        self._calls: dict[int, tuple[str, int]] = {}
        self._predicates: dict[int, FunctionPredicate] = {}
        self._kept: list[Expr] = []  # nodes are told apart by id
        self._writer = SqlWriter(self._references, self._calls, text, what)
        self._forms = NullForms(self._facts, self._writer)
        self._errors: dict[int, tuple[Operand | NativeTest, Raise]] = {}  # by id of the first
        self._take_out_calls()
        self._check_is_condition(self._tree)

    @property
    def first_call(self) -> str:
        """The first Python function that it calls ("" if it calls none)."""
        return min(self._calls.values(), key=lambda call: call[1])[0] if self._calls else ""

    @property
    def whole(self) -> NativeTest:
        """The rule as Spark evaluates it, as it was written."""
        # Without a comment at its end, which would hide what comes after it.
        text = slice_of(self._text, tokens_of(self._text, self._what))
        return NativeTest(text, self._columns_of(self._tree))

    @property
    def chance(self) -> str:
        """Why equal rows may get different answers; empty if they do not."""
        names = (as_name(node) for node in self._tree.walk())
        name = next((name for name in names if name in NON_DETERMINISTIC), "")
        return f"{name}() is not deterministic" if name else ""

    @property
    def doubt(self) -> str:
        """Why it may be read otherwise than here; empty if it is not."""
        if _VARIABLE.search(self._text):
            return "Spark replaces ${…} by a variable"
        if is_read_alike(self._tree):
            return ""
        return "which of its operators binds tighter is not clear; write parentheses"

    @property
    def risk(self) -> str:
        """Why it may raise; empty if it does not."""
        return self._facts.facts(self._tree).reason

    def tree(self) -> Node:
        """Return the rule taken apart.

        Raises:
            UnwritableError: it holds what is not known well enough, or may raise and has no form
                that gives NULL instead.
            NotSupportedError: it calls a Python function inside a larger expression.
        """
        tree = self._node(self._tree)
        return self._with_errors(tree) if self._errors else tree

    def refuse_calls(self, reason: str) -> NoReturn:
        """Refuse a rule that calls a Python function although it must stay whole."""
        name, offset = min(self._calls.values(), key=lambda call: call[1])
        message = (
            f"{self._what} calls the Python function {name} and cannot be taken apart: {reason}; "
            f"use forms that never raise, such as try_cast or try_divide, or make two rules of it"
        )
        refuse(message, self._text, offset, NotSupportedError, function=name)

    # Python functions

    def _take_out_calls(self) -> None:
        """Put a TRUE in the place of every call of a Python function."""
        for node in list(self._tree.find_all(exp.Anonymous)):
            found = self._functions.get(str(node.name).lower())
            if found is None or id(node) in self._predicates:
                continue
            predicate = self._with_arguments(found, node)
            stand_in = exp.Boolean(this=True)
            self._calls[id(stand_in)] = (str(node.name), offset_of(node))
            self._predicates[id(stand_in)] = predicate
            self._kept += [node, stand_in]
            if node is self._tree:
                self._tree = stand_in
            else:
                node.replace(stand_in)

    def _with_arguments(self, found: FunctionPredicate, node: exp.Anonymous) -> FunctionPredicate:
        args = [arg for arg in node.expressions if not isinstance(arg, exp.Star)]
        if not args:
            return checked_reads(found, self._what, self._columns, ansi=self._ansi)
        if len(args) != len(found.reads):
            takes = f"{node.name}({', '.join(found.reads)})"
            message = f"{self._what}: {takes} takes {len(found.reads)} argument(s), got {len(args)}"
            refuse(message, self._text, offset_of(node), function=str(node.name))
        return replace(found, reads=tuple(self._argument(str(node.name), arg) for arg in args))

    def _argument(self, name: str, arg: Expr) -> str:
        """Return what an argument reads: a column's name, or an expression that never raises."""
        for node in arg.find_all(exp.Anonymous):
            if str(node.name).lower() in self._functions:
                message = f"{self._what}: a Python function as an argument is not supported"
                refuse(message, self._text, offset_of(node), NotSupportedError)
        reason = self._facts.facts(arg).reason
        chance = next((as_name(n) for n in arg.walk() if as_name(n) in NON_DETERMINISTIC), "")
        if reason or chance:
            why = reason or f"{chance}() is not deterministic"
            message = (
                f"{self._what}: an argument of {name} can raise or differs from time to time "
                f"({why}); use the form that gives NULL instead, such as try_cast or try_divide"
            )
            refuse(message, self._text, offset_of(arg), function=name)
        ref = self._references.get(id(arg))
        if ref is not None and isinstance(arg, exp.Column) and len(arg.parts) == 1:
            return ref.column
        try:
            return self._writer.write(arg)
        except UnwritableError as unknown:
            message = f"{self._what}: {unknown} in an argument of {name} is not supported"
            refuse(message, self._text, offset_of(arg), NotSupportedError, function=name)

    # Logic

    def _node(self, node: Expr) -> Node:
        """Return the tree of a condition."""
        while isinstance(node, exp.Paren):
            node = node.this
        if id(node) in self._predicates:
            return function_test(self._predicates[id(node)])
        self._check_is_condition(node)
        handler = self._HANDLERS.get(type(node))
        found = None if handler is None or self._is_rounded(node) else handler(self, node)
        return self._native(node) if found is None else found

    def _is_rounded(self, node: Expr) -> bool:
        """Return whether Spark rounds decimals to compare them: no type has all their digits."""
        if not isinstance(node, _COMPARISONS):
            return False
        sides = [node.args.get(key) for key in ("this", "expression", "low", "high")]
        given = [each for each in (*sides, *node.expressions) if each is not None]
        kinds = (self._facts.facts(each).type for each in given)
        return reduce(common_type, kinds, NULL).precision > MAX_PRECISION

    def _check_is_condition(self, node: Expr) -> None:
        kind = self._facts.facts(node).type
        is_root = node is self._tree
        # In ANSI mode Spark reads a string as a boolean, but not as a whole condition.
        is_read = kind.family == "string" and self._ansi and not is_root
        if kind.family in ("boolean", "null", "other") or is_read:
            return
        message = f"{self._what} is not a condition: it is of type {kind.text}"
        if not is_root:
            message = f"{self._what}: this part is not a condition, but of type {kind.text}"
        refuse(message, self._text, offset_of(node))

    def _native(self, node: Expr) -> NativeTest:
        facts = self._facts.facts(node)
        is_read = facts.type.family == "string"  # as a boolean, by AND, OR and NOT
        if self._ansi and (facts.reason or is_read):
            return self._native_that_may_raise(node, BOOLEAN if is_read else None)
        if facts.type.family == "other" and node is not self._tree:
            raise NoFormError(f"a condition of type {facts.type.text}")
        text = self._writer.write(node)
        text = f"CAST({text} AS BOOLEAN)" if is_read else text
        return NativeTest(text, self._columns_of(node), _WHY_NATIVE)

    def _connected(self, node: Expr) -> Node:
        kind = type(node)
        parts: list[Node] = []
        waiting = [node]
        while waiting:
            each = waiting.pop().unnest()
            if isinstance(each, kind):
                waiting += [each.expression, each.this]
            else:
                parts.append(self._node(each))
        return And(tuple(parts)) if kind is exp.And else Or(tuple(parts))

    def _not(self, node: Expr) -> Node:
        return Not(self._node(node.this))

    def _constant(self, node: Expr) -> Node:
        return Constant(bool(node.this) if isinstance(node, exp.Boolean) else None)

    def _is(self, node: Expr) -> Node | None:
        what = node.expression
        if isinstance(what, exp.Boolean):
            return Is(self._node(node.this), _OUTCOMES[bool(what.this)])
        return self._is_null(node.this)

    def _is_null(self, node: Expr) -> Node | None:
        inner = node.unnest()
        if self._facts.facts(inner).reason:
            raise NoFormError("IS NULL")  # of what is never NULL, Spark knows it and never raises
        operand = self._operand(inner)
        if isinstance(inner, exp.Column) and operand is not None:
            return IsNull(operand)
        if self._facts.facts(inner).type.family == "boolean" and self._is_taken_apart(inner):
            return Is(self._node(inner), UNKNOWN)
        return None if operand is None else IsNull(operand)

    def _is_taken_apart(self, node: Expr) -> bool:
        return id(node) in self._calls or type(node) in self._HANDLERS

    def _flag(self, node: Expr) -> Node | None:
        operand = self._operand(node)
        is_flag = operand is not None and operand.type.family == "boolean"
        return Compare(operand, "=", True) if is_flag and operand is not None else None

    # What may raise

    def _native_that_may_raise(self, node: Expr, kind: SqlType | None) -> NativeTest:
        sides = [node.this, node.expression] if type(node) in _MIRRORED else []
        kinds = {self._facts.facts(each).type.text for each in sides} - {STRING.text}
        if len(kinds) > 1 and not all(each.find(exp.Column) for each in sides):
            raise NoFormError("a comparison with a constant of another type")  # see below
        form, error = self._error(node, kind)
        test = NativeTest(form, self._columns_of(node), _WHY_NATIVE)
        self._errors[id(test)] = test, error
        return test

    def _check_is_evaluated(self, operand: Operand, values: Sequence[Scalar] | None) -> None:
        """Refuse what may raise where Spark may know an answer by the constants alone."""
        is_risky = id(operand) in self._errors and values is not None
        if is_risky and not is_surely_evaluated(operand.type, values or ()):
            raise NoFormError("a comparison with a constant of another type")

    def _operand_that_may_raise(self, node: Expr) -> Operand:
        kind = self._facts.facts(node).type
        if kind.family == "decimal" and not isinstance(node, exp.Cast):
            raise NoFormError("arithmetic of decimals")  # its type is wider here than in Spark
        form, error = self._error(node, None)
        operand = Operand(form, kind, self._columns_of(node))
        self._errors[id(operand)] = operand, error
        return operand

    def _error(self, node: Expr, kind: SqlType | None) -> tuple[str, Raise]:
        """Return the form of an expression that gives NULL where it raises, and its error."""
        if not self._ansi:
            raise NoFormError(type(node).__name__)
        form = self._forms.of(node, kind)
        refs = (self._references.get(id(each)) for each in node.find_all(exp.Column))
        shown = {ref.text: ref for ref in refs if ref is not None and ref.type.family in _SIMPLE}
        if not shown:
            raise NoFormError("an expression without columns")
        fields = ", ".join(_field(shown[text]) for text in sorted(shown))
        sql = f"CASE WHEN {form.raised} THEN to_json(named_struct({fields})) END"
        operand = Operand(sql, STRING, self._columns_of(node))
        text = node.sql(SparkText, normalize_functions=False, comments=False)
        reason = self._facts.facts(node).reason or f"{text} is read as a boolean"
        return form.sql, Raise(operand, text, reason, ", ".join(form.advice))

    def _with_errors(self, node: Node) -> Node:
        """Return a tree in which each test of what may raise has its error."""
        if isinstance(node, Compare | OneOf | IsNull | TextTest | ValueTest | NativeTest):
            looks_at = node if isinstance(node, NativeTest) else node.operand
            found = self._errors.get(id(looks_at))
            return node if found is None else MayRaise(node, found[1])
        return node.map(self._with_errors)

    def _as_met(self, node: Expr, others: Sequence[Expr]) -> Expr:
        """Return a side of a comparison with the cast that Spark puts in where it is a string."""
        if not self._ansi or self._facts.facts(node).type != STRING or constant_of(node):
            return node
        met = [self._facts.facts(each).type for each in others]
        kinds = {common_type(STRING, kind) for kind in met if kind.family != "null"}
        common = next(iter(kinds)) if len(kinds) == 1 else STRING
        if common == STRING or not common.is_known:
            return node
        made = exp.Cast(this=node, to=exp.DataType.build(common.text, dialect=SparkText))
        self._kept.append(made)
        return made

    # Comparisons

    def _compared(self, node: Expr) -> Node | None:
        left, right, kind = node.this, node.expression, type(node)
        constant = self._constant_of(right)
        if constant is None:
            left, right, kind = right, left, _MIRRORED[kind]
            constant = self._constant_of(right)
        if constant is None:
            return None
        left = self._as_met(left, [right])
        if kind not in (exp.EQ, exp.NEQ):
            return self._ordered(left, _SIGNS[kind], constant)
        equal = self._equal(left, constant)
        return Not(equal) if equal is not None and kind is exp.NEQ else equal

    def _same(self, node: Expr) -> Node | None:
        """Return ``<=>`` and IS [NOT] DISTINCT FROM with a constant."""
        outcomes = TRUE if isinstance(node, exp.NullSafeEQ) else FALSE | UNKNOWN
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            constant = self._constant_of(other)
            if constant is None:
                continue
            if constant.family == "null":
                null = self._is_null(one)
                return null if null is None or outcomes == TRUE else Not(null)
            equal = self._equal(self._as_met(one, [other]), constant)
            return None if equal is None else Is(equal, outcomes)
        return None

    def _equal(self, node: Expr, constant: SqlConstant) -> Node | None:
        if constant.family == "null":
            return Constant(None)
        inner = node.unnest()
        if constant.family == "boolean" and self._facts.facts(inner).type.family == "boolean":
            part = self._node(inner)
            return part if constant.value else Not(part)
        return self._one_of(inner, [constant])

    def _ordered(self, node: Expr, sign: str, constant: SqlConstant) -> Node | None:
        if constant.family == "null":
            return Constant(None)
        operand = self._operand(node)
        if operand is None or operand.type.family == "boolean":
            return None
        if not is_whole_text(str(constant.value)):
            return None
        values = scalars_for(operand.type, [constant])
        self._check_is_evaluated(operand, values)
        return None if values is None else Compare(operand, sign, values[0])

    def _between(self, node: Expr) -> Node | None:
        given = [node.args[key] for key in ("low", "high")]
        bounds = [self._constant_of(each) for each in given]
        inner = self._as_met(node.this, given) if None not in bounds else node.this
        parts = [
            None if bound is None else self._ordered(inner, sign, bound)
            for sign, bound in zip((">=", "<="), bounds, strict=True)
        ]
        known = [part for part in parts if part is not None]
        return And(tuple(known)) if len(known) == len(parts) else None

    def _in(self, node: Expr) -> Node | None:
        constants = [self._constant_of(each) for each in node.expressions]
        known = [each for each in constants if each is not None]
        if len(known) < len(constants) or not constants:
            return None
        kind = self._facts.facts(node.this).type
        is_text = kind.family in TIMES and any(each.family == "string" for each in known)
        if is_text and not self._ansi:
            return None  # Spark compares the timestamps as texts
        values = [each for each in known if each.family != "null"]
        if not values:
            return Constant(None)
        found = self._one_of(self._as_met(node.this, node.expressions), values)
        if found is None or len(values) == len(known):
            return found
        return Or((found, Constant(None)))

    def _one_of(self, node: Expr, constants: Sequence[SqlConstant]) -> Node | None:
        """Return whether an operand is equal to one of some constants."""
        operand = self._operand(node)
        if operand is None:
            return None
        found = scalars_for(operand.type, constants)
        self._check_is_evaluated(operand, found)
        if found is None:
            return None
        values = tuple(dict.fromkeys(found))
        if len(values) > 1 and operand.type.family == "float" and 0.0 in values:
            return None  # of long lists Spark makes a hash set, in which -0.0 is not 0.0
        folded = self._folded_equal(node, values)
        if folded is not None:
            return folded
        if len(values) == 1:
            return Compare(operand, "=", values[0])
        return OneOf(operand, values)

    # Texts

    def _folded_equal(self, node: Expr, values: Sequence[Any]) -> Node | None:
        """Return ``lower(x) IN (…)`` as tests of x; what is not in lower case is never equal."""
        inside = self._lowered(node)
        if inside is None:
            return None
        texts = [(str(value),) if value else () for value in values]
        possible = [text for text in texts if is_lower(text)]
        if not possible or not all(map(is_folded_alike, possible)):
            return None
        tests = tuple(TextTest(inside, text, folded=True) for text in possible)
        return tests[0] if len(tests) == 1 else Or(tests)

    def _lowered(self, node: Expr) -> Operand | None:
        """Return the operand x of ``lower(x)``."""
        called = as_call(node.unnest())
        if called is None or called[0] not in _LOWER or len(called[1]) != 1:
            return None
        return self._text_operand(called[1][0])

    def _text_operand(self, node: Expr) -> Operand | None:
        operand = self._operand(node)
        return operand if operand is not None and operand.type.family == "string" else None

    def _like(self, node: Expr) -> Node | None:
        return self._liked(node, "\\")

    def _escaped(self, node: Expr) -> Node | None:
        escape = self._constant_of(node.expression)
        character = escape.value if escape is not None else None
        is_plain = isinstance(character, str) and len(character) == 1 and character not in "%_"
        return self._liked(node.this, str(character)) if is_plain else None

    def _liked(self, node: Expr, escape: str) -> Node | None:
        pattern, joins = node.expression, And
        patterns = [pattern]
        if isinstance(pattern, exp.Any | exp.All):
            inside = pattern.this.unnest()
            patterns = list(inside.expressions) if isinstance(inside, exp.Tuple) else [inside]
            joins = And if isinstance(pattern, exp.All) else Or  # type: ignore[assignment]
        ignores_case = isinstance(node, exp.ILike)
        tests: list[Node] = []
        for each in patterns:
            test = self._like_one(node.this, each, escape, ignores_case=ignores_case)
            if test is None:
                return None
            tests.append(Not(test) if node.args.get("negate") else test)
        return tests[0] if len(tests) == 1 else joins(tuple(tests))

    def _like_one(
        self, node: Expr, pattern: Expr, escape: str, *, ignores_case: bool
    ) -> Node | None:
        constant = self._constant_of(pattern)
        if constant is None or constant.family != "string":
            return None
        text = str(constant.value)
        # Spark compares lower(value) with lower(pattern), escapes and all.
        parts = like_parts(text.lower() if ignores_case else text, escape)
        return None if parts is None else self._text_test(node, parts, folded=ignores_case)

    def _text_test(
        self, node: Expr, parts: tuple[str | Wild, ...], *, folded: bool
    ) -> TextTest | None:
        operand = self._text_operand(node)
        if not folded and is_lower(parts) and is_folded_alike(parts):
            inside = self._lowered(node)
            operand, folded = (operand, False) if inside is None else (inside, True)
        if operand is None or (folded and not is_folded_alike(parts)):
            return None
        return TextTest(operand, parts, folded)

    def _rlike(self, node: Expr) -> Node | None:
        return self._regex([node.this, node.expression])

    def _regex(self, args: Sequence[Expr]) -> Node | None:
        operand, constant = self._text_operand(args[0]), self._constant_of(args[1])
        if operand is None or constant is None or constant.family != "string":
            return None
        regex = python_regex(str(constant.value))
        if regex is None:
            return None
        needs = necessary_tests(operand, regex.pattern, regex.flags)
        return ValueTest(operand, "regex", regex.pattern, regex.flags, needs) if needs else None

    def _called(self, node: Expr) -> Node | None:
        name, args = as_call(node) or ("", [])
        if name in ("isnull", "isnotnull") and len(args) == 1:
            null = self._is_null(args[0])
            return null if null is None or name == "isnull" else Not(null)
        if len(args) != 2:
            return None
        if name in ("rlike", "regexp", "regexp_like"):
            return self._regex(args)
        constant = self._constant_of(args[1])
        if name not in _AROUND or constant is None or constant.family != "string":
            return None
        before, after = _AROUND[name]
        literal = (str(constant.value),) if constant.value else ()
        return self._text_test(args[0], (*before, *literal, *after), folded=False)

    # Operands

    def _constant_of(self, node: Expr) -> SqlConstant | None:
        return None if id(node.unnest()) in self._calls else constant_of(node)

    def _operand(self, node: Expr) -> Operand | None:
        """Return what a test looks at, or None if its values should stay in Spark."""
        inner = node.unnest()
        if id(inner) in self._calls or not inner.find(exp.Column, exp.Anonymous):
            return None
        facts = self._facts.facts(inner)
        columns = self._columns_of(inner)
        if facts.type.family not in _SIMPLE or not columns or any(map(self._is_odd, columns)):
            return None
        if facts.type.family in TIMES and not isinstance(inner, exp.Column):
            return None  # which of the two a TIMESTAMP is, is a setting of the session
        if facts.reason:
            return self._operand_that_may_raise(inner)
        return Operand(self._writer.write(inner), facts.type, columns)

    def _is_odd(self, column: str) -> bool:
        """Return whether texts of a column are not compared byte by byte."""
        kind = self._columns[column].lower()
        return "collate" in kind or "char(" in kind

    def _columns_of(self, node: Expr) -> tuple[str, ...]:
        mentions = sorted(node.find_all(exp.Column), key=offset_of)
        refs = (self._references.get(id(each)) for each in mentions)
        return tuple(dict.fromkeys(ref.column for ref in refs if ref is not None))

    _HANDLERS: ClassVar[dict[type, Callable[[RuleText, Any], Node | None]]] = {
        **dict.fromkeys((exp.And, exp.Or), _connected),
        exp.Not: _not,
        **dict.fromkeys((exp.Boolean, exp.Null), _constant),
        exp.Is: _is,
        exp.Column: _flag,
        **dict.fromkeys(_MIRRORED, _compared),
        **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _same),
        exp.Between: _between,
        exp.In: _in,
        **dict.fromkeys((exp.Like, exp.ILike), _like),
        exp.Escape: _escaped,
        exp.RegexpLike: _rlike,
        exp.Anonymous: _called,
    }


def _field(ref: ColumnRef) -> str:
    """Return a column as a field of a struct that an error shows."""
    value = f"left({ref.text}, {_MAX_SHOWN})" if ref.type == STRING else ref.text
    return f"{string_literal(ref.text.replace('`', ''))}, {value}"


_AROUND: dict[str, tuple[tuple[Wild, ...], tuple[Wild, ...]]] = {
    "contains": ((Wild(ANY),), (Wild(ANY),)),
    "startswith": ((), (Wild(ANY),)),
    "endswith": ((Wild(ANY),), ()),
}


def checked_reads(
    predicate: FunctionPredicate, what: str, columns: Mapping[str, str], *, ansi: bool
) -> FunctionPredicate:
    """Return the predicate if the columns that it reads exist and reading them never raises.

    Args:
        predicate: a Python predicate.
        what: what it stands in, for errors.
        columns: name and Spark type of each column.
        ansi: whether Spark raises where ANSI SQL does.

    Raises:
        QueryError: it does not fit the columns.
    """
    for text in predicate.reads:
        if text in columns:
            continue  # a column by its exact name, which need not be SQL
        found = resolve_columns(text, columns, name=predicate.name, ansi=ansi, qualifiers=None)
        if found.may_raise or not found.is_deterministic:
            msg = (
                f"{what}: predicate {predicate.name!r} reads {text!r}, which can raise or differs "
                f"from time to time ({found.reason}); use a form that gives NULL, such as try_cast"
            )
            raise QueryError(msg, name=predicate.name, reads=text)
    return predicate


def function_test(predicate: FunctionPredicate) -> Node:
    """Return the test of a Python predicate; a negated one is NOT of the plain one."""
    return Not(FunctionTest(~predicate)) if predicate.negated else FunctionTest(predicate)
