"""Numbers that tell classes of rows apart, computed from Arrow columns.

They equal those that Spark's SQL computes. What was learned of classes in the lane holds outside of
it, too, so each value has to be the one of ``Attribute.sql``: a number, 0 or 1 of a boolean, days,
or 52 bits of the hash of a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.hashes import add_hash, seeds
from eddyline.query.attributes import HASH_BITS, attribute
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.query.attributes import Attribute


def is_plain(attr: Attribute, kind: str) -> bool:
    """Return whether an attribute is a column of a Spark type that ``values_of`` knows."""
    expected = attribute(attr.name, quoted(attr.name), kind, [attr.name])
    return attr == expected and not kind.startswith("timestamp")


def values_of(array: pa.Array) -> Floats:
    """Return a column as an attribute's values (nan: NULL; (N,))."""
    if pa.types.is_string(array.type):
        numbers: Floats = hashes_of(array).astype(np.float64)
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return numbers
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    doubles: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return doubles


def hashes_of(texts: pa.Array) -> Any:
    """Return 52 bits of the hash of each text ((N,) of int64; of NULL, any)."""
    hashes = seeds(len(texts))
    add_hash(hashes, texts)
    return hashes & HASH_BITS
