from __future__ import annotations

import msgspec
import pytest

from eddyline.query.identity import (
    FunctionCode,
    as_before,
    code_of,
    differences,
    hash_of,
    identity_of,
    in_words,
    steps_differ,
)
from eddyline.query.predicates import predicate
from eddyline.query.select.reader import read_query
from eddyline.query.steps import ReadStep, steps
from eddyline.rules.store import RuleStep
from eddyline.spark.rules.rule_set import RuleSet

COLUMNS = {
    "s": {"ts": "timestamp", "k": "string", "j": "int", "v": "bigint", "w": "bigint"},
    "t": {"ts": "timestamp", "k": "string", "j": "int", "v": "bigint"},
}
TIMES = {"s": "ts", "t": "ts"}


def steps_of(text, columns, functions):
    names = ("count", "sum", "max", "avg")
    known = {"tables": {}, "aggregates": [*names], "times": TIMES}
    return steps(read_query(text, columns, functions, **known))


def identity(text, columns=COLUMNS, functions=None):
    made = steps_of(text, columns, functions or {})
    read = {each.stream for each in made if hasattr(each, "stream")}
    own = {name: columns[name] for name in sorted(read)}
    return identity_of(text, made, own, {name: TIMES[name] for name in own})


def changed(one, other, **more):
    return [each.words for each in differences(identity(one), identity(other, **more))]


FILTER = "SELECT k, v FROM s WHERE v > 3 AND k = 'a'"
AGGREGATE = "SELECT k, SUM(v) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE v > 1 GROUP BY k"
JOIN = (
    "SELECT x.v AS a, y.v AS b FROM s AS x [RANGE 1 HOUR], t AS y [RANGE 2 HOURS] "
    "WHERE x.k = y.k AND x.j = y.j AND x.v < y.v AND x.w > 1"
)
BOUNDED = (
    "SELECT x.v FROM s AS x, t AS y "
    "WHERE x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 5 MINUTES"
)
OVER = "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS n FROM s WHERE v > 1 AND k <> 'b'"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FILTER, "select k, v\nfrom s -- a comment\nwhere k = 'a' /* first */ AND (v>3)"),
        (FILTER, "SELECT K, V FROM s WHERE 3 < 4 AND V > 3 AND K = 'a'".replace("3 < 4 AND ", "")),
        (FILTER, "SELECT z.k, z.v FROM s AS z WHERE 'a' = z.k AND z.v > 3"),
        (AGGREGATE, "select k, sum(V) n from s [range 10 seconds slide 5 seconds] "
         "where (v > 1) group by k"),
        (AGGREGATE, AGGREGATE.replace("10 SECONDS", "10000 MILLISECONDS")),
        (AGGREGATE + " HAVING SUM(v) > 1 AND COUNT(*) > 2 AND MAX(w) < 9",
         AGGREGATE + " HAVING MAX(w) < 9 AND COUNT(*) > 2 AND SUM(v) > 1"),
        (JOIN, "SELECT a.v AS a, b.v AS b FROM s AS a [RANGE 1 HOUR], t AS b [RANGE 2 HOURS] "
         "WHERE a.w > 1 AND a.v < b.v AND b.j = a.j AND a.k = b.k"),
        (OVER, OVER.replace("v > 1 AND k <> 'b'", "k <> 'b' AND v > 1")),
        (FILTER, FILTER.replace("v > 3", "3 < v")),
        (FILTER.replace("v > 3", "v >= w"), FILTER.replace("v > 3", "w <= v")),
        (FILTER, FILTER.replace("v > 3", "v > 3 AND (3 < v)")),
        (FILTER.replace("v > 3", "v > 3 AND v > 3"), FILTER),
        (FILTER.replace("v > 3", "(v > 3 OR w = 1)"),
         FILTER.replace("v > 3", "(w = 1 OR 3 < v OR v > 3)")),
        (JOIN, JOIN.replace("x.v < y.v", "y.v > x.v AND y.k = x.k AND x.v < y.v")),
        ("SELECT k, v FROM (SELECT k, v, j FROM s WHERE v > 3) x WHERE k = 'a'",
         "WITH t AS (SELECT k FROM t), q AS (SELECT k, v, j FROM s WHERE 3 < v) "
         "SELECT z.k, z.v FROM q AS z WHERE k = 'a'"),
        ("SELECT a.v FROM s AS a [RANGE 1 HOUR] LEFT JOIN t ON a.k = t.k AND t.v > 1 AND a.v > 2",
         "SELECT s.v FROM t RIGHT JOIN s [RANGE 1 HOUR] ON s.v > 2 AND t.k = s.k AND t.v > 1"),
        (FILTER, "SELECT ISTREAM(x.k, x.v) FROM s x [ROWS UNBOUNDED] WHERE v > 3 AND k = 'a'"),
        ("SELECT a.v FROM s AS a [NOW] WHERE EXISTS (SELECT 1 FROM t WHERE a.k = t.k AND t.v > 1)",
         "SELECT v FROM s [NOW] WHERE k IN (SELECT k FROM t WHERE v > 1)"),
        (JOIN, "WITH s1 AS (SELECT * FROM s) " + JOIN),
        (AGGREGATE + " HAVING SUM(v) > 1", AGGREGATE + " HAVING 1 < SUM(v) AND SUM(v) > 1"),
        (BOUNDED, BOUNDED.replace("x, t AS y", "x [RANGE 5 MINUTES], t AS y [NOW]")),
    ],
)  # fmt: skip
def test_texts_that_mean_the_same_are_one_query(one, other):
    assert changed(one, other) == []
    assert hash_of(identity(one).mark) == hash_of(identity(other).mark)
    # Files have names and orders of the first text: the steps of the second get them.
    first, second = (steps_of(each, COLUMNS, {}) for each in (one, other))
    again = as_before(second, identity(one))
    assert [each.output for each in again] == [each.output for each in first]
    assert not steps_differ(as_before(again, identity(one)), again)
    own = {name: COLUMNS[name] for name in "st" if f"{name} " in one + " "}
    aligned = identity_of(other, again, own, {name: TIMES[name] for name in own})
    assert differences(identity(one), aligned) == []
    assert aligned.layout == identity(one).layout
    for mine, its in zip(first, again, strict=True):
        for name in ("joined", "keys", "calls"):
            assert getattr(mine, name, None) == getattr(its, name, None), name
        names = [[each.name for each in getattr(of, "predicates", ())] for of in (mine, its)]
        assert names[0] == names[1], "what was learned of predicates is known by their names"


def test_a_derived_window_may_follow_an_unbounded_one_and_not_the_other_way_round():
    unbounded = BOUNDED.replace("x, t AS y", "x [UNBOUNDED], t AS y [UNBOUNDED]")
    assert changed(unbounded, BOUNDED) == []
    assert hash_of(identity(unbounded).mark) != hash_of(identity(BOUNDED).mark)
    assert changed(BOUNDED, unbounded) == [
        "the window of x was RANGE 5 MINUTES, from the condition and is UNBOUNDED",
        "the window of y was NOW, from the condition and is UNBOUNDED",
    ]
    stated = BOUNDED.replace("x, t AS y", "x [RANGE 5 MINUTES], t AS y [NOW]")
    assert len(changed(unbounded, stated)) == 2


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (FILTER, FILTER.replace("> 3", "> 4"), "the condition of s was v > 3 and is v > 4"),
        (FILTER, FILTER.replace(" AND k = 'a'", ""), "the condition of s k = 'a' is gone"),
        (FILTER, FILTER.replace("'a'", "'A'"), "the condition of s was k = 'a' and is k = 'A'"),
        (FILTER, FILTER.replace("k, v", "k, v AS u"), "the SELECT list was k, v and is k, v AS u"),
        (AGGREGATE, AGGREGATE.replace("RANGE 10", "RANGE 20"), "the window of s was RANGE 10 "
         "SECONDS SLIDE 5 SECONDS and is RANGE 20 SECONDS SLIDE 5 SECONDS"),
        (AGGREGATE, AGGREGATE.replace("SUM", "MAX"), "the aggregate was SUM(v) and is MAX(v)"),
        (AGGREGATE, AGGREGATE.replace("BY k", "BY k, j"), "GROUP BY was k and is k, j"),
        (JOIN, JOIN.replace("2 HOURS", "3 HOURS"), "the window of y was RANGE 2 HOURS and is "
         "RANGE 3 HOURS"),
        (JOIN, JOIN.replace("x.v < y.v", "x.v > y.v"), "x.v < y.v and is x.v > y.v"),
        (JOIN, JOIN.replace("x.v AS a, y.v AS b", "y.v AS a, x.v AS b"), "the SELECT list was x.v"),
        (OVER, OVER.replace("BY k", "BY j"), "PARTITION BY of s was k and is j"),
        (FILTER, FILTER.replace("FROM s", "FROM t"), "the input was s and is t"),
    ],
)  # fmt: skip
def test_a_change_is_said_in_words(one, other, words):
    assert any(words in each for each in changed(one, other)), changed(one, other)
    assert hash_of(identity(one).mark) != hash_of(identity(other).mark)


def test_conditions_that_draw_lots_count_as_often_as_they_are_repeated():
    once = FILTER.replace("v > 3", "rand() > 0.5")
    twice = FILTER.replace("v > 3", "rand() > 0.5 AND rand() > 0.5")
    for one, other in ((once, twice), (twice, once)):
        assert changed(one, other)
        second = steps_of(other, COLUMNS, {})
        assert as_before(second, identity(one)) == second


def test_a_function_is_named_as_the_query_calls_it():
    def python_name(v):
        return v

    functions = {"odd": predicate(python_name, reads=["v"], name="plan_name")}
    known = identity("SELECT k FROM s WHERE odd(v)", functions=functions)
    mixed = identity("SELECT k FROM s WHERE odd(v) OR k = 'a'", functions=functions)
    assert [*known.functions] == [*mixed.functions] == ["odd"]
    assert [each.shown for each in known.facts if each.key.startswith("where")] == ["odd(v)"]


def test_functions_of_rules_are_part_of_the_identity():
    def python_name(v):
        return v

    made = predicate(python_name, reads=["v"], name="plan_name")
    rules = RuleSet(
        {"text": "Odd(v) AND v > 1", "alone": made, "plain": "v > 1"},
        functions={"odd": made, "unused": made},
    )
    found = identity_of("", [ReadStep("s", "s"), RuleStep("s", rules)], COLUMNS, TIMES)
    assert [*found.functions] == ["odd", "plan_name"]
    assert found.functions["odd"] == code_of(python_name)


def with_columns(**types):
    return {**COLUMNS, "s": {**types}}


@pytest.mark.parametrize("text", [FILTER, AGGREGATE, OVER, JOIN])
def test_columns_that_are_not_read_do_not_count(text):
    s = COLUMNS["s"]
    unused = [name for name in ("j", "w") if name not in dict(identity(text).columns["s"])]
    order = s if text == OVER else dict(reversed(s.items()))
    more = {"extra": "double", **order}
    assert changed(text, text, columns=with_columns(**more)) == []
    for name in unused:
        fewer = {each: kind for each, kind in s.items() if each != name}
        assert changed(text, text, columns=with_columns(**fewer)) == []
        assert changed(text, text, columns=with_columns(**{**s, name: "decimal(9,2)"})) == []


@pytest.mark.parametrize("text", [FILTER, AGGREGATE, OVER, JOIN])
def test_the_type_of_a_column_that_is_read_counts(text):
    found = changed(text, text, columns=with_columns(**{**COLUMNS["s"], "v": "string"}))
    assert found == ["column v of s was bigint and is string"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM s WHERE v > 3",
        "SELECT k, SUM(v) AS n FROM s [PARTITION BY k ROWS 2] GROUP BY k",
        "SELECT x.v AS a, y.v AS b FROM s AS x [ROWS 2], t AS y [RANGE 1 HOUR] WHERE x.k = y.k",
    ],
)
def test_queries_that_keep_whole_rows_read_all_columns(text):
    found = changed(text, text, columns=with_columns(**COLUMNS["s"], extra="double"))
    assert found == ["column extra of s is new (the query reads all columns)"]
    found = changed(text, text, columns=with_columns(**dict(reversed(COLUMNS["s"].items()))))
    assert found == ["the columns of s have another order (the query reads all columns)"]


def test_the_order_of_columns_counts_where_files_have_rows():
    found = changed(OVER, OVER, columns=with_columns(**dict(reversed(COLUMNS["s"].items()))))
    assert found == ["the columns of s have another order"]


def test_inputs_that_change_places_are_another_query():
    text = JOIN.replace(" AND x.w > 1", "")
    other = text.replace("s AS x", "s AS y", 1).replace("t AS y", "t AS x")
    assert changed(text, other)


def test_identities_survive_json():
    for text in (FILTER, AGGREGATE, JOIN, OVER):
        known = identity(text)
        assert msgspec.json.decode(msgspec.json.encode(known), type=type(known)) == known


def test_texts_decide_where_forms_are_of_another_parser():
    known = identity(FILTER)
    facts = tuple(msgspec.structs.replace(each, form=f"x {each.form}") for each in known.facts)
    before = msgspec.structs.replace(known, facts=facts)
    assert differences(before, known)
    before = msgspec.structs.replace(before, parser="0.1")
    assert differences(before, known) == []
    assert differences(before, identity(FILTER.replace("3", "4")))


LIMIT, HIDDEN = 3, {"a", "b"}


def limited(v):
    """Say something."""
    return _helper(v) > LIMIT


def _helper(v):
    return v + len(HIDDEN)


def enclosing(number):
    def inner(v):
        return v > number

    return inner


class Called:
    def __init__(self, number):
        self.number = number

    def __call__(self, v):
        return v > self.number


def test_the_code_of_functions_is_what_they_do(monkeypatch):
    before = code_of(limited)
    monkeypatch.setattr(limited, "__doc__", "Say another thing.")
    assert code_of(limited) == before
    for name, value in (("LIMIT", 4), ("HIDDEN", {"a", "c"}), ("_helper", lambda v: v - 1)):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            assert code_of(limited).differs(before), name
    for made in (enclosing, Called):
        assert code_of(made(1)) == code_of(made(1))
        assert code_of(made(1)).differs(code_of(made(2)))


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (
            "def f(v):\n    return v > 1",
            "# moved\n\ndef f(v):\n    'why'\n\n    return v > 1",
            False,
        ),
        ("def f(v):\n    return v > 1", "def f(v):\n    return v > 2", True),
        ("def f(v, n=1):\n    return v > n", "def f(v, n=2):\n    return v > n", True),
        ("def f(v):\n    return v.abs()", "def f(v):\n    return v.neg()", True),
        ("def f(v):\n    return [x for x in v if x]", "def f(v):\n    return [x for x in v]", True),
    ],
)
def test_code_changes_with_the_body_and_not_with_its_place(one, other, differs):
    made = []
    for number, text in enumerate((one, other)):
        scope = {}
        exec(compile(text, f"file{number}.py", "exec"), scope)
        made.append(code_of(scope["f"]))
    assert made[0].differs(made[1]) is differs


def test_code_of_another_version_of_python_is_not_compared():
    assert not FunctionCode("1", "3.11").differs(FunctionCode("2", "3.12"))


def test_functions_that_are_called_are_noted_and_do_not_count():
    def suspicious(limit):
        return predicate(lambda v: v > limit, reads=["v"], name="suspicious")

    text = "SELECT k FROM s WHERE suspicious(v) AND k = 'a'"
    one, other = (identity(text, functions={"suspicious": suspicious(n)}) for n in (1, 2))
    assert differences(one, other) == []
    assert one.functions["suspicious"].differs(other.functions["suspicious"])
    assert list(one.functions) == ["suspicious"]


def test_many_differences_are_counted():
    found = differences(identity(FILTER), identity(JOIN))
    assert in_words(found).endswith(f"and {len(found) - 4} more")


@pytest.mark.parametrize(
    "condition", ["(" * 150 + "v > 3" + ")" * 150, "NOT " * 200 + "v > 3"], ids=["parens", "not"]
)
def test_deeply_nested_conditions_have_an_identity(condition):
    text = f"SELECT k FROM s WHERE {condition}"
    made = steps_of(text, COLUMNS, {})
    before = identity(text)
    assert differences(before, identity(text)) == []
    assert not steps_differ(made, as_before(made, before))
    assert len(differences(before, identity(text.replace("v > 3", "v > 4")))) == 1
