"""Rows of one run in the order of the hash of one key class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Probes(NamedTuple):
    """What is looked up in an index."""

    hashes: NDArray[np.uint64]
    """Of the code of each probe; ascending is fastest."""
    starts: NDArray[np.int64]
    """The instant from which each lives (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which it does (µs)."""
    checks: NDArray[np.int64]
    """Other codes that must be equal ((codes, probes))."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The entries of a run by the hash of their code in one key class."""

    hashes: NDArray[np.uint64]
    """Ascending."""
    starts: NDArray[np.int64]
    """The instant from which each entry lives (µs); ascending among equal hashes."""
    ends: NDArray[np.int64]
    """The last instant at which it does (µs); ascending among equal hashes."""
    rows: NDArray[np.uint32]
    """Its row in the run."""
    directory: NDArray[np.uint32]
    """Where the entries of each of 2^b equal ranges of hashes start, and their number."""

    @classmethod
    def of(
        cls, codes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Index:
        """Return the index of rows.

        Args:
            codes: of each row in the key class.
            starts: the instant from which each row lives (µs).
            ends: the last instant at which it does (µs); of two rows, not the earlier one's later.
        """
        from eddyline.joins.index_kernels import hashes_of, sort_by_hash  # noqa: PLC0415

        hashes = hashes_of(codes)
        by_start = np.arange(codes.size) if _ascends(starts) else np.argsort(starts, kind="stable")
        order, directory = sort_by_hash(hashes[by_start], _bits_for(codes.size))
        rows = by_start[order].astype(np.uint32)
        return cls(hashes[rows], starts[rows], ends[rows], rows, directory)

    def __len__(self) -> int:
        return self.hashes.size

    def pairs(
        self, probes: Probes, checks: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the pairs of a probe and a row with equal codes that live at one instant.

        Args:
            probes: what to look up.
            checks: the other codes of the rows, as those of the probes ((codes, rows)).

        Returns:
            The probe and the row of each pair, in the order of the probes.
        """
        from eddyline.joins.index_kernels import probe  # noqa: PLC0415

        n_probes, room = probes.hashes.size, max(1024, probes.hashes.size)
        found_probes, found_rows = [], []
        first = 0
        while first < n_probes:
            found = np.empty(room, np.uint32), np.empty(room, np.uint32)
            start = first
            first, n = probe(
                first,
                *probes,
                self.hashes,
                self.starts,
                self.ends,
                self.rows,
                self.directory,
                checks,
                *found,
            )
            found_probes.append(found[0][:n])
            found_rows.append(found[1][:n])
            if first == start:
                room *= 4
        return _joined(found_probes), _joined(found_rows)


def _ascends(values: NDArray[np.int64]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _bits_for(n_rows: int) -> int:
    """Return for how many bits of a hash the directory of so many rows has slots."""
    return max(1, n_rows.bit_length() - 1)


def _joined(pieces: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, np.uint32)
