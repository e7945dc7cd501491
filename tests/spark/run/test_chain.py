"""The chain of a query's operators, without any Spark."""

import pytest

from eddyline.spark.operator import Batch, Operator
from eddyline.spark.run.chain import Chain


class Listening(Operator):
    """Notes how many rows it was told of."""

    def __init__(self, name, *, passes_all=False):
        self.name, self.passes_all = name, passes_all
        self.told = []

    def learn(self, observed, batch):
        self.told.append(batch.n_rows)
        return []


def no_state():
    pytest.fail("no operator keeps state")


@pytest.mark.parametrize("n_rows", [0, 7])
def test_rows_are_told_to_all_operators_that_are_laid_over_all_of_them(n_rows):
    clock, rules = Listening("clock", passes_all=True), Listening("rules")
    behind = Listening("clock of results", passes_all=True), Listening("aggregates")
    chain = Chain([clock, rules, *behind], no_state, "q")
    chain.learn({each.name: [] for each in chain.operators}, Batch(3, n_rows=n_rows))
    assert [each.told for each in chain.operators] == [[n_rows], [n_rows], [None], [None]]
