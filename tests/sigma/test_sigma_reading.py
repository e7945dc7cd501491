"""Reading folders, files and texts: names, what is skipped and why, pipelines, filters."""

from __future__ import annotations

import copy
import pickle

import pytest
from sigma.processing.pipeline import ProcessingPipeline

from eddyline.errors import OptionError, PluginError, QueryError, SourceError
from eddyline.sigma import SigmaRule, load, read

A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"


def rule(name=A, title="A rule", detection="{s: {F: x}, condition: s}", more=""):
    return (
        f"title: {title}\nid: {name}\n{more}"
        f"logsource: {{product: windows, category: process_creation}}\ndetection: {detection}\n"
    )


def names(found):
    return [each.name for each in found.sources]


def reasons(found):
    return [each.reason for each in found.skipped]


def test_a_folder_is_read_with_what_is_below_it(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b.yaml").write_text(rule(B))
    (tmp_path / "a.yml").write_text(rule(A))
    (tmp_path / "readme.md").write_text("no rule")
    for source in (tmp_path, str(tmp_path), [tmp_path / "a.yml", tmp_path / "deep"]):
        assert names(read(source)) == [A, B]
    assert names(read([tmp_path, tmp_path / "a.yml"])) == [A, B]  # each file once
    assert names(read(tmp_path / "a.yml")) == [A]
    assert names(read([rule(A), rule(B)])) == [A, B]


def test_what_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"no file or folder .*nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="no rules in folder"):
        read(tmp_path)


@pytest.mark.parametrize("source", ["", "  ", [], (), [""], [rule(), ""]])
def test_what_names_nothing_is_an_error_and_not_the_current_folder(tmp_path, monkeypatch, source):
    (tmp_path / "a.yml").write_text(rule())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"no rules: .*rules are a folder, a file"):
        read(source)
    assert names(read(".")) == [A]


def test_everything_that_is_known_of_a_rule_is_kept():
    more = (
        "level: high\nstatus: test\nauthor: Eve\ndescription: d\ntags: [attack.t1059]\n"
        "falsepositives: [none]\nreferences: [r]\ndate: 2024-01-02\n"
    )
    info = dict(read(rule(more=more)).sources[0].info)
    assert info == {
        "title": "A rule",
        "level": "high",
        "status": "test",
        "tags": ("attack.t1059",),
        "author": "Eve",
        "description": "d",
        "falsepositives": ("none",),
        "references": ("r",),
        "date": "2024-01-02",
        "logsource": "category: process_creation, product: windows",
        "events": "Microsoft-Windows-Sysmon/Operational 1, Security 4688",
        "path": "",
        "problems": (),
        "fields": ("F",),
    }


def test_odd_metadata_keeps_no_rule_from_running():
    more = "level: huge\ntags: [nonsense]\ndate: someday\n"
    found = read(rule(name="not-a-uuid", more=more))
    assert names(found) == ["not-a-uuid"]
    info = found.sources[0].info
    assert (info["level"], info["date"], len(info["problems"])) == ("huge", None, 4)


@pytest.mark.parametrize(
    ("written", "name"),
    [("5", "5"), ("1.5", "1.5"), ("2024-01-01", "2024-01-01"), ("[a]", "['a']")],
)
def test_an_id_that_is_no_text_does_not_keep_a_rule_from_running(written, name):
    found = read(rule(name=written))
    assert (names(found), reasons(found)) == ([name], [])
    assert found.sources[0].info["problems"] == ("Sigma rule identifier must be an UUID",)


def test_a_rule_is_small_and_picklable():
    source = read(rule()).sources[0]
    assert isinstance(source, SigmaRule)
    kept = pickle.dumps(source)
    assert pickle.loads(kept) == source
    assert b"sigma.rule" not in kept.replace(b"eddyline.sigma.rule", b"")
    assert b"sigma.types" not in kept


def test_names_are_ids_titles_or_files_and_never_twice(tmp_path):
    without = rule().replace(f"id: {A}\n", "")
    (tmp_path / "first.yml").write_text(rule(A))
    (tmp_path / "second.yml").write_text(rule(A.upper(), detection="{s: {F: y}, condition: s}"))
    (tmp_path / "third.yml").write_text(rule(A))
    (tmp_path / "titled.yml").write_text(without.replace("A rule", "'Über: a Rule!'"))
    (tmp_path / "unnamed.yml").write_text(without.replace("title: A rule\n", ""))
    found = read(tmp_path)
    assert names(found) == [A, f"{A}#2", "über_a_rule", "unnamed"]
    (same,) = found.skipped
    assert (same.name, "third.yml" in same.reason, "first.yml" in same.reason) == (A, True, True)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (rule(detection="{s: {F: x}}"), "at least one condition", 4),
        (rule(detection="{condition: s}"), "No detections", 4),
        (rule(detection="{s: {}, condition: s}"), "Detection is empty", 4),
        (rule(detection="[a]"), "'detection' is a mapping", 4),
        (rule(detection="\n s: {F: x}\n condition: s and"), "condition 's and': Expected", 6),
        (rule(detection="\n s: {F: x}\n condition: t"), "'t' not defined", 6),
        (
            rule(detection="\n condition: 1 of t*\n s: {F: x}"),
            "no detection is called 't*'",
            5,
        ),
        (rule(detection="{s: {F: x}, condition: 's | count() > 5'}"), "pipe syntax", 4),
        (rule(detection="{s: {F: x}, condition: 7}"), "a condition is a text, not 7", 4),
        (rule(detection="\n s:\n  E: y\n  F|re: '('\n condition: s"), "egular expression", 7),
        (rule(detection="\n s:\n  - F|cidr: 1.2.3.4/40\n condition: s"), "CIDR", 6),
        (
            rule(detection="\n s:\n  F: x\n  F|nonsense: x\n condition: s"),
            "field 'F': Unknown modifier 'nonsense'",
            7,
        ),
        (
            rule(detection="\n s: {F: x}\n t:\n  G|gt: x\n condition: s"),
            "field 'G': Modifier 'gt' does not fit the value 'x'",
            7,
        ),
        (
            rule(detection="\n s:\n  F|endswith: null\n condition: s"),
            "field 'F': Modifier 'endswith' does not fit the value 'null'",
            6,
        ),
        (
            rule(detection="\n s:\n  F|re: [a, 5]\n condition: s"),
            "field 'F': YAML reads the pattern of 're' as 5; write it in quotes",
            6,
        ),
        (
            rule(detection="\n s:\n  F: x\n  on: x\n condition: s"),
            "YAML reads the name of a field as True; write it in quotes",
            5,
        ),
        (
            rule(detection="\n s:\n  G|i: x\n condition: s"),
            "field 'G': Modifier 'i' does not fit",
            6,
        ),
        (
            rule(detection="\n s:\n  E: 1\n  F|expand: '%users%'\n condition: s"),
            "placeholder %users%",
            7,
        ),
        (
            rule(detection="\n s: {F: 1}\n t:\n  F: 9007199254740993\n condition: s or t"),
            "in quotes",
            None,  # one of the two tests of F
        ),
        (rule(detection="{s: {'|gt': 5}, condition: s}"), "a comparison needs a field", 4),
        (rule().replace("logsource", "source"), "log source", None),
        (rule().replace("logsource: {", "logsource: {}\n#"), "og source", 3),
        (rule().replace("detection", "dejection"), "detection", None),
        ("- a\n- b\n", "not a rule", None),
        ("a: 1\nb: [\n", "not YAML", 2),
        ("a: 1\nb: {c: 3,\n  d: 4, c: 5}\n", "Duplicate key 'c'", 3),
        ("a: 1\nb: &b [{c: *b}]\na: 2\n", "an alias contains itself", 2),
        ("a: \x07\n", "not YAML", None),
        (f"title: c\nid: {A}\ncorrelation: {{type: event_count}}\n", "correlation", 3),
    ],
)
def test_a_rule_that_does_not_run_is_listed_with_line_and_reason(tmp_path, text, reason, line):
    (tmp_path / "bad.yml").write_text(text)
    (tmp_path / "good.yml").write_text(rule(B))
    found = read(tmp_path)
    assert names(found) == [B]
    (skipped,) = found.skipped
    assert reason in skipped.reason
    place = f"{tmp_path / 'bad.yml'}" + ("" if line is None else f":{line}")
    assert skipped.reason.startswith(f"{place}: ")
    assert skipped.name == (A if A in text else "bad")
    assert skipped.title == ("A rule" if "A rule" in text else "c" if A in text else "")
    assert skipped.text == text
    with pytest.raises(QueryError, match="1 Sigma rules do not run"):
        read(tmp_path, on_error="raise")


def test_operators_in_capitals_are_told_to_be_written_in_lower_case():
    text = rule(detection="{a: {F: x}, OR: {F: y}, condition: NOT (a OR OR) AND a}")
    (reason,) = reasons(read(text))
    assert reason.endswith("operators are written in lower case: 'and', 'not'")
    assert "line:1" not in reason
    (reason,) = reasons(read(rule(detection="{a: {F: x}, condition: a and b}")))
    assert "lower case" not in reason


def test_skipped_rules_are_listed_by_file_and_line(tmp_path):
    repeated = rule(A)
    bad = rule(B, detection="{s: {F|no: x}, condition: s}")
    (tmp_path / "a.yml").write_text(f"{repeated}---\n{repeated}---\na: [\n---\n{bad}")
    (tmp_path / "b.yml").write_text(repeated + "\n")
    (tmp_path / "c.yml").write_text("- no rule\n")
    at = {name: tmp_path / name for name in ("a.yml", "b.yml", "c.yml")}
    first = f"the same rule as in {at['a.yml']}, document 1 (from line 1)"
    assert reasons(read(tmp_path)) == [
        f"{at['a.yml']}, document 2 (from line 6): {first}",
        f"{at['a.yml']}:11: not YAML: while parsing a flow node did not find expected node content",
        f"{at['a.yml']}:16: field 'F': Unknown modifier 'no'",
        f"{at['b.yml']}: {first}",
        f"{at['c.yml']}: not a rule, which is a mapping",
    ]


def test_bytes_that_are_no_text_are_listed(tmp_path):
    (tmp_path / "bad.yml").write_bytes(b"title: \xff\xfe\xfa\n")
    assert "not UTF-8" in reasons(read(tmp_path))[0]
    (tmp_path / "bad.yml").write_bytes(b"\xef\xbb\xbf" + rule().encode())
    assert names(read(tmp_path)) == [A]


def test_one_bad_document_of_a_file_spoils_no_other(tmp_path):
    path = tmp_path / "several.yml"
    path.write_text(f"---\n{rule(A)}---\na: {{\n--- # two\n{rule(B)}...\n")
    found = read(path)
    assert names(found) == [A, B]
    assert reasons(found)[0].startswith(f"{path}:{rule(A).count(chr(10)) + 3}: not YAML")


def test_documents_can_build_on_each_other():
    text = (
        "action: global\nlogsource: {product: windows}\nlevel: low\n"
        f"---\ntitle: one\nid: {A}\ndetection: {{s: {{F: x}}, condition: s}}\n"
        f"---\naction: repeat\ntitle: two\nid: {B}\ndetection: {{s: {{F: y}}}}\n"
        "---\naction: nonsense\ntitle: three\n"
    )
    found = read(text)
    assert names(found) == [A, B]
    assert [each.info["level"] for each in found.sources] == ["low", "low"]
    assert [each.condition.parts for each in found.sources] == [("x",), ("y",)]
    assert "unknown action 'nonsense'" in reasons(found)[0]


def test_a_name_that_starts_with_not_is_never_read_as_not(ask):
    text = rule(detection="{notx: {F: a}, x: {F: b}, condition: notx}")
    found = read(text)
    # pySigma 2 reads it; 1 would take it for 'not x', so the rule does not run.
    assert names(found) == [A] or "'not x'" in reasons(found)[0]


PIPELINE = """\
name: test
transformations:
  - {type: field_name_mapping, mapping: {F: G}}
  - {type: value_placeholders, include: [users]}
vars: {users: [eve, adam]}
"""


def test_a_pipeline_is_applied_before(tmp_path):
    path = tmp_path / "pipeline.yml"
    path.write_text(PIPELINE)
    text = rule(detection="{s: {F|expand: '%users%'}, condition: s}")
    whole = ProcessingPipeline.from_yaml(PIPELINE)
    first = ProcessingPipeline.from_yaml(PIPELINE.replace("G}", "H}"))
    for pipeline in (path, str(path), whole, [whole]):
        (source,) = read(text, pipeline).sources
        assert source.info["fields"] == ("G",)
        assert [part.parts for part in source.condition.parts] == [("eve",), ("adam",)]
    assert read(text, [first, path]).sources[0].info["fields"] == ("H",)


def test_what_a_pipeline_refuses_is_skipped():
    refusing = ProcessingPipeline.from_yaml(
        "name: no\ntransformations:\n  - {type: rule_failure, message: not here}\n"
    )
    assert "not here" in reasons(read(rule(), refusing))[0]
    emptying = ProcessingPipeline.from_yaml(
        "name: no\ntransformations:\n  - {type: drop_detection_item}\n"
    )
    assert "nothing is left" in reasons(read(rule(), emptying))[0]


def test_a_pipeline_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"pipeline .*nowhere.yml cannot be read"):
        read(rule(), tmp_path / "nowhere.yml")
    (tmp_path / "bad.yml").write_text("transformations:\n  - {type: nonsense}\n")
    with pytest.raises(SourceError, match=r"pipeline .*bad.yml cannot be read"):
        read(rule(), tmp_path / "bad.yml")
    with pytest.raises(OptionError, match="a pipeline is"):
        read(rule(), 7)


FILTER = f"""\
title: Not ours
logsource: {{product: windows, category: process_creation}}
filter:
  rules: [{A}]
  ours: {{User: admin}}
  condition: not ours
"""


def test_filters_of_any_file_narrow_the_rules_they_name(tmp_path):
    (tmp_path / "a.yml").write_text(rule(A))
    (tmp_path / "b.yml").write_text(rule(B))
    (tmp_path / "z.yml").write_text(FILTER)
    found = read(tmp_path)
    assert [each.info["fields"] for each in found.sources] == [("F", "User"), ("F",)]
    assert found.skipped == ()
    (tmp_path / "z.yml").write_text(FILTER.replace("condition: not ours", ""))
    assert "condition" in reasons(read(tmp_path))[0]


def fields_by_name(found):
    return {each.name: each.info["fields"] for each in found.sources}


def test_a_filter_of_several_rules_meets_a_pipeline_once_in_each():
    both = FILTER.replace(f"[{A}]", f"[{A}, {B}]")
    text = f"{rule(A)}---\n{rule(B)}---\n{both}---\n{FILTER.replace(f'[{A}]', 'any')}"
    prefix = {"transformations": [{"type": "field_name_prefix", "prefix": "e."}]}
    found = read(text, prefix)
    assert fields_by_name(found) == {A: ("e.F", "e.User"), B: ("e.F", "e.User")}
    swap = {"transformations": [{"type": "field_name_mapping", "mapping": {"User": "F", "F": "G"}}]}
    assert fields_by_name(read(text, swap)) == {A: ("G", "F"), B: ("G", "F")}
    longer = {"transformations": [{"type": "replace_string", "regex": "ad", "replacement": "adad"}]}
    first, second = read(text, longer).sources
    assert first.condition == second.condition
    assert "('adadmin',)" in repr(first.condition)
    assert "adadad" not in repr(first.condition)


def test_pipelines_that_are_given_are_not_changed():
    body = {
        "name": "given",
        "transformations": [{"type": "field_name_mapping", "mapping": {"F": "G"}}],
        "finalizers": [{"type": "concat", "separator": ";"}],
    }
    same = copy.deepcopy(body)
    pipeline = ProcessingPipeline.from_yaml(PIPELINE)
    for _ in range(2):
        assert read(rule(), body).sources[0].info["fields"] == ("G",)
        assert read(rule(), [body, pipeline]).sources[0].info["fields"] == ("G",)
        assert read(rule(), [pipeline, pipeline]).sources[0].info["fields"] == ("G",)
    assert body == same
    assert all(each._pipeline is pipeline for each in pipeline.items)
    assert pipeline.vars == {"users": ["eve", "adam"]}
    with pytest.raises(SourceError, match="pipeline number 2 cannot be read"):
        read(rule(), [body, {"transformations": [{"type": "nonsense"}]}])


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("[r9]", "it names a rule that is not there: unknown rule 'r9'"),
        (f"[{A}, r9]", "unknown rule 'r9'"),
        (
            f"[{B}]",
            f"its log source (category process_creation, product windows) is not that of"
            f" rule '{B}'",
        ),
        ("[broken]", "it names 'broken', which does not run"),
        ("[chain]", "it names the correlation 'chain'; filters are for rules"),
        ("[0]", "'rules' of a filter are ids or names of rules; got 0"),
    ],
)
def test_a_filter_that_meets_no_rule_that_it_names_says_so(named, reason):
    other = rule(B).replace("windows", "linux")
    broken = "title: broken\nname: broken\n"
    chain = (
        "title: chain\nname: chain\ncorrelation: {type: event_count, rules: "
        f"[{A}], timespan: 1m, condition: {{gte: 2}}}}\n"
    )
    text = f"{rule(A)}---\n{other}---\n{broken}---\n{chain}---\n"
    found = read(text + FILTER.replace(f"[{A}]", named))
    (skipped,) = [each for each in found.skipped if each.title == "Not ours"]
    assert reason in skipped.reason
    is_filtered = A in named
    assert fields_by_name(found) == {A: ("F", "User") if is_filtered else ("F",), B: ("F",)}
    assert ("is in force for its other rules" in skipped.reason) is is_filtered


def test_filters_of_all_rules_and_of_ids_in_capitals_are_not_told():
    for named in ("any", "[]", f"[{A.upper()}]", A):
        assert read(f"{rule(A)}---\n{FILTER.replace(f'[{A}]', named)}").skipped == ()


def test_an_unknown_option_of_a_set_says_all_that_there_are():
    with pytest.raises(
        OptionError, match=r"unknown option 'nam'.*on_error, name, functions, watch, method.*'name'"
    ):
        load(rule(), nam="x")
    with pytest.raises(OptionError, match="sample_prob"):
        load("nowhere", sample_prob=7.0)
    made = load(rule(), name="of mine", adaptive=False, cache=False)
    assert (made.name, made.options.adaptive, made.names) == ("of mine", False, (A,))


def test_options_are_checked():
    for options in ({"restrict": "yes"}, {"missing": None}, {"on_error": "ignore"}):
        with pytest.raises(OptionError):
            read(rule(), **options)


def test_progress_is_told(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.yml").write_text(rule(A.replace("a", name)))
    for _ in ("cold", "warm"):
        told = []
        read(tmp_path, progress=lambda *said, told=told: told.append(said))
        assert told[-1] == (3, 3)


@pytest.mark.parametrize("n_found", [0, 1])
def test_a_missing_extra_is_an_error_that_says_what_to_install(monkeypatch, n_found):
    known = {"sigma": object()} if n_found else {}
    monkeypatch.setattr("eddyline.sigma.loading.find_spec", known.get)
    with pytest.raises(PluginError, match=r"pip install 'eddyline\[sigma\]'"):
        read(rule())
