"""Regular expressions that may exhaust stack or time are told from those that move freely."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.sql.analysis import analyse
from eddyline.sql.regexes import Effort, like_is_slow, regex_effort
from tests.examples import examples

FREE = (
    "error|warn|fatal",
    "^(SF|RSTR|S1)$",
    "^ec[or]_i$",
    "[a-z0-9]+ user [0-9]+",
    "^request [0-9]+ .*(ms|x17y3)",
    r"^(\d{1,3}\.){3}\d{1,3}$",
    r"\d+\.\d+\.\d+\.\d+",
    "foo.*bar",
    "^.*foo.*bar",
    "https?://[^/]+/.*\\.exe",
    "[a-z]+@[a-z]+\\.com",
    "(?i)select\\s.*from",
    r"\bfoo\b",
    r"^\s+|\s+$",
    "(foo|bar)?baz",
    "([^,]*,){10}",
    "(ab)+c",
    "(a)*c",
    "(?:[ab][cd])*e",
    "(?:a|b){0,50}c",
    "a(?!bc).*d",
    "",
    "(?i)",
    "(a|)b",
    "(|a)b()",
    "(?<=a)b",
    "x{200}",
    "foo(|bar)baz",
    "(a|)(|b)",
    "",
)
"""Constant stack, and at most quadratic time."""

DEEP = (
    "(a|b)+c",
    "(a|b)*?c",
    "(?:a|b){3,}c",
    "(?:a|b){0,500}c",
    "(?:a?b)+c",
    "(?:a+b)+c",
    "(?=(a|b)*c)",
    "(?:^a|b)+c",
    "(error|warn)+",
    "(?:[^c])+c",
    "(?i)(A|b)+c",
    "x(y(a|b)*z)?c",
)
"""The stack grows with the text, the time does not grow fast."""

SLOW = ("foo.*bar.*baz", "(.*,){10}", "a?a?a?a?a?a?a?a?a?a?aaaa", ".{0,50}a.{0,50}b.{0,50}c")
"""The time grows fast, the stack does not."""

BOTH = (
    "(a+)+$",
    "(a*)*b",
    "(.*)*x",
    "(a|aa)+b",
    r"(\s|.)*z",
    r"^(\d+,?)+$",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
)

UNKNOWN = ("(?>a|b)c", "a++b", "(?<name>a)", r"(a)\1", "[a-z&&[^b]]", r"\p{L}+", "(?x)a b")
"""Constructs for which no bound is known."""


@pytest.mark.parametrize("pattern", FREE)
def test_cheap_expressions_move_freely(pattern):
    assert regex_effort(pattern) == Effort(stack=False, time=False)


@pytest.mark.parametrize("pattern", DEEP)
def test_repeated_choices_take_stack(pattern):
    assert regex_effort(pattern) == Effort(stack=True, time=False)


@pytest.mark.parametrize("pattern", SLOW)
def test_choices_that_overlap_take_time(pattern):
    assert regex_effort(pattern) == Effort(stack=False, time=True)


@pytest.mark.parametrize("pattern", [*BOTH, *UNKNOWN])
def test_what_is_ambiguous_or_unknown_takes_both(pattern):
    assert regex_effort(pattern) == Effort(stack=True, time=True)


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        ("abc", False),
        ("%a%", False),
        ("%a%b%", False),
        ("a%b%c", False),
        ("%a%b%%%", False),
        ("%a%b%c", True),
        ("%a%b%c%", True),
        ("%%%a", True),
        (r"\%a\%b\%c\%d", False),
    ],
)
def test_like_is_slow_from_three_inner_wildcards_on(pattern, is_slow):
    assert like_is_slow(pattern, "\\") == is_slow


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s RLIKE '(a|b)+c'", "s RLIKE '(a|b)+c' may exhaust the stack on a long text"),
        (
            "regexp_like(s, 'x.*y.*z')",
            "regexp_like(s, 'x.*y.*z') may take very long on a long text",
        ),
        ("NOT s LIKE '%a%b%c%'", "s LIKE '%a%b%c%' may take very long on a long text"),
        ("s ILIKE ANY ('x', '%a%b%c%')", "very long"),
        ("s LIKE '%!a%a%b%c%' ESCAPE '!'", "not valid"),
        ("s LIKE '%a%b%!%%c%' ESCAPE '!'", "very long"),
        ("s RLIKE 'a.*b'", ""),
        ("s LIKE '%a%b%'", ""),
    ],
)
@pytest.mark.parametrize("ansi", [True, False])
def test_analysis_names_what_may_be_exhausted(text, reason, ansi):
    found = analyse(text, {"s": "string"}, name="p", ansi=ansi)
    assert found.may_raise == bool(reason)
    assert reason in found.reason
    assert found.safe_text is None


def test_the_author_may_promise_that_texts_are_short():
    found = analyse("s RLIKE '(a|b)+c'", {"s": "string"}, name="p", ansi=True, can_raise=False)
    assert not found.may_raise


_ATOMS = ("a", "b", "[ab]", "[^a]", ".", "c", r"\d", "^", "$", r"\b")


@st.composite
def patterns(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        atom = draw(st.sampled_from(_ATOMS))
    else:
        inner = draw(st.lists(patterns(depth=depth - 1), min_size=1, max_size=3))
        atom = f"(?:{draw(st.sampled_from(['', '|'])).join(inner)})"
    if atom in ("^", "$", r"\b"):
        return atom
    return atom + draw(st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"]))


@examples(200)
@given(st.lists(patterns(), min_size=1, max_size=4).map("".join))
def test_python_searches_free_expressions_in_quadratic_time(pattern):
    """Python backtracks as Java does; a budget tells quadratic from cubic time."""
    if regex_effort(pattern).time:
        return
    search = re.compile(pattern).search
    for unit, end in (("a", "!"), ("ab", "!"), ("abc", ""), ("aab", "\n"), ("c1", "!")):
        text = unit * (400 // len(unit)) + end
        started = time.process_time()
        search(text)
        assert time.process_time() - started < 2.0, text
