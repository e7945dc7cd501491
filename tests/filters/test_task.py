"""A batch in pieces is the batch: same rows, same sample; a bad written order costs one piece."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import run_batch
from eddyline.query.predicates import predicate
from tests.filters.world import loop_of


def run(n_rows, **options):
    rng = np.random.default_rng(3)
    columns = [pa.array(rng.random(n_rows)) for _ in range(2)]
    predicates = [
        predicate(lambda u: np.asarray(u) < 0.99, reads=["u"], name="often"),
        predicate(lambda v: np.asarray(v) < 0.01, reads=["v"], name="seldom"),
    ]
    # Every call takes a microsecond by this clock: the time of a busy machine decides nothing.
    ticks = count(step=1_000)
    executor = ArrowExecutor(predicates, [(0,), (1,)], clock=lambda: next(ticks))
    loop = loop_of(executor.filter_ids, options, clock=lambda: 0)
    outcomes = [each for each, _ in run_batch(executor, loop, columns, seed=1, first_row=0)]
    expected = (columns[0].to_numpy() < 0.99) & (columns[1].to_numpy() < 0.01)
    return loop, outcomes, expected


@pytest.mark.parametrize("n_rows", [1, 999, 1_000, 1_001, 10_000])
def test_the_pieces_are_the_batch(n_rows):
    _, outcomes, expected = run(n_rows)
    assert np.concatenate([each.keep for each in outcomes]).tolist() == expected.tolist()
    assert sum(each.profile.n_rows for each in outcomes) == n_rows


def test_a_bad_written_order_costs_one_piece():
    loop, outcomes, _ = run(10_000)
    assert [len(each.keep) for each in outcomes] == [1_000, 9_000]
    assert loop.order == (1, 0)
    # As written nearly two evaluations a row; after the first piece hardly more than one.
    assert sum(each.profile.n_evaluations for each in outcomes) < 11_500


@pytest.mark.parametrize("options", [{"adaptive": False}, {"warmup_prob": 0, "sample_prob": 0}])
def test_without_warm_up_a_batch_is_one_piece(options):
    _, outcomes, _ = run(10_000, **options)
    assert len(outcomes) == 1
