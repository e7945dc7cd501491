"""The analysis against Spark itself, in ANSI mode, on rows of edge values."""

from __future__ import annotations

import itertools

import pytest
from pyspark.errors import AnalysisException

from eddyline.query.select.reader import read_query
from eddyline.sql.analysis import analyse
from eddyline.sql.functions import NON_DETERMINISTIC, SAFE, STRICT
from tests.spark_says import (
    ERRORS,
    N_FIRST,
    RAISES,
    TYPES,
    answers,
    edges,
    silence,
    texts_of,
)

pytestmark = pytest.mark.spark

PREDICATES = texts_of("predicates.sql")


@pytest.fixture(scope="module")
def frame(spark):
    assert spark.conf.get("spark.sql.ansi.enabled").lower() == "true"
    with silence(spark):
        yield edges(spark)


@pytest.fixture(scope="module")
def analysed():
    return {text: analyse(text, TYPES, name=text, ansi=True) for text in PREDICATES}


def test_the_rows_hold_every_pair_of_values(frame, analysed):
    """Of the columns that one of the predicates reads."""
    columns = [sorted(found.columns) for found in analysed.values()]
    pairs = {pair for names in columns for pair in itertools.combinations(names, 2)}
    # Not all texts are valid UTF-8.
    texts = (f"coalesce(hex(CAST({name} AS string)), 'NULL') AS {name}" for name in TYPES)
    rows = frame.selectExpr(*texts).toArrow().to_pydict()
    sizes = {name: len(set(column)) for name, column in rows.items()}
    met = {(a, b): len(set(zip(rows[a], rows[b], strict=True))) for a, b in pairs}
    assert met == {(a, b): sizes[a] * sizes[b] for a, b in pairs}


def raise_among(frame, columns):
    """Return the columns that raise; one job if there are none."""
    try:
        frame.selectExpr(*columns).write.format("noop").mode("overwrite").save()
    except ERRORS:
        half = len(columns) // 2
        parts = columns[:half], columns[half:]
        return [each for part in parts for each in raise_among(frame, part)] if half else columns
    return []


def counted(frame, columns):
    """Return the values of aggregates, which must not raise."""
    try:
        return frame.selectExpr(*columns).first()
    except ERRORS:
        return pytest.fail(f"these raise: {raise_among(frame, columns)}")


@pytest.mark.large
def test_what_is_said_never_to_raise_never_raises(frame, analysed):
    safe = [f"({text}\n) AS c" for text, found in analysed.items() if not found.may_raise]
    assert len(safe) > 100
    assert raise_among(frame, safe) == []


@pytest.mark.large
def test_the_safe_form_is_true_where_the_predicate_is_true_or_raises(frame, analysed):
    """On the rows that it drops the predicate has an answer, and none is true."""
    forms = {text: found.safe_text for text, found in analysed.items() if found.safe_text}
    assert len(forms) > 50
    dropped = [
        f"count_if(CASE WHEN NOT coalesce({form}, FALSE) THEN ({text}\n) END) AS c"
        for text, form in forms.items()
    ]
    wrong = zip(forms, counted(frame, dropped), strict=True)
    assert [text for text, n_rows in wrong if n_rows] == []


@pytest.mark.large
def test_few_rows_pass_the_safe_form_that_the_predicate_drops(frame, analysed):
    """Those on which a side is NULL, so that Spark may not look at the other, which would raise."""
    forms = {text: found.safe_text for text, found in analysed.items() if found.safe_text}
    some = frame.where(f"id < {N_FIRST}").localCheckpoint()
    kept = some.selectExpr(*(f"coalesce({form}, FALSE) AS c" for form in forms.values())).collect()
    rows = {}
    for number, text in enumerate(forms):
        passed = [place for place, row in enumerate(kept) if row[number]]
        rows[text] = passed[:: 1 + len(passed) // 5]
    nulls = some.selectExpr(*(f"{name} IS NULL AS {name}" for name in TYPES)).collect()
    for text, said in answers(some, list(forms), rows).items():
        for place, answer in said.items():
            has_null = any(nulls[place][name] for name in analysed[text].columns)
            assert answer in (True, RAISES) or (answer is None and has_null), (text, place)


CANDIDATES = {
    "string": ("s", "i"),
    "integer": ("i",),
    "float": ("d", "de"),
    "date": ("far_dt", "ts"),
    "timestamp": ("far_ts", "tn"),
    "any": ("s", "xs"),
    "array": ("xs",),
    "map": ("m",),
    "sized": ("xs", "m"),
}


def calls_of_safe_functions():
    """Return calls of every signature of the table."""
    for name, signatures in SAFE.items():
        for signature in signatures:
            kinds = [
                each if isinstance(each, str) else each.family for each in signature.parameters
            ]
            for args in itertools.product(*(CANDIDATES[kind] for kind in kinds)):
                yield name, args


def is_tried(frame, name, call):
    """Return whether a call is SQL for Spark, and may be moved at all."""
    try:
        frame.selectExpr(call)
    except AnalysisException:
        return False
    return name not in NON_DETERMINISTIC


@pytest.mark.large
def test_a_safe_function_never_raises(frame):
    """Every signature of the table, on edge values, also such as no Python date can hold."""
    far = ["date_from_unix_date(i) AS far_dt", "timestamp_micros(b) AS far_ts"]
    rows = frame.selectExpr("*", *far).localCheckpoint()
    calls = [(name, f"{name}({', '.join(args)})", args) for name, args in calls_of_safe_functions()]
    calls = [each for each in calls if is_tried(rows, *each[:2])]
    assert len(calls) > 150
    for start in range(0, len(calls), 100):
        checks = {
            call: f"count_if(({call} IS NULL) <> ({' OR '.join(f'{arg} IS NULL' for arg in args)}))"
            if name in STRICT
            else f"count({call}) * 0"
            for name, call, args in calls[start : start + 100]
        }
        wrong = zip(
            checks, counted(rows, [f"{each} AS c" for each in checks.values()]), strict=True
        )
        assert [call for call, n_wrong in wrong if n_wrong] == []


CONDITIONS = [
    "a AND (b OR c) AND NOT c",
    "(a AND (b AND NOT (a AND c)))",
    "n BETWEEN 1 AND 2 AND a",
    "CASE WHEN a AND b THEN c AND a END AND b",
    "NOT a AND b OR c AND a",
    "a -- AND\n AND /* OR */ b IS NOT NULL AND n IN (1, 3)",
]


def test_the_parts_of_a_condition_keep_the_rows_that_it_keeps(spark):
    truths = "VALUES (NULL), (TRUE), (FALSE)"
    frame = spark.sql(
        f"SELECT * FROM ({truths}) AS x (a) CROSS JOIN ({truths}) AS y (b) CROSS JOIN "
        f"({truths}) AS z (c) CROSS JOIN (VALUES (NULL), (0), (1), (2), (3)) AS w (n)"
    )
    read = [read_query(f"SELECT * FROM s WHERE {text}", {"s": {}}).inputs[0] for text in CONDITIONS]
    parts = [" AND ".join(f"({part.text}\n)" for part in each.predicates) for each in read]
    pairs = zip(parts, CONDITIONS, strict=True)
    differ = [f"(({part}) IS TRUE) <> (({text}\n) IS TRUE)" for part, text in pairs]
    counted = frame.selectExpr("count(*)", *(f"count_if({each})" for each in differ)).first()
    assert list(counted) == [135, *([0] * len(CONDITIONS))]
