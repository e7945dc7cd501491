from __future__ import annotations

import pickle
import re

import pytest

from eddyline import errors
from eddyline.errors import EddylineError

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, EddylineError)
]

PARENTS = {
    "EddylineError": (Exception,),
    "OptionError": (EddylineError, ValueError),
    "QueryError": (EddylineError, ValueError),
    "NotSupportedError": (errors.QueryError,),
    "PredicateError": (EddylineError, RuntimeError),
    "AggregateError": (EddylineError, ArithmeticError),
    "ModelError": (EddylineError, ArithmeticError),
    "DuplicateKeyError": (EddylineError, ValueError),
    "PlanError": (EddylineError,),
    "StateError": (EddylineError,),
    "SourceError": (EddylineError,),
    "PluginError": (EddylineError,),
}


def test_the_tree_is_the_documented_one():
    assert {each.__name__: each.__bases__ for each in CLASSES} == PARENTS
    assert set(re.findall(r"[A-Z]\w+Error\b", errors.__doc__)) - BUILTINS == set(PARENTS)


BUILTINS = {"ValueError", "RuntimeError", "ArithmeticError"}


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(cls, protocol):
    error = cls("what is wrong", name="x", known=["y", "z"], row={"a": None})
    error.add_note("in batch 7")
    copy = pickle.loads(pickle.dumps(error, protocol=protocol))
    assert type(copy) is cls
    assert str(copy) == copy.message == "what is wrong"
    assert copy.facts == {"name": "x", "known": ["y", "z"], "row": {"a": None}}
    assert copy.__notes__ == ["in batch 7"]
    assert copy.args == error.args


def test_a_fact_may_have_any_name():
    error = EddylineError("wrong", message="the user's", self=1)
    assert error.message == "wrong"
    assert pickle.loads(pickle.dumps(error)).facts == {"message": "the user's", "self": 1}
