"""Choices for joins with static tables.

Small tables may go to the rows, and a table may drop rows early. ``WayChoice``: a join of one
stream with tables keeps only the tables, which never change. If they are small, each task gets all
of them (a broadcast join). Then no row is shuffled or goes to Python.

``DropChoice``: a row of a stream whose key is in no row of a static table is in no result. A filter
can drop it where Spark reads it. The filter costs the same for every row, and makes the statement
of each batch larger. It saves a shuffle and a look-up for each dropped row. Only a trial shows how
many rows are dropped. So the filter is tried in the first batch with enough rows, kept if it drops
enough, and otherwise tried again ever more rarely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.data.learned import restored
from eddyline.joins.plan import BROADCAST, BUCKETS, WAYS
from eddyline.runtime.choice import AsItStands, OneOfFew, Situation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.joins.plan import ProductCounts
    from eddyline.runtime.journal import JournalEntry

MOST_ROWS = 100_000
"""Rows of all tables up to which tasks have them all."""

MOST_BYTES = 16 << 20
"""Size of their files up to which they do (bytes)."""


class WayChoice(OneOfFew):
    """Chooses the way of a join by the size of its tables.

    Args:
        is_adaptive: whether there is a choice.
    """

    component = "tables"
    plans = WAYS
    why_unlogged = "tables do not change, so there is nothing to be known again"

    def __init__(self, *, is_adaptive: bool) -> None:
        self.is_adaptive = is_adaptive
        self.plan = BUCKETS

    @property
    def may_broadcast(self) -> bool:
        """Whether the tables may go to the rows, if they turn out to be small."""
        return self.plan == BROADCAST or (self.is_adaptive and not self.is_held)

    def best(self, n_rows: int, n_bytes: int) -> str:
        """Return the way for tables of so many rows and bytes."""
        is_small = n_rows <= MOST_ROWS and n_bytes <= MOST_BYTES
        return BROADCAST if is_small else BUCKETS

    def step(self, n_rows: int, n_bytes: int, batch_id: int = -1) -> list[JournalEntry]:
        """Choose the way from a batch on, by rows and bytes of all tables as they are kept."""
        before, better = self.plan, self.best(n_rows, n_bytes)
        self.advised = better
        if self.is_held or not self.is_adaptive or before == better:
            return []
        self.plan = better
        evidence = {"table_rows": n_rows, "table_bytes": n_bytes}
        return [self.decision(batch_id, "way", before, better, evidence)]


LEAST_SHARE = 0.1
"""Least share of the rows that are dropped where rows are filtered: a filter takes some 50 ns a
row, and to shuffle and look up a row more than a µs."""

LEAST_DROPPED = 200_000
"""Least rows of a batch that are dropped where rows are filtered: what a batch takes whatever its
rows are (some 0.25 s of processor time) over what a dropped row spares."""

TRIAL = 4
"""Batches with rows after which the share counts."""

FADE = 0.8
"""What counts of a batch weigh one batch later."""

REST = 64
"""Batches until the next trial after one that did not pay; twice as many after each."""


class FilteredRows(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of the rows of one stream."""

    is_dropping: bool = False
    """Whether its rows are filtered."""
    n_rows: float = 0.0
    """Rows that were filtered, older batches counting less, as below."""
    n_lacking: float = 0.0
    """Those of them that were dropped."""
    n_dropped: int = 0
    """Rows that were dropped so far."""
    n_counted: int = 0
    """Batches with rows since filtering began."""
    wait: int = 0
    """Batches until it is tried, the next time."""
    rest: int = REST
    """Batches that it rests for if it does not pay now."""

    @property
    def share(self) -> float:
        """The share of the filtered rows that were dropped ([0, 1]; nan: none came)."""
        return self.n_lacking / self.n_rows if self.n_rows else math.nan

    def is_due(self, *, may_pay: bool) -> bool:
        """Return whether to begin or to end filtering; a batch of few rows is not worth a trial."""
        if not self.is_dropping:
            return may_pay and not self.wait
        # Batches fade as their counts do.
        n_batches = (1 - FADE**self.n_counted) / (1 - FADE)
        pays = self.share >= LEAST_SHARE and self.n_lacking >= LEAST_DROPPED * n_batches
        return self.n_counted >= TRIAL and not pays

    def turn(self) -> None:
        """Begin to filter, or end it and wait twice as long each time."""
        self.is_dropping = not self.is_dropping
        if self.is_dropping:
            self.n_rows = self.n_lacking = 0.0
            self.n_counted = 0
        else:
            self.wait, self.rest = self.rest, 2 * self.rest


@dataclass(frozen=True, slots=True)
class DropView:
    """What is known of the rows of one stream, for people."""

    name: str
    tables: tuple[str, ...]
    """The tables that drop them."""
    is_dropping: bool
    share: float
    n_dropped: int


class DropChoice(AsItStands):
    """Decides whether rows that tables drop are dropped before the shuffle.

    Args:
        tables: by stream, the tables that its rows need a partner in.
    """

    component = "table filter"
    why_unlogged = "how many rows a table drops is known of batches in which it does"

    def __init__(self, tables: Mapping[str, tuple[str, ...]]) -> None:
        self.tables = tables
        self.known = {name: FilteredRows() for name in tables}
        self.newest = 0
        """Rows that the newest batch dropped."""

    @property
    def plan(self) -> dict[str, bool]:
        """By stream, whether its rows are filtered."""
        return {name: rows.is_dropping for name, rows in self.known.items()}

    def step(
        self,
        fresh: Mapping[str, tuple[int, int]],
        n_shuffled: Mapping[str, int],
        n_codes: Mapping[str, int],
        batch_id: int = -1,
    ) -> list[JournalEntry]:
        """Take in what a batch dropped, and decide.

        Args:
            fresh: by stream whose rows were filtered, these rows, and those that were dropped.
            n_shuffled: by stream, the rows of the batch that were not dropped.
            n_codes: the keys of the tables, by stream whose rows can be filtered from now on.
            batch_id: the micro-batch, for the journal.
        """
        entries = []
        self.newest = sum(n_lacking for _, n_lacking in fresh.values())
        for name, rows in self.known.items():
            n_rows, n_lacking = fresh.get(name, (0, 0))
            rows.n_dropped += n_lacking
            if n_rows:
                rows.n_rows = FADE * rows.n_rows + n_rows
                rows.n_lacking = FADE * rows.n_lacking + n_lacking
                rows.n_counted += 1
            rows.wait = max(rows.wait - 1, 0)
            may_pay = n_shuffled.get(name, 0) >= LEAST_DROPPED
            if self.is_held or name not in n_codes or not rows.is_due(may_pay=may_pay):
                continue
            evidence = {"share": rows.share, "n_dropped": rows.n_dropped, "n_keys": n_codes[name]}
            before = self._text(name, rows)
            rows.turn()
            after = self._text(name, rows)
            entries.append(self.decision(batch_id, "filtered", before, after, evidence))
        return entries

    def _text(self, name: str, rows: FilteredRows) -> str:
        tables = " and ".join(self.tables[name])
        how = f"that {tables} has a key for" if rows.is_dropping else "all"
        return f"rows of {name} to the join: {how}"

    def views(self) -> tuple[DropView, ...]:
        """Return what is known, for people."""
        return tuple(
            DropView(name, self.tables[name], rows.is_dropping, rows.share, rows.n_dropped)
            for name, rows in self.known.items()
        )

    def snapshot(self) -> dict[str, FilteredRows]:
        """Return the learned state."""
        return self.known

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; StateError if it is damaged."""
        saved = restored(state, dict[str, FilteredRows], "the rows that tables drop")
        self.known = {name: saved.get(name, rows) for name, rows in self.known.items()}


# -- combinations or products ------------------------------------------------------------------
# Choice of a join's results: combinations, or products by key.
#
# An aggregate behind a join takes its results one by one. Where keys have many rows, products are
# fewer than combinations. ``ProductChoice`` compares the numbers of both, which tasks count.


COMBINATIONS, PRODUCTS = RESULTS = "combinations", "products"

PAYS_ABOVE, ENDS_BELOW = 1.5, 1.1
"""Combinations for each product above which products are made, and below which they are not any
more. What lies between changes nothing."""

LEAST = 10_000
"""Combinations of a batch by which the way is chosen: fewer take no time."""


@dataclass(slots=True)
class _Newest:
    n_combinations: int = 0
    n_products: int = 0


class ProductChoice(OneOfFew):
    """Decides what a join returns to the aggregate behind it.

    Args:
        is_adaptive: whether the plan may change.
    """

    component = "products"
    plans = RESULTS
    why_unlogged = ""
    cost_unit = "results' worth"
    per = "combination"

    def __init__(self, *, is_adaptive: bool) -> None:
        self.is_adaptive = is_adaptive
        self.plan = COMBINATIONS
        self.newest = _Newest()

    @property
    def ratio(self) -> float:
        """Combinations for each product in the newest batch; 1 if there was none."""
        newest = self.newest
        return newest.n_combinations / newest.n_products if newest.n_products else 1.0

    @property
    def advised(self) -> str | None:  # type: ignore[override]
        """The plan that the newest batch calls the best; None if it does not tell."""
        if self.newest.n_combinations < LEAST or ENDS_BELOW <= self.ratio <= PAYS_ABOVE:
            return None
        return PRODUCTS if self.ratio > PAYS_ABOVE else COMBINATIONS

    def step(self, counts: Iterable[ProductCounts], batch_id: int = -1) -> list[JournalEntry]:
        """Take in what the buckets of a batch counted, and change the plan if that says so."""
        self.newest = _Newest()
        for bucket in counts:
            self.newest.n_combinations += bucket.n_combinations
            self.newest.n_products += bucket.n_products
        before, better = self.plan, self.advised
        if self.is_held or not self.is_adaptive or better in (None, before):
            return []
        assert better is not None
        self.plan = better
        evidence = {
            "combinations_per_product": self.ratio,
            "n_combinations": self.newest.n_combinations,
            "n_products": self.newest.n_products,
        }
        return [self.decision(batch_id, "results", before, better, evidence)]

    # -- the log of plans -----------------------------------------------------------------------

    def situation(self) -> Situation | None:
        """Return how many products the combinations of the last batch became."""
        n_combinations = float(self.newest.n_combinations)
        if not n_combinations:
            return None
        per_combination = self.newest.n_products / n_combinations
        return Situation(
            names=("products for each combination",),
            shares=np.array([min(per_combination, 1.0)]),
            counts=np.array([n_combinations]),
            evidence=[per_combination],
            n_sampled=n_combinations,
            is_settled=n_combinations >= LEAST,
        )

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the combinations of the last batch."""
        return self.newest.n_combinations

    def cost_of(self, plan: str, evidence: Any) -> float:
        """Return what a combination costs, in results that the aggregate takes."""
        (per_combination,) = map(float, evidence)
        return per_combination * PAYS_ABOVE if plan == PRODUCTS else 1.0
