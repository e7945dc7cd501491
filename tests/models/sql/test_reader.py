"""Queries of models: cases of ``models.txt``, and what holds of all of them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.sql.exact import ExactQuery, read_exact
from eddyline.models.sql.reader import asks_for_models, read_model_query
from eddyline.models.sql.scope import made_in
from eddyline.query.predicates import predicate
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import Statement
from tests.examples import examples
from tests.query.select.cases import cases, parts_of

COLUMNS = {
    "s": ["ship", "flag", "ts", "x", "y", "vx", "vy"],
    "v": ["fleet", "ship", "at", "lat", "lon"],
    "trades": ["symbol", "time", "price"],
    "A": ["ts", "x", "v"],
    "B": ["ts", "v", "a"],
    "kept": ["ship", "origin", "lo", "hi", "is_point", "tomb", "coef_x", "err_x"],
}
TIMES = {"s": "ts", "trades": "time", "A": "ts", "B": "ts", "kept": None, "v": None}
AGGREGATES = ("avg", "max", "min", "sum")
often = predicate(lambda x: x, reads=["x"], name="often")


def read(text):
    selects = Statement.read_all(text)
    assert asks_for_models(selects)
    exact = read_exact(selects, COLUMNS, TIMES, AGGREGATES)
    return exact or read_model_query(selects, COLUMNS, TIMES, {"often": often})


@pytest.mark.parametrize("case", [*cases("models.txt"), *cases("exact.txt")], ids=str)
def test_queries_of_models_are_read(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


def test_a_word_called_model_is_an_alias_where_no_clause_follows():
    for text in ("SELECT model.x FROM s model", "SELECT x FROM s MODEL WHERE x > 3"):
        assert not asks_for_models(Statement.read_all(text))
        columns = {"s": {"x": "double"}}
        assert read_query(text, columns).inputs[0].name.lower() == "model"


def test_the_reader_of_rows_refuses_models():
    with pytest.raises(NotSupportedError, match="MODEL is read by the engine") as error:
        read_query("SELECT x FROM s MODEL x WITHIN 1", {"s": {"x": "double"}})
    assert error.value.facts["column"] == 17


def test_sides_of_the_same_rows_are_equal_so_that_these_are_fitted_once():
    one, other = made_in(
        read(
            "SELECT a.x FROM s MODEL x WITHIN 1 BY ship AS a JOIN s MODEL (x WITHIN 1) BY SHIP "
            "AS b ON a.ship = b.ship WHERE a.x < b.x"
        ).node
    )
    assert one == other
    assert one.start < other.start


def test_errors_of_equations_show_the_place_behind_products_that_are_not_written():
    with pytest.raises(NotSupportedError, match="no polynomial of t") as error:
        read("SELECT x FROM A MODEL A.x = A.x + A.v t^2 +\n sin(t) HORIZON 1 SECOND")
    assert (error.value.facts["line"], error.value.facts["column"]) == (2, 6)


WHOLE = (
    "SELECT p.a , p.ship , p.z - 2 * p.z AS w FROM ( SELECT l.ship , l.m AS a , r.x + l.m AS z "
    "FROM ( SELECT ship , avg ( x ) AS m FROM s MODEL x WITHIN 0.5 , y WITHIN 1 % MAX GAP 10 "
    "MINUTES BY ship WITH ( degree = 1 ) [ RANGE 10 MINUTES SLIDE 1 MINUTE ] WHERE flag = 'x' "
    "GROUP BY ship HAVING avg ( x ) > 3 ) AS l JOIN s AS r MODEL ( x = x + vx * t ) HORIZON 2 "
    "MINUTES BY ship ON l.ship = r.ship AND l.m < r.x WHERE r.flag <> 'y' ) AS p WHERE "
    "p.z BETWEEN 1 AND 5 AND p.ship > 3 SAMPLE EVERY 10 SECONDS"
)
WORDS = WHOLE.split()
DISTANCES = (
    "SELECT c.id1 , avg ( dist ) , avg ( dist ) AS d , time FROM ( SELECT a.ship AS id1 , b.ship "
    "AS id2 , sqrt ( pow ( a.x - b.x , 2 ) + pow ( a.y - b.y , 2 ) ) AS dist , a.x - 1 AS z FROM "
    "s MODEL ( x WITHIN 1 , y WITHIN 5 ) BY ship AT ts AS a JOIN s b MODEL x WITHIN 1 , y WITHIN 5 "
    "BY ship ON ( a.ship <> b.ship ) AND abs ( a.x - b.x ) < 3 ) AS c [ RANGE 6 MINUTES SLIDE 10 "
    "SECONDS ] WHERE dist < 50 AND id2 = 3 GROUP BY id1 , id2 HAVING avg ( dist ) < 1000 AND d > 3"
)
ENVELOPE = (
    "SELECT fleet , max ( lat + 1 ) AS top , max ( lat + 1 ) - 2 AS low , fleet AS f FROM v MODEL "
    "lat , lon WITHIN 1 % MAX GAP 1 DAY BY fleet , ship AT at WITH ( degree = 1 ) [ RANGE 1 HOUR ] "
    "WHERE lat IN ( 1 , 2 ) GROUP BY fleet HAVING top > 3 AND fleet <> 'a' PRECISION top WITHIN 1 "
    "% CHANGES ONLY"
)


def test_the_whole_of_what_is_broken_below_is_read():
    assert read(DISTANCES).having
    assert read(ENVELOPE).node.method == "changes"
    query = read(" ".join(WORDS))
    assert [each.method for each in _calls(query.node)] == [
        "select", "avg", "where", "join", "select", "where", "select", "sample",
    ]  # fmt: skip


def _calls(node):
    return [*_calls(node.of), node] if hasattr(node, "method") else []


EXACT = (
    "SELECT a.ship , x - y AS z , a.* FROM s AS a MODEL x WITHIN 0.5 , y WITHIN 1 % BY ship AT ts "
    "MAX GAP 10 MINUTES WITH ( degree = 1 ) WHERE a.x > 3 AND ( d = y OR flag IN ( 'x' ) ) EXACT"
)
BROKEN = [WORDS, *(each.split() for each in (DISTANCES, ENVELOPE, EXACT))]


@examples(400)
@given(data=st.data(), words=st.sampled_from(BROKEN))
def test_whatever_is_wrong_is_a_query_error(data, words):
    dropped = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=4, unique=True))
    added = data.draw(st.lists(st.sampled_from(words), max_size=3))
    place = data.draw(st.integers(0, len(words)))
    kept = [word for number, word in enumerate(words) if number not in dropped]
    text = " ".join([*kept[:place], *added, *kept[place:]])
    said = ""
    try:
        selects = Statement.read_all(text)
        made = read_exact(selects, COLUMNS, TIMES, AGGREGATES)
        made = made or read_model_query(selects, COLUMNS, TIMES, {"often": often})
    except QueryError as error:
        said = error.message
    if said:
        assert said.splitlines()[-1].strip() == "^"
        assert re.search(r"\(line 1, column \d+\)", said)
    elif isinstance(made, ExactQuery):
        assert len(made.text) == len(text)
        assert not asks_for_models(Statement.read_all(made.text))
    else:
        assert made.projections
