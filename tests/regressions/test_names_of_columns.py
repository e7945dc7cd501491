"""Names of columns that are not names in SQL.

A function that reads the column ``null`` got NULLs, one that reads ``my col`` could not be bound,
and a column ``__eddyline_0_arrow`` of the user was gone from the result.
"""

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import QueryError

pytestmark = pytest.mark.spark


@pytest.mark.large
@pytest.mark.parametrize("name", ["null", "true", "my col", "a.b", "b`t", "日本", "case", "''"])
def test_function_reads_a_column_by_its_exact_name(spark, name):
    frame = spark.createDataFrame([(1, 5), (2, 1)], ["id", name])
    keep = el.all_of("id > 0", el.predicate(lambda v: pc.greater(v, 3), reads=[name]))
    kept = frame.transform(keep)
    assert kept.columns == ["id", name]
    assert [row.id for row in kept.collect()] == [1]


@pytest.mark.parametrize("name", ["__eddyline_0_arrow", "__EDDYLINE_LAST"])
def test_names_of_temporary_columns_are_refused(spark, name):
    frame = spark.createDataFrame([(1, 5)], ["id", name])
    with pytest.raises(QueryError, match=f"has a column '{name}'.*rename it"):
        frame.transform(el.all_of("id > 0"))
