"""Bitmap blocks: rules that are evaluated together, by attribute selection constructs.

A construct cuts one attribute's domain where some rule of the block changes; each region has a
bitmap of the rules that can still be true there. The AND of a row's bitmaps are the rules that
survive; a row with none left is dropped at once [ASC 3]. The paper's rules are conjunctions. For
any monotone formula, a rule's bit is 1 iff the rule can be true given only this attribute and
everything else taken to hold. So a 0 is always right, and a rule that is a conjunction of parts
over one attribute each is decided by its bits alone; survivors of other rules need a check.

Attributes arrive as *keys*: an image of their values in int64 that keeps their order, NULL apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.data.memory import LastUsed
from eddyline.errors import PlanError
from eddyline.rules.compile.formula import REGION, All, Always, Literal, literals_of
from eddyline.rules.compile.regions import HIGHEST, LOWEST, KeySet, cut_tables, cuts_of
from eddyline.rules.match import bitmap_kernels as kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.data.arrays import Int32s, Ints, Mask, Words
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.bitmap_kernels import BlockArrays, CutTables
    from eddyline.rules.plan import SelectionSequence

MAX_RULES = 512
"""Most rules of a block: eight words, which are one cache line."""

MAX_HYBRID = 64
"""Most constructs with micro-arrows: what a row has visited is one word."""

MAX_KEPT = 1024
"""Blocks that are kept; the one unused for longest goes first."""

PLAIN: tuple[Any, ...] = ("C", "W")
"""Layout of the arrays that kernels read; another one would be compiled for its own kind."""


@dataclass(frozen=True, slots=True, eq=False)
class BitmapBlock:
    """The constructs of some rules; immutable, and the same for every sequence."""

    n_rules: int
    """k, at most ``MAX_RULES``."""
    attributes: tuple[int, ...]
    """The attribute of each construct: its row in the matrix of keys (n)."""
    tables: CutTables
    """Cuts of the keys of each construct."""
    bitmaps: Words
    """The rules that can be true in each region, bit j of word w for 64 w + j ((regions, W))."""
    region_at: Ints
    """Start of the regions of each construct ((n + 1,))."""
    usage: Words
    """The rules that each construct can decide ((n, W))."""
    initial: Words
    """Rules that some construct can decide ((W,))."""
    everywhere: Words
    """Rules that none can: they survive for every row, and no row is dropped for them ((W,))."""
    needs_check: Mask
    """A mask of the rules that may survive for rows that they are not true for ((k,))."""

    @classmethod
    def build(
        cls,
        rules: Sequence[Formula],
        attribute_of: Callable[[int], int],
        keys_of: Callable[[int], KeySet],
    ) -> Self:
        """Return the bitmap block of some rules.

        A literal without an attribute (-1; else its row in the matrix of keys) is not decided by a
        key: it is taken to hold, and the rule needs a check.

        Raises:
            PlanError: there are more than ``MAX_RULES`` rules.
        """
        if len(rules) > MAX_RULES:
            msg = f"a block takes at most {MAX_RULES} rules, got {len(rules)}; make more blocks"
            raise PlanError(msg, rules=len(rules))
        constructs = _constructs(rules, attribute_of, keys_of)
        k, n_words = len(rules), max(1, -(-len(rules) // 64))
        # Without regions it is known of constants alone.
        never = np.array([_can_hold(rule, {}) is not None for rule in rules], dtype=np.bool_)
        usage = np.array([~construct.can.all(axis=0) for construct in constructs], dtype=np.bool_)
        usage = usage.reshape(len(constructs), k)
        decided: Mask = np.any(usage, axis=0, keepdims=True)
        can = [construct.can for construct in constructs] or [np.ones((0, k), dtype=np.bool_)]
        return cls(
            n_rules=k,
            attributes=tuple(construct.attribute for construct in constructs),
            tables=cut_tables([construct.cuts for construct in constructs]),
            bitmaps=_packed(np.concatenate(can), n_words),
            region_at=starts_of([len(construct.can) for construct in constructs]),
            usage=_packed(usage, n_words),
            initial=_packed(decided, n_words)[0],
            everywhere=_packed(~decided & ~never, n_words)[0],
            needs_check=np.array(
                [not _is_decided(rule, attribute_of) for rule in rules], dtype=np.bool_
            ),
        )

    @property
    def n_constructs(self) -> int:
        """n, the number of constructs."""
        return len(self.attributes)

    @property
    def n_words(self) -> int:
        """W, words of a bitmap."""
        return len(self.initial)

    def n_regions(self, construct: int) -> int:
        """Return the number of regions of a construct, that of NULL included."""
        return int(self.region_at[construct + 1] - self.region_at[construct])

    def cuts_of(self, construct: int) -> Ints:
        """Return the first keys of a construct's regions, of the third one on."""
        start, end = self.tables.cuts_at[construct : construct + 2]
        return self.tables.cuts[start:end]

    def region_keys(self, construct: int, region: int) -> tuple[int, int] | None:
        """Return lowest and highest key of a region, both included; None for that of NULL."""
        if region == 0:
            return None
        cuts = self.cuts_of(construct).tolist()
        low = cuts[region - 2] if region > 1 else LOWEST
        return low, cuts[region - 1] - 1 if region <= len(cuts) else HIGHEST

    def regions(self, keys: Ints, nulls: Mask, rows: Ints) -> Int32s:
        """Return the regions of some rows in all constructs: what a sequence is learned from.

        Keys are those of the attributes, and which are NULL ((attributes, R)); there is a region of
        each row and construct ((T, n)).
        """
        keys, nulls = np.require(keys, np.int64, PLAIN), np.require(nulls, np.bool_, PLAIN)
        regions = np.empty((self.n_constructs, len(rows)), dtype=np.int32)
        kernels.regions(keys, nulls, rows.astype(np.int64), self.arrays(), regions)
        return np.ascontiguousarray(regions.T)

    def arrays(self) -> BlockArrays:
        """Return the block as kernels read it."""
        arrays: BlockArrays = kernels.BlockArrays(
            columns=np.array(self.attributes, dtype=np.int64),
            tables=self.tables,
            region_at=self.region_at,
            bitmaps=self.bitmaps,
            initial=self.initial,
            everywhere=self.everywhere,
        )
        return arrays

    def bitmaps_of(self, regions: Int32s) -> Words:
        """Return the bitmaps of rows whose regions are known ((T, n, W))."""
        bitmaps: Words = self.bitmaps[self.region_at[:-1] + regions]
        return bitmaps

    def check(self, sequence: SelectionSequence) -> None:
        """Raise PlanError unless a sequence is one of these constructs and regions."""
        if sequence.n_constructs != self.n_constructs:
            msg = (
                f"a sequence of {sequence.n_constructs} constructs does not fit a block of "
                f"{self.n_constructs}"
            )
            raise PlanError(msg, macro=sequence.macro)
        if sequence.is_hybrid and self.n_constructs > MAX_HYBRID:
            msg = f"micro-arrows are followed among at most {MAX_HYBRID} constructs, use none"
            raise PlanError(msg, constructs=self.n_constructs)
        for arrow in sequence.arrows:
            if arrow.region >= self.n_regions(sequence.construct_of(arrow.node)):
                msg = f"an arrow starts in region {arrow.region}, which its construct does not have"
                raise PlanError(msg, node=arrow.node, region=arrow.region)


class BitmapBlocks:
    """Bitmap blocks by their rules."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._built: LastUsed[tuple[int, ...], BitmapBlock] = LastUsed(MAX_KEPT)
        self._representatives: list[Ints] | None = None

    def of(self, rules: tuple[int, ...]) -> BitmapBlock:
        """Return the block of some rules."""
        return self._built.get_or_make(rules, lambda: self._build(rules))

    def _build(self, rules: tuple[int, ...]) -> BitmapBlock:
        literals, key_sets = self.program.literals, self.program.key_sets

        def attribute_of(literal: int) -> int:
            is_region = literals.kinds[literal] == REGION
            return int(literals.places[literal]) if is_region else -1

        def keys_of(literal: int) -> KeySet:
            return key_sets[literal] or KeySet((), holds_null=False)

        formulas = [self.program.formulas[rule] for rule in rules]
        return BitmapBlock.build(formulas, attribute_of, keys_of)

    def regions(self, rules: tuple[int, ...], sampled: Int32s) -> Int32s:
        """Return regions of a program's constructs ((T, constructs)) as a block's ((T, n)).

        A block cuts where its own rules do, a program where any rule does; so a region of the
        program lies in one region of the block.
        """
        if self._representatives is None:
            self._representatives = [
                np.concatenate(
                    [
                        [0, region_construct.cuts[0] - 1 if len(region_construct.cuts) else LOWEST],
                        region_construct.cuts,
                    ]
                )
                for region_construct in self.program.regions
            ]
        keys = np.empty((max(1, sampled.shape[1]), len(sampled)), np.int64)
        for construct, keys_of_regions in enumerate(self._representatives):
            keys[construct] = keys_of_regions[sampled[:, construct]]
        nulls = np.zeros(keys.shape, np.bool_)
        nulls[: sampled.shape[1]] = sampled.T == 0
        return self.of(rules).regions(keys, nulls, np.arange(len(sampled)))


class _Construct(NamedTuple):
    attribute: int
    cuts: Ints
    can: Mask
    """Whether a rule can be true in a region ((regions, k))."""


def _constructs(
    rules: Sequence[Formula],
    attribute_of: Callable[[int], int],
    keys_of: Callable[[int], KeySet],
) -> list[_Construct]:
    """Return the constructs of all attributes that can decide some rule."""
    used: dict[int, dict[int, KeySet]] = {}
    users: dict[int, list[int]] = {}
    for j, rule in enumerate(rules):
        for literal in literals_of(rule):
            attribute = attribute_of(literal)
            if attribute < 0:
                continue
            mine = used.setdefault(attribute, {})
            if literal not in mine:
                mine[literal] = keys_of(literal)
            if j not in users.setdefault(attribute, [])[-1:]:
                users[attribute].append(j)
    constructs = []
    for attribute in sorted(used):
        cuts = cuts_of([*used[attribute].values()])
        holds = _in_regions(cuts, used[attribute])
        can = np.ones((len(rules), len(cuts) + 2), dtype=np.bool_)
        for j in users[attribute]:
            can_hold = _can_hold(rules[j], holds)
            if can_hold is not None:
                can[j] = can_hold
        if not can.all():
            constructs.append(_Construct(attribute, cuts, can.T))
    return constructs


def _in_regions(cuts: Ints, sets: Mapping[int, KeySet]) -> dict[int, Mask]:
    """Return whether each literal holds in each region, NULL first."""
    intervals = [interval for keys in sets.values() for interval in keys.intervals]
    ends = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    places = (np.searchsorted(cuts, ends, side="right") + 1).tolist()
    holds = np.zeros((len(sets), len(cuts) + 2), dtype=np.bool_)
    start = 0
    for row, keys in zip(holds, sets.values(), strict=True):
        row[0] = keys.holds_null
        for first, last in places[start : start + len(keys.intervals)]:
            row[first : last + 1] = True
        start += len(keys.intervals)
    return dict(zip(sets, holds, strict=True))


def _can_hold(rule: Formula, holds: Mapping[int, Mask]) -> Mask | None:
    """Return the keys at which a rule can be true if all other attributes allow it; None: all."""
    if isinstance(rule, Literal):
        return holds.get(rule.id)
    if isinstance(rule, Always):
        return None if rule.value else np.zeros(1, dtype=np.bool_)
    parts = [_can_hold(part, holds) for part in rule.parts]
    masks = [part for part in parts if part is not None]
    if isinstance(rule, All):
        return reduce(np.logical_and, masks) if masks else None
    return reduce(np.logical_or, masks) if len(masks) == len(parts) else None


def _is_decided(rule: Formula, attribute_of: Callable[[int], int]) -> bool:
    """Return whether a rule is a conjunction of parts over one attribute with keys each."""
    parts = rule.parts if isinstance(rule, All) else (rule,)
    for part in parts:
        attributes = {attribute_of(literal) for literal in literals_of(part)}
        if len(attributes) > 1 or -1 in attributes:
            return False
    return True


def _packed(bits: Mask, n_words: int) -> Words:
    """Return rows of bits as words, bit j of word w for column 64 w + j."""
    wide = np.zeros((len(bits), 64 * n_words), dtype=np.bool_)
    wide[:, : bits.shape[1]] = bits
    words = np.packbits(wide, axis=1, bitorder="little").view("<u8")
    return np.ascontiguousarray(words, dtype=np.uint64)
