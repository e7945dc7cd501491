"""The inputs of the benchmarks of joins: seeded, and versioned by name (see ``workloads``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

T0_US = 1_767_225_600_000_000
"""When streams begin (µs)."""

NAMES = ("s", "t", "u", "v", "w")
"""Of generated streams."""


def times_of(instants: Ints) -> pa.Array:
    """Return instants (µs) as timestamps."""
    return pa.array(instants, pa.int64()).cast(pa.timestamp("us", "UTC"))


def batch_v1(
    rng: np.random.Generator, number: int, n_rows: int, span_us: int, keys: Ints
) -> pa.Table:
    """Return the rows of one stream in one batch: instants uniform in its span, in their order.

    Args:
        rng: draws instants and values.
        number: of the batch; batches follow each other.
        n_rows: how many.
        span_us: how long a batch is (µs).
        keys: of the rows.
    """
    instants = np.sort(rng.integers(0, span_us, n_rows)) + T0_US + number * span_us
    return pa.table(
        {
            "id": pa.array(np.arange(n_rows, dtype=np.int64) + number * n_rows),
            "ts": times_of(instants),
            "k": pa.array(keys),
            "v": pa.array(rng.random(n_rows)),
        }
    )


def uniform_batches_v1(
    n_streams: int, n_batches: int, n_rows: int, n_keys: int, span_us: int, seed: int = 0
) -> list[dict[str, pa.Table]]:
    """Return batches of streams whose keys are uniform and independent.

    Args:
        n_streams: the first so many of ``NAMES``.
        n_batches: how many.
        n_rows: of each stream in each batch.
        n_keys: values of the key.
        span_us: how long a batch is (µs of event time).
        seed: of everything.
    """
    rng = np.random.default_rng([seed, 61])
    return [
        {
            name: batch_v1(rng, number, n_rows, span_us, rng.integers(0, n_keys, n_rows))
            for name in NAMES[:n_streams]
        }
        for number in range(n_batches)
    ]


def skewed_batches_v1(
    n_streams: int, n_batches: int, n_rows: int, share: float, span_us: int, seed: int = 0
) -> list[dict[str, pa.Table]]:
    """Return batches of streams in which one key has a share of the rows, the others the rest.

    Args:
        n_streams: the first so many of ``NAMES``.
        n_batches: how many.
        n_rows: of each stream in each batch; so many keys are uniform among the other rows.
        share: of the rows that have the key -1.
        span_us: how long a batch is (µs of event time).
        seed: of everything.
    """
    rng = np.random.default_rng([seed, 65])

    def drawn() -> Ints:
        return np.where(rng.random(n_rows) < share, -1, rng.integers(0, n_rows, n_rows))

    return [
        {name: batch_v1(rng, number, n_rows, span_us, drawn()) for name in NAMES[:n_streams]}
        for number in range(n_batches)
    ]


# -- Nexmark --------------------------------------------------------------------------------------

OF_50 = {"persons": 1, "auctions": 3, "bids": 46}
"""Of each 50 events, in this order."""

EVENT_US = 100
"""Time between two events (µs)."""

IN_FLIGHT, ACTIVE, HOT_EACH = 100, 1_000, 100
"""Auctions that bids are drawn from, persons that sell, and how often another one is hot."""


def nexmark_batches_v1(n_batches: int, n_events: int, seed: int = 0) -> list[dict[str, pa.Table]]:
    """Return batches of persons, auctions and bids, distributed as Nexmark's are by default.

    Of 50 events the first is a person, three are auctions, 46 are bids; ids count up. Half of the
    bids go to the hot auction, the last one whose id is a multiple of 100; the others to one of the
    last 100, uniformly. Three quarters of the auctions are sold by the hot person, the last one
    whose id is a multiple of 100; the others by one of the last 1,000. Texts of Nexmark's that
    nothing joins are left out.

    Args:
        n_batches: how many.
        n_events: in each batch; a multiple of 50.
        seed: of everything.
    """
    rng = np.random.default_rng([seed, 66])
    return [_nexmark(rng, number * n_events, n_events) for number in range(n_batches)]


def _nexmark(rng: np.random.Generator, first: int, n_events: int) -> dict[str, pa.Table]:
    events = np.arange(first, first + n_events)
    epochs, places = np.divmod(events, 50)
    is_person, is_bid = places < 1, places >= 4
    is_auction = ~is_person & ~is_bid
    instants = times_of(events * EVENT_US + T0_US)
    auctions = epochs[is_auction] * 3 + places[is_auction] - 1
    last_auctions = epochs[is_bid] * 3 + 2
    return {
        "persons": pa.table(
            {
                "id": epochs[is_person],
                "ts": instants.filter(pa.array(is_person)),
                "state": rng.integers(0, 50, int(is_person.sum())),
            }
        ),
        "auctions": pa.table(
            {
                "id": auctions,
                "ts": instants.filter(pa.array(is_auction)),
                "seller": _referred(rng, epochs[is_auction], ACTIVE, 0.75),
                "category": rng.integers(10, 15, auctions.size),
            }
        ),
        "bids": pa.table(
            {
                "id": events[is_bid],
                "ts": instants.filter(pa.array(is_bid)),
                "auction": _referred(rng, last_auctions, IN_FLIGHT, 0.5),
                "price": rng.integers(1, 10_000_000, int(is_bid.sum())),
            }
        ),
    }


def _referred(rng: np.random.Generator, last: Ints, n_recent: int, hot: float) -> Ints:
    """Return an id for each event: the hot one, or one of the most recent.

    Args:
        rng: draws them.
        last: of each event, the highest id so far.
        n_recent: how many.
        hot: share of the events that get the hot one.
    """
    recent = last - rng.integers(0, n_recent, last.size)
    found = np.where(rng.random(last.size) < hot, last // HOT_EACH * HOT_EACH, recent)
    return np.maximum(found, 0)
