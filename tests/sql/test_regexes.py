"""Regular expressions: as Python reads them, what they may cost, and literals that they need."""

from __future__ import annotations

import re
import sys
import time
import warnings

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from eddyline.query.conditions import Operand, TextTest, ValueTest, necessary_tests
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.match.residual import _says
from eddyline.sql.analysis import analyse
from eddyline.sql.regexes import (
    _NO_CASE_FROM,
    Effort,
    Needed,
    Wild,
    compiled,
    is_plain_regex,
    like_is_slow,
    necessary_literals,
    python_regex,
    regex_effort,
)
from eddyline.sql.types import STRING
from tests.examples import examples

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


def plain(*texts):
    return tuple(Needed(text, False) for text in texts)


def folded(*texts):
    return tuple(Needed(text, True) for text in texts)


@pytest.mark.parametrize(
    ("pattern", "flags", "expected"),
    [
        ("abc", 0, plain("abc")),
        ("a.c", 0, ()),
        ("ab.*cde", 0, plain("cde")),
        ("abc|", 0, ()),
        ("abc|de", 0, plain("abc", "de")),
        ("abc|d.e", 0, ()),
        ("(abc|ab)x?", 0, plain("ab")),
        ("foo(bar|baz)?qux", 0, plain("foobarqux", "foobazqux", "fooqux")),
        ("foo(bar|.)qux", 0, plain("foo")),
        ("a(b.*)?cd", 0, plain("cd")),
        ("ab+", 0, plain("ab")),
        ("ab+cd", 0, plain("bcd")),
        ("(ab){2}", 0, plain("abab")),
        ("(ab){2,}c", 0, plain("abab")),
        ("(ab.cd)+", 0, plain("ab")),
        ("x(ab.cd)+y", 0, plain("xab")),
        ("(ab)*", 0, ()),
        (r"\bfoo\b", 0, plain("foo")),
        (r"^foo\.exe$", 0, plain("foo.exe")),
        ("fo(?=bar)o", 0, plain("foo")),
        ("foo(?!bar)", 0, plain("foo")),
        ("[ab]cd", 0, plain("acd", "bcd")),
        ("[a-z]cd", 0, plain("cd")),
        ("[^a]cd", 0, plain("cd")),
        (r"(a)bc\1", 0, plain("abc")),
        ("(?P<x>ab)(?(x)c|d)ef", 0, plain("ab")),
        ("(?>ab)c", 0, plain("abc")),
        ("AbC", re.I | re.A, folded("abc")),
        ("(?i)AbC", 0, folded("abc")),
        ("(?i:Ab)CD", 0, folded("ab")),
        ("(?x) ab c # x", 0, plain("abc")),
        ("(?i)ask", re.A, folded("ask")),
        ("(?i)as", 0, folded("as", "aſ")),
        ("(?i)ok", 0, folded("ok")),
        ("(?i)ID", 0, folded("id", "i̇d", "ıd")),
        ("(?i)ΑΣ", 0, folded("ας", "ασ")),
        ("", 0, ()),
        ("(?!)", 0, ()),
    ],
)
def test_necessary_literals(pattern, flags, expected):
    assert sorted(necessary_literals(pattern, flags)) == sorted(expected)


def test_a_partner_that_is_longer_in_lower_case_needs_no_literal_of_its_own():
    found = necessary_literals("(?i)xi")
    assert {each.text for each in found} == {"xi", "xı"}
    assert "xİ".lower() == "xi̇"


def test_long_literals_and_many_alternatives_stay_bounded():
    assert necessary_literals("a" * 5000) != ()
    many = "|".join(f"word{n:04}" for n in range(1000))
    assert len(necessary_literals(many)) <= 24
    assert necessary_literals("[ab]{40}xyz") == plain("axyz", "bxyz")
    assert necessary_literals("(a|b|c|d)(e|f|g|h)(i|j|k|l)(m|n)") != ()


def test_what_is_no_expression_is_refused():
    with pytest.raises(re.error):
        necessary_literals("(")


def test_needs_are_contained_in_the_operand():
    s = Operand("`s`", STRING, ("s",))
    assert necessary_tests(s, "(?i)abc") == (
        TextTest(s, (Wild("%"), "abc", Wild("%")), folded=True),
    )


CHARS = tuple("abAksiS\u212aſİıΣσςßẞµμ")
ATOMS = (*CHARS, "ab", "[ab]", "[^a]", ".", r"\w", "^", "$", r"\b", "(?:)", "[k-m]", "ǆ", "ǅ")


def expressions():
    def grown(part):
        return st.one_of(
            st.lists(part, min_size=1, max_size=4).map("".join),
            st.lists(part, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
            st.builds("(?:{}){}".format, part, st.sampled_from(["*", "+", "?", "{2}", "{1,3}?"])),
            part.map("(?=({}))".format),
            part.map("(?i:{})".format),
            part.map("(?-i:{})".format),
            part.map("({})".format),
        )

    return st.recursive(st.sampled_from(ATOMS), grown, max_leaves=10)


FLAGS = st.sampled_from([0, re.I, re.I | re.A, re.S, re.I | re.S])
TEXTS = st.lists(st.sampled_from((*CHARS, "B", "K", "I", "\n", "m")), max_size=8).map("".join)


@given(expressions(), FLAGS, st.lists(TEXTS, max_size=30), st.data())
def test_necessary_literals_are_necessary(pattern, flags, texts, data):
    found = necessary_literals(pattern, flags, min_length=1)
    matching = data.draw(st.from_regex(re.compile(pattern, flags), alphabet=st.characters()))
    for text in [*texts, matching, matching.swapcase()]:
        if found and re.search(pattern, text, flags):
            lowered = text.lower()
            assert any(need.text in (lowered if need.folded else text) for need in found), (
                pattern,
                flags,
                text,
                found,
            )


def test_drawn_expressions_have_literals():
    assert find(expressions(), lambda pattern: len(necessary_literals(pattern, re.I)) > 1)


def test_every_partner_of_every_letter_is_thought_of():
    cased = [c for c in map(chr, range(sys.maxunicode + 1)) if c.lower() != c or c.upper() != c]
    everything = "".join(cased)
    for char in cased[:: len(cased) // 400]:
        found = necessary_literals(char, re.I, min_length=1)
        for partner in re.findall(re.escape(char), everything, re.I):
            assert any(need.text in partner.lower() for need in found), (char, partner)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bword",
        r"\p{Alpha}",
        r"(?i)é",
        "(?m)^a",
        "(?x)a b",
        "a++",
        "a*+b",
        "(?>a)",
        "(?=a)b",
        r"(a)\1",
        r"\Qa\E",
        r"\x41",
        r"\h",
        "[a&&b]",
        "[a[b]]",
        "[+--]",
        "[a-Z]",
        r"[\D]",
        r"[\d-z]",
        "[",
        "[]a]",
        "a{,3}",
        "a{3,1}",
        "(a{3,1})b",
        "a{",
        "a}",
        "a]",
        "(",
        ")",
        "*a",
        "^*",
        "(a?)*",
        "(?<name>a)",
        "a{1001}b{1}{2}",
    ],
)
def test_what_java_may_read_otherwise_is_left_to_java(pattern):
    assert python_regex(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("a.b", ["axb", "a😀b"], ["a\nb", "a\u2028b", "a\rb"]),
        ("(?s)a.b", ["a\nb", "a\u2028b"], ["ab"]),
        ("a$", ["a", "a\n", "a\r\n", "a\r", "a\u0085", "ba\u2029"], ["a\n\n", "ab", "a\n\r"]),
        ("\\r$", ["\r", "\r\r\n"], ["\r\n\n"]),
        ("^a", ["ab"], ["ba", "\na"]),
        (r"\d", ["1"], ["٣", "a"]),
        (r"\w", ["_", "Z"], ["é", "-"]),
        (r"\s", [" ", "\x0b"], ["\u00a0", "\x1c"]),
        (r"\S", ["\x1c", "\u00a0"], ["\t"]),
        ("(?i)k[a-c]", ["KB", "kA"], ["\u212aa"]),
        (r"a\.b\\", ["a.b\\"], ["axb\\"]),
        (r"[\w.-]+@", ["a-b@"], ["@"]),
        ("(ab|c){2,3}?d", ["abcd"], ["abd"]),
    ],
)
def test_translated_expressions(pattern, hits, misses):
    found = python_regex(pattern)
    assert [text for text in hits if not re.search(found.pattern, text, found.flags)] == []
    assert [text for text in misses if re.search(found.pattern, text, found.flags)] == []


def test_characters_that_are_not_looked_at_have_one_case():
    last = "".join(map(chr, range(_NO_CASE_FROM, sys.maxunicode + 1)))
    assert last.lower() == last.upper() == last
