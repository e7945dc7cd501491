"""Caches beside other plans, and where they spare most: Figures 5.19 to 5.22 of the thesis.

What joins without an index take is counted, not timed: windows have indexes, and each look-up is
counted as the rows that a scan of the window would look at. Plans are chosen by exhaustive search
over the first part of the arrivals and counted over all of them, as the thesis does for the best
XJoin and the best caches [Babu05 5.8.4]; its own plots are lost, only trends can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.joins.caches import COMMON, GAP, TABLE_52, best_orders, both, four_way, same
from benchmarks.joins.runs import (
    ORDERS,
    Arrivals,
    Run,
    all_used,
    decided,
    learned_orders,
    lockstep,
    run,
    uniform,
    used_always,
)
from benchmarks.joins.trees import run_tree, told, trees
from eddyline.joins.caches.choice import INTERVAL
from eddyline.joins.caches.prefix_invariant import (
    Candidate,
    are_compatible,
    candidates,
    prefix_invariant,
)
from eddyline.joins.graph import JoinGraph

BUDGET = 6
"""Caches to choose from, globally consistent ones among them (m) [Babu05 5.8.4]."""


def scans(settings: Settings) -> tuple[dict[int, tuple[Run, Run]], dict[int, tuple[Run, Run]]]:
    """Return plain and cached runs by the rows of S's window, and by the repeats of a value."""
    n_values = settings.pick(16_000, 2_000)

    def scanning(repeats: int, n_kept: int) -> tuple[Run, Run]:
        arrivals = lockstep(repeats, n_values, GAP, n_kept)
        arrivals = replace(arrivals, scanned=frozenset({("t", "s")}))
        return both(arrivals, GAP * (repeats + 2))

    windows = (240, 1_000, *((4_000, 8_000) if not settings.quick else ()))
    return (
        {n_kept: scanning(5, n_kept) for n_kept in windows},
        {repeats: scanning(repeats, 1_000) for repeats in (1, 2, 3, 10, 20)},
    )


def scan(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain, values five times in T, the largest window."""
    by_window, by_repeats = scans(settings)
    shares = {n_kept: done.share(plain) for n_kept, (plain, done) in by_window.items()}
    repeated = {repeats: done.share(plain) for repeats, (plain, done) in by_repeats.items()}
    # A row that leaves scans as well in the thesis, which is what its plain pipelines take.
    doubled = {
        n_kept: sum(done.works) / (sum(plain.works) + scanned(plain))
        for n_kept, (plain, done) in by_window.items()
    }
    note = (
        f"by rows of s: {_told(shares)}; 1,000 rows, by repeats: {_told(repeated)}; over pipelines "
        f"that scan for rows that leave, too: {_told(doubled)}"
    )
    details = {"windows": shares, "repeats": repeated, "with_deletions": doubled}
    return Measurement(shares[max(shares)], note, details)


def scanned(done: Run) -> float:
    """Return the rows that were looked at for want of an index."""
    return sum(
        report.work.probe(*join).n_in * cost
        for report, costs in zip(done.reports, done.costs, strict=True)
        for join, cost in costs.items()
    )


def partners(settings: Settings) -> Measurement:
    """Counted work over plain where only a cache with partners can help: R scans S."""
    arrivals = uniform((8, 1, 1), 400, settings.pick(240_000, 80_000), length=6_000)
    arrivals = replace(arrivals, scanned=frozenset({("r", "s")}))
    shares = {}
    for budget in (0, BUDGET):
        plain, done = both(arrivals, 2_000, budget=budget)
        shares[budget] = done.share(plain)
    note = f"closed windows only {shares[0]:.3f}, all {shares[BUDGET]:.3f}"
    return Measurement(shares[BUDGET], note, {"shares": shares})


def _told(shares: dict[int, float]) -> str:
    return ", ".join(f"{at:,} {share:.3f}" for at, share in shares.items())


def best_caches(
    arrivals: Arrivals, batch_rows: int, found: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Return the caches of the least counted work, of all that can be in use together."""
    works: dict[tuple[Candidate, ...], float] = {}
    for size in range(len(found) + 1):
        for used in combinations(found, size):
            if all(are_compatible(*pair) for pair in combinations(used, 2)):
                works[used] = sum(run(arrivals, batch_rows, used_always(used)).works)
    return min(works, key=works.__getitem__)


def plans(settings: Settings) -> Measurement:
    """Counted work of the best caches of all kinds over the best plan; worst of D1 to D8."""
    n_rows, batch_rows = settings.pick(48_000, 16_000), 800
    shares, chosen = {}, {}
    for point in TABLE_52 if not settings.quick else ("D1", "D4"):
        arrivals = four_way(point, n_rows)
        part = replace(arrivals, of=arrivals.of[:16_000])
        orders = best_orders(part, batch_rows)
        arrivals, part = replace(arrivals, orders=orders), replace(part, orders=orders)
        works = {tree: sum(run_tree(part, batch_rows, tree).works) for tree in trees("rstu")}
        tree = min(works, key=works.__getitem__)
        closed = best_caches(part, batch_rows, prefix_invariant(arrivals.graph, orders))
        every = best_caches(part, batch_rows, candidates(arrivals.graph, orders, BUDGET))
        runs = {
            "M": run(arrivals, batch_rows),
            "X": run_tree(arrivals, batch_rows, tree),
            "P": run(arrivals, batch_rows, used_always(closed)),
            "G": run(arrivals, batch_rows, used_always(every)),
        }
        same(*runs.values())
        shares[point] = {name: done.share(runs["M"]) for name, done in runs.items()}
        chosen[point] = {
            "orders": orders,
            "X": told(tree),
            "P": [_name(each) for each in closed],
            "G": [_name(each) for each in every],
        }
    rows = [f"{at} {s['X']:.2f} {s['P']:.2f} {s['G']:.2f}" for at, s in shares.items()]
    note = f"XJoin, closed, all caches over the MJoin: {'; '.join(rows)}; w=250, f={COMMON}"
    worst = max(each["G"] / min(each.values()) for each in shares.values())
    return Measurement(worst, note, {"shares": shares, "plans": chosen})


def _name(cache: Candidate) -> str:
    kept, partners = sorted(cache.store.windows), sorted(cache.store.partners)
    return f"{''.join(kept)}{'|' if partners else ''}{''.join(partners)} for {cache.pipeline}"


def burst(n_rows: int, window_rows: int) -> Arrivals:
    """Return R(A), S(A, B), T(B) of uniform values; in the second half R comes 20 times as often.

    Before, rows of R and of S have a partner in the other, and S five in T, as by default in the
    thesis. Windows are so many rows of all inputs, so the burst makes R's fuller, the others less.
    """
    rng = np.random.default_rng(0)
    graph = JoinGraph(tuple("rst"), (frozenset("rs"), frozenset("st")))
    calm, wild = np.array([1, 1, 5]) / 7, np.array([20, 1, 5]) / 26
    of = np.concatenate([rng.choice(3, n_rows // 2, p=share) for share in (calm, wild)])
    codes = rng.integers(0, window_rows // 7, (2, n_rows))
    return Arrivals(graph, ORDERS, of, codes, dict.fromkeys("rst", window_rows))


def second() -> dict[str, tuple[str, ...]]:
    """Return orders of which s and t are closed, so that R can ask for them."""
    return {**ORDERS, "s": ("t", "r")}


def takeover(settings: Settings) -> dict[str, Run]:
    """Return the runs of both static plans and of the adaptive one."""
    n_rows, batch_rows = settings.pick(640_000, 320_000), settings.pick(4_000, 2_000)
    arrivals = burst(n_rows, 3 * batch_rows // 2)
    other = replace(arrivals, orders=second())
    runs = {
        "plain": run(arrivals, batch_rows),
        "r ⋈ s": run(arrivals, batch_rows, all_used(arrivals, *"rs")),
        "s ⋈ t": run(other, batch_rows, all_used(other, *"st")),
        "adaptive": run(
            arrivals, batch_rows, caches=decided(arrivals), loop=learned_orders(arrivals)
        ),
    }
    same(*runs.values())
    return runs


def settled(done: Run) -> tuple[range, range]:
    """Return the batches before and in the burst, each from two intervals of choices on."""
    half = len(done.works) // 2
    return range(2 * INTERVAL, half), range(half + 2 * INTERVAL, len(done.works))


def takes_over(settings: Settings) -> Measurement:
    """Counted work of the adaptive plan over the better static one, before and in the burst."""
    runs = takeover(settings)
    shares = {}
    for name, batches in zip(("before", "burst"), settled(runs["adaptive"]), strict=True):
        works = {each: sum(done.works[at] for at in batches) for each, done in runs.items()}
        shares[name] = {each: work / works["plain"] for each, work in works.items()}
    worst = max(each["adaptive"] / min(each["r ⋈ s"], each["s ⋈ t"]) for each in shares.values())
    rows = [
        f"{name} " + ", ".join(f"{each} {share:.2f}" for each, share in of.items())
        for name, of in shares.items()
    ]
    return Measurement(worst, f"over plain: {'; '.join(rows)}", {"shares": shares})


def other_cache(settings: Settings) -> Measurement:
    """Share of the batches of the burst in which the other cache is asked, two intervals on."""
    done = takeover(settings)["adaptive"]
    used = [{_name(each) for each in plan.used} for plan in done.plans]
    before, late = settled(done)
    fracs = {
        name: tuple(sum(name in used[at] for at in of) / len(of) for of in (before, late))
        for name in sorted(set().union(*used))
    }
    rows = [f"{name} {was:.2f} then {now:.2f}" for name, (was, now) in fracs.items()]
    now = sum(now for name, (_, now) in fracs.items() if name in ("st for r", "st|r for r"))
    return Measurement(now, f"asked in a share of batches: {', '.join(rows)}", {"fracs": fracs})


RUNS: Runs = {
    "joins_caches_scan": scan,
    "joins_caches_partners": partners,
    "joins_caches_plans": plans,
    "joins_caches_takeover": takes_over,
    "joins_caches_other": other_cache,
}
