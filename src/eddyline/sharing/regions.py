"""Region constructs: an operand's values, cut into regions where the rules of a set cut them.

Region 0 is NULL. An ordered operand has a further region per gap between cuts; a text operand, of
which rules only ask whether it is some text, one for all other texts and one per text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.query.rules import FALSE, TRUE, UNKNOWN, Compare, IsNull, OneOf, TextTest
from eddyline.sharing.folding import lowered
from eddyline.sharing.keys import (
    HIGHEST,
    Interval,
    complement,
    interval,
    is_keyed,
    keys_of,
    nulls_of,
    places_of,
    point,
    united,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.query.rules import Operand, Test

RegionTest = Compare | OneOf | IsNull | TextTest


@dataclass(frozen=True, slots=True)
class KeySet:
    """The values for which a literal holds, as keys."""

    intervals: tuple[Interval, ...]
    """Sorted and disjoint."""
    holds_null: bool


@dataclass(frozen=True, slots=True)
class RegionConstruct:
    """One operand and where its values are cut."""

    operand: Operand
    folded: bool
    """Whether texts are compared in lower case."""
    constants: tuple[str, ...] | None
    """The texts that rules name (text operands); a text's key is its place here."""
    cuts: NDArray[np.int64]
    """Keys at which a region starts, ascending."""

    @property
    def n_regions(self) -> int:
        """Number of regions, NULL included."""
        return len(self.cuts) + 2

    def keys(self, values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the key of each value (anything where it is NULL), and which are NULL."""
        if len(self.cuts) == 0:  # nothing but NULL matters
            return np.zeros(len(values), np.int64), nulls_of(values)
        if self.constants is None:
            return keys_of(values, self.operand.type)
        texts = lowered(values) if self.folded else values
        return places_of(texts, pa.array(self.constants, texts.type))

    def regions(self, keys: NDArray[np.int64], nulls: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Return the region of each row."""
        # Each text that rules name is a region, so there is no need to search.
        found = keys + 2 if self.constants else 1 + self.cuts.searchsorted(keys, "right")
        found[nulls] = 0
        return found.astype(np.int32)

    def regions_of(self, keys: KeySet) -> tuple[tuple[int, int], ...]:
        """Return the regions of a literal as intervals, both ends included."""
        found = [(0, 0)] if keys.holds_null else []
        for low, high in keys.intervals:
            first = 1 + int(self.cuts.searchsorted(low, "right"))
            last = 1 + int(self.cuts.searchsorted(high, "right"))
            found.append((first, last))
        return united(found)


def region_key(test: Test) -> tuple[Operand, bool] | None:
    """Return the construct that a test is decided by, or None if it is no test on regions."""
    if isinstance(test, IsNull):
        return test.operand, False
    if isinstance(test, TextTest):
        if not test.parts:  # the empty text has no case
            return test.operand, False
        is_whole = len(test.parts) == 1 and isinstance(test.parts[0], str)
        return (test.operand, test.folded) if is_whole else None
    if isinstance(test, Compare | OneOf):
        kind = test.operand.type
        return (test.operand, False) if is_keyed(kind) or kind.family == "string" else None
    return None


def constants_of(test: RegionTest) -> tuple[str, ...]:
    """Return the texts that a test on a text operand names."""
    if isinstance(test, TextTest):
        return (str(test.parts[0]),) if test.parts else ("",)
    if isinstance(test, Compare):
        return (str(test.value),)
    return tuple(map(str, test.values)) if isinstance(test, OneOf) else ()


def key_set(test: RegionTest, outcomes: int, places: dict[str, int] | None) -> KeySet:
    """Return the keys for which a test has one of some truth values.

    Args:
        test: the test.
        outcomes: the truth values.
        places: the place of each text that rules name, for a text operand.
    """
    if isinstance(test, IsNull):
        everything = complement(())
        return KeySet(everything if outcomes & FALSE else (), bool(outcomes & TRUE))
    if places is not None:
        true = united((places[text], places[text]) for text in constants_of(test))
    elif isinstance(test, Compare):
        true = interval(test.operand.type, test.op, test.value)
    elif isinstance(test, OneOf):
        true = united(each for value in test.values for each in point(test.operand.type, value))
    held = (*(true if outcomes & TRUE else ()), *(complement(true) if outcomes & FALSE else ()))
    return KeySet(united(held), bool(outcomes & UNKNOWN))


def cuts_of(sets: Sequence[KeySet]) -> NDArray[np.int64]:
    """Return where some sets of keys start and end."""
    starts = {low for keys in sets for low, _ in keys.intervals}
    starts |= {high + 1 for keys in sets for _, high in keys.intervals if high < HIGHEST}
    cuts = np.array(sorted(starts), np.int64)
    return cuts[cuts > -HIGHEST - 1] if len(cuts) else cuts
