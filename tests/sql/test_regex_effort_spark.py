"""Expressions without a guard do not overflow Java's stack, whatever the length of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from eddyline.sql.regexes import regex_effort
from tests.examples import examples
from tests.sql.test_regexes import DEEP, FREE, patterns

pytestmark = [pytest.mark.spark, pytest.mark.large]

UNITS = ("a", "ab", "1.", "a,", "1", "x ", "foo", "é", "a\U0001f600")


def _overflows(spark, pattern, unit, n_chars):
    """Return whether Java's stack overflows at the beginning of a long text."""
    jvm = spark._jvm
    text = jvm.org.apache.commons.lang3.StringUtils.repeat(unit, n_chars // len(unit))
    matcher = jvm.java.util.regex.Pattern.compile(pattern).matcher(text)
    # From the first character alone: a search from each one would take quadratic time.
    try:
        matcher.lookingAt()
    except Py4JJavaError as error:
        return error.java_exception.getClass().getSimpleName() == "StackOverflowError"
    return False


@pytest.mark.parametrize("pattern", FREE)
def test_cheap_expressions_keep_to_the_stack(spark, pattern):
    n_chars = 20_000 if pattern == "^.*foo.*bar" else 1_000_000
    assert not any(_overflows(spark, pattern, unit, n_chars) for unit in UNITS)


def test_guarded_expressions_are_not_guarded_in_vain(spark):
    guarded = [pattern for pattern in DEEP if pattern != "(?:a|b){0,500}c"]
    texts = {"(error|warn)+": "error", "(?:^a|b)+c": "b", "(?:[^c])+c": "a\U0001f600"}
    for pattern in guarded:
        unit = texts.get(pattern, "xya" if pattern.startswith("x") else "ab")
        is_deep = _overflows(spark, pattern, unit, 1_000_000)
        assert is_deep or pattern.startswith("x"), pattern


@examples(60)
@given(
    st.lists(patterns(), min_size=1, max_size=4).map("".join), st.sampled_from(["a", "ab", "a\n"])
)
def test_drawn_expressions_keep_to_the_stack(spark, pattern, unit):
    effort = regex_effort(f"^(?:{pattern})")
    if not effort.stack and not effort.time:
        assert not _overflows(spark, f"^(?:{pattern})", unit, 10_000)
