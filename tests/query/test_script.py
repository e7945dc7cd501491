"""Scripts: what is read, and what is said about mistakes."""

import pytest

from eddyline.errors import QueryError
from eddyline.query.rules.rule import Rule
from eddyline.query.script import (
    CreateAggregate,
    CreateFunction,
    CreateResult,
    CreateRules,
    CreateTable,
    read_script,
)

SCRIPT = """-- streams; a semicolon in a comment ends nothing
CREATE STREAM packets WITH (
  format = 'parquet', path='in;/', schema='a INT, b STRING', time='ts', lateness='1 minute',
  maxFilesPerTrigger=1, kafka.bootstrap.servers='h:1', `odd key`='x', header=TRUE
);
/* ; */;
create function suspicious using 'rules.net:suspicious';
CREATE QUERY bad WITH (sink='parquet', path='out/') AS
  SELECT * -- all; of it
  FROM packets WHERE s <> ';' AND suspicious(payload, port)
;
CREATE QUERY `two` AS SELECT v FROM packets"""


def test_a_script_is_read_in_order():
    script = read_script(SCRIPT)
    (stream,) = script.streams
    assert stream.name == "packets"
    assert stream.options == {
        "format": "parquet",
        "path": "in;/",
        "schema": "a INT, b STRING",
        "time": "ts",
        "lateness": "1 minute",
        "maxFilesPerTrigger": "1",
        "kafka.bootstrap.servers": "h:1",
        "odd key": "x",
        "header": "true",
    }
    assert script.functions == (CreateFunction("suspicious", "rules.net:suspicious"),)
    bad, two = script.queries
    assert bad.options == {"sink": "parquet", "path": "out/"}
    assert bad.text.startswith("SELECT * -- all; of it\n  FROM packets")
    assert bad.text.endswith("suspicious(payload, port)")
    assert bad.line == 9
    assert (two.name, two.text, two.options) == ("two", "SELECT v FROM packets", {})


def test_aggregates_are_found_as_functions_are():
    script = read_script("create aggregate GeoMean using 'my.stats:GeometricMean'")
    assert script.aggregates == (CreateAggregate("GeoMean", "my.stats:GeometricMean"),)
    assert script.functions == ()


def test_tables_are_read_with_streams():
    script = read_script(
        "create table Hosts with (format='csv', path='h.csv', header=true, `time zone`='UTC');"
        "CREATE STREAM s WITH (format='rate'); CREATE QUERY hosts AS SELECT 1 FROM s"
    )
    options = {"format": "csv", "path": "h.csv", "header": "true", "time zone": "UTC"}
    assert script.tables == (CreateTable("Hosts", options),)
    assert [each.name for each in script.streams] == ["s"]


def test_streams_are_made_of_queries():
    script = read_script(
        "CREATE STREAM a AS SELECT v FROM s;\n"
        "create stream b with (time='ts', lateness='1 minute')\n as dstream(SELECT v FROM a, s);"
        "CREATE STREAM c AS with x AS (SELECT v FROM s) SELECT v FROM x"
    )
    assert script.results == (
        CreateResult("a", "SELECT v FROM s", {}),
        CreateResult("b", "dstream(SELECT v FROM a, s)", {"time": "ts", "lateness": "1 minute"}, 3),
        CreateResult("c", "with x AS (SELECT v FROM s) SELECT v FROM x", {}, 3),
    )
    assert script.streams == ()


def test_rules_are_of_a_stream():
    script = read_script(
        "CREATE RULES r ON s FROM 'rules/';"
        "CREATE RULES q ON `ab` FROM 'q.yml' "
        "WITH (sink='parquet', path='out/', column='rules', keep_unmatched=TRUE)"
    )
    assert script.rules == (
        CreateRules("r", "s", "rules/", {}),
        CreateRules("q", "ab", "q.yml", {"sink": "parquet", "path": "out/"}, "rules", True),
    )


def test_a_rule_is_of_a_set_and_has_its_facts():
    script = read_script(
        "CREATE RULES r ON s WITH (sink='memory', as_struct=true);\n"
        "CREATE RULES t ON s FROM 'rules/';\n"
        "CREATE RULE big IN r WITH (level='high', tags='pii, web', title='Too big') AS\n"
        "  a > 5 -- much\n  AND b <> ';';"
        "create rule small in R as a < 0;"
        "CREATE RULE big IN t AS a > 9"
    )
    rules, others = script.rules
    assert (rules.path, rules.as_struct, rules.options) == (None, True, {"sink": "memory"})
    big, small = rules.own
    assert big.rule == Rule(
        "a > 5 -- much\n  AND b <> ';'", level="high", tags=["pii", "web"], title="Too big"
    )
    assert (big.name, big.rules, big.line) == ("big", "r", 4)
    assert (small.name, small.rules, small.rule) == ("small", "r", Rule("a < 0"))
    assert [(each.name, each.rules) for each in others.own] == [("big", "t")]


def test_an_empty_script_defines_nothing():
    assert read_script(" -- nothing\n ; ").queries == ()


def test_a_stream_and_a_query_may_share_a_name():
    read_script("CREATE STREAM a WITH (format='rate'); CREATE QUERY a AS SELECT * FROM a")


A = "CREATE STREAM a WITH (format='x'"
R = "CREATE RULES r ON s FROM 'r/'"
G = "CREATE AGGREGATE a USING 'm:A'"
T = "CREATE TABLE a WITH (format='x'"
MISTAKES = [
    ("DROP STREAM a", "expected CREATE, got 'DROP'", (1, 1)),
    (
        "\n  SELECT 1",
        "CREATE STREAM, CREATE TABLE, CREATE FUNCTION, CREATE AGGREGATE, CREATE QUERY, "
        "CREATE RULES, CREATE RULE",
        (2, 3),
    ),
    ("CREATE VIEW a", "FUNCTION or AGGREGATE or QUERY or RULES or RULE, got 'VIEW'", (1, 8)),
    ("CREATE OR REPLACE STREAM a", "got 'OR'", (1, 8)),
    ("CREATE STREAM a", "expected WITH or AS, got the end of the statement", (1, 15)),
    ("CREATE STREAM a WITH (path='x')", "stream 'a' has no format; add format='parquet'", (1, 1)),
    (f"{A}, format='y')", "option 'format' is said twice", (1, 35)),
    (f"{A}, lateness='1 minute')", "has a lateness but no time column; add time=", (1, 1)),
    ("CREATE STREAM a WITH (format=x)", "expected a value in quotes for 'format'", (1, 30)),
    (A, "expected , or ), got the end of the statement", (1, 32)),
    ("CREATE STREAM a WITH (format 'x')", "expected option = 'value'", (1, 33)),
    (f"{A},)", "expected option = 'value'", (1, 34)),
    (f"{A}) foo", "expected AS, got 'foo'", (1, 35)),
    (f"{A}) AS SELECT 1", "stream 'a' is made by a query, so it has no format", (1, 23)),
    ("CREATE STREAM a AS", "expected SELECT, got the end of the statement", (1, 18)),
    ("CREATE STREAM a WITH (lateness='1 s') AS SELECT 1", "no time column; add time=", (1, 1)),
    (f"{A});\nCREATE STREAM A AS SELECT 1", "stream 'A' is created twice", (2, 15)),
    (f"{T});\nCREATE STREAM A AS SELECT 1", "a stream and a table are called 'A'", (2, 15)),
    ("CREATE STREAM 'a' WITH (format='x')", "expected a name, got 'a'", (1, 15)),
    (f"{A});\n{A.replace(' a ', ' A ')})", "stream 'A' is created twice", (2, 15)),
    ("CREATE TABLE a", "form is: CREATE TABLE name WITH (format='parquet', path='…')", (1, 14)),
    ("CREATE TABLE a WITH (path='x')", "table 'a' has no format; add format='parquet'", (1, 1)),
    (f"{T}, time='ts')", "table 'a' does not change, so it has no time", (1, 34)),
    (f"{T},\n  lateness = '1 minute')", "so it has no lateness; rows that arrive", (2, 3)),
    (f"{T}, a.time='time', time='ts')", "so it has no time", (1, 49)),
    (f"{T}) foo", "expected the end of the statement, got 'foo'", (1, 34)),
    (f"{T});\n{T.replace(' a ', ' A ')})", "table 'A' is created twice", (2, 14)),
    (f"{A});\n{T})", "a stream and a table are called 'a'; choose another name", (2, 14)),
    (f"{T}); {A})", "a stream and a table are called 'a'; choose another name", (1, 49)),
    ("CREATE FUNCTION f USING 'x'", "'x' is not of the form 'module:attribute'", (1, 25)),
    ("CREATE FUNCTION f USING m:f", "expected 'module:attribute', got 'm'", (1, 25)),
    ("CREATE FUNCTION f", "the form is: CREATE FUNCTION name USING", (1, 17)),
    ("CREATE AGGREGATE a USING 'x'", "aggregate 'a': 'x' is not of the form 'module:C", (1, 26)),
    ("CREATE AGGREGATE a USING m:f", "expected 'module:Class', got 'm'; the form is: CR", (1, 26)),
    (f"{G};\nCREATE FUNCTION A USING 'm:f'", "a function and an aggregate are called 'A'", (2, 17)),
    (f"{G};\n{G}", "aggregate 'a' is created twice; choose another name", (2, 18)),
    ("CREATE QUERY q AS INSERT", "expected SELECT, got 'INSERT'", (1, 19)),
    ("CREATE QUERY q AS", "expected SELECT, got the end of the statement", (1, 17)),
    ("CREATE QUERY q WITH (snk='x') AS SELECT 1", "did you mean 'sink'?", (1, 22)),
    ("CREATE QUERY AS SELECT 1", "expected WITH or AS, got 'SELECT'", (1, 17)),
    ("CREATE QUERY q AS SELECT 'x", "a quote or a comment that is left open", (1, 26)),
    ("CREATE RULES r", "expected ON, got the end of the statement", (1, 14)),
    ("CREATE RULES r ON", "the form is: CREATE RULES name ON stream [FROM 'rules/']", (1, 17)),
    (";\n CREATE RULES r ON s", "rules 'r' are empty: name a file or folder (FROM", (2, 2)),
    ("CREATE RULES r ON s AS", "expected FROM or WITH, got 'AS'", (1, 21)),
    ("CREATE RULES r ON s WITH (as_struct=3)", "as_struct is true or false, got '3'", (1, 27)),
    (
        "CREATE RULE a IN r AS n > 1",
        "unknown set of rules 'r'; there is none yet; a set is created",
        (1, 18),
    ),
    (f"{R};\nCREATE RULE a IN q AS n > 1", "unknown set of rules 'q'; known: r", (2, 18)),
    (f"{R};\nCREATE RULE a AS n > 1", "expected IN, got 'AS'; the form is: CREATE RULE", (2, 15)),
    (f"{R};\nCREATE RULE a IN r n > 1", "expected WITH or AS, got 'n'", (2, 20)),
    (f"{R};\nCREATE RULE a IN r AS", "expected a condition, got the end of", (2, 21)),
    (f"{R};\nCREATE RULE a IN r WITH (lvel='low') AS n", "did you mean 'level'?", (2, 26)),
    (f"{R};\nCREATE RULE a IN r WITH (option.x='y') AS n", "unknown option of rule 'a'", (2, 26)),
    (f"{R};\nCREATE RULE a IN r WITH (level='lo') AS n", "rule 'a': unknown level 'lo'", (2, 26)),
    (f"{R};\nCREATE RULE a IN r WITH (tags='x,,y') AS n", "the tag of a rule is a text", (2, 26)),
    (f"{R};\nCREATE RULE a IN r WITH (title='') AS n", "the title of a rule is a text", (2, 26)),
    (f"{R};\nCREATE RULE a IN r AS n;\nCREATE RULE a IN r AS m", "'a' is created twice", (3, 13)),
    ("CREATE RULES r ON s FROM rules", "expected the path of the rules in quotes", (1, 26)),
    (f"{R} WITH (colum='m')", "unknown option of rules 'r' 'colum'", (1, 37)),
    (f"{R} WITH (keep_unmatched='maybe')", "is true or false, got 'maybe'", (1, 37)),
    (f"{R} foo", "expected WITH, got 'foo'", (1, 31)),
    (f"{R};\nCREATE QUERY r AS SELECT 1", "a query and a set of rules are called", (2, 14)),
    (f"{R};\n{R}", "set of rules 'r' is created twice", (2, 14)),
]


@pytest.mark.parametrize(("text", "says", "place"), MISTAKES, ids=[text for text, *_ in MISTAKES])
def test_a_mistake_is_shown_at_its_place(text, says, place):
    with pytest.raises(QueryError) as caught:
        read_script(text)
    error = caught.value
    assert says in error.message
    assert (error.facts["line"], error.facts["column"]) == place
    assert error.message.splitlines()[-1].index("^") == 1 + place[1]
