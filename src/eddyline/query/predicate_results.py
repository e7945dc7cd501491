"""Results of predicate functions, made one NumPy boolean per row.

True means that the row is kept. NULL, None, NaN and masked drop, as NULL does in SQL. Anything
that is not one boolean per row is the author's mistake and is said at once, in the author's words:
guessing (is 0.3 true? does one value hold for all rows?) would change answers silently.
"""

from __future__ import annotations

import importlib
import re
import traceback
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import PredicateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Mask
    from eddyline.query.predicates import FunctionPredicate

_OWN = Path(__file__).parents[1]
"""Folder of eddyline, of whose frames nobody needs to know."""


def coerce_outcome(result: Any, n_rows: int, name: str, *, negated: bool = False) -> Mask:
    """Return a mask of the rows that a predicate function keeps.

    Args:
        result: what the function returned: an Arrow, NumPy or pandas array or a list of booleans.
        n_rows: how many rows the function was given.
        name: the predicate, for the error.
        negated: keep where the result is false instead; what is NULL drops either way.

    Returns:
        One boolean per row ((R,)); it may share its memory with ``result``.

    Raises:
        PredicateError: the result is not one boolean per row.

    Example:
        >>> coerce_outcome(pa.array([True, None, False]), 3, "f").tolist()
        [True, False, False]
        >>> coerce_outcome(pa.array([True, None, False]), 3, "f", negated=True).tolist()
        [False, False, True]
    """
    values, valid = truth_values(result, n_rows, name, negated=negated)
    return values if valid is None else values & valid


def truth_values(
    result: Any, n_rows: int, name: str, *, negated: bool = False
) -> tuple[Mask, Mask | None]:
    """Return a predicate function's answers, and a mask of the rows that have one (None: all).

    Arguments and errors are as for ``coerce_outcome``.
    """
    values, valid = _booleans(result, n_rows, name)
    if len(values) != n_rows:
        _refuse(name, f"{len(values)} values for {n_rows} rows", "return one boolean per row")
    return (~values if negated else values), valid


def call(fn: Callable[..., Any], arrays: str, columns: Iterable[pa.Array]) -> Any:
    """Call a predicate function with its kind of arrays; see ``Arrays``."""
    if arrays == "rows":
        return list(map(fn, *(column.to_pylist() for column in columns)))
    return fn(*map(_AS[arrays], columns))


_AS: dict[str, Callable[[pa.Array], Any]] = {
    "arrow": lambda array: array,
    "pandas": lambda array: array.to_pandas(),
    "numpy": lambda array: array.to_numpy(zero_copy_only=False),
}
"""Conversions of a column for a function, by the kind of arrays that it asks for."""


def _booleans(result: Any, n_rows: int, name: str) -> tuple[Mask, Mask | None]:
    """Return the values, and which of them are not NULL (None: all)."""
    if isinstance(result, pa.Array | pa.ChunkedArray):
        return _of_arrow(result, name)
    if isinstance(result, np.ndarray):
        return _of_numpy(result, n_rows, name)
    if isinstance(result, list | tuple):
        return _of_objects(_object_array(result), name)
    if type(result).__module__.partition(".")[0] == "pandas":
        return _of_pandas(result, n_rows, name)
    return _of_foreign(result, n_rows, name)


def _of_foreign(result: Any, n_rows: int, name: str) -> tuple[Mask, Mask | None]:
    """Take in an array of another library (polars, torch) by the protocols they share."""
    if hasattr(result, "__arrow_c_stream__"):
        return _of_arrow(pa.chunked_array(result), name)
    if hasattr(result, "__arrow_c_array__"):
        return _of_arrow(pa.array(result), name)
    if hasattr(result, "__array__") and not isinstance(result, np.generic):
        return _of_numpy(np.asarray(result), n_rows, name)
    return _refuse_single(result, n_rows, name)


def _of_arrow(result: Any, name: str) -> tuple[Mask, Mask | None]:
    if pa.types.is_null(result.type):
        nothing = np.zeros(len(result), dtype=np.bool_)
        return nothing, nothing
    if not pa.types.is_boolean(result.type):
        _refuse_kind(name, f"an Arrow array of {result.type}")
    array = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False), None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(array, False).to_numpy(zero_copy_only=False), valid


def _of_numpy(result: NDArray[Any], n_rows: int, name: str) -> tuple[Mask, Mask | None]:
    if result.ndim == 0:
        _refuse_single(result.item(), n_rows, name)
    if result.ndim != 1:
        _refuse(name, f"an array of shape {result.shape}", "return one boolean per row, shape (R,)")
    if isinstance(result, np.ma.MaskedArray):
        values, valid = _of_numpy(np.where(result.mask, False, result.data), n_rows, name)
        unmasked = ~np.ma.getmaskarray(result)
        return values, unmasked if valid is None else unmasked & valid
    if result.dtype == np.bool_:
        return result, None
    if result.dtype == np.object_:
        return _of_objects(result, name)
    return _refuse_kind(name, f"a NumPy array of {result.dtype}")


def _of_pandas(result: Any, n_rows: int, name: str) -> tuple[Mask, Mask | None]:
    pd = _pandas()
    if isinstance(result, pd.DataFrame):
        hint = "return one boolean per row, such as one column of it"
        _refuse(name, f"a pandas DataFrame of shape {result.shape}", hint)
    if not hasattr(result, "dtype"):
        _refuse_single(result, n_rows, name)
    dtype = result.dtype
    if dtype == np.object_ or isinstance(dtype, pd.CategoricalDtype):
        return _of_objects(np.asarray(result, dtype=object), name)
    if not pd.api.types.is_bool_dtype(dtype):
        _refuse_kind(name, f"a pandas {type(result).__name__} of {dtype}")
    series = pd.Series(result)
    if dtype == np.bool_:
        return series.to_numpy(), None
    return series.to_numpy(dtype=np.bool_, na_value=False), series.notna().to_numpy()


def _of_objects(values: NDArray[Any], name: str) -> tuple[Mask, Mask | None]:
    pd = _pandas()
    if values.ndim != 1:
        _refuse(name, f"values of shape {values.shape}", "return one boolean per row")
    valid = ~pd.isna(values)
    kind = pd.api.types.infer_dtype(values[valid], skipna=False)
    if kind not in ("boolean", "empty"):
        _refuse_kind(name, f"{kind} values")
    keep = np.zeros(len(values), dtype=np.bool_)
    keep[valid] = values[valid].astype(np.bool_)
    return keep, valid


def _pandas() -> Any:
    """Load pandas where it is first needed: it takes longer than the rest of the package."""
    return importlib.import_module("pandas")


def _object_array(values: list[Any] | tuple[Any, ...]) -> NDArray[Any]:
    # np.array would make nested lists of one length a matrix and refuse ragged ones.
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _refuse_single(result: Any, n_rows: int, name: str) -> Never:
    if result is None:
        _refuse(name, "None", "does it lack a return statement? return one boolean per row")
    got = f"a single {type(result).__name__} ({result!r:.40}) for {n_rows} rows"
    hint = (
        "return one boolean per row; and, or, any and all make one value of many; "
        'a function of one value needs arrays="rows"'
    )
    _refuse(name, got, hint)


def _refuse_kind(name: str, got: str) -> Never:
    _refuse(name, got, "return booleans: compare the values, such as score > 0.5")


def _refuse(name: str, got: str, hint: str) -> Never:
    msg = f"predicate {name!r} returned {got}; {hint}"
    raise PredicateError(msg, name=name, got=got)


def raised_text(error: BaseException) -> str:
    """Say what a function raised and where: in its file, the line that was reached last."""
    message = f"raised {type(error).__name__}: {_text_of(error)}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(_OWN)
    ]
    user_frames = [frame for frame in frames if frame.filename == frames[0].filename]
    if not user_frames:
        return message
    last = user_frames[-1]
    return f"{message} ({last.filename}, line {last.lineno}, {last.name})"


_OF_ARRAYS = re.compile(r"\b(\w*Array|Series|ndarray)\b|truth value of an? (array|Series)")
"""Words in the error of a function that mistakes an array for one value."""
_SCALARS = (str, int, float, bool, bytes, date, time, timedelta, Decimal)  # a datetime is a date


def advice_on(predicate: FunctionPredicate, cause: BaseException | None, where: str) -> str:
    """Return advice about an error of a function; ``where`` says where to add a condition."""
    if predicate.arrays != "rows" and isinstance(cause, AttributeError | TypeError | ValueError):
        is_of_arrays = _OF_ARRAYS.search(str(cause)) is not None
        if is_of_arrays or (not isinstance(cause, ValueError) and _takes_values(predicate.fn)):
            return (
                f"this function is written for one value, and gets whole {predicate.arrays} "
                f'arrays; use arrays="rows", which calls it once per row'
            )
    return f"handle that value in the predicate, or {where}"


def _takes_values(fn: Callable[..., Any]) -> bool:
    """Return whether the type hints of a function say that it takes single values."""
    hints = getattr(fn, "__annotations__", {})
    names = {scalar.__name__ for scalar in (*_SCALARS, datetime)}
    return any(
        name != "return" and (getattr(hint, "__name__", None) or str(hint)) in names
        for name, hint in hints.items()
    )


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the text of the user's error may itself raise
        return "(its text raises)"
    # A lone surrogate cannot travel from a worker.
    return text.encode("utf-8", "backslashreplace").decode()


def shown_row(names: Sequence[str], row: Sequence[pa.Array]) -> dict[str, Any]:
    """Return the values of a row, given as arrays of one value, for an error.

    Arrow has values that Python cannot hold: texts that are not UTF-8, and times beyond the year
    9999. Such a text becomes its bytes, and such a time its number with its type.

    Example:
        >>> shown_row(["n", "at"], [pa.array([1]), pa.array([10**17], pa.timestamp("s"))])
        {'n': 1, 'at': '100000000000000000 (timestamp[s])'}
    """
    return {name: _shown_value(array[0]) for name, array in zip(names, row, strict=True)}


def _shown_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except Exception:  # noqa: BLE001 - a value that cannot be shown must not hide the error
        kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes()
    if pa.types.is_temporal(kind):
        number = value.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        return f"{number.as_py()} ({kind})"
    return f"a value of type {kind} that Python cannot hold"


def raised_on(
    predicate: FunctionPredicate, row: Sequence[pa.Array], cause: Exception, which: str
) -> PredicateError:
    """Return the error of a row, as arrays of one value, on which a function raised.

    ``which`` says why the row counts, as part of a sentence.
    """
    shown = shown_row(predicate.reads, row)
    advice = advice_on(predicate, cause, "add a predicate that drops such rows")
    msg = f"predicate {predicate.name!r} {raised_text(cause)} on the row {shown}, {which}; {advice}"
    error = PredicateError(msg, predicate=predicate.name, row=shown)
    error.__cause__ = cause
    return error


def truths(predicate: FunctionPredicate, columns: Sequence[pa.Array]) -> pa.Array:
    """Return a function's answers for rows that it is asked for anyway, as an Arrow array.

    Raises:
        PredicateError: it raised on a row, or gave something else; the message shows the row.
    """
    n_rows = len(columns[0])
    try:
        result = call(predicate.fn, predicate.arrays, columns)
    except Exception as error:
        if n_rows == 1:
            raise raised_on(predicate, columns, error, "which is one of the results") from error
        middle = n_rows // 2
        halves = [
            [column.slice(start, size) for column in columns]
            for start, size in ((0, middle), (middle, n_rows - middle))
        ]
        return pa.concat_arrays([truths(predicate, half) for half in halves])
    values, valid = truth_values(result, n_rows, predicate.name, negated=predicate.negated)
    return pa.array(values, mask=None if valid is None else ~valid)
