"""Text constructs: patterns found in one walk, against the definition of each."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import Operand, TextTest
from eddyline.rules.compile.patterns import Hits, construct_of, find
from eddyline.sql.regexes import ANY, ONE, Wild
from eddyline.sql.types import STRING
from tests.oracles.rule_strategies import texts
from tests.oracles.rules import is_like

S = Operand("`s`", STRING, ("s",))
W, C = Wild(ANY), Wild(ONE)


def patterns_of(tests, values, *, first=0, folded=False, rows=None):
    """Return the patterns of each row, as the construct finds them."""
    construct = construct_of(S, tests, first, folded=folded)
    array = pa.array(values, pa.string())
    n_rows = len(values)
    hits = Hits(construct.n_units, n_rows)
    stamps = np.zeros(len(tests), np.int64)
    wanted = np.arange(n_rows) if rows is None else np.array(rows, np.int64)
    starts, ends = hits.starts, hits.ends
    find(construct, construct.texts(array), wanted, hits, starts, ends, stamps, 1)
    return [
        sorted(
            pattern
            for unit in range(construct.n_units)
            for pattern in hits.patterns[starts[unit, row] : ends[unit, row]].tolist()
        )
        for row in range(n_rows)
    ]


@st.composite
def some_patterns(draw, folded):
    parts = []
    for part in draw(st.lists(texts(2) | st.sampled_from([W, W, C]), max_size=6)):
        if isinstance(part, Wild):
            parts.append(part)
        elif part and not (parts and isinstance(parts[-1], str)):
            parts.append(part.lower() if folded else part)
    return TextTest(S, tuple(parts), folded)


@pytest.mark.parametrize("folded", [False, True])
def test_finds_what_each_pattern_says(folded):
    @given(
        st.lists(some_patterns(folded), min_size=1, max_size=8),
        st.lists(st.none() | texts(6), max_size=8),
    )
    def check(tests, values):
        # The pattern's own letters, so that something is found.
        values += ["".join(p for p in each.parts if isinstance(p, str)) for each in tests]
        wanted = [
            [
                at
                for at, test in enumerate(tests)
                if value is not None and is_like(value, test.parts, folded=folded)
            ]
            for value in values
        ]
        assert patterns_of(tests, values, folded=folded) == wanted

    check()


@pytest.mark.parametrize(
    ("parts", "yes", "no"),
    [
        (("ab",), ["ab"], ["", "a", "abc", "xab", "AB", None]),
        (("ab", W), ["ab", "ab\n\0"], ["xab", "a"]),
        ((W, "ab"), ["ab", "xab"], ["abx", "b"]),
        ((W, "ab", W), ["ab", "xabx"], ["a b"]),
        (("ab", W, "ba"), ["abba", "ab ba"], ["aba", "ab"]),
        ((C,), ["x", "é", "😀", "\n"], ["", "xx", "e\u0301"]),
        ((C, W), ["x", "xx"], [""]),
        ((W, C, C, W), ["ab", "😀😀😀"], ["", "é"]),
        ((), [""], ["x", None]),
        ((W,), ["", "x"], [None]),
        ((C, "b", C), ["abc", "ébé"], ["bb", "abb c", "b"]),
        (("é", C), ["é😀"], ["é", "éxx"]),
        ((W, "a", C, "a", W), ["aXa", "aaXa"], ["aa", "aXXa"]),
        ((W, "ab", W, "ab", W), ["abab", "abxab"], ["ab", "bab"]),
        (("a\0b", W), ["a\0b"], ["a", "ab"]),
    ],
    ids=repr,
)
def test_forms(parts, yes, no):
    found = patterns_of([TextTest(S, parts)], [*yes, *no])
    assert found == [[0]] * len(yes) + [[]] * len(no)


def test_folded_forms():
    tests = [
        TextTest(S, (W, "straße", W), folded=True),
        TextTest(S, ("ὀδυσσεύς",), folded=True),
        TextTest(S, (W, "i\u0307", W), folded=True),
        TextTest(S, (C, "k"), folded=True),
        TextTest(S, (W, "ab"), folded=True),
    ]
    rows = {"DIE STRAẞE": [0], "Straße": [0], "STRASSE": [], "ὈΔΥΣΣΕΎΣ": [1], "ὈΔΥΣΣΕΎσ": []}
    rows |= {"\u0130": [2], "x\u0130Y": [2], "i": [], "I": [], "İK": [2], "\u212a\u212a": [3]}
    rows |= {"IK": [3], "xAB": [4], "ſAB": [4]}
    assert patterns_of(tests, list(rows), folded=True) == list(rows.values())


def test_only_some_rows_are_looked_at():
    tests = [TextTest(S, (W, "a", W)), TextTest(S, (C,))]
    assert patterns_of(tests, ["a", "a", None, "xa"], first=5, rows=[1, 2, 3]) == [
        [],
        [5, 6],
        [],
        [5],
    ]


def test_a_row_with_more_hits_than_there_was_room_for():
    n_patterns = 700
    tests = [TextTest(S, (W, "a" * (size + 1), W)) for size in range(n_patterns)]
    found = patterns_of(tests, ["a" * 2_000] * 50 + ["a", None])
    assert found == [list(range(n_patterns))] * 50 + [[0], []]


def test_hits_that_were_found_stay_where_room_is_made():
    hits = Hits(1, 1)
    size = len(hits.patterns)
    hits.patterns[:] = np.arange(size)
    hits.n_hits = size
    hits.make_room(3)
    assert hits.patterns[:size].tolist() == list(range(size))
    assert len(hits.patterns) >= size + 3
    before = hits.patterns
    hits.make_room(1)
    assert hits.patterns is before


def test_patterns_and_walks_are_counted():
    tests = [TextTest(S, parts) for parts in (("a", W), (W, "a"), (W, "a", W), (C, C), ("a",))]
    construct = construct_of(S, tests, 10, folded=False)
    assert construct.patterns == range(10, 15)
    assert construct.n_units == 4  # inside, start, end, and what has no literal
    assert construct_of(S, tests[:1], 0, folded=False).n_units == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_of_any_array(kind):
    construct = construct_of(S, [TextTest(S, ("é",), folded=True)], 0, folded=True)
    array = pa.array(["zz", "É", None, "A"], kind).slice(1)
    got = construct.texts(array)
    cut = [
        got.data[low:high].tobytes()
        for low, high in zip(got.offsets, got.offsets[1:], strict=False)
    ]
    assert cut == ["é".encode(), b"", b"A"]  # kernels fold ASCII themselves
    assert got.nulls.tolist() == [False, True, False]
    assert len(construct.texts(pa.nulls(0, kind)).offsets) == 1
    assert construct.texts(pa.nulls(3, kind)).nulls.all()


def test_what_travels_is_the_literals_and_not_their_automata():
    tests = [TextTest(S, (W, f"{n:04}" * 8, W), folded=False) for n in range(300)]
    construct = construct_of(S, tests, 0, folded=False)
    packed = pickle.dumps(construct)
    assert len(packed) < 2 * sum(len(each) for each in construct.walks[0].literals)
    arrived = pickle.loads(packed)
    assert arrived.n_units == construct.n_units == 1
    ours, theirs = construct.automata[0], arrived.automata[0]
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert arrived.automata is arrived.automata
