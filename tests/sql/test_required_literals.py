from __future__ import annotations

import re
import sys

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from eddyline.query.conditions import Operand, TextTest, necessary_tests
from eddyline.sql.regexes import _NO_CASE_FROM, Needed, Wild, necessary_literals, python_regex
from eddyline.sql.types import STRING


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


CHARS = (
    "a",
    "b",
    "A",
    "k",
    "s",
    "i",
    "S",
    "\u212a",
    "ſ",
    "İ",
    "ı",
    "Σ",
    "σ",
    "ς",
    "ß",
    "ẞ",
    "µ",
    "μ",
)
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
