"""The command line, and the files of events that it reads."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.text import Text
from typer.testing import CliRunner

from eddyline.cli import app
from eddyline.errors import OptionError, SourceError
from eddyline.query.conditions import SkippedRule
from eddyline.query.rules.sources import SqlRule
from eddyline.sigma import load, read
from eddyline.sigma.command import _Completed, _print_counts, _print_skipped
from eddyline.spark.sources.event_files import Counts, check_format, count_matches, read_events

pytestmark = pytest.mark.spark

RULE = """\
title: {title}
id: {id}
level: {level}
logsource: {{product: windows, category: process_creation}}
detection: {{s: {{{test}}}, condition: s}}
"""
A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
EVENTS = [
    {"EventID": 1, "Image": "C:\\cmd.exe", "User": "eve"},
    {"EventID": 1, "Image": "C:\\CMD.EXE"},
    {"EventID": 11, "Image": "C:\\cmd.exe"},
    {"EventID": 1, "Image": "C:\\calc.exe", "User": "eve"},
    {"EventID": 1, "Image": None},
]


@pytest.fixture
def rules(tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    first = RULE.format(title="A [shell]", id=A, level="high", test="Image|endswith: '\\cmd.exe'")
    second = RULE.format(title="Eve", id=B, level="low", test="User: EVE, Gone: null")
    (folder / "a.yml").write_text(first)
    (folder / "b.yml").write_text(second)
    (folder / "bad.yml").write_text(RULE.format(title="Bad", id="c", level="low", test="F|no: x"))
    return folder


@pytest.fixture
def events(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    lines = [json.dumps(event) for event in EVENTS]
    (folder / "one.jsonl").write_text("\n".join(lines[:2]))
    with gzip.open(folder / "two.json.gz", "wt") as file:
        file.write("\n".join(lines[2:3]))
    (folder / "three.json").write_text(f"[{','.join(lines[3:])}]")
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("no events")
    return folder


def call(*arguments):
    done = CliRunner().invoke(app, ["sigma", *map(str, arguments)], env={"COLUMNS": "160"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def rows_of(said):
    """Return the cells of the lines that end in the id of a rule."""
    lines = [line.strip() for line in said.splitlines()]
    return [re.split(r"\s{2,}", line) for line in lines if line.endswith((A, B))]


def test_check_says_what_loads_and_why_the_rest_does_not(rules):
    code, said = call("check", rules)
    assert (code, said) == call("check", "--rules", rules)
    assert code == 1
    assert "2 rules load: 1 high, 1 low" in said
    assert "bad.yml:5: field 'F': Unknown modifier 'no'" in said
    assert "  Bad (c): " in said
    (rules / "bad.yml").unlink()
    assert call("check", "--rules", rules)[0] == 0


@pytest.mark.large
def test_events_of_several_kinds_are_read_together(spark, events):
    (events / "day.csv").write_text("EventID,User\n1,adam\n")
    frame = read_events(spark, events)
    assert sorted(frame.columns) == ["EventID", "Image", "User"]
    assert frame.count() == len(EVENTS) + 1
    spark.sql("SELECT 7 AS EventID").write.parquet(str(events / "more.parquet"))
    assert read_events(spark, events).where("EventID = 7").count() == 1


def test_events_that_cannot_be_read_are_an_error(spark, tmp_path):
    with pytest.raises(SourceError, match="no such file"):
        read_events(spark, tmp_path / "nowhere")
    with pytest.raises(SourceError, match="files end in one of"):
        read_events(spark, tmp_path)
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(SourceError, match=r"events at .*bad.parquet cannot be read"):
        read_events(spark, tmp_path / "bad.parquet")


def test_matches_are_written_where_nothing_is(tmp_path):
    for name, said in (("x.csv", r"end in \.parquet"), ("x.parquet", "exists")):
        (tmp_path / "x.parquet").touch()
        with pytest.raises(SourceError, match=said):
            check_format(tmp_path / name)


class Known:
    """Stands for a rule set: what is matched is in the events."""

    def __init__(self):
        self.info = {"a": {"title": "A", "level": "high"}, "b": {}}
        self.correlations = {}

    def matches(self, column, *, keep_unmatched):
        assert keep_unmatched
        return lambda frame: frame.selectExpr("*", f"split(m, ' ', -1) AS {column}").selectExpr(
            "m", f"filter({column}, each -> each <> '') AS {column}"
        )


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "keep_unmatched"), [(None, False), ("out.parquet", True), ("out.jsonl", False)]
)
def test_every_event_and_match_is_counted_once(spark, tmp_path, name, keep_unmatched):
    events = spark.createDataFrame([("a b",), ("b",), ("",), ("b c",)], "m string")
    out = None if name is None else tmp_path / name
    told = []
    counts = count_matches(
        Known(),
        events,
        out=out,
        keep_unmatched=keep_unmatched,
        progress=lambda *said: told.append(said),
    )
    assert counts.by_rule == {"a": 1, "b": 3, "c": 1}
    assert (counts.n_events, counts.n_matched) == (4, 3)
    assert counts.seconds > 0
    assert counts.prepare_s > 0
    if out is not None:
        kind = "json" if name.endswith("jsonl") else "parquet"
        rows = spark.read.format(kind).load(str(out)).collect()
        written = {tuple(row.matches) for row in rows}
        facts = {"a": ("a", "A", "high"), "b": ("b", None, None), "c": ("c", None, None)}
        for row in rows:
            assert [(each.id, each.title, each.level) for each in row.rules] == [
                facts[name] for name in row.matches
            ]
        expected = {("a", "b"), ("b",), ("b", "c")}
        assert written == (expected | {()} if keep_unmatched else expected)


@pytest.mark.large
def test_run_counts_matches_by_rule_and_lists_what_is_skipped(spark, rules, events, tmp_path):
    code, said = call("run", "--rules", rules, "--events", events)
    assert code == 0
    assert "2 of 2 rules fired" in said
    assert rows_of(said) == [["2", "high", "A [shell]", A], ["2", "low", "Eve", B]]
    assert "3 of 5 events matched, 4 matches" in said
    assert "Fields that the events lack: Gone (1 rule)" in said
    assert "1 rule does not run (2 rules run):\n  Bad (c): " in said
    assert "bad.yml:5" in said
    time, last = said.splitlines()[-2:]
    assert last == "3 of 5 events matched, 4 matches, 1 rule skipped"
    number = r"\d+\.\d s"
    assert re.fullmatch(
        rf"Time: reading rules {number}, waiting for Spark and its workers {number},"
        rf" opening events {number}, preparing rules {number},"
        rf" matching events {number} \([\d,]+ events/s\)",
        time,
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_rule_is_one_line_of_the_table_however_wide_it_is(is_terminal):
    title = "A title that is far longer than what is left of eighty columns " * 2
    info = {"level": "informational", "title": title}
    known = {name: SqlRule(name, "true", {}, info) for name in (A, B)}
    counts = Counts({A: 1_234_567, B: 1}, 1_300_000, 1_234_567, 1.0)
    said = StringIO()
    console = Console(file=said, force_terminal=is_terminal, no_color=True, width=80)
    _print_counts(counts, known, 20, console)
    rows = rows_of(said.getvalue())
    assert [row[3] for row in rows] == [A, B]
    assert [row[0] for row in rows] == ["1,234,567", "1"]
    if is_terminal:
        assert all(row[2].endswith("…") and title.startswith(row[2][:-1]) for row in rows)
        lines = Text.from_ansi(said.getvalue()).plain.splitlines()
        assert max(map(len, lines)) <= 80
    else:
        assert [row[2] for row in rows] == [title.strip()] * 2
    assert console.width == 80


@pytest.mark.large
def test_run_writes_what_matched_and_takes_pipelines_and_readings(spark, rules, events, tmp_path):
    pipeline = tmp_path / "pipeline.yml"
    pipeline.write_text(
        "name: p\ntransformations:\n  - {type: field_name_mapping, mapping: {User: Image}}\n"
    )
    out = tmp_path / "hits.jsonl"
    options = ("--pipeline", pipeline, "--out", out, "--restrict", "no", "--top", 1, "--verbose")
    code, said = call("run", "--rules", rules, "--events", events, *options)
    assert code == 0
    assert "1 of 2 rules fired" in said
    assert "3 of 5 events matched" in said
    assert said.splitlines()[-1] == f"Written to {out}: 3 events, those that matched"
    assert {tuple(row.matches) for row in spark.read.json(str(out)).collect()} == {(A,)}
    with pytest.raises(SourceError, match="exists"):
        call("run", "--rules", rules, "--events", events, *options)


def test_the_worst_level_comes_first():
    levels = {"a": "low", "b": "critical", "c": None, "d": "awful", "e": "low", "f": "medium"}
    known = {name: SqlRule(name, "true", {}, {"level": each}) for name, each in levels.items()}
    counts = Counts({"a": 1, "b": 1, "c": 90, "d": 99, "e": 5, "f": 2}, 100, 99, 1.0)
    said = StringIO()
    _print_counts(counts, known, 4, Console(file=said, no_color=True, width=80))
    rows = [line.split() for line in said.getvalue().splitlines()[3:-1]]
    assert rows == [
        ["1", "critical", "b", "b"],
        ["2", "medium", "f", "f"],
        ["5", "low", "e", "e"],
        ["1", "low", "a", "a"],
    ]
    assert said.getvalue().endswith("and 2 more (--top 0 shows all)\n")


@pytest.mark.large
def test_matches_of_rules_that_only_correlations_tell_of_are_counted(spark, tmp_path):
    text = (
        f"{RULE.format(title='Shell', id=A, level='high', test='Image: x')}---\n"
        f"title: Often\nid: {B}\nlevel: low\ncorrelation: {{type: event_count, rules: [{A}], "
        "timespan: 1h, condition: {gte: 2}}\n"
    )
    rules = load(text, cache=False)
    rows = [("x", "2026-01-01 00:00:00"), ("x", "2026-01-01 00:01:00"), ("y", None)]
    events = spark.createDataFrame(rows, "Image string, ts string").coalesce(1)
    out = tmp_path / "hits.parquet"
    counts = count_matches(rules, events, time_column="ts", out=out)
    assert counts.by_rule == {A: 2, B: 1}
    assert (counts.n_events, counts.n_matched, counts.n_told) == (3, 2, 0)
    (alert,) = spark.read.parquet(str(out)).collect()
    assert [(each.id, each.title, each.level) for each in alert.rules] == [(B, "Often", "low")]
    counted = events.transform(rules.count_by_rule(as_struct=True)).collect()
    assert [(*row.rule, row["count"]) for row in counted] == [(A, "Shell", "high", 2)]


def test_what_does_not_run_is_counted_by_its_kind(rules):
    correlation = (
        "title: Often\nid: often\ncorrelation: {type: event_count, rules: [%s], timespan: 5m, "
        "condition: {gte: 2}}\n"
    )
    (rules / "c.yml").write_text(correlation % A)
    (rules / "d.yml").write_text((correlation % "gone").replace("often", "other"))
    (rules / "f.yml").write_text(
        "title: F\nlogsource: {product: windows}\n"
        "filter: {rules: [gone], s: {User: adam}, condition: s}\n"
    )
    found = read(rules, cache=False)
    unfit = SkippedRule(A, "a column of a type without texts", "")
    untimed = SkippedRule("often", "name the time", found.correlations[0].text)
    for skipped, line in (
        (
            (*found.skipped, unfit),
            "2 rules, 1 correlation and 1 filter do not run (1 rule and 1 co",
        ),
        ((untimed,), "1 correlation does not run (2 rules run):"),
        ((unfit,), "1 rule does not run (1 rule and 1 correlation run):"),
    ):
        said = StringIO()
        _print_skipped(skipped, found, False, Console(file=said, width=80))
        assert said.getvalue().startswith(line)


def test_a_progress_without_a_total_shows_none():
    progress = Progress(_Completed())
    progress.add_task("Waiting for Spark", total=None)
    (task,) = progress.tasks
    assert _Completed().render(task).plain == ""
    progress.update(task.id, total=7, completed=3)
    assert _Completed().render(task).plain == "3/7"


def test_rules_are_named_once_and_formats_are_known(rules, events):
    for arguments in (["check"], ["check", rules, "--rules", rules], ["run", "--events", events]):
        code, said = call(*arguments)
        assert code == 2
        assert "name one folder or file of rules" in re.sub(r"[\s│]+", " ", said)
    with pytest.raises(OptionError, match="unknown format 'jsn'; known: table, json; did you"):
        call("run", rules, "--events", events, "--format", "jsn")


@pytest.mark.large("starts a JVM")
@pytest.mark.usefixtures("soon_started")
def test_json_is_all_of_the_output(rules, events, tmp_path):
    out = tmp_path / "hits.parquet"
    command = [
        sys.executable,
        "-m",
        "eddyline",
        "sigma",
        "run",
        str(rules),
        "--events",
        str(events),
    ]
    command += ["--format", "json", "--out", str(out), "--keep-unmatched", "--top", "1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    found = json.loads(ran.stdout)
    assert [each["reason"].rpartition("/")[2][:9] for each in found.pop("skipped")] == ["bad.yml:5"]
    assert found.pop("seconds")["matching events"] > 0
    assert found == {
        "events": 5,
        "matched_events": 3,
        "matches": 4,
        "rules": [
            {"id": A, "title": "A [shell]", "level": "high", "tags": [], "events": 2},
            {"id": B, "title": "Eve", "level": "low", "tags": [], "events": 2},
        ],
        "missing_fields": {"Gone": 1},
        "written": str(out),
    }
    assert f"Written to {out}: 5 events, whether they matched or not" in ran.stderr
