"""Texts in lower case, over Arrow arrays of any layout, valid or not."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.rules.match.lower_case import (
    FOLD,
    IDENTITY,
    _special,
    as_text,
    bytes_of,
    decoded,
    is_ascii,
    lowered,
    offsets_of,
    plain,
)

LETTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
HARD = "aAiI1 .'\u0130\u0131ßẞſKΣσςéE\u0301ﬁǅⓐⒶ\u10a0\u2d00\u1c90\u13a0\uab70\U00010400\U0001e900😀"


def raw(values, kind=pa.string):
    binary = pa.large_binary() if kind is pa.large_string else pa.binary()
    return pa.array(values, binary).view(kind())


def raw_list(values):
    binary = pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary()
    return values.view(binary).to_pylist()


@pytest.mark.large
@pytest.mark.parametrize("around", ["{}", "aΣ{}", "{}Σ", "x{}Σ b", "I{}A", "Σ{}Σ"], ids=repr)
def test_every_character_is_lowered_as_python_does(around):
    texts = [around.format(letter) for letter in LETTERS]
    found = lowered(pa.array(texts)).to_pylist()
    assert [text for text, low in zip(texts, found, strict=True) if low != text.lower()] == []


@given(st.lists(st.none() | st.text(HARD, max_size=8)), st.integers(0, 3))
def test_texts_are_lowered_one_by_one(texts, start):
    array = pa.array([*["É"] * start, *texts], pa.string()).slice(start)
    wanted = [None if text is None else text.lower() for text in texts]
    assert lowered(array).to_pylist() == wanted
    assert lowered(array.cast(pa.large_string())).to_pylist() == wanted


@pytest.mark.parametrize("kind", [pa.string, pa.large_string])
def test_bytes_that_are_no_characters_stay_and_disturb_no_other_row(kind):
    values = {
        b"\xffA": b"\xffa",
        "ÉA".encode(): "éa".encode(),
        b"A\x80": b"a\x80",
        b"caf\xc3": b"caf\xc3",
        b"\xed\xa0\x80Z": b"\xed\xa0\x80z",  # half of a pair
        b"\xc0\xafI": b"\xc0\xafi",  # longer than it need be
        b"\x80\xce\xa3": b"\x80\xcf\x83",
        "AΣ".encode() + b"\xff": "aς".encode() + b"\xff",
        b"": b"",
        b"A\x00B": b"a\x00b",
    }
    together = raw([None, *values], kind)
    assert raw_list(lowered(together)) == [None, *values.values()]
    for given_, wanted in values.items():
        assert raw_list(lowered(raw([given_], kind))) == [wanted]


def test_decoded_as_spark_does():
    assert decoded(pa.array(["é", None])) == ["é", None]
    assert decoded(raw([b"a\xffb", None, "é".encode()])) == ["a\ufffdb", None, "é"]


def test_ascii_looks_at_its_own_rows_only():
    texts = pa.array(["é", "abc", None, "", "é"])
    assert not is_ascii(texts)
    assert is_ascii(texts.slice(1, 3))
    assert is_ascii(pa.array([], pa.string()))
    assert is_ascii(pa.nulls(2, pa.string()))
    assert is_ascii(pa.nulls(2, pa.large_string()))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_bytes_and_offsets(kind):
    texts = pa.array(["xx", "é", None, "b"], kind)
    assert bytes_of(texts).tobytes() == b"xx\xc3\xa9b"
    part = texts.slice(1, 2)
    assert bytes_of(part).tobytes() == b"\xc3\xa9"
    assert offsets_of(part).tolist() == [2, 4, 4]
    assert offsets_of(part).dtype == np.int64
    assert offsets_of(texts.slice(2, 0)).tolist() == [0]
    assert offsets_of(pa.array([], kind)).tolist() == [0]


def test_layouts():
    texts = ["a", None, "é"]
    for layout in (pa.array(texts, pa.string_view()), pa.array(texts).dictionary_encode()):
        assert plain(layout).to_pylist() == texts
        assert as_text(plain(layout)).type in (pa.string(), pa.large_string())
    numbers = pa.array([1, None])
    assert plain(numbers) is numbers
    assert as_text(pa.array(texts)).to_pylist() == texts


def test_tables_of_bytes():
    assert bytes(FOLD[list(b"AZaz@[\xc3")]) == b"azaz@[\xc3"
    assert IDENTITY.tolist() == list(range(256))


def test_the_letters_that_arrow_lowers_otherwise_are_all_known():
    ours = pc.utf8_lower(pa.array(LETTERS, pa.string())).to_pylist()
    odd = {letter for letter, low in zip(LETTERS, ours, strict=True) if letter.lower() != low}
    assert set(_special()[1:-1]) == odd | {"Σ"}
