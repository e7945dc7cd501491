"""Joins of streams end to end on Spark, beside Spark's own stream-stream joins in a chain.

Every contestant reads the same files and hands its results to the same count; times are those of
Spark's own clock of a micro-batch, from looking for files to the commit.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.data import NAMES, skewed_batches_v1, uniform_batches_v1
from benchmarks.joins.streams import FLOORS, Joined, race, rate, ratios, told, written

SPAN_US = 10_000_000
"""How long a batch is, and each window (µs of event time)."""

LATENESS_US = 1_000_000


def joined_by_k(n_streams: int, length: int = SPAN_US) -> Joined:
    """Return the join of the first so many streams by one key, all windows of one length."""
    names = NAMES[:n_streams]
    return Joined(
        dict.fromkeys(names, length),
        tuple((f"{names[0]}.k", f"{name}.k") for name in names[1:]),
        (f"{names[0]}.k", *(f"{name}.v" for name in names)),
        LATENESS_US,
    )


@cache
def chained(n_streams: int, n_batches: int, n_rows: int, *names: str) -> dict[str, Any]:
    """Let contestants join streams of uniform keys.

    A key comes once in the span of a batch, so a row finds two of each other stream in its windows:
    three results for a row of three streams that are not at the ends.
    """
    batches = uniform_batches_v1(n_streams, n_batches, n_rows, n_rows, SPAN_US)
    return race(written(joined_by_k(n_streams), batches, {}), *names)


def _three(settings: Settings) -> dict[str, Any]:
    sizes = settings.pick(10, 3), settings.pick(100_000, 10_000)
    return chained(3, *sizes, "eddyline", "chain", "no join")


def beside_chain(
    settings: Settings, n_streams: int, n_batches: int, chain: str = "chain", n_rows: int = 100_000
) -> Measurement:
    """Eddyline beside a chain of Spark's joins, with its state store."""
    sizes = settings.pick(n_batches, 3), settings.pick(n_rows, 10_000)
    names = ("eddyline", chain, "no join")
    found = chained(n_streams, *sizes, *names)
    gains = ratios(found, chain, "eddyline")
    note = (
        f"ratio of batches {spread(gains)}; {found['n_rows'][0]:,} rows a batch, "
        f"{found['n_results']:,} results; {told(found, *names)}; rows/s "
        + ", ".join(f"{name} {rate(found, name):,.0f}" for name in names[:2])
    )
    return Measurement(median(gains), note, found)


def state_bytes(settings: Settings) -> Measurement:
    """What is kept after the last batch of ``joins_chained_3``.

    Ours: the bytes of the files that the manifest names, which batches map into memory. Spark's:
    the memory that its stores say they use. The files that their last version is read from, which
    are compressed, are in the note.
    """
    found = _three(settings)
    ours, theirs = found["eddyline"]["state"], found["chain"]["state"]
    note = (
        f"ours: {ours['rows']:,} rows in {ours['runs']} runs, {ours['bytes'] / 1e6:.1f} MB that "
        f"the manifest names, {ours['disk_bytes'] / 1e6:.1f} MB on disk with what a restart may "
        f"need; chain: {theirs['rows']:,} rows ({' + '.join(map(str, theirs['by_operator']))}), "
        f"{theirs['bytes'] / 1e6:.1f} MB of memory, {theirs['last_bytes'] / 1e6:.1f} MB of files "
        f"of the last version ({theirs['last_bytes'] / ours['bytes']:.2f} of ours), "
        f"{theirs['disk_bytes'] / 1e6:.1f} MB on disk"
    )
    details = {"eddyline": ours, "chain": theirs}
    return Measurement(theirs["bytes"] / ours["bytes"], note, details)


def floor(settings: Settings) -> Measurement:
    """A micro-batch that reads the same files and counts them."""
    found = _three(settings)
    seconds = found["no join"]["seconds"][1:]
    share = [1 / each for each in ratios(found, "eddyline", "no join")]
    note = f"{spread(seconds)}; {median(share):.2f} of our time of the same batch"
    return Measurement(median(seconds), note, {"seconds": found["no join"]["seconds"]})


def share(settings: Settings) -> Measurement:
    """What a batch takes beyond one that reads the same files and counts them (s)."""
    sizes = settings.pick(14, 3), settings.pick(100_000, 10_000)
    found = chained(3, *sizes, "eddyline", *FLOORS)
    ours, read, python = (found[name]["seconds"] for name in ("eddyline", *FLOORS))
    later = range(sizes[0] // 2, sizes[0])
    beyond = [ours[at] - read[at] for at in later]
    floor = [python[at] - read[at] for at in later]
    note = (
        f"{spread(beyond)}, the later half of {sizes[0]} batches; the same rows shuffled to Python "
        f"and back {median(floor):.3g} ({spread(floor)}); {told(found, 'no join')}"
    )
    return Measurement(median(beyond), note, found)


def skew(settings: Settings) -> Measurement:
    """The rows of one key meet those within 200 µs; uniform keys have windows of a batch.

    Half of 10,000 rows a second have the key, so each of them finds about as many as a row of
    uniform keys finds there.
    """
    n_batches, n_rows = settings.pick(8, 3), settings.pick(100_000, 10_000)
    length = 2 * SPAN_US // n_rows
    found = {}
    for kind, share, window in (("skewed", 0.5, length), ("uniform", 0.0, SPAN_US)):
        batches = skewed_batches_v1(3, n_batches, n_rows, share, SPAN_US)
        found[kind] = race(written(joined_by_k(3, window), batches, {}), "eddyline")
    rates = {kind: rate(each, "eddyline") for kind, each in found.items()}
    note = "; ".join(
        f"{kind}: {rates[kind]:,.0f} rows/s, {each['n_results']:,} results, "
        f"{told(each, 'eddyline')}"
        for kind, each in found.items()
    )
    return Measurement(rates["skewed"] / rates["uniform"], note, found)


RUNS: Runs = {
    "joins_chained_3": partial(beside_chain, n_streams=3, n_batches=10),
    "joins_state_bytes": state_bytes,
    "joins_floor": floor,
    "joins_chained_3_rocksdb": partial(
        beside_chain, n_streams=3, n_batches=5, chain="chain on RocksDB"
    ),
    "joins_chained_3_large": partial(beside_chain, n_streams=3, n_batches=8, n_rows=500_000),
    "joins_chained_4": partial(beside_chain, n_streams=4, n_batches=5),
    "joins_chained_5": partial(beside_chain, n_streams=5, n_batches=4),
    "joins_share": share,
    "joins_skew": skew,
}
