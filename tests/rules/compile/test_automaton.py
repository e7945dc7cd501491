"""Automata of many patterns, against looking for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.rules.compile import patterns as automata
from eddyline.rules.compile.patterns import (
    ANY_CODE,
    END,
    INSIDE,
    ONE_CODE,
    START,
    Codes,
    Texts,
    build,
    fits,
    fits_each,
    scan,
)
from eddyline.rules.match.lower_case import FOLD, IDENTITY
from eddyline.sql.regexes import ANY, ONE, Wild
from tests.oracles.rules import is_like

NO_CODES = np.zeros(1, np.int16)


def texts_of(values):
    data = np.frombuffer(b"".join(each or b"" for each in values) or b"\0", np.uint8)
    offsets = np.cumsum([0, *(len(each or b"") for each in values)]).astype(np.int64)
    return Texts(data, offsets, np.array([each is None for each in values], np.bool_))


def found(automaton, values, n_patterns, *, folded=False, room=None):
    """Return the patterns found in each text, however little room there is for hits."""
    codes = Codes(np.zeros(n_patterns + 1, np.int64), NO_CODES, FOLD if folded else IDENTITY)
    texts, rows = texts_of(values), np.arange(len(values))
    stamps = np.zeros(n_patterns, np.int64)
    starts, ends = np.zeros((2, len(values)), np.int64)
    hits, at, n_hits, lists = np.empty(room or n_patterns, np.int32), 0, 0, []
    while at < len(values):
        before = at
        at, n_hits = scan(
            *(texts, rows, at, automaton, codes, stamps, 1, hits, n_hits, n_patterns, starts, ends)
        )
        lists += [sorted(hits[starts[row] : ends[row]].tolist()) for row in range(before, at)]
        n_hits = 0
    return lists


def is_there(pattern, text, kind):
    if text is None:
        return False
    return {
        INSIDE: pattern in text,
        START: text.startswith(pattern),
        END: text.endswith(pattern),
    }[kind]


words = st.text("abAé", min_size=1, max_size=5).map(str.encode)


@pytest.mark.parametrize("max_dense", [1 << 24, 1 << 10, 1])
@pytest.mark.parametrize("kind", [INSIDE, START, END])
def test_finds_what_is_there(kind, max_dense, monkeypatch):
    monkeypatch.setattr(automata, "MAX_DENSE_BYTES", max_dense)

    @given(st.lists(words, min_size=1, max_size=12), st.lists(st.none() | words | st.just(b"")))
    def check(patterns, values):
        values = [*values, b"".join(patterns), patterns[0] * 2]
        made = build(patterns, range(len(patterns)), kind, folded=False)
        wanted = [
            [at for at, pattern in enumerate(patterns) if is_there(pattern, text, kind)]
            for text in values
        ]
        assert found(made, values, len(patterns)) == wanted
        assert found(made, values, len(patterns), room=3 * len(patterns)) == wanted

    check()


def test_patterns_are_called_by_their_ids():
    made = build([b"b", b"ab", b"b"], [7, 3, 5], INSIDE, folded=False)
    assert found(made, [b"xab", b"a"], 8) == [[3, 5, 7], []]


def test_folded_automata_find_upper_case_of_ascii():
    made = build(["wéb".encode()], [0], INSIDE, folded=True)
    assert found(made, ["xWéB".encode(), "WÉB".encode()], 1, folded=True) == [[0], []]


def test_patterns_of_every_byte_that_texts_hold():
    used = [bytes([byte]) for byte in range(0xF5) if byte not in (0xC0, 0xC1)]
    made = build(used, range(len(used)), INSIDE, folded=False)
    assert found(made, [b"\0\xf4", b"\xff\xc0"], len(used)) == [[0, len(used) - 1], []]


@pytest.mark.parametrize("size", [2_000, pytest.param(70_000, marks=pytest.mark.large)])
def test_a_long_pattern_of_one_letter(size):
    made = build([b"a" * size, b"a" * 3], [0, 1], INSIDE, folded=False)
    values = [b"a" * (size - 1), b"a" * size, b"aab"]
    assert found(made, values, 2) == [[1], [0, 1], []]


def test_many_states_need_more_than_two_bytes():
    rng = np.random.default_rng(1)
    patterns = [rng.integers(97, 123, 12).astype(np.uint8).tobytes() for _ in range(8_000)]
    made = build(patterns, range(len(patterns)), INSIDE, folded=False)
    assert len(made.labels) > np.iinfo(np.uint16).max
    values = [b"x" + patterns[at] + b"y" for at in (0, 17, 7_999)]
    assert found(made, values, len(patterns)) == [[0], [17], [7_999]]


parts = st.lists(st.sampled_from([Wild(ANY), Wild(ONE), "a", "b", "é", "ab"]), max_size=6)


def code_of(pattern):
    code = []
    for part in pattern:
        if isinstance(part, Wild):
            code.append(ANY_CODE if part.what == ANY else ONE_CODE)
        else:
            code += part.encode()
    return code


@given(parts, st.text("abé😀", max_size=6))
def test_fits_whole_texts(pattern, text):
    data = np.frombuffer(b"x" + text.encode() + b"y", np.uint8)
    code = np.array([*code_of(pattern), 0], np.int16)
    says = fits(data, 1, len(data) - 1, IDENTITY, code, 0, len(code) - 1)
    assert says == is_like(text, pattern, folded=False)


def test_fits_each_of_some_rows():
    patterns = [[Wild(ONE), Wild(ONE)], [Wild(ANY)], []]
    code = [code_of(each) for each in patterns]
    codes = Codes(
        np.cumsum([0, *map(len, code)]).astype(np.int64),
        np.array([each for one in code for each in one], np.int16),
        IDENTITY,
    )
    values = [b"ab", None, b"", "éé".encode(), b"abc"]
    starts, ends = np.full((2, 5), -1, np.int64)
    hits = np.empty(15, np.int32)
    rows, every = np.array([0, 1, 2, 3]), np.arange(3, dtype=np.int32)
    n_hits = fits_each(texts_of(values), rows, every, codes, hits, 0, starts, ends)
    lists = [hits[starts[row] : ends[row]].tolist() for row in rows]
    assert lists == [[0, 1], [], [1, 2], [0, 1]]
    assert n_hits == 6
    assert starts[4] == -1


@pytest.mark.parametrize(
    ("text", "n_chars"),
    [
        *((b"\xc0\xaf", 2), (b"\xed\xa0\x80", 1), (b"\xe0\x80\x80", 3), (b"\xe2\x82", 1)),
        *((b"\xf0\x9f\x98", 1), (b"\xf0\x80\x80\x80", 4), (b"\xf4\x90\x80\x80", 4), (b"\xc3", 1)),
        *((b"\x80\x80", 2), (b"\xff", 1), ("é😀€a".encode(), 4), (b"a\xc3b", 3)),
    ],
)
def test_characters_of_bytes_that_are_none(text, n_chars):
    data = np.frombuffer(text + b"\x80", np.uint8)
    code = np.array([ONE_CODE] * 5, np.int16)
    says = [fits(data, 0, len(text), IDENTITY, code, 0, count) for count in range(6)]
    assert says == [count == n_chars for count in range(6)]
