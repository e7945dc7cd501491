"""What a predicate function may return."""

import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import PredicateError
from eddyline.query import predicate_results
from eddyline.query.predicate_results import coerce_outcome
from eddyline.query.predicates import FunctionPredicate

OUTCOMES = st.lists(st.sampled_from([True, False, None]))

FORMS_WITH_NULLS = {
    "arrow": lambda v: pa.array(v, pa.bool_()),
    "arrow slice": lambda v: pa.array([True, *v, False], pa.bool_()).slice(1, len(v)),
    "arrow chunks": lambda v: pa.chunked_array([pa.array(v[i::2], pa.bool_()) for i in (0, 1)]),
    "list": list,
    "tuple": tuple,
    "numpy object": lambda v: np.array(v, dtype=object),
    "numpy masked": lambda v: np.ma.masked_array(
        [bool(x) for x in v], [x is None for x in v], dtype=bool
    ),
    "pandas boolean": lambda v: pd.Series(v, dtype="boolean"),
    "pandas object": lambda v: pd.Series(v, dtype=object),
    "pandas arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.bool_())),
    "pandas category": lambda v: pd.Series(v, dtype=object).astype("category"),
    "pandas array": lambda v: pd.array(v, dtype="boolean"),
    "pandas index from 7": lambda v: pd.Series(v, dtype="boolean", index=range(7, 7 + len(v))),
    "NaN": lambda v: pd.Series([np.nan if x is None else x for x in v], dtype=object),
    "NA": lambda v: np.array([pd.NA if x is None else np.bool_(x) for x in v], dtype=object),
    "polars": lambda v: pl.Series(v, dtype=pl.Boolean),
}


@pytest.mark.parametrize("form", FORMS_WITH_NULLS.values(), ids=FORMS_WITH_NULLS)
@given(values=OUTCOMES, negated=st.booleans())
def test_every_form_keeps_what_is_true_and_drops_null(form, values, negated):
    if form is FORMS_WITH_NULLS["arrow chunks"]:
        values_in_order = values[0::2] + values[1::2]
    else:
        values_in_order = values
    keep = coerce_outcome(form(values), len(values), "p", negated=negated)
    assert keep.dtype == np.bool_
    assert keep.tolist() == [x is (not negated) for x in values_in_order]


@given(values=st.lists(st.booleans()))
def test_numpy_and_pandas_booleans(values):
    for result in (np.array(values, dtype=bool), pd.Series(values, dtype=bool)):
        assert coerce_outcome(result, len(values), "p").tolist() == values


def test_only_nulls():
    for result in (pa.nulls(3), [None] * 3, np.array([None, np.nan, pd.NaT], dtype=object)):
        for negated in (False, True):
            assert coerce_outcome(result, 3, "p", negated=negated).tolist() == [False] * 3


def test_an_object_array_below_a_mask():
    result = np.ma.masked_array(np.array([True, None, True], dtype=object), [True, False, False])
    assert coerce_outcome(result, 3, "p").tolist() == [False, False, True]


def test_a_result_is_not_changed():
    result = np.array([True, False])
    coerce_outcome(result, 2, "p", negated=True)
    assert result.tolist() == [True, False]


NOT_BOOLEAN = "return booleans: compare the values"
REFUSED = {
    "Arrow ints": (pa.array([1, 0, 1]), "an Arrow array of int64; " + NOT_BOOLEAN),
    "Arrow strings": (pa.array(["a"] * 3), "an Arrow array of string"),
    "NumPy ints": (np.ones(3, dtype=np.int8), "a NumPy array of int8; " + NOT_BOOLEAN),
    "NumPy floats": (np.ones(3), "a NumPy array of float64"),
    "pandas floats": (pd.Series([0.1, 0.2, 0.3]), "a pandas Series of float64"),
    "pandas strings": (pd.Series(["a", "b", "c"]), "string values"),
    "pandas categories": (pd.Series(["a", "b", "c"]).astype("category"), "string values"),
    "list of ints": ([1, 0, 1], "integer values"),
    "bools and ints": ([True, 0, 1], "values; " + NOT_BOOLEAN),
    "decimals": ([decimal.Decimal(1)] * 3, "decimal values"),
    "lists in a list": ([[True], [True], [False]], "mixed values"),
    "a scalar": (True, "a single bool (True) for 3 rows"),
    "a NumPy scalar": (np.True_, "a single bool"),
    "a NumPy array without axes": (np.array(True), "a single bool"),
    "an Arrow scalar": (pa.scalar(True), "a single BooleanScalar"),
    "nothing": (None, "None; does it lack a return statement?"),
    "NA": (pd.NA, "a single NAType"),
    "text": ("yes", "a single str"),
    "a generator": ((x for x in [True]), "a single generator"),
    "too few": (pa.array([True, False]), "2 values for 3 rows"),
    "too many": ([True] * 4, "4 values for 3 rows"),
    "a matrix": (np.ones((3, 1), dtype=bool), "an array of shape (3, 1)"),
    "a frame": (pd.DataFrame({"a": [True] * 3}), "a pandas DataFrame of shape (3, 1)"),
}


@pytest.mark.parametrize(("result", "says"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_in_words(result, says):
    with pytest.raises(PredicateError) as caught:
        coerce_outcome(result, 3, "suspicious")
    assert str(caught.value).startswith("predicate 'suspicious' returned ")
    assert says in str(caught.value)


def test_what_a_function_raised_says_the_line_in_its_own_file():
    def reads_json(text):
        return json.loads(text)  # the line that a person can mend

    try:
        predicate_results.call(reads_json, "arrow", ["{"])
    except ValueError as error:
        said = predicate_results.raised_text(error)
    line = reads_json.__code__.co_firstlineno + 1
    assert said.startswith("raised JSONDecodeError: Expecting property name")
    assert said.endswith(f"({__file__}, line {line}, reads_json)")
    assert predicate_results.raised_text(ValueError("far away")) == "raised ValueError: far away"


def _invalid_text():
    offsets, data = np.array([0, 2], np.int32), b"A\xff"
    return pa.Array.from_buffers(pa.string(), 1, [None, *map(pa.py_buffer, (offsets, data))])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (pa.array(["A"]), "A"),
        (pa.array([None], pa.string()), None),
        (_invalid_text(), b"A\xff"),
        (pa.array([253402300800], pa.timestamp("s", "UTC")), "253402300800 (timestamp[s, tz=UTC])"),
        (pa.array([3_000_000], pa.int32()).cast(pa.date32()), "3000000 (date32[day])"),
        (pa.array([10**15], pa.duration("s")), "1000000000000000 (duration[s])"),
        (
            pa.ListArray.from_arrays([0, 1], _invalid_text()),
            "a value of type list<item: string> that Python cannot hold",
        ),
    ],
)
def test_the_error_of_a_row_shows_values_that_python_cannot_hold(value, shown):
    predicate = FunctionPredicate(len, ("v",), "broken")
    error = predicate_results.raised_on(predicate, [value], ValueError("no"), "which counts")
    assert error.facts["row"] == {"v": shown}
    assert str(error).startswith("predicate 'broken' raised ValueError: no on the row {'v': ")


def test_an_error_whose_text_raises_is_named():
    class SilentError(Exception):
        def __str__(self):
            raise RuntimeError

    assert predicate_results.raised_text(SilentError()) == "raised SilentError: (its text raises)"
    half = predicate_results.raised_text(ValueError("\ud800"))
    assert half == "raised ValueError: \\ud800"
