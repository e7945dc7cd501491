from __future__ import annotations

import re
import warnings

import pytest

from eddyline.query.conditions import Operand, ValueTest
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.match.residual import _says
from eddyline.sql.regexes import compiled, is_plain_regex
from eddyline.sql.types import STRING

SET_OPERATORS = ["[a&&b]", "[a||b]", "[a~~b]", "[[a]b]"]
"""Classes that later versions of Python may read otherwise, about which Python warns."""


@pytest.mark.parametrize("pattern", SET_OPERATORS)
def test_no_warning_of_python_about_a_regex_reaches_the_user(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        re.purge()
        is_plain_regex(pattern)
        SqlRule("r", f"s RLIKE '{pattern}'").bind({"s": "string"}, ansi=True)
        assert _says(ValueTest(Operand("`s`", STRING, ("s",)), "regex", pattern))("ab]")
    re.purge()
    with pytest.warns(FutureWarning):
        re.compile(pattern)
    assert compiled(pattern).search("ab]")
