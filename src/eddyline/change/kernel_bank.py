"""Banks whose work is done by compiled kernels, on arrays that grow with what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.data.jit import load

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Ints


class KernelBank(MachineBank):
    """A bank whose states are kernels.

    Arrays in ``_growing`` have room for more than the detectors hold, along axis 1.
    """

    _growing: ClassVar[tuple[str, ...]] = ()
    _max_length: int = 2**24
    """Most room that an array may have."""

    def __init__(self, n: int, n_feedback: int) -> None:
        super().__init__(n, n_feedback)
        load()

    def _taken(self, values: Floats) -> tuple[Ints, Floats]:
        which, items = super()._taken(values)
        return which, plain(items)

    def _grow(self, length: int) -> None:
        """Make room for more; what is there stays."""
        for name in self._growing:
            old = getattr(self, name)
            setattr(self, name, _lengthened(old, length))

    def _fitted(self, name: str, rows: NDArray[Any], n_touched: int) -> NDArray[Any]:
        if name in self._growing and rows.ndim > 1:
            length = getattr(self, name).shape[1]
            if length < rows.shape[1] <= self._max_length:
                self._grow(rows.shape[1])
            elif rows.shape[1] < length:
                rows = _lengthened(rows, length)
        return super()._fitted(name, rows, n_touched)


def plain(items: Floats) -> Floats:
    """Return items in the one form of array that kernels are compiled for."""
    is_plain = items.flags.c_contiguous and items.flags.writeable
    return items if is_plain else items.copy()


def _lengthened(rows: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros((len(rows), length, *rows.shape[2:]), dtype=rows.dtype)
    longer[:, : rows.shape[1]] = rows
    return longer
