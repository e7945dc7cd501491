"""Drawn rules over drawn events, with the characters that go wrong: both readings, every type."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sigma.rule import SigmaRule as PySigmaRule

from eddyline.errors import QueryError
from eddyline.sigma import read
from tests.examples import examples
from tests.oracles import sigma as reference_sigma
from tests.oracles.rules import truth

ALPHABET = "aAbk\\*?%_'\"\n\x00 -/iIİısſßẞΣσςΟ\u212aé\u0301\ufeff\udc80.5"
PLAIN = ["Text", "text2", "Number", "Ratio", "Flag", "Gone"]
COLUMNS = {
    "Text": "string",
    "TEXT2": "string",
    "Number": "bigint",
    "Ratio": "double",
    "Flag": "boolean",
}
MODIFIERS = [
    "",
    "|contains",
    "|startswith",
    "|endswith",
    "|cased",
    "|contains|all",
    "|contains|cased",
    "|windash|contains",
    "|base64offset|contains",
]
NUMBERS = st.sampled_from([0, 5, -5, 12, 55, 4688])

# YAML cannot hold lone surrogates; events can, as far as Python goes.
written = st.text(ALPHABET.replace("\udc80", ""), max_size=4)
values = st.text(ALPHABET, max_size=6)


@st.composite
def detections(draw):
    """Return a selection: fields with modifiers and values."""
    items = {}
    for _ in range(draw(st.integers(1, 3))):
        field = draw(st.sampled_from(PLAIN))
        kind = draw(st.sampled_from(["text", "number", "flag", "null", "exists", "compare"]))
        if kind == "text":
            modifiers = draw(st.sampled_from(MODIFIERS))
            texts = written
            if "base64" in modifiers:
                texts = texts.map(lambda text: text.replace("*", "").replace("?", "") + "ab")
            items[field + modifiers] = draw(st.lists(texts, min_size=1, max_size=3))
        elif kind == "number":
            items[field] = draw(NUMBERS | st.sampled_from([0.5, 12.25]))
        elif kind == "flag":
            items[field] = draw(st.booleans())
        elif kind == "null":
            items[field] = draw(st.sampled_from([None, [None, "a*"]]))
        elif kind == "exists":
            items[field + "|exists"] = draw(st.booleans())
        else:
            field = draw(st.sampled_from(["Number", "Ratio", "Gone"]))
            items[f"{field}|{draw(st.sampled_from(['lt', 'lte', 'gt', 'gte']))}"] = draw(NUMBERS)
    return items


CONDITIONS = [
    "s1",
    "not s1",
    "s1 and not s2",
    "s1 or s2",
    "1 of s*",
    "all of them",
    "not (s1 or not s2) or keywords",
    "not 1 of s* and not keywords",
]

events = st.fixed_dictionaries(
    {
        "Text": st.none() | values,
        "TEXT2": st.none() | values,
        "Number": st.none() | NUMBERS,
        "Ratio": st.none() | st.sampled_from([0.0, 5.0, 12.25, -0.5]),
        "Flag": st.none() | st.booleans(),
    }
)

BIG = "a\\" * 500_000 + "İß"
NO_KEYWORDS = ["x"]


@examples(100, few=6)
@given(
    detections(),
    detections(),
    st.lists(written, min_size=1, max_size=2),
    st.sampled_from(CONDITIONS),
    st.lists(events, min_size=1, max_size=3),
    st.sampled_from(["null", "false"]),
)
@example({"Text|endswith": "\\i\u0307ß"}, {"Gone": 1}, NO_KEYWORDS, "s1", [{"Text": BIG}], "null")
@example({"Text": "a*?ß"}, {"Gone": 1}, NO_KEYWORDS, "s1", [{"Text": BIG}], "null")
@example({"Text|contains": "\\%"}, {"Gone": 1}, NO_KEYWORDS, "s1", [{"Text": "a\\%b"}], "null")
def test_drawn_rules_agree_with_the_oracle(
    oracle_row, first, second, keywords, condition, rows, missing
):
    body = {
        "title": "drawn",
        "logsource": {"product": "windows"},
        "detection": {"s1": first, "s2": second, "keywords": keywords, "condition": condition},
    }
    text = json.dumps(body, indent=1)
    found = read(text, cache=False, missing=missing)
    assert not found.skipped, found.skipped
    tree = found.sources[0].bind(COLUMNS, ansi=True).tree
    expected = PySigmaRule.from_yaml(text)
    for row in rows:
        event = {name: row.get(name) for name in COLUMNS}
        assert truth(tree, oracle_row(tree, event)) is reference_sigma.truth(
            expected, event, missing
        )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["F", "F|re", "F|contains|all", "F|cidr", "|all", "condition", "s", "F|gt"]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "title": anything,
        "id": anything,
        "level": anything,
        "tags": anything,
        "date": anything,
        "falsepositives": anything,
        "logsource": anything | st.just({"product": "windows"}),
        "detection": anything
        | st.fixed_dictionaries({"s": anything, "condition": anything | st.just("s")}),
        "filter": anything,
        "name": anything | st.just("r"),
        "correlation": anything
        | st.fixed_dictionaries(
            {"timespan": anything | st.just("5m")},
            optional={
                "type": anything | st.sampled_from(["event_count", "temporal", "value_sum"]),
                "rules": anything | st.just(["r"]),
                "condition": anything | st.sampled_from([{"gte": 3}, "r and not r"]),
                "aliases": anything,
                "group-by": anything,
                "generate": anything,
            },
        ),
        "action": anything,
    },
)


@pytest.mark.large
@given(st.lists(bodies | anything, min_size=1, max_size=3))
def test_strange_yaml_is_listed_and_never_an_error(written_bodies):
    text = "\n---\n".join(json.dumps(body, indent=1) for body in written_bodies) + "\n\n"
    found = read(text, cache=False)
    for rule in found.sources:
        rule.bind(COLUMNS, ansi=True)
    others = {each.name: each for each in found.correlations}
    for each in found.correlations:
        with suppress(QueryError):  # of a field that these events lack
            each.bind(COLUMNS, others)
    assert all(skipped.reason for skipped in found.skipped)
    n_rules = sum(
        isinstance(body, dict) and "detection" in body and not {"filter", "action"} & body.keys()
        for body in written_bodies
    )
    assert len(found.sources) + len(found.skipped) >= n_rules
