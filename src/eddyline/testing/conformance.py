"""Checks that every ordering policy must pass, also one from another package.

Call ``check_policy(MyOptions())`` in a test; it raises AssertionError with what is broken.
"""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.outcomes import sampled_rows
from eddyline.errors import OptionError
from eddyline.stats.profile import FilterProfile, ProfileWindow
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.simulation import run_batch

if TYPE_CHECKING:
    from eddyline.data.outcomes import Bits
    from eddyline.ordering.protocol import OrderingPolicy, PolicyOptions, Proposal
    from eddyline.stats.profile import Order

_BATCH_ROWS, _N_BATCHES, _PROB = 20_000, 16, 0.02
"""Rows of a batch, batches, and the share of rows that is profiled: 400 rows a batch."""

_MANY = 256
"""Filters of a query with many."""


def check_policy(options: PolicyOptions) -> None:
    """Check the whole contract of an ordering policy.

    Raises:
        AssertionError: the policy breaks the contract; the message says how.
    """
    check_options_survive_pickling(options)
    check_same_evidence_gives_same_proposals(options)
    check_restored_policy_continues(options)
    check_nothing_to_decide(options)
    check_many_filters(options)


def check_options_survive_pickling(options: PolicyOptions) -> None:
    """Options travel to Spark's workers."""
    again = pickle.loads(pickle.dumps(options))
    assert again == options, f"pickling changes {options!r} to {again!r}"


def check_same_evidence_gives_same_proposals(options: PolicyOptions) -> None:
    """No clock, no randomness but the given one, no state shared between policies."""
    first, second = _Run(options), _Run(options)
    for drops in _drifting_batches():
        assert first.step(drops) == second.step(drops), "the same evidence, other proposals"


def check_restored_policy_continues(options: PolicyOptions) -> None:
    """A snapshot is JSON, and a policy restored from it decides like the original."""
    original = _Run(options)
    for batch_id, drops in enumerate(_drifting_batches()):
        restored = original.restarted(options, seed=batch_id + 1)
        proposed = original.step(drops)
        assert restored.step(drops) == proposed, f"restored before batch {batch_id}: differs"


def check_nothing_to_decide(options: PolicyOptions) -> None:
    """An empty window and a single filter give no proposal."""
    policy = options.build(3, np.random.default_rng(0))
    empty = FilterProfile.empty(("a", "b", "c"))
    policy.observe(empty, (0, 1, 2))
    assert policy.propose((0, 1, 2), empty) is None, "a proposal without any evidence"
    single = _Run(options, n_filters=1)
    for drops in _drifting_batches():
        assert single.step(drops[:, :1]) is None, "a proposal for a single filter"


def check_many_filters(options: PolicyOptions) -> None:
    """Codes wider than one integer work, or the policy refuses when it is built."""
    try:
        run = _Run(options, n_filters=_MANY)
    except OptionError:
        return
    rng = np.random.default_rng(0)
    run.step(rng.random((2000, _MANY)) < rng.random(_MANY))


class _Run:
    """A policy in a loop that checks every answer and forbids changes of the evidence."""

    def __init__(self, options: PolicyOptions, *, n_filters: int = 6, seed: int = 0) -> None:
        self.n_filters = n_filters
        self.policy: OrderingPolicy = options.build(n_filters, np.random.default_rng(seed))
        self.order: Order = tuple(range(n_filters))
        self.window = ProfileWindow(tuple(f"f{f}" for f in range(n_filters)), 1000)
        self.costs_ns = np.linspace(100.0, 10.0, n_filters)

    def restarted(self, options: PolicyOptions, *, seed: int) -> _Run:
        """Return a run that continues from a snapshot of this one."""
        run = _Run(options, n_filters=self.n_filters, seed=seed)
        run.order = self.order
        run.window = copy.deepcopy(self.window)
        run.policy.restore(json.loads(json.dumps(self.policy.snapshot(), allow_nan=False)))
        return run

    def step(self, drops: Bits) -> Proposal | None:
        """Run one batch, adopt the proposal and return it."""
        _check_extra(self.policy, self.n_filters)
        rows = sampled_rows(7, 0, len(drops), _PROB)
        fresh = run_batch(drops, self.order, self.policy, self.costs_ns, rows, prob=_PROB)
        self.policy.observe(_frozen(fresh), self.order)
        self.window.push(fresh)
        proposal = self.policy.propose(self.order, _frozen(self.window.profile()))
        if proposal is not None:
            assert sorted(proposal.order) == list(range(self.n_filters)), (
                f"{proposal.order} is not an order of {self.n_filters} filters"
            )
            assert proposal.order != self.order, "proposes the order that is in force"
            json.dumps(proposal.evidence, allow_nan=False)
            self.order = proposal.order
        return proposal


def _check_extra(policy: OrderingPolicy, n: int) -> None:
    extra = policy.extra(n)
    later = np.triu(np.ones((n, n), dtype=np.bool_), 1)
    assert extra.shape == (n, n), f"extra has shape {extra.shape}, not {(n, n)}"
    assert extra.dtype == np.bool_, f"extra holds {extra.dtype}, not booleans"
    assert not (extra & ~later).any(), "extra asks for a position that was evaluated already"
    if policy.needs_all_bits:
        assert (extra == later).all(), "needs every bit, but does not ask for it"


def _frozen(profile: FilterProfile) -> FilterProfile:
    """Return the profile with arrays that raise when they are written to."""
    arrays = ("codes", "weights", "rows_in", "rows_out", "n_raised")
    views = {name: getattr(profile, name).view() for name in arrays}
    sums = profile.costs.sums.view()
    for array in (*views.values(), sums):
        array.flags.writeable = False
    return replace(profile, costs=replace(profile.costs, sums=sums), **views)


def _drifting_batches() -> list[Bits]:
    """Return batches whose pass fractions turn round half-way."""
    fracs = (0.9, 0.8, 0.6, 0.5, 0.3, 0.2)
    half = _N_BATCHES // 2
    streams = [CorrelatedStream(pass_fracs=fracs, seed=seed) for seed in range(half)]
    streams += [CorrelatedStream(pass_fracs=fracs[::-1], seed=half + seed) for seed in range(half)]
    return [~stream.passes(_BATCH_ROWS) for stream in streams]
