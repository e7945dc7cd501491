"""Adaptive loop without an engine.

Batches of outcomes come in. Orders and counted work go out. Runs a policy exactly as an executor
would, on matrices that say which filter drops which row. The work is counted, not timed, so two
runs give the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.outcomes import sampled_rows, seed_of
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, ProfileWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eddyline.data.arrays import Floats, Ints
    from eddyline.data.outcomes import Bits
    from eddyline.ordering.protocol import OrderingPolicy, PolicyOptions, Proposal
    from eddyline.stats.profile import Order


@dataclass(frozen=True, slots=True)
class Step:
    """One batch and what was decided after it."""

    order: Order
    """The order that the batch ran under."""
    profile: FilterProfile
    """Observations."""
    work_ns: float
    """Cost of all evaluations, profiling included (ns)."""
    proposal: Proposal | None
    """The order proposed for the next batch."""


def simulate(
    options: PolicyOptions,
    batches: Iterable[Bits],
    costs_ns: Floats,
    *,
    order: Order | None = None,
    prob: float = 0.01,
    window_rows: int = 1000,
    seed: int = 0,
) -> Iterator[Step]:
    """Run a policy over batches of outcomes and adopt whatever it proposes.

    Args:
        options: the policy.
        batches: which filter drops which row, batch by batch (each (R, F)).
        costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
        order: the order to start from; as written if omitted.
        prob: sampling probability ((0, 1]).
        window_rows: profile tuples in the window.
        seed: chooses the sampled rows and seeds the policy.
    """
    n = len(costs_ns)
    current = tuple(range(n)) if order is None else order
    filter_ids = tuple(f"f{f}" for f in range(n))
    policy = options.build(n, np.random.default_rng(seed))
    window = ProfileWindow(filter_ids, window_rows)
    for batch_id, drops in enumerate(batches):
        rows = sampled_rows(seed_of(seed, batch_id), 0, len(drops), prob)
        fresh = run_batch(drops, current, policy, costs_ns, rows, prob=prob)
        policy.observe(fresh, current)
        window.push(fresh)
        proposal = policy.propose(current, window.profile())
        yield Step(current, fresh, float(fresh.costs.total_ns.sum()), proposal)
        current = proposal.order if proposal else current


def run_batch(
    drops: Bits,
    order: Order,
    policy: OrderingPolicy,
    costs_ns: Floats,
    sampled: Ints,
    *,
    prob: float,
) -> FilterProfile:
    """Return the profile of one batch, with the bits that the policy asks for.

    Args:
        drops: which filter drops which row ((R, F)).
        order: the order to run.
        policy: says what is evaluated beyond the first drop.
        costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
        sampled: the rows to profile ((M,)).
        prob: sampling probability ((0, 1]).
    """
    n_rows, n = drops.shape
    positions = list(order)
    outcome = drops[:, positions]
    dropped = outcome.any(axis=1)
    first = np.where(dropped, outcome.argmax(axis=1), n)
    reached = np.arange(n) <= first[:, None]
    more = np.vstack([policy.extra(n), np.zeros(n, dtype=np.bool_)])[first[sampled]]

    filter_ids = tuple(f"f{f}" for f in range(n))
    bits = np.zeros((len(sampled), n), dtype=np.bool_)
    bits[:, positions] = outcome[sampled] & (reached[sampled] | more)
    counts = np.zeros((3, n))
    counts[:, positions] = reached.sum(0), (reached & ~outcome).sum(0), more.sum(0)
    rows_in, rows_out, rows_extra = counts
    evaluated = rows_in + rows_extra
    sample = FilterProfile.of_sample(
        filter_ids,
        bits,
        prob=prob,
        costs=CostSums.of_calls(evaluated, evaluated * costs_ns),
        basis=None if policy.needs_all_bits else order,
    )
    return replace(
        sample,
        rows_in=rows_in,
        rows_out=rows_out,
        n_rows=n_rows,
        n_kept=int(n_rows - dropped.sum()),
        n_evaluations=int(evaluated.sum()),
        n_extra=int(rows_extra.sum()),
        ran_under=order,
    )
