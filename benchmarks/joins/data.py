"""The inputs of the benchmarks of joins: seeded, and versioned by name (see ``workloads``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


# -- Nexmark with all of its columns --------------------------------------------------------------

FIRST_ID = 1_000
"""The first id of persons and auctions."""

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah"),
    *("Deiter", "Walter"),
)
LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"),
)
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

N_CHANNELS, N_TEXTS = 10_000, 50_000
"""Channels that are not hot; texts that those of rows are drawn from."""

LENGTH_US = 2 * IN_FLIGHT * 50 // 3 * EVENT_US
"""Most time for which an auction lasts (µs)."""


def nexmark_batches_v2(
    n_batches: int, n_events: int, seed: int = 0
) -> Iterator[dict[str, pa.Table]]:
    """Yield batches of ``person``, ``auction`` and ``bid`` with the columns of Nexmark's.

    Events come and refer to each other as in ``nexmark_batches_v1``; ids begin at 1,000, and three
    quarters of the bids are by the hot bidder, the person after the hot seller. Prices are 100
    times a power of ten with an exponent uniform in [0, 6); half of the bids have one of four
    channels, the others one of 10,000, each with a URL of its own, of which nine in ten name it.
    ``extra`` fills rows up as Nexmark does: to 200 bytes a person, 500 an auction, 100 a bid, of
    which it does not count channel and URL.
    """
    texts = _Texts(np.random.default_rng([seed, 68]))
    rng = np.random.default_rng([seed, 69])
    for number in range(n_batches):
        yield _nexmark_v2(rng, texts, number * n_events, n_events)


class _Texts:
    """Random texts, drawn from a fixed number of them for each length."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._pool = rng.integers(97, 123, 1 << 20).astype(np.uint8).tobytes().decode()
        self._made: dict[tuple[int, int], pa.Array] = {}
        urls = [f"https://www.nexmark.com/{'/'.join(self._words(rng))}/item.htm?query=1"]
        while len(urls) < N_CHANNELS + len(HOT_CHANNELS):
            said = "" if rng.random() < 0.1 else f"&channel_id={len(urls)}"
            urls.append(
                f"https://www.nexmark.com/{'/'.join(self._words(rng))}/item.htm?query=1{said}"
            )
        self.urls = pa.array(urls)
        self.channels = pa.array([*HOT_CHANNELS, *(f"channel-{k}" for k in range(N_CHANNELS))])

    def _words(self, rng: np.random.Generator) -> list[str]:
        starts = rng.integers(0, len(self._pool) - 5, 3)
        return [self._pool[start : start + 5] for start in starts]

    def drawn(self, rng: np.random.Generator, n: int, least: int, most: int) -> pa.Array:
        """Return texts of a length in a range, ends included."""
        if (least, most) not in self._made:
            starts = rng.integers(0, len(self._pool) - most, N_TEXTS)
            lengths = rng.integers(least, most + 1, N_TEXTS)
            texts = [self._pool[a : a + b] for a, b in zip(starts, lengths, strict=True)]
            self._made[least, most] = pa.array(texts)
        return self._made[least, most].take(pa.array(rng.integers(0, N_TEXTS, n)))


def _nexmark_v2(
    rng: np.random.Generator, texts: _Texts, first: int, n_events: int
) -> dict[str, pa.Table]:
    events = np.arange(first, first + n_events)
    epochs, places = np.divmod(events, 50)
    is_person, is_bid = places < 1, places >= 4
    is_auction = ~is_person & ~is_bid
    micros = events * EVENT_US + T0_US
    own, auctions = epochs[is_auction], epochs[is_auction] * 3 + places[is_auction] - 1
    return {
        "person": _persons(rng, texts, epochs[is_person], micros[is_person]),
        "auction": _auctions(rng, texts, own, auctions, micros[is_auction]),
        "bid": _bids(rng, texts, epochs[is_bid], micros[is_bid]),
    }


def _persons(rng: np.random.Generator, texts: _Texts, ids: Ints, micros: Ints) -> pa.Table:
    n = ids.size
    names = pa.array([f"{one} {other}" for one in FIRST_NAMES for other in LAST_NAMES])
    mails = pc.binary_join_element_wise(
        texts.drawn(rng, n, 3, 7), "@", texts.drawn(rng, n, 3, 5), ".com", ""
    )
    cards = pa.array([" ".join(f"{d:04d}" for d in four) for four in rng.integers(0, 9999, (n, 4))])
    return pa.table(
        {
            "id": ids + FIRST_ID,
            "name": _any_of(rng, names, n),
            "emailAddress": mails,
            "creditCard": cards,
            "city": _any_of(rng, pa.array(CITIES), n),
            "state": _any_of(rng, pa.array(STATES), n),
            "dateTime": times_of(micros),
            "extra": texts.drawn(rng, n, 109, 163),
        }
    )


def _auctions(
    rng: np.random.Generator, texts: _Texts, persons: Ints, ids: Ints, micros: Ints
) -> pa.Table:
    n, initial = ids.size, _prices(rng, ids.size)
    return pa.table(
        {
            "id": ids + FIRST_ID,
            "itemName": texts.drawn(rng, n, 3, 19),
            "description": texts.drawn(rng, n, 3, 99),
            "initialBid": initial,
            "reserve": initial + _prices(rng, n),
            "dateTime": times_of(micros),
            "expires": times_of(micros + 1_000 + rng.integers(0, LENGTH_US, n)),
            "seller": _referred(rng, persons, ACTIVE, 0.75) + FIRST_ID,
            "category": rng.integers(10, 15, n),
            "extra": texts.drawn(rng, n, 310, 460),
        }
    )


def _bids(rng: np.random.Generator, texts: _Texts, epochs: Ints, micros: Ints) -> pa.Table:
    n = epochs.size
    bidders = _referred(rng, epochs, ACTIVE, 0.75)
    is_hot = rng.random(n) < 0.5
    channels = np.where(is_hot, rng.integers(0, 4, n), 4 + rng.integers(0, N_CHANNELS, n))
    return pa.table(
        {
            "auction": _referred(rng, epochs * 3 + 2, IN_FLIGHT, 0.5) + FIRST_ID,
            "bidder": np.where(bidders % HOT_EACH == 0, bidders + 1, bidders) + FIRST_ID,
            "price": _prices(rng, n),
            "channel": texts.channels.take(pa.array(channels)),
            "url": texts.urls.take(pa.array(channels)),
            "dateTime": times_of(micros),
            "extra": texts.drawn(rng, n, 54, 82),
        }
    )


def _prices(rng: np.random.Generator, n: int) -> Ints:
    found: Ints = np.round(10 ** (rng.random(n) * 6) * 100).astype(np.int64)
    return found


def _any_of(rng: np.random.Generator, values: pa.Array, n: int) -> pa.Array:
    return values.take(pa.array(rng.integers(0, len(values), n)))
