"""Rows of one run in the order of the hash of one key class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.state.run_index_kernels import directory_of, hashes_of, probe, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CROWDED = 64
"""Rows of a slot from which on all rows are sorted by start first: the cost of the other way, which
sorts each slot by itself, grows with the square of the rows in it."""


class Probes(NamedTuple):
    """Probes into an index."""

    hashes: NDArray[np.uint64]
    """Hashes of the codes; ascending is fastest."""
    starts: NDArray[np.int64]
    """The instant from which each lives (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which it does (µs)."""
    checks: NDArray[np.int64]
    """Other codes that must be equal ((codes, probes))."""


class Pairs(NamedTuple):
    """Pairs of a probe and a row that were found."""

    probes: NDArray[np.int64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    """The instant from which both live (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which they do (µs)."""

    @classmethod
    def room(cls, n_pairs: int) -> Pairs:
        """Return room for so many pairs."""
        return cls(*(np.empty(n_pairs, np.int64) for _ in cls._fields))

    def first(self, n_pairs: int) -> Pairs:
        """Return the first pairs."""
        return Pairs(*(each[:n_pairs] for each in self))

    def wider(self, n_pairs: int) -> Pairs:
        """Return room for four times as many, with the first pairs in it."""
        found = Pairs.room(4 * self.probes.size)
        for now, before in zip(found, self, strict=True):
            now[:n_pairs] = before[:n_pairs]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The entries of a run by the hash of their code in one key class."""

    tags: NDArray[np.uint32]
    """The upper half of the hash of each entry."""
    entries: NDArray[np.int64]
    """The bits of its hash, the instant from which it lives, and the last at which it does (µs), in
    ascending order of hashes (without sign) and starts. Ends ascend among equal hashes, unless
    there are bounds ((entries, 3))."""
    directory: NDArray[np.uint32]
    """First entry of each of 2^b equal ranges of hashes, and the number of all."""
    places: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    """Their rows in the run; none if these are in the same order."""
    bounds: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """For each entry the latest end of it and those before it with its hash (µs); none if ends
    ascend."""

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
        hashes, bits = hashes_of(codes), bits_for(codes.size)
        directory = directory_of(hashes, bits)
        if _fullest(directory) < CROWDED:
            rows = sorted_rows(hashes, starts, directory, bits)
        else:
            by_start = np.argsort(starts, kind="stable")
            order = sorted_rows(hashes[by_start], starts[by_start], directory, bits)
            rows = by_start[order].astype(np.uint32)
        return cls.sorted(hashes[rows], starts[rows], ends[rows], directory, rows)

    @classmethod
    def sorted(
        cls,
        hashes: NDArray[np.uint64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        directory: NDArray[np.uint32],
        places: NDArray[np.uint32],
    ) -> Index:
        """Return the index of entries; see its fields."""
        entries = np.empty((hashes.size, 3), np.int64)
        entries[:, 0], entries[:, 1], entries[:, 2] = hashes.view(np.int64), starts, ends
        return cls((hashes >> np.uint64(32)).astype(np.uint32), entries, directory, places)

    def where(self, mask: NDArray[np.bool_]) -> Index:
        """Return the index of some rows, of rows that are in its order."""
        hashes = self.hashes[mask]
        directory = directory_of(hashes, bits_for(hashes.size))
        return Index(self.tags[mask], self.entries[mask], directory)

    def __len__(self) -> int:
        return self.tags.size

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each entry, ascending."""
        return self.entries[:, 0].view(np.uint64)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The instant from which each entry lives (µs); ascending among equal hashes."""
        return self.entries[:, 1]

    @property
    def ends(self) -> NDArray[np.int64]:
        """The last instant at which each entry does (µs)."""
        return self.entries[:, 2]

    @property
    def rows(self) -> NDArray[np.uint32]:
        """The row of each entry in the run."""
        return self.places if self.places.size else np.arange(len(self), dtype=np.uint32)

    def pairs(
        self, probes: Probes, checks: NDArray[np.int64], base: int, found: Pairs, n_found: int
    ) -> tuple[Pairs, int]:
        """Find the pairs of a probe and a row with equal codes that live at one instant.

        Args:
            probes: what to look up.
            checks: the other codes of the rows, as those of the probes ((codes, rows)).
            base: what is added to the number of a row.
            found: the pairs of runs before this one, and room.
            n_found: how many pairs there are.

        Returns:
            With the pairs of this run behind them, in the order of the probes, or where there was
            no room a wider copy of it; and how many there are now.
        """
        first = 0
        while True:
            first, n_found = probe(
                first,
                *probes,
                self.tags,
                self.entries,
                self.directory,
                self.places,
                self.bounds,
                checks,
                base,
                n_found,
                *found,
            )
            if first == probes.hashes.size:
                return found, n_found
            found = found.wider(n_found)


def stacked(codes: Sequence[NDArray[np.int64]], n_rows: int) -> NDArray[np.int64]:
    """Return codes of several key classes as one array; of one class without a copy."""
    if len(codes) == 1:
        return codes[0][np.newaxis]
    return np.stack(codes) if codes else np.empty((0, n_rows), np.int64)


def bits_for(n_rows: int) -> int:
    """Return for how many bits of a hash the directory of so many rows has slots.

    Each has two to four entries, so that nearly all have at most as many as are compared at once.
    """
    return max(1, n_rows.bit_length() - 2)


def _fullest(directory: NDArray[np.uint32]) -> int:
    return int((directory[1:] - directory[:-1]).max())
