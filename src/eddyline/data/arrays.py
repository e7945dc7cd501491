"""Types of NumPy arrays under short names; what the numbers mean is said where a name is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Indices = NDArray[np.intp]
"""Places in another array, as ``argsort`` and ``flatnonzero`` return them."""
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]
"""Bits in words of 64, or hashes."""
Bytes = NDArray[np.uint8]
