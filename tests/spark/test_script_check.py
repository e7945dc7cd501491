"""What ``eddyline check`` says of a script, without Spark and with it."""

import subprocess
import sys

import pytest

from eddyline.errors import OptionError, QueryError, SourceError
from eddyline.spark.script import problems_on_spark
from eddyline.spark.script_check import checked_script

SCRIPT = """CREATE STREAM s WITH (format = 'parquet', path = '{folder}');
CREATE FUNCTION odd USING 'checked_rules:odd';
CREATE QUERY q WITH (sink = 'memory', trigger = 'available_now') AS
SELECT * FROM s WHERE odd(a);
"""

RULES = "CREATE RULES set ON s; CREATE RULE r IN set AS\n{};\nCREATE QUERY"
ON_NONE = RULES.format("odd(a)").replace("ON s", "ON streem")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a script with some text replaced."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "checked_rules.py").write_text("def odd(a):\n    return a\n")

    def write(old="", new=""):
        file = tmp_path / "script.sql"
        file.write_text(SCRIPT.format(folder=tmp_path).replace(old, new))
        return file

    return write


def test_a_script_that_fits_loads_no_pyspark(written):
    asked = "import sys; from eddyline.cli import main\ntry: main()\n"
    asked += "finally: print('pyspark' in sys.modules)"
    command = [sys.executable, "-c", asked, "check", "--no-spark", str(written())]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nothing wrong (checked without Spark); starts q" in ran.stdout
    assert ran.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("old", "new", "kind", "said"),
    [
        ("FROM s", "FROM streem", QueryError, r"query 'q', SELECT from line 4 on: unknown stream"),
        (
            "SELECT *",
            "WITH x AS (SELECT a FROM streem) SELECT *",
            QueryError,
            r"query 'q', SELECT from line 4 on: unknown stream 'streem'; known: s",
        ),
        ("WHERE", "WHERE (", QueryError, r"query 'q', SELECT from line 4 on"),
        (":odd", ":even", QueryError, r"function 'odd': cannot import 'checked_rules:even'"),
        ("/", "/nowhere/", SourceError, r"'s' reads from .* no such file or folder"),
        ("available_now", "5 bananas", OptionError, r"query 'q': unknown trigger '5 bananas'"),
        ("'memory'", "'memmory'", OptionError, r"query 'q': unknown sink .* mean 'memory'"),
        ("'memory'", "'csv'", OptionError, r"query 'q': sink 'csv' needs a path"),
        ("'memory'", "'format'", OptionError, r"query 'q': sink 'format' needs a format"),
        ("'memory'", "'memory', option.a = 'b'", OptionError, r"takes no options"),
        (
            "FROM s",
            "FROM s [RANGE 10 BANANAS]",
            QueryError,
            r"from line 4 on: the window of 's': .*bananas",
        ),
        ("CREATE QUERY", ON_NONE, QueryError, r"unknown stream 'streem'; known: s \(line 3"),
        ("CREATE QUERY", "CREATE QUERRY", QueryError, r"QUERRY"),
        ("CREATE QUERY", RULES.format("odd(a"), QueryError, r"rule 'r' of 'set', condition from"),
        (
            "CREATE QUERY",
            RULES.format("sum(a) > 1"),
            QueryError,
            r"from line 4 on: rule 'r': the agg",
        ),
        ("CREATE QUERY", RULES.format("odd(a)") + "x", QueryError, "QUERYx"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(written, old, new, kind, said):
    with pytest.raises(kind, match=said):
        checked_script(written(old, new))


def problems_of(file, spark):
    problems = []
    problems_on_spark(checked_script(file, problems), file, problems, spark=spark)
    return problems


@pytest.mark.spark
def test_a_byte_order_mark_is_no_part_of_a_script(spark, written):
    file = written()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert [query.name for query in checked_script(file).queries] == ["q"]


WRONG = {
    "s1": ("schema = 'ts timestamp', time = 'ts', lateness = '1 minit'", "lateness '1 minit'"),
    "s2": ("schema = 'proto STRNG'", "STRNG"),
    "s3": ("schema = 'a INT', maxFilesPerTriger = '1'", "did you mean 'maxFilesPerTrigger'"),
    "s4": ("schema = 'ts timestamp', time = 'tss'", "unknown time column 'tss'"),
    "s5": ("schema = 'a INT', paht = 'in/'", "did you mean 'path'"),
}
"""Options of streams by name, each with the words of its problem."""

WRONG_QUERIES = {
    "q1": ("SELECT lenght(b) AS n FROM good", "lenght"),
    "q2": ("SELECT nothing FROM good", "nothing"),
    "q3": ("SELECT x.a FROM good AS g", "`x`.`a`"),
    "q4": ("SELECT COUNT(*) AS n FROM untimed [RANGE 1 MINUTE SLIDE 1 MINUTE]", "event time"),
    "q5": ("SELECT a FROM nowhere", "unknown stream 'nowhere'"),
    "q6": ("SELECT a FROM good WHERE a >", "an operand is missing"),
}
"""Queries by name, each with the words of its problem."""


@pytest.mark.spark
def test_every_problem_of_a_script_is_told_at_once(spark, tmp_path):
    lines = [
        f"CREATE STREAM {name} WITH (format = 'parquet', path = '{tmp_path}', {options});"
        for name, (options, _) in WRONG.items()
    ]
    lines += [
        f"CREATE STREAM s6 WITH (format = 'paquet', path = '{tmp_path}', schema = 'a INT');",
        f"CREATE STREAM good WITH (format = 'parquet', path = '{tmp_path}', time = 'ts', "
        "schema = 'a INT, b STRING, ts TIMESTAMP');",
        f"CREATE STREAM untimed WITH (format = 'parquet', path = '{tmp_path}', schema = 'a INT');",
        "CREATE QUERRY q0 AS SELECT 1;",
        "CREATE QUERY unread AS SELECT * FROM s2 WHERE nothing = 1;",
    ]
    lines += [f"CREATE QUERY {name} AS {text};" for name, (text, _) in WRONG_QUERIES.items()]
    lines += ["CREATE QUERY fine AS SELECT a + 1 AS b FROM good WHERE upper(b) = 'X';"]
    file = tmp_path / "script.sql"
    file.write_text("\n".join(lines))
    problems = problems_of(file, spark)
    told = {problem.facts["created"]: problem.message for problem in problems}
    assert len(told) == len(problems), "each has one problem"
    expected = {name: words for name, (_, words) in {**WRONG, **WRONG_QUERIES}.items()}
    assert told.keys() == {*expected, "s6", "q0"}
    for name, words in (expected | {"s6": "paquet", "q0": "QUERRY"}).items():
        assert words.lower() in told[name].lower(), name


def test_the_command_tells_all_problems_and_exits_with_one(written):
    file = written("FROM s", "FROM streem; CREATE QUERY r AS SELECT * FROM s WHERE (")
    command = [sys.executable, "-m", "eddyline", "check", "--no-spark", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "unknown stream 'streem'" in ran.stderr
    assert "query 'r', SELECT" in ran.stderr
    assert ran.stderr.endswith(f"{file} has 2 problems\n")
    assert "Traceback" not in ran.stderr
