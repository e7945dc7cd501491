"""The analysis against Spark itself, in ANSI mode, on rows of edge values."""

import datetime as dt
import itertools
import math
from decimal import Decimal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from eddyline.query.select.reader import read_query
from eddyline.sql.analysis import analyse
from eddyline.sql.functions import NON_DETERMINISTIC, SAFE, STRICT

pytestmark = pytest.mark.spark

SCHEMA = {
    "ti": "tinyint",
    "i": "int",
    "b": "bigint",
    "f": "float",
    "d": "double",
    "de": "decimal(10,2)",
    "big": "decimal(38,18)",
    "s": "string",
    "bo": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "tn": "timestamp_ntz",
    "bi": "binary",
    "xs": "array<int>",
    "m": "map<string,int>",
    "st": "struct<a:int,b:string>",
}
EDGES = {
    "ti": [None, 0, 1, -1, 127, -128],
    "i": [None, 0, 1, -1, 2**31 - 1, -(2**31)],
    "b": [None, 0, 1, -1, 2**63 - 1, -(2**63)],
    "f": [None, 0.0, -1.5, math.nan, math.inf, 3.0e38],
    "d": [None, 0.0, -0.0, 2.5, math.nan, math.inf, -math.inf, 1e300],
    "de": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-99999999.99")],
    "big": [None, Decimal("0E-18"), Decimal("1.5"), Decimal("99999999999999999999.9")],
    "s": [None, "", "x", " 12 ", "0", "-7", "1e3", "2024-02-30", "2024-01-31", "true", "%"],
    "bo": [None, True, False],
    "dt": [None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "ts": [None, dt.datetime(1900, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 59, 999999)],
    "tn": [None, dt.datetime(1900, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 59, 999999)],
    "bi": [None, b"", b"\xff\x00"],
    "xs": [None, [], [1, None, 2]],
    "m": [None, {}, {"a": 1, "b": None}],
    "st": [None, (None, None), (0, "x"), (2**31 - 1, "12")],
}

PREDICATES = """
i > 5
i + 1 > 5
i * b > 5
i - 1 < 0
ti + 1 > 3
ti + ti > 3
ti * ti * ti > 3
i % 10 = 3
i % ti = 0
b % i = 0
mod(i, 3) = 0
i / 2 > 1
i / b > 1
d / d > 1
d / 2 > 1
f / i >= 0
i div 2 = 1
b div i = 1
-i > 0
-d > 0
abs(i) > 0
abs(d) > 0
abs(ti + 0) > 0
d + f > 1
d * d > 1
de * 1.1 > 1
de + de > 1
de / 3 > 1
de / de > 1
de % 7 > 1
big * big > 1
big + big > 1
big * 2 > 1
big / 3 > 1
i * 1.5 > 1
i / 2.5 > 1
s > 5
s = 'x'
s < 2.5
s = i
s >= d
s = bo
s = dt
s > ts
s <> tn
s = 5 or s is null
s + 1 > 3
s * 2.5 > 3
s % 2 = 0
s = true
s = date '2024-01-31'
s in ('x', '')
s in (1, 2)
s between 'a' and 'z'
s between 1 and 2
i between '1' and 2
i between 1 and 2.5
i in (1, 2.5, b)
i in ('1', '2')
i + 1 in (0, 1, 2)
i + 1 in (0, null)
i + 1 between 0 and 5
5 between i + 1 and 7
5 between i and i + 1
i = '5'
i = '1.5'
i = 'x'
dt = '2024-01-31'
dt > 'x'
dt < ts
dt <= tn
ts > '2024-01-01'
ts > '2024-01-01 10:00:00.5'
ts > '2024-01-01 10:00Z'
ts > '2024-01-01T10:00:00+05:30'
tn > '2024-01-01 10:00:00.123456Z'
ts > '2024-01-01 24:00:00'
ts > date '2024-01-01'
ts > timestamp_ntz '2024-01-01'
tn = timestamp '2024-01-01'
ts < tn
ts > now() - interval 1 day
ts - interval 1 day < now()
dt + 1 > '2024-01-01'
dt + i > '2024-01-01'
dt - 1 < current_date
dt - dt > interval 1 day
cast(s as int) = 3
cast(s as tinyint) = 3
cast(s as double) > 2
cast(s as decimal(5,2)) > 2
cast(s as date) > '2024-01-01'
cast(s as timestamp) > '2024-01-01'
cast(s as boolean)
cast(s as string) = 'x'
cast(b as int) > 3
cast(b as double) > 3
cast(i as bigint) + 1 > 3
cast(ti as int) * 100 > 3
cast(d as int) > 3
cast(f as bigint) > 3
cast(d as decimal(10,2)) > 3
cast(de as int) > 3
cast(de as decimal(4,1)) > 3
cast(de as decimal(20,4)) > 3
cast(i as decimal(10,0)) > 3
cast(i as decimal(4,0)) > 3
cast(i as boolean)
cast(bo as int) = 1
cast(dt as timestamp) > now()
cast(ts as date) = dt
cast(ts as int) > 3
cast(i as timestamp) > now()
cast(i as string) like '1%'
int(s) = 3
s::int = 3
bigint(d) = 3
try_cast(s as int) = 3
try_add(i, 1) > 0
try_divide(i, ti) > 0
coalesce(i / b, 1) > 0
coalesce(i, 0) > 0
coalesce(i, s) = 1
coalesce(s, '') = ''
nullif(i, 0) is null
nullif(s, 1) is null
nvl(s, 'x') = 'x'
if(i <> 0, b / i, 0) > 1
if(bo, i, ti) > 1
case when i > 0 then s else 'x' end = 'x'
case s when 1 then 2 end = 2
case i when 1 then 2 else 3 end = 2
greatest(i, ti) > 3
least(d, 1.5) > 3
i / 2 > 1 and s > 5
not (s > 5)
not (i / ti > 1)
not bo
bo and s
not s
s is true
bo is not true
s is distinct from 5
i <=> b
s <=> 5
i / ti <=> 1
s like '%1%'
s like '\\\\%'
s like 'x\\\\'
s like 'x!%' escape '!'
s like 'x!' escape '!'
s like s
s like any ('a%', '%1')
s ilike 'X'
i like '1%'
s rlike '^[0-9]+$'
s rlike '(('
s rlike '{'
s rlike s
upper(s) = 'X'
substring(s, 1, 2) = 'x'
substring(s, i, 2) = 'x'
substring(s from 1 for 1) = 'x'
substring(s, b) = 'x'
trim(both 'x' from s) = ''
position('x' in s) = 1
length(s) * 2 > 3
length(s) + length(s) > 3
length(bi) > 0
i / length(s) > 0
i / (length(s) + 1) > 0
year(s) = 2024
year(dt) * 1000 > 3
hour(dt) = 0
hour(tn) = 0
extract(month from dt) = 2
date_part('day', ts) = 29
date_add(dt, 1) > '2024-01-01'
datediff(dt, '2024-01-01') > 0
floor(d) > 1
ceil(f) > 1
floor(i) > 1
round(d, 1) > 1
round(d) > 1
round(i, -1) > 1
xs[0] = 1
xs[i] = 1
m['a'] = 1
m['zz'] = 1
m[s] = 1
st.a > 1
st.a + 1 > 1
st.b > 5
size(xs) > 0
array_contains(xs, 1)
element_at(xs, 1) = 1
element_at(m, 'zz') = 1
i & 1 = 1
b | i > 0
~i > 0
i << 2 > 0
ti ^ 3 > 0
s || i = 'x1'
concat(s, i) = 'x1'
i > 2147483648
i > 99999999999999999999
b > 9223372036854775808
i = -2147483648
i + -2147483648 < 0
60 * 60 * 24 > i
2147483647 + 1 > i
5L + i > 3
1.5D > d
2BD < de
x'FF' = bi
bi = s
xs = array(1, 2)
hash(i, s, xs) > 0
uuid() = s
ti / 0.0 > 1
s > 5 and false
i > null
big > b
big = i
de = 2.555
de > i
(i) = (5)
i = 5 -- a note
""".strip().split("\n")


@pytest.fixture(scope="module")
def edges(spark):
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.sparkContext.setLogLevel("OFF")  # errors are what is tested
    yield Edges(spark)
    spark.sparkContext.setLogLevel("WARN")
    spark.conf.set("spark.sql.ansi.enabled", before)


class Edges:
    """Runs expressions on the edge values of the columns that they read."""

    def __init__(self, spark):
        self._spark = spark

    def rows(self, columns):
        return list(itertools.product(*(EDGES[name] for name in columns))) or [()]

    def far(self, columns):
        """Return the cross product of columns, ``far_…`` with the ends of their type."""
        frame = self._spark.range(1).drop("id")
        for name in columns:
            frame = frame.crossJoin(self._one(name))
        return frame

    def are_fine(self, text, safe, columns):
        return self.answers(checks_of(text, safe), columns, self.rows(columns)) is not None

    def all_zero(self, frame, checks):
        try:
            return not checks or not any(frame.selectExpr(*checks).first())
        except (PySparkException, Py4JJavaError):
            return False

    def _one(self, name):
        if name in EDGES:
            values = [(value,) for value in EDGES[name]]
            return self._spark.createDataFrame(values, f"{name} {SCHEMA[name]}").coalesce(1)
        column, make = {
            "far_dt": ("i", "date_from_unix_date(i)"),
            "far_ts": ("b", "timestamp_micros(b)"),
        }[name]
        return self._one(column).selectExpr(f"{make} AS {name}")

    def answers(self, texts, columns, rows):
        """Return a row of answers per row, or None if any row raises; refuse what is not SQL."""
        if not rows:
            return []
        data = [(*row, 0) for row in rows] if "ti" not in columns else rows
        schema = ", ".join(f"{name} {SCHEMA[name]}" for name in dict.fromkeys((*columns, "ti")))
        frame = self._spark.createDataFrame(data, schema).coalesce(1)
        wanted = frame.selectExpr(*(f"({text}\n) AS a{i}" for i, text in enumerate(texts)))
        try:
            return [tuple(row) for row in wanted.collect()]
        except (PySparkException, Py4JJavaError):
            return None


def analysed(texts, **options):
    found = {}
    for text in texts:
        found[text] = analyse(text, SCHEMA, name=text, ansi=True, **options)
    return found


def test_what_is_said_never_to_raise_never_raises(edges):
    by_columns = {}
    for text, found in analysed(PREDICATES).items():
        if not found.may_raise:
            by_columns.setdefault(found.columns, []).append(text)
    raised = []
    for columns, texts in by_columns.items():
        rows = edges.rows(columns)
        if edges.answers(texts, columns, rows) is None:
            raised += [t for t in texts if edges.answers([t], columns, rows) is None]
    assert raised == []


@pytest.mark.large
def test_the_safe_form_is_true_where_the_predicate_is_true_or_raises(edges):
    by_columns = {}
    for text, found in analysed(PREDICATES).items():
        if found.safe_text is not None:
            by_columns.setdefault(found.columns, []).append((text, found.safe_text))
    wrong = []
    for columns, pairs in by_columns.items():
        rows = edges.rows(columns)
        answers = edges.answers(
            [each for pair in pairs for each in checks_of(*pair)], columns, rows
        )
        if answers is None:
            wrong += [text for text, safe in pairs if not edges.are_fine(text, safe, columns)]
            continue
        for i, (text, _) in enumerate(pairs):
            outcomes = [answer[2 * i : 2 * i + 2] for answer in answers]
            wrong += [(text, fault) for fault in faults(edges, text, columns, rows, outcomes)]
    assert wrong == []


def checks_of(text, safe):
    """Return the safe form, and the predicate on the rows that the form drops."""
    return safe, f"CASE WHEN NOT coalesce({safe}, FALSE) THEN ({text}\n) END"


def faults(edges, text, columns, rows, outcomes):
    said = [f"true on {row}" for row, (_, truth) in zip(rows, outcomes, strict=True) if truth]
    kept = [row for row, (keeps, _) in zip(rows, outcomes, strict=True) if keeps]
    for row in kept[len(kept) // 2 :][:1]:  # one: each costs a job
        answer = edges.answers([text], columns, [row])
        raises_or_true = answer is None or answer[0][0] is True
        # NULL on one side: Spark may not have looked at the other, which would raise.
        if not raises_or_true and not (answer[0][0] is None and None in row):
            said.append(f"{answer} on {row}, which its safe form keeps")
    return said


@pytest.mark.large
def test_a_safe_function_never_raises(edges):
    """Every signature of the table, on edge values, also such as no Python date can hold."""
    by_args = {}
    for name, signatures in SAFE.items():
        for signature in signatures:
            kinds = [
                kind if isinstance(kind, str) else kind.family for kind in signature.parameters
            ]
            for args in itertools.product(*(CANDIDATES[kind] for kind in kinds)):
                by_args.setdefault(args, []).append(name)
    wrong = []
    for args, names in by_args.items():
        frame = edges.far(dict.fromkeys(args))
        checks = {name: check for name in names if (check := check_of(frame, name, args))}
        if not edges.all_zero(frame, checks.values()):
            wrong += [(name, args) for name in checks if not edges.all_zero(frame, [checks[name]])]
    assert wrong == []


def check_of(frame, name, args):
    """Return an aggregate that evaluates a call on every row and is 0 if all is well."""
    call = f"{name}({', '.join(args)})"
    try:
        frame.selectExpr(call)
    except AnalysisException:
        return None  # not SQL for Spark, whatever the row
    if name in NON_DETERMINISTIC:
        return None  # not allowed in an aggregate; such a predicate is never moved
    if name in STRICT:
        nulls = " OR ".join(f"{arg} IS NULL" for arg in args)
        return f"count_if(({call} IS NULL) <> ({nulls}))"
    return f"count({call}) * 0"


@pytest.mark.parametrize(
    "text",
    [
        "a AND (b OR c) AND NOT c",
        "(a AND (b AND NOT (a AND c)))",
        "i BETWEEN 1 AND 2 AND a",
        "CASE WHEN a AND b THEN c AND a END AND b",
        "NOT a AND b OR c AND a",
        "a -- AND\n AND /* OR */ b IS NOT NULL AND i IN (1, 3)",
    ],
)
def test_the_parts_of_a_condition_keep_the_rows_that_it_keeps(spark, text):
    values = [None, True, False]
    rows = list(itertools.product(values, values, values, [None, 0, 1, 2, 3]))
    frame = spark.createDataFrame(rows, "a boolean, b boolean, c boolean, i int")
    split = frame
    for part in read_query(f"SELECT * FROM s WHERE {text}", {"s": {}}).inputs[0].predicates:
        split = split.where(part.text)
    assert sorted(split.collect(), key=str) == sorted(frame.where(text).collect(), key=str)


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
