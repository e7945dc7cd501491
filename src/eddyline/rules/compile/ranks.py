"""Ranks: keys of values whose order does not fit 64 bits, by where they lie among constants.

Of sorted constants, the key 2 i + 1 is constant i, and 2 i is what lies below it and above the one
before. Texts are compared as Spark compares them, by their bytes; decimals of up to 38 digits by
16 bytes that sort as they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.rules.compile.keys import nulls_of
from eddyline.rules.match import region_kernels as kernels
from eddyline.rules.match.lower_case import as_text, offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Bytes, Ints
    from eddyline.sql.types import SqlType

FARTHEST = 10**38
"""Beyond every decimal without its point; constants further out compare as this one."""

_SHIFT = 2**127
_WIDTH = 16


def rank_of(place: int) -> int:
    """Return the key of a constant, by its place among the sorted constants."""
    return 2 * place + 1


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Sorted constants as bytes."""

    data: Bytes
    """One after the other."""
    offsets: Ints
    """Start of each; one more than there are."""

    @classmethod
    def of(cls, constants: Sequence[str] | Sequence[int]) -> Ranks:
        """Return the ranks among constants.

        They are sorted: texts, or decimals without their point, up to ``FARTHEST``.

        Example:
            >>> Ranks.of(["b", "ba"]).keys(pa.array(["a", "b", "b!", "ba", "c"])).tolist()
            [0, 1, 2, 3, 4]
        """
        each = [
            (one + _SHIFT).to_bytes(_WIDTH, "big") if isinstance(one, int) else one.encode()
            for one in constants
        ]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in each])]).astype(np.int64)
        return cls(np.frombuffer(b"".join(each) or b"\0", np.uint8), offsets)

    def keys(self, values: pa.Array, kind: SqlType | None = None) -> Ints:
        """Return the key of each value (anything where it is NULL)."""
        if kind is not None and kind.family == "decimal":
            data, offsets = _decimal_bytes(values, kind.scale)
        else:
            data, offsets = _text_bytes(values)
        found = np.zeros(len(values), np.int64)
        kernels.rank(data, offsets, nulls_of(values), self.data, self.offsets, found)
        return found


def _text_bytes(values: pa.Array) -> tuple[Bytes, Ints]:
    texts = as_text(values)
    buffer = texts.buffers()[2]
    return np.frombuffer(b"\0" if buffer is None else buffer, np.uint8), offsets_of(texts)


def _decimal_bytes(values: pa.Array, scale: int) -> tuple[Bytes, Ints]:
    """Return decimals as bytes that sort as they do: the sign turned, the highest byte first."""
    wide = values.cast(pa.decimal128(38, scale))
    offsets = np.arange(len(wide) + 1, dtype=np.int64) * _WIDTH
    if len(wide) == 0:
        return np.frombuffer(b"\0", np.uint8), offsets
    halves = np.frombuffer(wide.buffers()[1], "<u8")[2 * wide.offset :][: 2 * len(wide)]
    turned = halves.reshape(-1, 2)[:, ::-1].copy()
    turned[:, 0] ^= np.uint64(2**63)
    return np.frombuffer(turned.astype(">u8").tobytes(), np.uint8), offsets
