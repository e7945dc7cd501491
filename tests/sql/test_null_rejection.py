from __future__ import annotations

import pytest

from eddyline.sql.analysis import Expression
from eddyline.sql.error_free import needed_columns

COLUMNS = {"a": "int", "b": "int", "c": "int", "s": "string", "p": "boolean", "q": "boolean"}


def needs(text):
    found = Expression(text, "a condition", COLUMNS, ansi=True)
    return " ".join(sorted(needed_columns(found.tree, found.references)))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a / b > 2 AND c = 1", "a b c"),
        ("a / b > 2 OR c = 1", ""),
        ("a > 1 AND b = 2 OR b > a", "a b"),
        ("NOT (a > 1 OR b > 1)", "a b"),
        ("NOT (a > 1 AND b > 1)", ""),
        ("a IS NOT NULL AND isnotnull(b + 1)", "a b"),
        ("a IS NULL AND coalesce(b, 1) = 1", ""),
        ("p IS TRUE AND NOT q", "p q"),
        ("p IS NOT TRUE", ""),
        ("a BETWEEN b AND c", "a b c"),
        ("a NOT BETWEEN b AND c", "a"),
        ("a IN (b, 1) AND s LIKE 'x%'", "a s"),
        ("a NOT IN (1, 2) AND length(s) > 2 AND CAST(s AS INT) = 1", "a s"),
        ("a <=> b", ""),
        ("CASE WHEN a > 1 THEN b > 1 ELSE FALSE END", "a b"),
        ("CASE a WHEN 1 THEN b > 1 WHEN 2 THEN c > 1 END", "a"),
        ("IF(a > 1, b > 1, b < 1)", "b"),
        ("coalesce(a > b, a > c)", "a"),
        ("nullif(a, b) > IF(p, c, c + 1)", "a c"),
        ("p = (NOT (q OR a > 1))", "p"),
        ("TRUE = (NOT (q OR a > 1))", "a q"),
        ("((NULL) IS NOT TRUE) <> (q OR a > 1)", "a q"),
        ("`a` > 1 AND some_function(b) > 1", "a"),
        ("a > NULL", "a"),
        ("FALSE AND a = b", "a b"),
        ("TRUE", ""),
    ],
)
def test_a_condition_needs_these_columns(text, columns):
    assert needs(text) == columns
