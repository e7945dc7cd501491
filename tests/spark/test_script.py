"""Scripts that define streams by queries, and rules."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddyline.errors import NotSupportedError, QueryError, SourceError
from eddyline.sigma.loading import load_rules
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
        "CREATE STREAM high AS\n  SELECT k FROM s WHERE u > 3; CREATE QUERY q AS SELECT k FROM s"
    )
    with pytest.raises(QueryError, match=r"script.sql.* SELECT from line 3 on: .*unknown column"):
        run_script(file, spark=spark)


RULES = """CREATE FUNCTION odd USING 'checks:odd';
CREATE STREAM high AS SELECT k, v FROM s WHERE v > 3;
CREATE RULES alerts ON high FROM '{0}/rules.json'
  WITH (sink='parquet', path='{0}/alerts', column='m')
"""


@pytest.fixture
def rules_file(tmp_path):
    (tmp_path / "checks.py").write_text(
        "import pyarrow.compute as pc\nimport eddyline as el\n\n\n"
        "@el.predicate('v')\ndef odd(v):\n    return pc.equal(pc.bit_wise_and(v, 1), 1)\n"
    )
    file = tmp_path / "rules.json"
    file.write_text('{"big": "k > 7", "odd": "odd(v) AND k < 9"}')
    return file


def test_rules_run_over_a_stream_that_a_query_makes(spark, script, rules_file, tmp_path):
    (run,) = run_script(script(RULES), spark=spark, trigger="available_now", load_rules=load_rules)
    assert run.await_termination(120)
    rows = pq.read_table(tmp_path / "alerts").sort_by("k").to_pylist()
    assert {row["k"]: row["m"] for row in rows} == {5: ["odd"], 7: ["odd"], 8: ["big"], 9: ["big"]}


def test_sigma_rules_run_by_a_script(spark, script, tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "five.yml").write_text(
        "title: five\nid: aaaaaaaa-0000-4000-8000-000000000005\nlogsource: {product: windows}\n"
        "detection: {s: {k: 5}, condition: s}\n"
    )
    file = script("CREATE RULES r ON s FROM '{0}/rules' WITH (sink='memory', keep_unmatched=true)")
    (run,) = run_script(file, spark=spark, trigger="available_now", load_rules=load_rules)
    assert run.await_termination(120)
    rows = run.to_arrow().to_pylist()
    assert len(rows) == 10
    assert [row["k"] for row in rows if row["matches"]] == [5]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1]", "cannot read rules from"),
        (None, "cannot read rules from"),
        ('{"bad": "zzz > 1"}', r"script.sql, rules 'alerts': rule 'bad'[\s\S]*zzz"),
    ],
)
def test_rules_that_cannot_run_are_told(spark, script, rules_file, content, why):
    rules_file.unlink() if content is None else rules_file.write_text(content)
    with pytest.raises((QueryError, SourceError), match=why):
        run_script(script(RULES), spark=spark, load_rules=load_rules)


def test_rules_are_not_left_out_without_a_word(spark, script):
    file = script("CREATE RULES r ON s FROM '.'; CREATE QUERY q AS SELECT k FROM s")
    with pytest.raises(NotSupportedError, match="rules 'r': nothing reads rules here"):
        run_script(file, spark=spark)


def test_options_of_the_writer_stand_in_the_script(spark, script, tmp_path):
    file = script(
        "CREATE QUERY low WITH (sink='json', path='{0}/out', option.compression='gzip')"
        " AS SELECT * FROM s WHERE k < 8"
    )
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(60)
    names = {each.name.partition(".")[2] for each in (tmp_path / "out").glob("batch-*")}
    assert names == {"json.gz"}
    assert spark.read.json(str(tmp_path / "out")).count() == 8
