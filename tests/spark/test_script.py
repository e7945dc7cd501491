"""Scripts that define streams by queries, and rules."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddyline.errors import NotSupportedError, QueryError
from eddyline.spark.script import run_script

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s WITH (format='parquet', path='{0}/in');\n"


@pytest.fixture
def script(tmp_path):
    (tmp_path / "in").mkdir()
    rows = pa.table({"k": pa.array(range(10), pa.int64()), "v": pa.array(range(10), pa.int64())})
    pq.write_table(rows, tmp_path / "in" / "0.parquet")

    def written(text):
        file = tmp_path / "script.sql"
        file.write_text((STREAM + text).format(tmp_path), "utf-8")
        return file

    return written


def test_a_query_reads_a_stream_that_a_query_makes(spark, script, tmp_path):
    file = script(
        "CREATE STREAM high AS SELECT k AS id, v FROM s WHERE v > 3;"
        "CREATE STREAM even AS SELECT id FROM high h WHERE h.v % 2 = 0;"
        "CREATE QUERY high WITH (sink='parquet', path='{0}/out') AS SELECT * FROM even WHERE id < 8"
    )
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == [4, 6]


def test_an_error_of_such_a_stream_says_where_it_stands(spark, script):
    file = script(
        "CREATE STREAM high AS\n  SELECT k FROM s WHERE u > 3; CREATE QUERY q AS SELECT 1"
    )
    with pytest.raises(QueryError, match=r"script.sql.* SELECT from line 3 on: .*unknown column"):
        run_script(file, spark=spark)


def test_rules_are_not_left_out_without_a_word(spark, script):
    file = script("CREATE RULES r ON s FROM 'rules/'; CREATE QUERY q AS SELECT k FROM s")
    with pytest.raises(NotSupportedError, match="CREATE RULES r is not run yet"):
        run_script(file, spark=spark)
