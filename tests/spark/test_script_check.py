"""What ``eddyline check`` says of a script, without Spark."""

import subprocess
import sys

import pytest

from eddyline.errors import OptionError, QueryError, SourceError
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
    command = [sys.executable, "-c", asked, "check", str(written())]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nothing wrong that shows without Spark; starts q" in ran.stdout
    assert ran.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("old", "new", "kind", "said"),
    [
        ("FROM s", "FROM streem", QueryError, r"query 'q', SELECT from line 4 on: unknown stream"),
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
