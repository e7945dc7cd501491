"""Region constructs: an operand's values, cut into regions where the rules of a set cut them.

Region 0 is NULL. An ordered operand has a further region per gap between cuts; a text operand, of
which rules only ask whether it is some text, one for all other texts and one per text. Texts that
rules compare by order, and decimals that no key holds, are ordered by their ranks among constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.query.conditions import FALSE, TRUE, UNKNOWN, Compare, IsNull, OneOf, TextTest
from eddyline.rules.compile.keys import (
    HIGHEST,
    Interval,
    around,
    between,
    complement,
    interval,
    is_keyed,
    keys_of,
    nulls_of,
    places_of,
    united,
)
from eddyline.rules.compile.ranks import FARTHEST, Ranks, rank_of
from eddyline.rules.match.lower_case import lowered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.query.conditions import Operand, Test
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType

    Places = Mapping[Any, int]
    """The key of each constant that has none by itself: a text, or a decimal without its point."""

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
    constants: tuple[str, ...] | tuple[int, ...] | None
    """Values that rules name, where they give the keys: texts, or decimals without their point. A
    text's key is its place here, or ``OTHER``; where they are ranked, see ``ranks``."""
    cuts: Ints
    """Keys at which a region starts, ascending."""
    ranks: Ranks | None = None
    """The constants, if they are sorted and keys are ranks among them."""

    @property
    def n_regions(self) -> int:
        """Number of regions, NULL included."""
        return len(self.cuts) + 2

    def keys(self, values: pa.Array) -> tuple[Ints, Mask]:
        """Return the key of each value (anything where it is NULL), and which are NULL."""
        if len(self.cuts) == 0:  # nothing but NULL matters
            return np.zeros(len(values), np.int64), nulls_of(values)
        if self.constants is None:
            return keys_of(values, self.operand.type)
        if self.ranks is not None:
            return self.ranks.keys(values, self.operand.type), nulls_of(values)
        texts = lowered(values) if self.folded else values
        return places_of(texts, pa.array(self.constants, texts.type))

    def regions_of(self, keys: KeySet) -> tuple[tuple[int, int], ...]:
        """Return the regions of a literal as intervals, both ends included."""
        found = [(0, 0)] if keys.holds_null else []
        for low, high in keys.intervals:
            first = 1 + int(self.cuts.searchsorted(low, "right"))
            last = 1 + int(self.cuts.searchsorted(high, "right"))
            found.append((first, last))
        return united(found)


def region_key(test: Test) -> tuple[Operand, bool] | None:
    """Return the construct that decides a test, or None if it is no test on regions."""
    if isinstance(test, IsNull):
        return test.operand, False
    if isinstance(test, TextTest):
        if not test.parts:  # the empty text has no case
            return test.operand, False
        is_whole = len(test.parts) == 1 and isinstance(test.parts[0], str)
        return (test.operand, test.folded) if is_whole else None
    if isinstance(test, Compare | OneOf):
        kind = test.operand.type
        is_decided = is_keyed(kind) or kind.family in ("string", "decimal")
        return (test.operand, False) if is_decided else None
    return None


def constants_of(test: RegionTest) -> tuple[str, ...]:
    """Return the texts that a test on a text operand names."""
    if isinstance(test, TextTest):
        return (str(test.parts[0]),) if test.parts else ("",)
    if isinstance(test, Compare):
        return (str(test.value),)
    return tuple(map(str, test.values)) if isinstance(test, OneOf) else ()


def region_construct(
    operand: Operand,
    tests: Sequence[RegionTest],
    literals: Iterable[tuple[RegionTest, int]],
    *,
    folded: bool,
) -> tuple[RegionConstruct, Places | None]:
    """Return the construct of an operand, and the key of each constant, as ``key_set`` wants it."""
    kind = operand.type
    if is_keyed(kind) or kind.family not in ("string", "decimal"):
        cuts = cuts_of([key_set(test, outcomes, None) for test, outcomes in literals])
        return RegionConstruct(operand, folded, None, cuts), None
    named: dict[Any, None] = {}
    for test in tests:
        named.update(dict.fromkeys(constants_of(test) if kind.family == "string" else ends(test)))
    is_by_order = any(isinstance(test, Compare) and test.op != "=" for test in tests)
    if kind.family == "string" and not is_by_order:
        places: Places = {text: place for place, text in enumerate(named)}
        # The last region, of places that no text has, keeps the others apart from the end.
        cuts = np.arange(len(places) + bool(places), dtype=np.int64)
        return RegionConstruct(operand, folded, tuple(named), cuts), places
    constants = tuple(sorted(named))  # texts by code points, which is by their bytes
    places = {constant: rank_of(place) for place, constant in enumerate(constants)}
    cuts = cuts_of([key_set(test, outcomes, places) for test, outcomes in literals])
    return RegionConstruct(operand, folded, constants, cuts, Ranks.of(constants)), places


def ends(test: RegionTest) -> Iterator[int]:
    """Yield the decimals without their point next to the constants of a test on a wide decimal."""
    values = (test.value,) if isinstance(test, Compare) else getattr(test, "values", ())
    for value in values:
        yield from _around(test.operand.type, value)


def _around(kind: SqlType, value: Scalar) -> tuple[int, int]:
    below, above = around(kind, value)
    return tuple(max(-FARTHEST, min(FARTHEST, end)) for end in (below, above))  # type: ignore[return-value]


def key_set(test: RegionTest, outcomes: int, places: Places | None) -> KeySet:
    """Return the keys for which a test has one of some truth values."""
    if isinstance(test, IsNull):
        everything = complement(())
        return KeySet(everything if outcomes & FALSE else (), bool(outcomes & TRUE))
    true = united(_true_of(test, places))
    held = (*(true if outcomes & TRUE else ()), *(complement(true) if outcomes & FALSE else ()))
    return KeySet(united(held), bool(outcomes & UNKNOWN))


def _true_of(test: Compare | OneOf | TextTest, places: Places | None) -> Iterator[Interval]:
    """Yield the keys for which a test is true."""
    kind, op = test.operand.type, test.op if isinstance(test, Compare) else "="
    if kind.family == "string" and places is not None:
        for text in constants_of(test):
            yield from between(op, places[text], places[text])
        return
    for value in (test.value,) if isinstance(test, Compare) else getattr(test, "values", ()):
        if places is None:
            yield from interval(kind, op, value)
        else:
            below, above = _around(kind, value)
            yield from between(op, places[below], places[above])


def cuts_of(sets: Sequence[KeySet]) -> Ints:
    """Return the starts and ends of some sets of keys."""
    starts = {low for keys in sets for low, _ in keys.intervals}
    starts |= {high + 1 for keys in sets for _, high in keys.intervals if high < HIGHEST}
    cuts = np.array(sorted(starts), np.int64)
    return cuts[cuts > -HIGHEST - 1] if len(cuts) else cuts
