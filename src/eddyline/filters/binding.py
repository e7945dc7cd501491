"""Binding of a conjunction to the columns of its input.

It says which predicate goes where, and why. Predicates that never raise and always give the same
answer may move: SQL ones in the native block, Python ones in the Arrow block. The others are
pinned:

* A predicate that is not deterministic, or that its author calls guarded, stays where it was
  written. Earlier predicates run before it, and later ones after it. It cuts the conjunction into
  segments.
* A SQL predicate that can raise must obey the rule that an error counts only if the row survives
  every other predicate. So does one that may exhaust stack, time or memory
  (``sql.regexes``). If a form of it that never raises is known, that form moves freely in the
  native block, and the predicate itself is checked at the very end, on the survivors. If none is
  known, the predicate is only checked at the end, after all others.

Of several predicates that are checked at the end, those without such a form come first: a row on
which they are not true is gone before a predicate with a form is asked again. Otherwise they keep
the order in which they were written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate, SqlPredicate
from eddyline.sql.analysis import analyse, resolve_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.predicates import Predicate
    from eddyline.routing.table import Attribute


@dataclass(frozen=True, slots=True)
class NativeFilter:
    """A SQL predicate in a form that never raises."""

    name: str
    safe_text: str
    """Form that moves: true wherever the predicate is true or raises, else not true."""
    columns: frozenset[str] = frozenset()
    """The columns that it reads."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Predicates whose order is free, and the pinned one that ends them."""

    native: tuple[NativeFilter, ...]
    functions: tuple[FunctionPredicate, ...]
    barrier: Predicate | None
    """The predicate that keeps its place and runs after them; None in the last segment."""
    columns: tuple[frozenset[str], ...] = ()
    """The columns that each of the functions reads."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A predicate that keeps its place, and why."""

    name: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class BoundConjunction:
    """The place of each predicate of a conjunction, over the columns of one input."""

    segments: tuple[Segment, ...]
    checks: tuple[SqlPredicate, ...]
    """Predicates that can raise, checked on the survivors of everything else."""
    pinned: tuple[Pinned, ...]
    attributes: tuple[Attribute, ...] = ()
    """Attributes that may tell classes of rows apart."""


def bind(
    predicates: tuple[Predicate, ...], columns: Mapping[str, str], *, ansi: bool
) -> BoundConjunction:
    """Say where each predicate goes.

    Raises:
        QueryError: a predicate that does not fit the columns; the message names it.
    """
    segments: list[Segment] = []
    native: list[NativeFilter] = []
    functions: list[FunctionPredicate] = []
    columns_of: dict[str, frozenset[str]] = {}
    checks: list[SqlPredicate] = []
    split: list[SqlPredicate] = []
    pinned: list[Pinned] = []

    def close(barrier: Predicate | None) -> None:
        reads = tuple(columns_of[function.name] for function in functions)
        segments.append(Segment(tuple(native), tuple(functions), barrier, reads))
        native.clear()
        functions.clear()

    for predicate in predicates:
        if isinstance(predicate, FunctionPredicate):
            columns_of[predicate.name] = _check_reads(predicate, columns, ansi=ansi)
            if predicate.deterministic and not predicate.guarded:
                functions.append(predicate)
            else:
                close(predicate)
                word = "guarded" if predicate.deterministic else "not deterministic"
                pinned.append(_barrier(predicate, f"it was declared {word}"))
            continue
        analysis = analyse(
            predicate.text,
            columns,
            name=predicate.name,
            ansi=ansi,
            qualifiers=None,
            can_raise=predicate.can_raise,
            deterministic=predicate.deterministic,
        )
        read = frozenset(analysis.columns)
        if not analysis.is_deterministic:
            close(predicate)
            pinned.append(_barrier(predicate, analysis.reason))
        elif not analysis.may_raise:
            native.append(NativeFilter(predicate.name, predicate.text, read))
        else:
            (checks if analysis.safe_text is None else split).append(predicate)
            pinned.append(
                _check(predicate, analysis.reason, is_split=analysis.safe_text is not None)
            )
            if analysis.safe_text is not None:
                native.append(NativeFilter(predicate.name, analysis.safe_text, read))
    close(None)
    return BoundConjunction(tuple(segments), (*checks, *split), tuple(pinned))


def _barrier(predicate: Predicate, reason: str) -> Pinned:
    return Pinned(predicate.name, predicate.text, f"stays where it was written: {reason}")


def _check(predicate: SqlPredicate, reason: str, *, is_split: bool) -> Pinned:
    how = (
        "a form of it that cannot raise moves freely; itself it is checked last"
        if is_split
        else "checked last; several such keep their written order"
    )
    return Pinned(predicate.name, predicate.text, f"{how}, because {reason}")


def _check_reads(
    predicate: FunctionPredicate, columns: Mapping[str, str], *, ansi: bool
) -> frozenset[str]:
    """Return the columns that a function reads; they have to exist and never raise."""
    read: set[str] = set()
    for text in predicate.reads:
        if text in columns:
            read.add(text)
            continue  # a column by its exact name, which need not be SQL
        resolved = resolve_columns(text, columns, name=predicate.name, ansi=ansi, qualifiers=None)
        if resolved.may_raise:
            msg = (
                f"predicate {predicate.name!r} reads {text!r}, which can raise on rows that other "
                f"predicates drop ({resolved.reason}); use the form that gives NULL instead, "
                f"such as try_cast or try_divide"
            )
            raise QueryError(msg, name=predicate.name, reads=text)
        read.update(resolved.columns)
    return frozenset(read)
