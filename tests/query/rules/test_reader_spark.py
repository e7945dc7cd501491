"""Rules read into trees against Spark itself, on rows of edge values, NULL included."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    Is,
    IsNull,
    NativeTest,
    Not,
    OneOf,
    Or,
    TextTest,
    ValueTest,
)
from eddyline.query.rules.sources import SqlRule
from eddyline.spark.rules.binding import RuleBinder
from eddyline.sql.java_regex import python_regex
from eddyline.sql.like import is_folded_alike
from tests.examples import examples
from tests.oracles import rule_strategies
from tests.oracles.rules import truth

pytestmark = pytest.mark.spark

SCHEMA = {
    "id": "int",
    "i": "int",
    "b": "bigint",
    "f": "float",
    "d": "double",
    "de": "decimal(10,2)",
    "s": "string",
    "t": "string",
    "bo": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "xs": "array<int>",
    "st": "struct<a:int,b:string>",
    "co": "string collate UTF8_LCASE",
}
EDGES = {
    "i": [None, 0, 1, -1, 5, 10, 2**31 - 1, -(2**31)],
    "b": [None, 0, 1, 5, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "f": [None, 0.0, -0.0, 0.1, 0.5, 1.0, math.nan, math.inf, -math.inf, 16777216.0],
    "d": [None, 0.0, -0.0, 0.1, 0.5, 1.0, 5.0, math.nan, math.inf, -math.inf, 5e-324],
    "de": [None, Decimal("0.00"), Decimal("0.10"), Decimal("1.00"), Decimal("99999999.99")],
    "s": [
        *(
            None,
            "",
            "a",
            "A",
            "ab",
            "AB",
            "aB",
            "abc",
            "a%b",
            "a_b",
            "a\\b",
            "a\nb",
            "x\r\n",
            "x\n",
        ),
        *("it's", "5", "true", "2024-01-31", "İ", "i̇", "I", "ı", "ſ", "s", "S", "ß", "ẞ", "SS"),
        *("\u212a", "k", "K", "ΑΣ", "ας", "ασ", "ΑΣΑ", "😀", "a😀b", "é", "e\u0301", "a\u2028b"),
        *(
            "foo bar",
            "FOO",
            "${x}",
            "error 404",
            "cmd.exe /c whoami",
            "powershell -enc",
            " a ",
            "a\u0085",
        ),
    ],
    "t": [None, "", "a", "ab", "b", "%", "A"],
    "bo": [None, True, False],
    "dt": [
        None,
        dt.date(1, 1, 1),
        dt.date(2024, 1, 31),
        dt.date(2024, 2, 29),
        dt.date(9999, 12, 31),
    ],
    "ts": [None, dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 31, 23, 59, 59, 999999)],
    "xs": [None, [], [1, None, 2]],
    "st": [None, (None, None), (5, "ab"), (0, "A")],
    "co": [None, "a", "A", "b"],
}

RULES = r"""
true
false
null
bo
not bo
not not bo
bo and i > 0
bo or i > 0
bo and null
bo or null
not (bo and (i > 0 or d > 0))
bo = true
bo <> true
bo = false
true = bo
bo <=> true
bo <=> false
bo <=> null
bo is true
bo is false
bo is null
bo is unknown
bo is not true
bo is not false
bo is not null
bo is not unknown
not bo is true
bo > false
bo in (true)
bo in (true, null)
bo between false and true
(i > 1) is null
(i > 1) is true
(i > 1) is not false
i > 1 is true
(i > 1 or bo) is unknown
(i > 1) = true
(i > 1) <> (b > 1)
(i > 1) <=> true
(i > 1) is distinct from false
(s like 'a%') is null
i > 5
5 < i
i >= 5 and i <= 10
i = 5
i == 5
i <> 5
i != 5
i = -1
i = +1
i = - 1
i = null
i <> null
null > i
i <=> 5
5 <=> i
i <=> null
i is distinct from 5
i is not distinct from 5
i is distinct from null
i is null
i is not null
isnull(i)
isnotnull(i)
not isnull(s)
i between 1 and 5
i between 5 and 1
i not between 1 and 5
i between 1 and null
i between 0.5 and 5.5
i between 0 and b
i in (1, 5, 10)
i in (1, 5, null)
i not in (1, 5)
i not in (1, null)
i in (null)
i in (1)
i in (1, 2.5, 5.0)
i in (1, b)
i in (1e0, 5.0)
i > 2147483648
i > 0.5
i = 5.0
i = 5.5
i > 5e-1
i = 5L
i > 1.5D
i > 1.5BD
i = 5S
i > 1F
i % 10 = 5
i % 10 in (0, 5)
abs(i % 10) > 1
(i) > (5)
i > 1 and i > 1
i = cast(5 as int)
i = cast('5' as int)
i = cast(5.5 as int)
i & 1 = 1
i | 2 & 1 = 3
i ^ 1 = 4
i + 0 = 5 or i < 100 + 1
60 * 60 > i
b > 5
b = 9007199254740993
b = 9007199254740992e0
b > 9007199254740991e0
b > 9007199254740990e0
b = 5e0
b >= 0.5e0
b in (5, 9007199254740992e0)
b in (5, 1e0)
b in (1.00000000000000000001, 5e0)
b > 9223372036854775807
b > 9223372036854775808
b > -9223372036854775809
b < 0.5
not (b > 9223372036854775808)
b in (5, 9223372036854775808)
b = 9223372036854775808
i > 2147483647.5
i <= 2147483647.0
i in (5, 99999999999)
i = 99999999999999999999
de > 12345678901234567890
de in (1, 12345678901234567890)
9223372036854775808 > b
b = 5.00
i = b
i < b
f = 0.1
f = 0.1F
f = 0.5F
f = 0.5
f > 0.1
f > 16777217
f = 16777216
f = 1
f in (0.5, 1)
f in (0, 1)
f = 0
f > 1e300
f is null
f = f
f between 0 and 1
d = 0.1
d = 0
d = -0.0
d > 0
d >= -0.0
d < 1
d > 1e308
d = 5
d in (0, 1)
d in (1, 5, 0.1)
d in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
d in (0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
d not in (0.5, 1, null)
d between 0 and 1
d = 1F
d = 9007199254740993
d = cast('NaN' as double)
d > 0.1D
d <=> 0.1
d = 5e-324
isnan(d)
de = 0.1
de = 1
de > 0.105
de in (0, 0.1, 1.00)
de between 0.05 and 1
de = 0.1e0
de <> 0.10
de > 99999999
s = 'a'
s <> 'a'
'a' = s
s = ''
s = 'it''s'
s = 'it\'s'
s = 'a' 'b'
s = "ab"
s = r'a\b'
s = 'a\\b'
s = 'a\nb'
s = '\u0041'
s = '${x}'
s = '\u0024{x}' or s < '\u0024{x}'
s in ('a', 'ab', 'zz')
s in ('a', null)
s not in ('a', '')
s < 'b'
s >= 'a' and s < 'b'
s between 'a' and 'b'
s = t
s < t
s <=> 'a'
s <=> t
s is distinct from 'a'
s is null or t is null
s like 'a%'
s like '%b'
s like '%b%'
s like 'a_b'
s like '_'
s like '__'
s like '%'
s like ''
s like 'a\%b'
s like 'a\\%b'
s like 'a\_b'
s like 'a\\\\b'
s like 'a!%b' escape '!'
s like 'a!_%' escape '!'
s like 'aab' escape 'a'
s not like 'a%'
s not like 'a!%b' escape '!'
s like '%a%b%'
s like 'a😀b'
s like 'a_b%'
s like '%😀%'
s ilike 'AB'
s ilike 'a%'
s ilike '%İ%'
s ilike 'İ'
s ilike '_'
s ilike 'k'
s ilike 'ß'
s ilike 'ΑΣ'
s ilike 'ΑΣ%'
s ilike '%Σ'
s not ilike '%B%'
s ilike 'A!%B' escape '!'
s like any ('a%', '%b')
s like all ('a%', '%b')
s not like any ('a%', '%b')
s not like all ('a%', '%b')
s like some ('a%')
s ilike any ('A%', 'x%')
s ilike any ('A%', 'İ')
s like any ('a%', t)
s like 'a' || '%'
s like t
contains(s, 'b')
contains(s, '')
startswith(s, 'a')
endswith(s, 'b')
contains(s, t)
contains('abc', s)
contains(s, null)
not contains(s, 'a%')
contains(lower(s), 'b')
startswith(lower(s), 'AB')
endswith(lower(s), 'σ')
endswith(lower(s), 'ς')
lower(s) = 'ab'
lower(s) = 'AB'
lower(s) = ''
lower(s) <> 'ab'
lower(s) in ('ab', 'k')
lower(s) in ('AB', 'k')
lower(s) in ('AB', 'K')
lower(s) not in ('ab', null)
lower(s) like '%b'
lower(s) like 'A%'
lower(s) like '_'
lower(s) like 'i%'
lcase(s) = 'k'
lower(s) <=> 'ab'
lower(s) is null
upper(s) = 'SS'
lower(lower(s)) = 'ab'
lower(s) ilike 'AB'
lower(s || t) = 'ab'
s rlike 'ab'
s rlike '^ab$'
s rlike '(?i)ab'
s rlike '(?i)k'
s rlike '(?i)foo|cmd'
s rlike 'a.b'
s rlike '(?s)a.b'
s rlike 'xy?$'
s rlike 'error\\s+\\d+'
s rlike r'error\s+\d+'
s rlike '[a-c]b[^x]?'
s rlike 'foo (bar|baz)'
s rlike 'cmd\\.exe\\s+/c'
s rlike '.*'
s rlike '\\bfoo\\b'
s rlike 'a{2,}b|ab{1,3}'
s not rlike 'ab'
regexp_like(s, 'ab')
rlike(s, 'ab|AB')
s regexp '^foo'
s rlike '(?i)É'
length(s) > 2
length(s) = 1 or length(t) = 1
substring(s, 1, 2) = 'ab'
substring(s from 1 for 1) = 'a'
trim(s) = 'a'
trim(both ' ' from s) = 'a'
position('b' in s) = 2
instr(s, 'b') > 0
s || 'x' = 'ax'
concat(s, t) = 'ab'
coalesce(s, 'x') = 'x'
cast(i as string) = '5'
cast(i as string) like '5%'
i like '5%'
left(s, 1) = 'a' and right(s, 1) = 'b'
replace(s, 'a', 'b') = 'bb'
try_cast(s as int) = 5
try_cast(s as int) > 2.5
s::string = 'a'
dt = '2024-01-31'
dt = date '2024-01-31'
dt >= '2024-02-01'
'2024-02-01' <= dt
dt between '2024-01-01' and date '2024-12-31'
dt in ('2024-01-31', '2024-02-29')
dt in ('2024-01-31', date '2024-02-29', null)
dt <> '2024-01-31'
dt > current_date
dt is null
year(dt) = 2024
extract(month from dt) = 2
dt < ts
ts > '2024-01-01'
ts > timestamp '2024-01-01 00:00:00'
ts > now() - interval 1 day
hour(ts) = 23
ts is null
xs is null
size(xs) > 1
array_contains(xs, 1)
st.a = 5
st.b = 'ab'
st.b like 'a%'
st is null
st.a is not null
co = 'a'
co like 'A%'
lower(co) = 'a'
co in ('a', 'b')
co is null
case when i > 1 then bo else s = 'a' end
case i when 1 then true when 5 then null else false end
if(i > 1, bo, d > 0)
if(i > 1, bo, d > 0) and s = 'a'
coalesce(bo, true)
nvl(bo, false) or i = 5
nullif(i, 5) is null
nullif(i, 5) = 1
greatest(i, 3) > 3
equal_null(i, 5)
try_divide(i, b) > 2
try_add(i, 1) > 5
1 = 1
1 = 1 and i = 5
'a' like 'a'
null is null
(null)
null or i = 5
not null
i > 1 -- a comment
i > 1 /* one */ and /* two */ d > 0
i in (1, 2, 3) or s in ('a', 'b') and not (t = 'a' or t is null)
(((i = 5)))
((i = 5) or (b = 5)) and ((d = 5) or (f = 1))
I > 1 and `S` = 'a'
""".strip().split("\n")

NON_ANSI = r"""
i > 5
s > 5
s = 5
f > 16777217
f = 16777216
i between 1 and 2.5
dt = '2024-01-31'
dt in ('2024-01-31', '2024-02-29')
dt > s
d in (1, 5)
i in (1, 2.5, 5e0)
b in (5, 1e0)
i / 2 > 1
de in (0.1, 1)
i = '5'
f > 0.1 and f < 1
cast(s as date) = '2024-01-31'
bo = 'true'
i + 1 > 5
lower(s) = 'ab' or s like 5
""".strip().split("\n")


def operands(node):
    """Yield all texts that a tree needs values of."""
    match node:
        case Constant():
            return
        case NativeTest(sql):
            yield sql
        case Not(part) | Is(part):
            yield from operands(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from operands(part)
        case Compare() | OneOf() | IsNull() | TextTest() | ValueTest():
            yield node.operand.sql
            for need in getattr(node, "needs", ()):
                yield from operands(need)


def value_tests(node):
    match node:
        case Not(part) | Is(part):
            yield from value_tests(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from value_tests(part)
        case ValueTest():
            yield node


@pytest.fixture(scope="module")
def frame(spark):
    """Rows in which every value of every column occurs, and columns meet at random places."""
    n_rows = 400
    steps = dict(zip(EDGES, (1, 3, 5, 7, 11, 1, 3, 2, 3, 5, 7, 3, 5), strict=True))
    rows = []
    for n in range(n_rows):
        at = {name: (n * steps[name] + n // len(values)) for name, values in EDGES.items()}
        rows.append((n, *(values[at[name] % len(values)] for name, values in EDGES.items())))
    plain = {**SCHEMA, "co": "string"}
    made = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in plain.items()))
    return made.withColumn("co", made["co"].cast("string collate UTF8_LCASE")).coalesce(1).cache()


@pytest.fixture(params=[True, False], ids=["ansi", "not ansi"])
def ansi(spark, request):
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(request.param).lower())
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)


def test_the_rows_hold_every_edge(frame):
    rows = frame.collect()
    for name, values in EDGES.items():
        assert {str(row[name]) for row in rows} >= {
            str(value) for value in values if not isinstance(value, tuple | float)
        }


def test_trees_say_what_spark_says(frame, ansi):
    texts = [*RULES, *NON_ANSI] if not ansi else RULES
    columns = dict(frame.dtypes)
    assert columns == SCHEMA
    sources = [SqlRule(text, text) for text in dict.fromkeys(texts)]
    rules = RuleBinder().bind(frame, sources, skips=False).rules
    whole = [f"({rule.text}\n) AS r{n}" for n, rule in enumerate(rules)]
    wanted = list(dict.fromkeys(sql for rule in rules for sql in operands(rule.tree)))
    # Python would show a timestamp in the time zone of its machine.
    shown = {"`ts`": "unix_micros(ts)"}
    parts = [f"({shown.get(sql, sql)}\n) AS o{n}" for n, sql in enumerate(wanted)]
    answers = frame.orderBy("id").selectExpr(*whole, *parts).collect()
    wrong = []
    for row in answers:
        values = {sql: row[f"o{n}"] for n, sql in enumerate(wanted)}
        for n, rule in enumerate(rules):
            said = truth(rule.tree, values)
            if said is not row[f"r{n}"]:
                wrong.append((rule.text, row[f"r{n}"], said, rule.tree))
            for test in value_tests(rule.tree):
                if truth(test, values) is True:
                    assert any(truth(need, values) for need in test.needs), test
    assert not wrong, (sorted({text for text, *_ in wrong}), wrong[:5])
    assert len(answers) == 400


@examples(6)
@given(
    st.lists(rule_strategies.rule_texts(), min_size=15, max_size=30, unique=True),
    rule_strategies.rule_rows(),
)
def test_drawn_trees_say_what_spark_says(spark, texts, rows):
    columns = rule_strategies.COLUMNS
    rows = rows.rename_columns([name.strip("`") for name in rows.column_names])
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    frame = spark.createDataFrame(rows.select(list(columns)), schema).coalesce(1)
    assert dict(frame.dtypes) == columns
    rules = [SqlRule(text, text).bind(columns, ansi=True) for text in texts]
    wanted = list(dict.fromkeys(sql for rule in rules for sql in operands(rule.tree)))
    whole = [f"({rule.text}) AS r{n}" for n, rule in enumerate(rules)]
    parts = [f"({sql}) AS o{n}" for n, sql in enumerate(wanted)]
    for row in frame.selectExpr(*whole, *parts).collect():
        values = {sql: row[f"o{n}"] for n, sql in enumerate(wanted)}
        said = {rule.text: truth(rule.tree, values) for rule in rules}
        assert said == {rule.text: row[f"r{n}"] for n, rule in enumerate(rules)}


def test_most_rules_are_taken_apart(frame):
    columns = dict(frame.dtypes)
    natives = []
    for text in RULES:
        tree = SqlRule(text, text).bind(columns, ansi=True).tree
        if isinstance(tree, NativeTest):
            natives.append(text)
    assert len(natives) < 0.35 * len(RULES), natives


REGEXES = r"""
a$
a$b
^a
a.b
(?s)a.b
a.$
.$
\s$
[^a]$
x\r?$
(?i)a[B-D]
[\w-]+@[a-z.]+
(ab|a)(c|bcd)(d*)
(a+)+b
(?:a|b){2,3}?c
[\s\d]x
\D\W\S
a\.b\\c
[.]exe$
$
^$
^
(^a|b$)
a|b|
\n$
(?i)[^a]$
é.
""".strip().split("\n")


def test_regexes_find_what_java_finds(spark):
    pieces = ["", "a", "b", "c", "d", "x", "A", "B", "\n", "\r", "\r\n", "\u0085", "\u2028", "é"]
    pieces += ["@z.", "1", " ", ".exe", "\\c", "😀", "\u212a", "\t", "\x0b", "\x1c", "٣"]
    texts = [a + b + c for a in pieces for b in pieces for c in pieces]
    frame = spark.createDataFrame([(text,) for text in texts], "s string").coalesce(1)
    translated = {regex: python_regex(regex) for regex in REGEXES}
    assert [regex for regex, found in translated.items() if found is None] == []
    columns = [f"s RLIKE r'{regex}' AS r{n}" for n, regex in enumerate(REGEXES)]
    answers = frame.selectExpr("s", *columns).collect()
    wrong = []
    for row in answers:
        for n, regex in enumerate(REGEXES):
            found = translated[regex]
            if (re.search(found.pattern, row["s"], found.flags) is not None) != row[f"r{n}"]:
                wrong.append((regex, row["s"], row[f"r{n}"]))
    assert not wrong, wrong[:10]


def test_lower_case_is_the_same_but_for_new_letters(spark):
    """What ``is_folded_alike`` lets through is lowered alike; the rest is Unicode 15 and later."""
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    frame = spark.createDataFrame([(char,) for char in points], "s string")
    rows = frame.selectExpr("s", "lower(s) AS l").where("s <> l").collect()
    lowered = {row["s"]: row["l"] for row in rows}
    assert len(lowered) > 1000
    differ = {char for char in points if char.lower() != lowered.get(char, char)}
    reached = {lowered.get(char, char) for char in differ} | {char.lower() for char in differ}
    assert [char for char in reached - differ if is_folded_alike((char,))] == []
    assert [char for char in differ if is_folded_alike((char,)) and char in reached] == []
