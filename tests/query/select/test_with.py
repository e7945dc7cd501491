"""Queries with WITH: cases of ``with.txt``, and what holds of all of them."""

import pytest
from hypothesis import given

from eddyline.errors import NotSupportedError
from eddyline.query.select.with_clause import MOST_READS
from eddyline.query.steps import ReadStep, steps
from tests.examples import examples
from tests.query.select.cases import broken, cases, check_is_read_or_refused, parts_of, words_of
from tests.query.select.test_subqueries import read


@pytest.mark.parametrize("case", cases("with.txt"), ids=str)
def test_with_is_read(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


@pytest.mark.parametrize(
    ("named", "nested"),
    [
        (
            "WITH x AS (SELECT * FROM s WHERE v > 3) SELECT a.k, sum(v) AS n FROM x a [NOW] "
            "GROUP BY a.k",
            "SELECT a.k, sum(v) AS n FROM (SELECT * FROM s WHERE v > 3) a [NOW] GROUP BY a.k",
        ),
        (
            "WITH x AS (SELECT k FROM s), y AS (SELECT k FROM x UNION ALL SELECT k FROM u) "
            "SELECT y.k FROM y [NOW] LEFT JOIN x ON y.k = x.k",
            "SELECT y.k FROM (SELECT k FROM (SELECT k FROM s) x UNION ALL SELECT k FROM u) y [NOW] "
            "LEFT JOIN (SELECT k FROM s) x ON y.k = x.k",
        ),
        (
            "WITH s AS (SELECT k, sum(v) OVER (ORDER BY ts) AS n FROM s), z AS (SELECT k FROM u) "
            "SELECT n FROM s WHERE n > 3",
            "SELECT n FROM (SELECT k, sum(v) OVER (ORDER BY ts) AS n FROM s) s WHERE n > 3",
        ),
    ],
)
def test_with_means_the_same_as_subqueries_in_from(named, nested):
    assert steps(read(named)) == steps(read(nested))


def test_names_that_multiply_are_refused():
    names = [f"x{number} AS (SELECT a.k FROM x{number - 1} a, x{number - 1} b WHERE a.k = b.k)"
             for number in range(1, 30)]  # fmt: skip
    made = ["x0 AS (SELECT k FROM s)", *names]
    assert len(steps(read(f"WITH {', '.join(made[:4])} SELECT k FROM x3"))) > 8
    with pytest.raises(NotSupportedError, match=f"WITH more than {MOST_READS:,} times"):
        read(f"WITH {', '.join(made)} SELECT k FROM x29")


def test_a_long_chain_of_names_is_read():
    chain = [f"x{number} AS (SELECT k FROM x{number - 1})" for number in range(1, 60)]
    made = steps(read(f"WITH x0 AS (SELECT k FROM s), {', '.join(chain)} SELECT k FROM x59"))
    assert [each.stream for each in made if isinstance(each, ReadStep)] == ["s"]


WHOLE = (
    "WITH x AS (SELECT s.k, v FROM s WHERE v > 3), `my y` AS (SELECT k, max(v) AS m FROM X "
    "[RANGE 10 MINUTES] GROUP BY k HAVING m > 1), unused AS (SELECT k FROM x UNION ALL SELECT k "
    "FROM u) SELECT a.m, b.k FROM `my y` a [NOW] LEFT JOIN (WITH x AS (SELECT k FROM u) SELECT k "
    "FROM x) b ON a.k = b.k"
)

OTHERS = (
    "SELECT * FROM (SELECT k, j FROM u) a RIGHT JOIN (SELECT ISTREAM(k, v) FROM s [ROWS UNBOUNDED] "
    "WHERE v > 1) x [NOW] ON a.k = x.k UNION ALL SELECT k, txt, k + 1, v FROM s [NOW] WHERE "
    "(k + 1, txt) IN (SELECT DISTINCT u.k, j FROM u WHERE u.k > v) AND v > 2"
)


@pytest.mark.parametrize("text", [WHOLE, OTHERS])
def test_the_whole_of_what_is_broken_below_is_read(text):
    assert str(steps(read(" ".join(words_of(text))))) == str(steps(read(text)))


@examples(300)
@given(query=broken(WHOLE) | broken(OTHERS))
def test_whatever_is_wrong_is_a_query_error(query):
    check_is_read_or_refused(lambda text: steps(read(text)), query)
