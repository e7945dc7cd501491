"""JSON documents as Arrow columns: each document gives the same row whatever stands around it."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.sources.json_values import JsonReader, instants_of, local_of
from tests.examples import examples

UTC_US = pa.timestamp("us", tz="UTC")
NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("total", pa.float64()),
        ("half", pa.float32()),
        ("text", pa.string()),
        ("is_big", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", UTC_US),
        ("read", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("at", UTC_US)])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("times", pa.map_(pa.string(), pa.list_(UTC_US))),
    ]
)
ONE = pa.schema([("v", pa.int64())])


def row_of(kind, text, **how):
    """Return the value of one document, or the reason why it was rejected."""
    schema = pa.schema([pa.field("v", kind)])
    batch, rejected = JsonReader(schema, **how).read([b'{"v": %s}' % text.encode()])
    return rejected[0].reason if rejected else batch.to_pylist()[0]["v"]


def is_rejected(kind, text, **how):
    schema = pa.schema([pa.field("v", kind)])
    return bool(JsonReader(schema, **how).read([b'{"v": %s}' % text.encode()])[1])


# -- any documents --------------------------------------------------------------------------------

INSTANTS = st.sampled_from(
    [
        1_700_000_000,
        1_700_000_000.25,
        -1,
        10**15,
        "2026-11-30T12:00:00Z",
        "2026-11-30 12:00",
        "2026-11-30",
        "2026-03-29T02:30:00",
        "2026-10-25T02:30:00.1234567",
        "0000-01-01",
        "soon",
        "2026-02-30",
        True,
    ]
)
VALUES = {
    "id": st.integers(-(2**64), 2**64) | st.integers(0, 9),
    "small": st.integers(-200, 200) | st.just(1.0),
    "total": st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.just("1"),
    "half": st.floats(-1e39, 1e39) | st.just(1),
    "text": st.text(max_size=5) | st.just("a\0b") | st.integers(0, 1),
    "is_big": st.booleans() | st.just("true"),
    "raw": st.binary(max_size=4).map(lambda b: base64.b64encode(b).decode()) | st.just("%"),
    "day": st.sampled_from(["2026-11-30", "2026-02-30", "0001-01-01", 5]),
    "price": st.sampled_from([1, 1.25, "2.50", "1e3", 1.255, 10**9, "NaN", "x"]),
    "at": INSTANTS,
    "read": INSTANTS,
    "tags": st.lists(st.none() | st.text(max_size=2) | st.just(1), max_size=3),
    "place": st.fixed_dictionaries(
        {}, optional={"x": st.just(1.5), "at": INSTANTS, "z": st.none()}
    ),
    "counts": st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 2**32), max_size=2),
    "times": st.dictionaries(
        st.text(max_size=2), st.none() | st.lists(st.none() | INSTANTS, max_size=2), max_size=2
    ),
}
OBJECTS = st.fixed_dictionaries(
    {}, optional={name: st.none() | values for name, values in VALUES.items()} | {"more": st.none()}
).map(lambda fields: json.dumps(fields).encode())
GOOD = st.integers(0, 9).map(lambda n: json.dumps({"id": n, "at": n, "tags": [None, "a"]}).encode())
BROKEN = st.sampled_from(
    [
        b"",
        b"null",
        b"[]",
        b"[{}]",
        b'"x"',
        b"{",
        b'{"id": 1}}',
        b'{"id": 1} {"id": 2}',
        b'{"id": 1,}',
        b"{'id': 1}",
        b'{"id": NaN}',
        b'{"id": 1, "text": "\xff"}',
        b'{"id": 1, "text": "\\ud800"}',
        b'{"id": 1, "text": "\\u0000"}',
        b"\xef\xbb\xbf{}",
        b'{"id": 1, "id": 2}',
        b'{"id": 1e2, "more": ' + b"[" * 5_000,
        b'{"id": 1, "more": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ]
)


@given(
    documents=st.lists(OBJECTS | GOOD | GOOD | BROKEN, max_size=30),
    unit=st.sampled_from(["s", "ms", "us"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
    cut=st.integers(0, 30),
)
@examples(1_500, few=150)
def test_a_document_gives_the_same_whatever_stands_around_it(documents, unit, timezone, cut):
    reader = JsonReader(NESTED, unit, timezone)
    rows, reasons = [], []
    for position, document in enumerate(documents):
        batch, rejected = JsonReader(NESTED, unit, timezone).read([document])
        assert batch.num_rows + len(rejected) == 1
        rows += batch.to_pylist()
        reasons += [(position, r.reason) for r in rejected]
    batch, rejected = reader.read(documents)
    assert batch.schema == NESTED
    batch.validate(full=True)
    assert batch.to_pylist() == rows
    assert [(r.position, r.reason) for r in rejected] == reasons
    assert all(reason for _, reason in reasons)
    parts = [reader.read(part) for part in (documents[:cut], documents[cut:])]
    assert [row for part, _ in parts for row in part.to_pylist()] == rows


def oracle(document):
    """Return the row of a document of ``FLAT`` by Python's own reader; None: it is rejected."""
    try:
        fields = json.loads(document.decode(), parse_constant=lambda _: 1 / 0)
        assert isinstance(fields, dict)
        n, x, text, flag = (fields.get(name) for name in FLAT.names)
        assert n is None or (type(n) is int and -(2**31) <= n < 2**31)
        assert x is None or (type(x) in (int, float) and math.isfinite(float(x)))
        assert text is None or type(text) is str
        assert flag is None or type(flag) is bool
        (text or "").encode()
    except (ValueError, AssertionError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    return {"n": n, "x": None if x is None else float(x), "text": text, "flag": flag}


FLAT = pa.schema(
    [("n", pa.int32()), ("x", pa.float64()), ("text", pa.string()), ("flag", pa.bool_())]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**33), 2**33)
    | st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda x: x % 1)
    | st.text(max_size=3)
    | st.just([])
)


@given(
    documents=st.lists(
        st.dictionaries(st.sampled_from([*FLAT.names, "other"]), SCALARS).map(
            lambda fields: json.dumps(fields).encode()
        )
        | BROKEN.filter(lambda document: len(document) < 100),
        max_size=20,
    )
)
@examples(1_500, few=150)
def test_rows_are_those_of_another_reader(documents):
    batch, rejected = JsonReader(FLAT).read(documents)
    expected = [oracle(document) for document in documents]
    assert batch.to_pylist() == [row for row in expected if row is not None]
    assert [r.position for r in rejected] == [p for p, row in enumerate(expected) if row is None]


def test_no_documents_and_only_broken_ones():
    for documents in ([], [b"{", b"null"]):
        batch, rejected = JsonReader(NESTED).read(documents)
        assert (batch.num_rows, batch.schema) == (0, NESTED)
        assert len(rejected) == len(documents)


# -- single types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), str(2**63 - 1), 2**63 - 1),
        (pa.int64(), str(-(2**63)), -(2**63)),
        (pa.int8(), "-128", -128),
        (pa.float64(), "1e308", 1e308),
        (pa.float64(), "123456789012345678901234567890", 123456789012345678901234567890.0),
        (pa.float64(), "1", 1.0),
        (pa.float32(), "0.1", pytest.approx(0.1)),
        (pa.string(), r'"\u0000\ud83d\ude00"', "\0😀"),
        (pa.binary(), '"AAH/"', b"\0\x01\xff"),
        (pa.date32(), '"2026-11-30"', date(2026, 11, 30)),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(38, 10), "0.1000000001", Decimal("0.1000000001")),
        (pa.decimal128(10, 2), '"12345678.90"', Decimal("12345678.90")),
        (pa.decimal128(10, 2), "5", Decimal("5.00")),
        (pa.map_(pa.string(), pa.int64()), '{"b": 1, "a": null}', [("b", 1), ("a", None)]),
        (pa.list_(pa.list_(pa.int64())), "[[1], null, []]", [[1], None, []]),
        (pa.struct([("a", pa.struct([("b", pa.int8())]))]), '{"a": {"c": 1}}', {"a": {"b": None}}),
        (UTC_US, "1700000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (UTC_US, "1700000000.000001", datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)),
        (UTC_US, "-62135596800", datetime(1, 1, 1, tzinfo=UTC)),
        (pa.list_(UTC_US), '["1970-01-01", null]', [datetime(1970, 1, 1, tzinfo=UTC), None]),
    ],
)
def test_values_of_each_type(kind, text, value):
    assert row_of(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), str(2**63)),
        (pa.int64(), "1.5"),
        (pa.int64(), '"1"'),
        (pa.int64(), "true"),
        (pa.int8(), "128"),
        (pa.float64(), "1e400"),
        (pa.float64(), "NaN"),
        (pa.float64(), "Infinity"),
        (pa.float32(), "1e39"),
        (pa.string(), "1"),
        (pa.string(), r'"\ud800"'),
        (pa.bool_(), "1"),
        (pa.binary(), '"%%%"'),
        (pa.date32(), '"2026-02-30"'),
        (pa.date32(), '"2026-11-30T12:00:00"'),
        (pa.decimal128(10, 2), "1.255"),
        (pa.decimal128(10, 2), "1e9"),
        (pa.decimal128(10, 2), '"NaN"'),
        (pa.decimal128(10, 2), '"Infinity"'),
        (pa.list_(pa.int64()), "1"),
        (pa.list_(pa.int64()), '["1"]'),
        (pa.struct([("a", pa.int8())]), '{"a": 1000}'),
        (pa.map_(pa.string(), pa.int64()), "[]"),
        (UTC_US, "1e300"),
        (UTC_US, "253402300800"),
        (UTC_US, "-62135596801"),
        (UTC_US, '"0000-12-31"'),
        (UTC_US, '"2026-11-30T24:00:00"'),
        (UTC_US, '"2026-11-30T12:00:00+25:00"'),
        (UTC_US, '"9999-12-31T23:59:59-01:00"'),
        (UTC_US, '"0001-01-01T00:00:00+01:00"'),
        (UTC_US, '""'),
        (pa.timestamp("us"), "5"),
        (pa.timestamp("us"), '"2026-11-30T12:00:00Z"'),
    ],
)
def test_values_that_do_not_fit_are_rejected(kind, text):
    assert is_rejected(kind, text)


def test_numbers_that_are_no_instants_are_said():
    assert "after the year 9999; is it in ms? give timestamps='ms'" in row_of(
        UTC_US, "1700000000000"
    )
    assert "before the year 1" in row_of(UTC_US, "-99999999999")
    assert row_of(UTC_US, "1700000000000", unit="ms") == row_of(UTC_US, "1700000000")
    assert "column 'v'" in row_of(UTC_US, '"soon"')


def test_what_is_not_null_must_be_there():
    inner = pa.struct([pa.field("x", pa.int8(), nullable=False), ("y", pa.int8())])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", inner)])
    batch, rejected = JsonReader(schema).read(
        [
            b"{}",
            b'{"id": null}',
            b'{"id": 1}',
            b'{"id": 2, "at": {}}',
            b'{"id": 3, "at": {"x": 1}}',
            b'{"id": 4, "at": {"x": null}}',
            b'{"id": 5, "at": null}',
        ]
    )
    assert [row["id"] for row in batch.to_pylist()] == [1, 3, 5]
    assert [r.position for r in rejected] == [0, 1, 3, 5]
    batch.validate(full=True)


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "PST"])
def test_a_timezone_that_nobody_knows_is_said(timezone):
    with pytest.raises(OptionError, match="timezone"):
        JsonReader(pa.schema([("at", UTC_US)]), "s", timezone).check()


# -- instants as Spark reads them -----------------------------------------------------------------

TEXTS = [
    *("2026-11-30", "2026-11-30 12:00", "2026-11-30T12:00:01", "2026-11-30T12:00:01.5"),
    *("2026-11-30T12:00:01.123456789", "2026-11-30T12:00:01Z", "2026-11-30T12:00:01+05:30"),
    *("2026-11-30T12:00:01-08:00", "2026-11-30T12:00:01.25+00:00", "1969-12-31T23:59:59.999999"),
    *(f"2026-03-29T0{hour}:{minute}:00" for hour in range(1, 5) for minute in ("00", "30", "59")),
    *(f"2026-10-25T0{hour}:{minute}:00" for hour in range(1, 5) for minute in ("00", "30")),
    *(f"2026-03-08T0{hour}:{minute}:00" for hour in range(1, 5) for minute in ("00", "30")),
    *(f"2026-11-01T0{hour}:{minute}:00" for hour in range(5) for minute in ("00", "30")),
    *("1900-01-01", "1850-06-01T12:00:00", "1600-01-01", "0001-01-02", "9999-12-30T23:59:59"),
    *("2011-12-30T12:00:00", "2011-12-29T12:00:00", "2011-12-31T00:00:00"),
]


@pytest.mark.spark
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Pacific/Apia", "UTC", "+05:30", "GMT+3"]
)
def test_instants_are_those_of_spark(spark, change, zone):
    change(zone=zone)
    table = spark.createDataFrame(pa.table({"text": TEXTS})).selectExpr(
        "CAST(unix_micros(CAST(text AS TIMESTAMP)) AS LONG) AS us",
        "CAST(text AS TIMESTAMP_NTZ) AS local",
    )
    expected = table.toArrow().to_pydict()
    read = instants_of(pa.array(TEXTS), zone)
    for text, instant, us in zip(
        TEXTS, read.cast(pa.int64()).to_pylist(), expected["us"], strict=True
    ):
        assert instant == us, text
    without = [
        text for text in TEXTS if "Z" not in text and "+" not in text and "-08" not in text[16:]
    ]
    assert len(without) > 40
    local = dict(zip(TEXTS, expected["local"], strict=True))
    assert local_of(pa.array(without)).to_pylist() == [local[text] for text in without]
