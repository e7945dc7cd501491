"""Compiled: the queries of the benchmarks on rows in one pass, where that is the fastest way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints


@compiled
def above_on_average(
    keys: Ints,
    times: Ints,
    values: Floats,
    short: int,
    long: int,
    slide_us: int,
    latest: int,
    sums: Floats,
    counts: Floats,
    out: tuple[Ints, Ints, Floats],
) -> int:
    """Find where the average of a short window is above that of a long one, and by how much.

    A row is read once, and added to its pane ``(tick - slide, tick]``; the panes of an entity stay
    in the cache while its windows slide, behind its last row until none is in the shorter window.

    Args:
        keys: entities; rows come by entity and time.
        times: microseconds.
        values: what is averaged.
        short: the shorter window, in slides.
        long: the longer one, in slides.
        slide_us: the distance of ticks (µs).
        latest: the last tick, in slides: that of the last row of all.
        sums: room for the sums of an entity's panes, behind as many zeros as a window has slides.
        counts: the same for numbers of rows.
        out: where entities, ticks (µs) and differences go.

    Returns:
        How many there are.
    """
    n = row = 0
    while row < keys.size:
        key, begin = keys[row], -(-times[row] // slide_us)
        last, pane = begin * slide_us, long
        total = count = 0.0
        while row < keys.size and keys[row] == key:
            while times[row] > last:
                sums[pane], counts[pane] = total, count
                total = count = 0.0
                pane += 1
                last += slide_us
            total += values[row]
            count += 1.0
            row += 1
        sums[pane], counts[pane] = total, count
        end = 1 + min(pane + short - 1, long + latest - begin)
        sums[pane + 1 : end] = counts[pane + 1 : end] = 0.0
        n = _slid(key, begin, end, short, long, slide_us, sums, counts, out, n)
    return n


@compiled
def _slid(
    key: int,
    begin: int,
    end: int,
    short: int,
    long: int,
    slide_us: int,
    sums: Floats,
    counts: Floats,
    out: tuple[Ints, Ints, Floats],
    n: int,
) -> int:
    """Slide both windows over the panes of an entity; arguments as above."""
    owners, ticks, apart = out
    short_sum = short_count = long_sum = long_count = 0.0
    for at in range(long, end):
        total, count = sums[at], counts[at]
        short_sum += total - sums[at - short]
        short_count += count - counts[at - short]
        long_sum += total - sums[at - long]
        long_count += count - counts[at - long]
        if short_sum * long_count > long_sum * short_count and short_count > 0:
            owners[n], ticks[n] = key, (begin + at - long) * slide_us
            apart[n] = short_sum / short_count - long_sum / long_count
            n += 1
    return n
