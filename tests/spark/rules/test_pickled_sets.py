"""A set of rules is pickled with its Python predicates, however these were written."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.query.predicates import FunctionPredicate


@el.predicate("n")
def odd(n):
    return pc.equal(pc.bit_wise_and(n, 1), 1)


def below(limit):
    @el.predicate("n")
    def is_below(n):
        return pc.less(n, limit)

    return is_below


def a_set():
    functions = {
        "odd": odd,
        "is_below": below(3),
        "one": el.predicate(lambda n: pc.equal(n, 1), reads=["n"]),
    }
    texts = {"r1": "odd(n)", "r2": "is_below(n) OR one(n)", "bad": "n > ((("}
    return el.RuleSet({**texts, "r3": odd}, functions=functions, on_error="skip", name="p", seed=4)


def test_a_set_with_decorated_functions_closures_and_lambdas_is_pickled():
    rules = a_set()
    for again in (pickle.loads(pickle.dumps(rules)), copy.deepcopy(rules)):
        assert (again.name, again.names, again.skipped) == ("p", rules.names, rules.skipped)
        assert (again.options, again.on_error) == (rules.options, "skip")
        assert {name: each["text"] for name, each in again.info.items()} == {
            "r1": "odd(n)",
            "r2": "is_below(n) OR one(n)",
            "r3": "odd(n)",
        }
        functions = again.store.now()[1]["r1"].functions
        n = pa.array([1, 2, 3])
        assert all(isinstance(each, FunctionPredicate) for each in functions.values())
        assert functions["odd"](n).to_pylist() == [True, False, True]
        assert functions["is_below"](n).to_pylist() == [True, True, False]
        assert functions["one"](n).to_pylist() == [True, False, False]


MAKE = """
import pickle, sys
import pyarrow.compute as pc
import eddyline as el

@el.predicate("n")
def odd(n):
    return pc.equal(pc.bit_wise_and(n, 1), 1)

rules = el.RuleSet({"odd": "odd(n)"}, functions={"odd": odd})
sys.stdout.buffer.write(pickle.dumps(rules))
"""


@pytest.mark.large("starts a Python process")
def test_a_set_of_a_script_arrives_in_another_process():
    done = subprocess.run(
        [sys.executable, "-c", MAKE], capture_output=True, timeout=120, check=True
    )
    again = pickle.loads(done.stdout)
    assert again.names == ("odd",)
    assert again.store.now()[1]["odd"].functions["odd"](pa.array([1, 2])).to_pylist() == [
        True,
        False,
    ]
