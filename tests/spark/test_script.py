"""Scripts that define streams by queries, and rules."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

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


def test_rules_stand_in_the_script_beside_those_of_a_folder(spark, script, rules_file, tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "five.yml").write_text(
        "title: five\nid: aaaaaaaa-0000-4000-8000-000000000005\nlogsource: {product: windows}\n"
        "level: low\ndetection: {s: {k: 5}, condition: s}\n"
    )
    file = script(
        "CREATE FUNCTION odd USING 'checks:odd';"
        "CREATE RULES alone ON s WITH (sink='parquet', path='{0}/alone');"
        "CREATE RULES both ON s FROM '{0}/rules'"
        " WITH (sink='parquet', path='{0}/both', as_struct=true);"
        "CREATE RULE big IN alone AS k > 8;"
        "CREATE RULE odd IN both WITH (level='high', title='Odd one') AS odd(v) AND k < 6 AND k > 3"
    )
    runs = run_script(file, spark=spark, trigger="available_now", load_rules=load_rules)
    for run in runs:
        assert run.await_termination(120)
    alone = pq.read_table(tmp_path / "alone").to_pylist()
    assert [(row["k"], row["matches"]) for row in alone] == [(9, ["big"])]
    (row,) = pq.read_table(tmp_path / "both").to_pylist()
    assert [[*each.values()] for each in row["matches"]] == [
        ["aaaaaaaa-0000-4000-8000-000000000005", "five", "low"],
        ["odd", "Odd one", "high"],
    ]


SIGMA = "title: f\nlogsource: {product: windows}\ndetection: {s: {k: 5}, condition: s}\n"


@pytest.mark.parametrize("path", ["", "FROM '{0}/rules.json'", "FROM '{0}/rule.yml'"])
@pytest.mark.parametrize("text", ["k > 1 AND\n zzz > 1", "k + 1"])
def test_a_rule_that_does_not_fit_is_told_with_its_line(
    spark, script, rules_file, tmp_path, path, text
):
    rules_file.write_text('{"fine": "k > 7"}')
    (tmp_path / "rule.yml").write_text(SIGMA)
    file = script(f"CREATE RULES r ON s {path};\nCREATE RULE bad IN r AS\n  {text}")
    with pytest.raises(
        QueryError, match=r"script.sql, rule 'bad' of 'r', condition from line 4 on"
    ):
        run_script(file, spark=spark, load_rules=load_rules)


def test_a_rule_of_a_script_takes_no_other_ones_name(spark, script, rules_file):
    file = script("CREATE RULES r ON s FROM '{0}/rules.json'; CREATE RULE big IN r AS k > 1")
    with pytest.raises(QueryError, match=r"rule 'big' of 'r', condition from line 2 on: .*exists"):
        run_script(file, spark=spark, load_rules=load_rules)


@pytest.mark.large("starts a JVM")
def test_a_script_with_rules_from_the_command_line(script, rules_file, tmp_path):
    text = (
        "CREATE FUNCTION odd USING 'checks:odd';\n"
        "CREATE RULES r ON s WITH (sink='json', path='{0}/out', as_struct=true);\n"
        "CREATE RULE big IN r WITH (level='high', title='Big') AS k > 8;\n"
        "CREATE RULE odd IN r AS odd(v) AND k < "
    )

    def eddyline(command, *arguments):
        called = [sys.executable, "-m", "eddyline", command, str(tmp_path / "script.sql")]
        return subprocess.run(
            [*called, *arguments], capture_output=True, text=True, timeout=240, check=False
        )

    script(text)
    checked = eddyline("check")
    assert checked.returncode == 1
    assert (
        "rule 'odd' of 'r', condition from line 5 on: rule 'odd' cannot be read" in checked.stderr
    )
    script(text + "3")
    assert "nothing wrong; starts r" in eddyline("check").stdout
    ran = eddyline("run", "--trigger", "available_now")
    assert ran.returncode == 0, ran.stderr
    assert "rules r over s: matches (id, title, level) of rows with a match" in ran.stdout
    assert "Big (big)" in ran.stdout
    lines = [each.read_text() for each in (tmp_path / "out").glob("*.json")]
    rows = [json.loads(line) for each in lines for line in each.splitlines()]
    assert sorted((row["k"], row["matches"]) for row in rows) == [
        (1, [{"id": "odd"}]),
        (9, [{"id": "big", "title": "Big", "level": "high"}]),
    ]


def test_rules_in_json_have_facts(rules_file):
    rules_file.write_text(
        '{"a": "k > 1", "b": {"condition": "k > 2", "level": "low", "tags": ["t"], "title": "B"}}'
    )
    rules = load_rules(rules_file, name="r")
    assert rules.info["b"] == {"text": "k > 2", "level": "low", "tags": ("t",), "title": "B"}
    assert rules.select(tag="t").names == ("b",)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"a": "k > 1", "a": "k > 2"}', "'a' stands there twice"),
        ('{"a": {"condition": "k > 1", "levl": "low"}}', "levl"),
        ('{"a": {"level": "low"}}', "condition"),
        ('{"a": {"condition": "k > 1", "level": "lo"}}', "unknown level 'lo'"),
        ('{"a": {"condition": "k > 1", "tags": "t"}}', "tags"),
        ('{"a": 1}', "a text or an object, got 1"),
        ("{", "cannot read rules from"),
        ("[]", "cannot read rules from"),
    ],
)
def test_rules_in_json_that_cannot_be_read(rules_file, content, why):
    rules_file.write_text(content)
    with pytest.raises(SourceError, match=why):
        load_rules(rules_file, name="r")


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


def test_ctrl_c_waits_until_no_call_to_spark_is_under_way(spark, script, rules_file):
    # Spark's own handler calls Spark from within the call that it interrupts, which it cannot.
    said = []

    def load(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        said.append("was not cut off")
        return load_rules(*args, **kwargs)

    text = "CREATE FUNCTION odd USING 'checks:odd'; CREATE RULES r ON s FROM '{0}/rules.json'"
    with pytest.raises(KeyboardInterrupt):
        run_script(script(text), spark=spark, load_rules=load)
    assert said == ["was not cut off"]
    assert not spark.streams.active
