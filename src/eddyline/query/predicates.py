"""Predicates as values: SQL text, or a Python function over whole columns.

A predicate is a description. It is frozen, picklable (functions by cloudpickle) and knows nothing
of Spark; what SQL text means over given columns is the business of ``sql.analysis``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, overload

from eddyline.errors import EddylineError, OptionError, QueryError
from eddyline.registry import checked_text, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Arrays = Literal["arrow", "pandas", "numpy", "rows"]
"""Kinds of arrays that a predicate function may get for a column; ``rows`` passes one value."""

_UDFS: dict[int, Arrays] = {100: "rows", 101: "rows", 200: "pandas", 250: "arrow"}
"""The kinds of Spark's functions (``PythonEvalType``) whose Python function can be a predicate."""

MAX_DEFAULT_NAME = 60
"""Characters of a name that is made from SQL text; a table of filters stays readable."""


@dataclass(frozen=True)
class SqlPredicate:
    """A condition as SQL text, evaluated by Spark.

    Raises:
        QueryError: there is no text.
        OptionError: the name, or the user's word, is none.
    """

    text: str
    """The condition as the user wrote it."""
    name: str = ""
    """Name in plans and journals; made from the text if empty."""
    can_raise: bool | None = None
    """The user's word on whether a row can make it raise; None: found out from the text."""
    deterministic: bool | None = None
    """The user's word on whether equal rows always get equal answers; None: found out."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            msg = f"a SQL predicate needs a text such as \"proto = 'tcp'\", got {self.text!r}"
            raise QueryError(msg, text=self.text)
        for what in ("can_raise", "deterministic"):
            if getattr(self, what) not in (None, True, False):
                msg = f"{what} of a predicate is True, False or None, got {getattr(self, what)!r}"
                raise OptionError(msg, predicate=self.text)
        if self.name:
            checked_text("name of a predicate", self.name)
        else:
            object.__setattr__(self, "name", _shortened(self.text))


@dataclass(frozen=True)
class MixedPredicate(SqlPredicate):
    """A condition as SQL text that calls Python functions inside a larger expression."""

    functions: Mapping[str, FunctionPredicate] = field(default_factory=dict, hash=False)
    """Those that it may call, by name."""


@dataclass(frozen=True)
class FunctionPredicate:
    """A Python function over whole columns that returns one boolean per row.

    It can still be called like the function that it was made from.

    Raises:
        OptionError: ``arrays`` is not a kind of array that a function can get, or the name no text.
        QueryError: it is not callable, reads nothing, or takes another number of arguments.
    """

    # An instance of a data class has no hash, and no two processes say a function by the same text.
    fn: Callable[..., Any] = field(hash=False, repr=False)
    """Called with one array per entry of ``reads``."""
    reads: tuple[str, ...]
    """Column names, or SQL expressions over columns, in the order of the arguments."""
    name: str = ""
    """Name in plans and journals; the function's name if empty."""
    arrays: Arrays = "arrow"
    """Kind of array that the function gets for each column."""
    deterministic: bool = True
    """Whether equal rows always get equal answers."""
    guarded: bool = False
    """Whether it may only get rows that the predicates written before it keep."""
    negated: bool = False
    """Whether a row is kept where the function says false (NULL drops either way)."""
    called: str = field(default="", repr=False, compare=False)
    """Name by which a query's text calls it; empty outside of texts."""
    __doc__: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_function(self.fn)
        object.__setattr__(self, "reads", _checked_reads(self.reads, _function_name(self.fn)))
        if self.name:
            checked_text("name of a predicate", self.name)
        else:
            object.__setattr__(self, "name", _default_name(self.fn, self.reads))
        object.__setattr__(self, "__doc__", inspect.getdoc(self.fn))
        if self.arrays not in get_args(Arrays):
            msg = unknown("kind of arrays", str(self.arrays), get_args(Arrays))
            raise OptionError(f"predicate {self.name!r}: {msg}", arrays=self.arrays)
        _check_arguments(self.fn, self.reads, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself: arrays in, its own result out, not negated."""
        return self.fn(*args, **kwargs)

    def __invert__(self) -> FunctionPredicate:
        """Return the predicate that keeps the rows on which this one is false."""
        name = self.name.removeprefix("NOT ") if self.negated else f"NOT {self.name}"
        return replace(self, negated=not self.negated, name=name)

    @property
    def text(self) -> str:
        """The predicate as it would stand in SQL: ``suspicious(payload, dst_port)``."""
        called = self.called or _function_name(self.fn)
        if called == "lambda":  # then only the predicate itself may have a name
            called = re.split(r"[(#]", self.name.removeprefix("NOT "))[0]
        call = f"{called}({', '.join(self.reads)})"
        return f"NOT {call}" if self.negated else call

    @property
    def label(self) -> str:
        """Name by which the query calls it, or the predicate's own name."""
        return self.called or self.name.removeprefix("NOT ")


Predicate = SqlPredicate | FunctionPredicate


@dataclass(frozen=True)
class PredicateDecorator:
    """``@predicate("a", "b")`` before it meets its function."""

    reads: tuple[str, ...]
    options: tuple[str, Arrays, bool, bool]
    """Further arguments of ``of_function``."""

    def __call__(self, fn: Callable[..., Any]) -> FunctionPredicate:
        """Make the function below the decorator a predicate."""
        return of_function(fn, self.reads, *self.options)


@overload
def predicate(
    *columns: str,
    name: str | None = ...,
    arrays: Arrays = ...,
    deterministic: bool = ...,
    guarded: bool = ...,
) -> PredicateDecorator: ...


@overload
def predicate(
    fn: Callable[..., Any],
    /,
    *,
    reads: Sequence[str] | None = ...,
    name: str | None = ...,
    arrays: Arrays = ...,
    deterministic: bool = ...,
    guarded: bool = ...,
) -> FunctionPredicate: ...


def predicate(
    *columns: Any,
    reads: Sequence[str] | None = None,
    name: str | None = None,
    arrays: Arrays = "arrow",
    deterministic: bool = True,
    guarded: bool = False,
) -> PredicateDecorator | FunctionPredicate:
    """Make a Python function a predicate: as a decorator, or with the function as argument.

    Args:
        *columns: the columns (or SQL expressions over columns) that the decorated function reads,
            in the order of its arguments; or one function, and then ``reads`` says them.
        reads: see ``columns``; the names of the function's arguments if omitted.
        name: how the predicate is called in plans and journals; the function's name by default.
        arrays: what the function gets for each column: ``arrow``, ``pandas`` or ``numpy`` arrays
            of several rows. With ``rows`` it is called for each row, with one Python value for
            each column (None for NULL), and returns True, False, or None for NULL.
        deterministic: False if equal rows may get different answers (it draws random numbers,
            reads a clock, asks a service); such a predicate keeps its place in the order.
        guarded: True if it must not get rows that the predicates written before it drop, because
            it would hang on them or exhaust memory. Such a predicate keeps its place in the order.

    Returns:
        A decorator, or the predicate if a function was given.

    Raises:
        OptionError: an unknown kind of arrays.
        QueryError: no columns, one column twice, not a function, or another number of arguments.

    Example:
        >>> @predicate("a", "b", arrays="numpy")
        ... def larger(a, b):
        ...     return a > b
        >>> larger.text
        'larger(a, b)'
        >>> larger(2, 1)
        True
        >>> predicate(lambda a: a, reads=["a"]).name
        'lambda(a)'
        >>> predicate(str.isdigit, reads=["a"], arrays="rows")("12")
        True
    """
    options = name or "", arrays, deterministic, guarded
    if columns and all(isinstance(column, str) for column in columns):
        if reads is not None:
            msg = f"columns given twice: {', '.join(columns)} and reads={list(reads)!r}; say one"
            raise QueryError(msg, columns=columns, reads=reads)
        return PredicateDecorator(_defined_reads(columns, name), options)
    if len(columns) == 1:
        return of_function(columns[0], reads, *options)
    if not columns and reads is not None:
        return PredicateDecorator(_defined_reads(reads, name), options)
    what = "nothing" if not columns else ", ".join(type(column).__name__ for column in columns)
    msg = (
        f"predicate() was given {what}; use @el.predicate('column', …) above a function, "
        "or el.predicate(function, reads=['column', …])"
    )
    raise QueryError(msg, got=what)


def sql_predicate(
    text: str,
    *,
    name: str | None = None,
    can_raise: bool | None = None,
    deterministic: bool | None = None,
) -> SqlPredicate:
    """Make SQL text a predicate, with a name or with what its author knows about it.

    Plain text works wherever a predicate is expected; this adds to it.

    Args:
        text: a boolean SQL expression over the columns of the input.
        name: how the predicate is called in plans and journals.
        can_raise: False promises that no row makes it raise, or exhausts stack or time. It may
            then move freely in the order. True says that a row may. By default eddyline decides.
        deterministic: whether equal rows always get equal answers. Found out by default.

    Raises:
        QueryError: there is no text.

    Example:
        >>> sql_predicate("a / b > 2", name="ratio", can_raise=False).name
        'ratio'
    """
    return SqlPredicate(text, name or "", can_raise, deterministic)


def as_predicate(condition: Any) -> Predicate:
    """Return a predicate from what was given: text, or a predicate already.

    Raises:
        QueryError: it is neither; the message says how to make it one.
    """
    if isinstance(condition, SqlPredicate | FunctionPredicate):
        return condition
    if isinstance(condition, str):
        return SqlPredicate(condition)
    if isinstance(condition, PredicateDecorator):
        columns = ", ".join(map(repr, condition.reads))
        msg = (
            f"el.predicate({columns}) is a decorator that still waits for its function; "
            "SQL text is a predicate as it is, or with a name by el.sql_predicate(text, name=…)"
        )
        raise QueryError(msg, reads=condition.reads)
    if callable(condition):
        return of_function(condition)
    hint = 'write a condition as text, such as "length(payload) > 100"'
    if isinstance(condition, list | tuple):
        hint = "unpack it: all_of(*predicates)"
    msg = (
        f"a predicate is SQL text or a function made by el.predicate, "
        f"got {type(condition).__name__}; {hint}"
    )
    raise QueryError(msg, got=type(condition).__name__)


def named(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """Return the predicates with unique names: the second of a name gets ``#2``.

    >>> [p.name for p in named([SqlPredicate("a > 5"), SqlPredicate("a > 5")])]
    ['a > 5', 'a > 5#2']
    """
    listed = list(predicates)
    wanted = {predicate.name for predicate in listed}
    taken: set[str] = set()
    unique: list[Predicate] = []
    for predicate in listed:
        name, number = predicate.name, 1
        while name in taken or (number > 1 and name in wanted):
            number += 1
            name = f"{predicate.name}#{number}"
        taken.add(name)
        unique.append(predicate if name == predicate.name else replace(predicate, name=name))
    return tuple(unique)


def of_function(
    fn: Any,
    reads: Sequence[str] | None = None,
    name: str = "",
    arrays: Arrays = "arrow",
    deterministic: bool = True,
    guarded: bool = False,
) -> FunctionPredicate:
    """Return a function as a predicate; see ``predicate``.

    Raises:
        OptionError: an unknown kind of arrays.
        QueryError: it is no function, or does not fit the columns.
    """
    if isinstance(fn, FunctionPredicate):
        columns = fn.reads if reads is None else _defined_reads(reads, fn.name)
        return replace(fn, reads=columns, name=name or fn.name)
    _check_function(fn)
    names = _argument_names(fn) if reads is None else reads
    columns = _defined_reads(names, name or _function_name(fn))
    return FunctionPredicate(fn, columns, name, arrays, deterministic, guarded)


def _argument_names(fn: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a call must give."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    of_calls = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in of_calls and parameter.default is parameter.empty
    ]


def _check_function(fn: Any) -> None:
    if hasattr(fn, "evalType") and hasattr(fn, "returnType"):
        _refuse_udf(fn)
    if not callable(fn):
        msg = f"a predicate function must be callable, got {type(fn).__name__} {fn!r}"
        raise QueryError(msg, got=fn)


def _refuse_udf(udf: Any) -> NoReturn:
    """Refuse a udf of Spark's, and name the call that makes its function a predicate."""
    name = _function_name(udf).replace("lambda", "f")
    arrays = _UDFS.get(udf.evalType)
    if arrays is None:
        advice = "its function is over iterators or groups; write one over the values of a row"
    else:
        is_chance = not getattr(udf, "deterministic", True)
        more = ", deterministic=False" if is_chance else ""
        advice = (
            f"take the Python function out of it: "
            f"el.predicate({name}.func, reads=['column', …], arrays={arrays!r}{more})"
        )
    msg = f"{name!r} is a udf of Spark's, not a Python function; {advice}"
    raise QueryError(msg, name=name)


def _checked_reads(reads: Sequence[str], name: str | None) -> tuple[str, ...]:
    if not isinstance(reads, Iterable):
        msg = f"{_who(name)} has reads={reads!r:.60}; give its columns: reads=['column', …]"
        raise QueryError(msg, name=name, reads=reads)
    columns = (reads,) if isinstance(reads, str) else tuple(reads)
    if not columns:
        hint = "name them: @el.predicate('column', …) or reads=['column']"
        msg = f"{_who(name)} reads no columns; {hint}"
        raise QueryError(msg, name=name)
    for column in columns:
        if not isinstance(column, str) or not column.strip():
            msg = f"{_who(name)} reads {column!r}; a column is named by a text that is not empty"
            raise QueryError(msg, name=name, column=column)
    return columns


def _defined_reads(reads: Sequence[str], name: str | None) -> tuple[str, ...]:
    """Check the columns of a definition, in which a repeated column is a slip of the pen."""
    columns = _checked_reads(reads, name)
    seen: set[str] = set()
    for column in columns:
        if column.lower() in seen:
            msg = f"{_who(name)} reads {column!r} twice; give each column once"
            raise QueryError(msg, name=name, column=column)
        seen.add(column.lower())
    return columns


def _who(name: str | None) -> str:
    return f"predicate {name!r}" if name else "a predicate"


def _check_arguments(fn: Callable[..., Any], reads: tuple[str, ...], name: str) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins do not tell; the first call will
        return
    try:
        signature.bind(*reads)
    except TypeError as error:
        msg = (
            f"predicate {name!r} is called with {len(reads)} column(s) ({', '.join(reads)}), "
            f"but its function is {_function_name(fn)}{signature}: {error}"
        )
        raise QueryError(msg, name=name, reads=reads) from error


def _function_name(fn: Any) -> str:
    inner = getattr(fn, "func", fn)  # of functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def _default_name(fn: Any, reads: tuple[str, ...]) -> str:
    name = _function_name(fn)
    return f"{name}({', '.join(reads)})" if name == "lambda" else name


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_DEFAULT_NAME else f"{line[: MAX_DEFAULT_NAME - 1]}…"


def named_functions(functions: Mapping[str, Any]) -> dict[str, FunctionPredicate]:
    """Return functions as predicates, by the names that texts call them by.

    Args:
        functions: predicates made by ``el.predicate``, or functions over arrays, whose arguments
            are then named like the columns that they read where a text calls them without any.

    Raises:
        QueryError: they have no names, or one is no function; the message names it.
    """
    if not isinstance(functions, Mapping):
        msg = f"functions are given by name, such as {{'known': known}}, got {functions!r:.60}"
        raise QueryError(msg, got=type(functions).__name__)
    predicates: dict[str, FunctionPredicate] = {}
    for name, fn in functions.items():
        checked_text("name of a function", name)
        try:
            is_made = isinstance(fn, FunctionPredicate)
            predicates[name] = fn if is_made else of_function(fn, name=name)
        except EddylineError as error:
            msg = f"function {name!r}: {error.message}"
            raise QueryError(msg, name=name) from error
    return predicates
