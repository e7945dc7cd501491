"""Tests that only Python can compute: regular expressions, networks, users' functions.

A question is asked only for rows on which a rule hangs, a value test once per distinct value. The
error of an expression has no answer: a row that hangs on it raises.
"""

from __future__ import annotations

import ipaddress
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.errors import PredicateError
from eddyline.query.conditions import FunctionTest, Raise, ValueTest
from eddyline.query.predicate_results import advice_on, call, raised_text, shown_row, truth_values
from eddyline.rules.match.lower_case import as_text, decoded
from eddyline.rules.match.pair_kernels import ASKED_IN_VAIN, IS_FALSE, IS_TRUE, IS_UNKNOWN
from eddyline.sql.regexes import compiled
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.rules.compile.program import ExternalTest, Program

    Answers = NDArray[np.int8]


def ask(
    program: Program,
    columns: Sequence[pa.Array],
    rows: Ints,
    rules: Int32s,
    asks: Int32s,
    answers: Answers,
) -> dict[int, tuple[int, int]]:
    """Ask, for each open pair of row and rule, the test on which it hangs first.

    For ``asks`` see ``pair_kernels.decide``; the answers of each external test and row are filled.

    Returns:
        For each external test that was asked, rows and time (ns).

    Raises:
        PredicateError: a pair hangs on a row on which a function raised, or an expression does.
    """
    if (asks < 0).any():
        pair = int(np.argmin(asks >= 0))
        raise _error(program, columns, int(rows[pair]), int(rules[pair]), -1 - int(asks[pair]))
    asked: dict[int, tuple[int, int]] = {}
    for external in distinct(asks).tolist():
        open_rows = distinct(rows[asks == external])
        started = work_ns()
        answers[external, open_rows] = _answers(program.externals[external], columns, open_rows)
        asked[external] = len(open_rows), work_ns() - started
    return asked


def no_answers(program: Program, n_rows: int) -> Answers:
    """Return the answers of each external test and row before anything was asked."""
    answers = np.zeros((max(1, len(program.externals)), n_rows), np.int8)
    answers[[isinstance(external.test, Raise) for external in program.externals] or [False]] = (
        ASKED_IN_VAIN
    )
    return answers


def _answers(external: ExternalTest, columns: Sequence[pa.Array], rows: Ints) -> Answers:
    taken = [columns[column].take(pa.array(rows)) for column in external.columns]
    if isinstance(external.test, ValueTest):
        return _of_values(external.test, taken[0])
    if isinstance(external.test, Raise):  # known from the start: see ``no_answers``
        return np.full(len(rows), ASKED_IN_VAIN, np.int8)
    return _of_function(external.test.predicate, taken)


def _of_values(test: ValueTest, values: pa.Array) -> Answers:
    """Return the answer of a value test for each text; NULL is unknown."""
    coded = as_text(values).dictionary_encode()
    says = _says(test)
    distinct = np.array(
        [says(text) for text in decoded(coded.dictionary) if text is not None], np.bool_
    )
    by_code = np.append(np.where(distinct, IS_TRUE, IS_FALSE), IS_UNKNOWN).astype(np.int8)
    codes = coded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    answers: Answers = by_code[codes]
    return answers


@lru_cache(maxsize=4096)
def _says(test: ValueTest) -> Callable[[str], bool]:
    if test.kind == "regex":
        search = compiled(test.pattern, test.flags).search
        return lambda text: search(text) is not None
    network = ipaddress.ip_network(test.pattern, strict=False)

    def is_inside(text: str) -> bool:
        try:
            return ipaddress.ip_address(text) in network
        except ValueError:
            return False

    return is_inside


def _of_function(predicate: FunctionPredicate, columns: list[pa.Array]) -> Answers:
    """Return the answer of a function for each row, by halves where it raises."""
    n_rows = len(columns[0])
    answers = np.full(n_rows, ASKED_IN_VAIN, np.int8)
    pending = [(0, n_rows)]
    while pending:
        low, high = pending.pop()
        part = [column.slice(low, high - low) for column in columns]
        try:
            result = call(predicate.fn, predicate.arrays, part)
        except Exception:  # noqa: BLE001 - the user's function may raise anything
            if high - low > 1:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
            continue
        values, valid = truth_values(result, high - low, predicate.name, negated=predicate.negated)
        truths = np.where(values, IS_TRUE, IS_FALSE)
        answers[low:high] = truths if valid is None else np.where(valid, truths, IS_UNKNOWN)
    return answers


def _error(
    program: Program, columns: Sequence[pa.Array], row: int, rule: int, external: int
) -> PredicateError:
    """Return the error of a row on which a rule hangs and a function raised."""
    name, called = program.names[rule], program.called[rule]
    asked_test = program.externals[external]
    if isinstance(asked_test.test, Raise):
        row_as_json = columns[asked_test.columns[0]][row].as_py()
        return _raise_error(name, called, asked_test.test, json.loads(row_as_json))
    if not isinstance(asked_test.test, FunctionTest):  # a bug of ours: say so, never guess
        return PredicateError(f"{called} could not be decided", rule=name)
    predicate = asked_test.test.predicate
    values = [columns[column].slice(row, 1) for column in asked_test.columns]
    shown = shown_row(predicate.reads, values)
    cause = _raised(predicate, values)
    what = "raised an error that does not come again" if cause is None else raised_text(cause)
    advice = advice_on(predicate, cause, "add a condition that is false for such rows")
    msg = (
        f"{called}: predicate {predicate.name!r} {what} on the row {shown}, on which it hangs; "
        f"{advice}"
    )
    error = PredicateError(msg, rule=name, predicate=predicate.name, row=shown)
    error.__cause__ = cause
    return error


def _raise_error(name: str, called: str, error: Raise, row: dict[str, Any]) -> PredicateError:
    msg = (
        f"{called}: {error.text} raises on the row {row}, on which it hangs ({error.reason}); use "
        f"{error.advice}, or add a condition that is false for such rows"
    )
    return PredicateError(msg, rule=name, expression=error.text, row=row)


def _raised(predicate: FunctionPredicate, values: list[pa.Array]) -> Exception | None:
    try:
        call(predicate.fn, predicate.arrays, values)
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything
        return error
    return None
