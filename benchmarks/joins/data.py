"""The inputs of the benchmarks of joins: seeded, and versioned by name (see ``workloads``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import Ints

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
    """Return rows of one stream in one batch: instants uniform in its span (µs), in their order."""
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

    ``n_rows`` are those of each of the first ``n_streams`` of ``NAMES`` in a batch of ``span_us``.
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
    """Return batches of streams in which the key -1 has a share of the rows, the others the rest.

    So many keys as rows are uniform among the others; else see ``uniform_batches_v1``.
    """
    rng = np.random.default_rng([seed, 65])

    return [
        {
            name: batch_v1(rng, number, n_rows, span_us, hot_keys(rng, n_rows, share, n_rows))
            for name in NAMES[:n_streams]
        }
        for number in range(n_batches)
    ]


def hot_keys(rng: np.random.Generator, n_rows: int, share: float, n_keys: int) -> Ints:
    """Return the keys of rows: -1 of a share of them, uniform of the others."""
    return np.where(rng.random(n_rows) < share, -1, rng.integers(0, n_keys, n_rows))


EVENT_US = 100
"""Time between two events (µs)."""

IN_FLIGHT, ACTIVE, HOT_EACH = 100, 1_000, 100
"""Auctions that bids are drawn from, persons that sell, and how often another one is hot."""


def nexmark_batches_v1(n_batches: int, n_events: int, seed: int = 0) -> list[dict[str, pa.Table]]:
    """Return batches of persons, auctions and bids, distributed as Nexmark's are by default.

    Of 50 events, of which a batch has a multiple, the first is a person, three are auctions, 46 are
    bids; ids count up. Half of the bids go to the hot auction, the last one whose id is a multiple
    of 100; the others to one of the last 100, uniformly. Three quarters of the auctions are sold by
    the hot person, the last one whose id is a multiple of 100; the others by one of the last 1,000.
    Texts of Nexmark's that nothing joins are left out.
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
    """Return an id for each event: by chance the hot one, or one of the ``n_recent`` last ones."""
    recent = last - rng.integers(0, n_recent, last.size)
    found = np.where(rng.random(last.size) < hot, last // HOT_EACH * HOT_EACH, recent)
    return np.maximum(found, 0)
