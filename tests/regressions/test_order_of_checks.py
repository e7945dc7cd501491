"""``CAST(s AS INT) > 5`` raised on a row that ``i DIV k >= 0`` drops.

Both can raise and are checked at the end, but only the first has a form that cannot. It was asked
first, because it was written first, and so met rows that the other one drops.
"""

import pytest

import eddyline as el

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("flip", [False, True])
def test_predicate_without_a_safe_form_is_checked_first(spark, flip):
    frame = spark.createDataFrame([("x", -6, 2), ("7", 6, 2)], "s string, i int, k int")
    predicates = ["CAST(s AS INT) > 5", "CASE WHEN i / k > 0 THEN true ELSE false END"]
    keep = el.all_of(*(predicates[::-1] if flip else predicates))
    assert [row.s for row in frame.transform(keep).collect()] == ["7"]
