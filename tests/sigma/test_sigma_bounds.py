"""Rules are data: a document that would explode is refused, and the others load."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from eddyline.errors import SourceError
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sigma import read
from eddyline.sigma.loading import load_rules

GOOD = "11111111-2222-3333-4444-555555555555"
SOURCE = "logsource: {product: windows}\n"
DETECTION = "detection: {selection: {F: x}, condition: selection}\n"
RULE = f"title: bad\n{SOURCE}{DETECTION}"
LAST = f"\n---\ntitle: good\nid: {GOOD}\n{SOURCE}{DETECTION}"
CORRELATION = (
    "title: bad\ncorrelation: {type: event_count, rules: [good], group-by: [F], timespan: 5m, "
    "condition: {gte: 2}}\n"
)


def bomb(levels: int = 30, width: int = 10) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def merged(levels: int = 60) -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def refused(text: str) -> str:
    """Return why the only bad document of a text does not run."""
    started = time.process_time()
    found = read(text + LAST, cache=False)
    assert time.process_time() - started < 20
    assert [each.name for each in found.sources] == [GOOD]
    assert found.correlations == ()
    (skipped,) = found.skipped
    return skipped.reason


FIELDS = [
    "id",
    "title",
    "name",
    "author",
    "description",
    "date",
    "modified",
    "status",
    "level",
    "references",
    "tags",
    "fields",
    "falsepositives",
    "related",
    "license",
    "taxonomy",
    "scope",
    "anything",
]


@pytest.mark.parametrize("field", FIELDS)
def test_aliases_that_explode_in_a_field_are_refused(field):
    text = f"{bomb()}{field}: *a29\n" + "".join(
        line for line in RULE.splitlines(keepends=True) if not line.startswith(f"{field}:")
    )
    assert "aliases expand its file to more than" in refused(text)


@pytest.mark.parametrize("part", ["event_count", "[good]", "[F]", "5m", "{gte: 2}", "2"])
def test_aliases_that_explode_in_a_correlation_are_refused(part):
    assert "aliases expand its file to more than" in refused(
        bomb() + CORRELATION.replace(part, "*a29 ", 1)
    )


@pytest.mark.parametrize(
    "text",
    [
        f"title: bad\nlogsource: {{product: *a29}}\n{DETECTION}",
        f"title: bad\n{SOURCE}detection: *a29\n",
        f"title: bad\n{SOURCE}detection: {{selection: *a29, condition: selection}}\n",
        f"title: bad\n{SOURCE}detection: {{selection: {{F: *a29}}, condition: selection}}\n",
        f"title: bad\n{SOURCE}detection: {{selection: {{F: x}}, condition: *a29}}\n",
        f"? *a29\n: key\n{RULE}",
        f"title: bad\n{SOURCE}filter: {{rules: *a29, s: {{F: x}}, condition: s}}\n",
        f"title: bad\n{SOURCE}filter: {{rules: any, s: {{F: *a29}}, condition: s}}\n",
    ],
)
def test_aliases_that_explode_anywhere_are_refused(text):
    assert "aliases expand its file to more than" in refused(bomb() + text)


def test_long_texts_named_by_many_aliases_are_refused():
    text = f"d: &d '{'x' * 50_000}'\nauthor: [{', '.join(['*d'] * 10_000)}]\n{RULE}"
    assert refused(text).startswith("line 2: its aliases expand its file to more than")


@pytest.mark.parametrize(
    "text",
    [
        f"title: &t [*t]\n{SOURCE}{DETECTION}",
        f"title: bad\n{SOURCE}detection: &d {{selection: {{F: x}}, condition: x, more: *d}}\n",
        f"{merged()}<<: *a59\n{RULE}",
        f"{bomb(2000, 1)}author: *a1999\n{RULE}",
    ],
)
def test_aliases_that_contain_themselves_or_nest_without_end_are_refused(text):
    reason = refused(text)
    assert "contains itself" in reason or "aliases expand its file to more than" in reason


def test_merge_keys_that_explode_are_refused():
    assert "aliases expand its file to more than" in refused(f"{merged(25)}<<: *a24\n{RULE}")


@pytest.mark.parametrize(
    "text",
    [
        f"author: {'[' * 3000}{']' * 3000}\n{RULE}",
        f"author: {'[' * 50_000}\n{RULE}",
        f"{RULE}z:\n  {'- ' * 100_000}x\n",
        f"{RULE}z:\n  {'? ' * 100_000}x\n",
        RULE + "\n".join(" " * n + "a:" for n in range(2000)),
    ],
)
def test_deep_nesting_is_refused_before_it_is_composed(text):
    assert "nested more than 64 levels deep" in refused(text)


@pytest.mark.parametrize(
    ("condition", "levels", "most"),
    [
        ("not " * 1_001 + "a", 1_001, 1_000),
        ("(" * 600 + "not " * 500 + "a", 1_100, 1_000),
        ("(a or b and " * 300 + "a", 601, 100),
        ("not (b and " * 60 + "a", 121, 100),
    ],
)
def test_a_condition_that_is_nested_too_deeply_names_depth_and_limit(condition, levels, most):
    condition += ")" * condition.count("(")
    text = f"title: bad\n{SOURCE}detection:\n  a: {{F: x}}\n  b: {{G: 1}}\n"
    assert refused(f"{text}  condition: {condition}\n") == (
        f"line 6: the condition is nested {levels} levels deep, and at most {most} can be read; "
        f"write it flatter, or split it"
    )


@pytest.mark.parametrize(
    ("condition", "fires"),
    [
        ("not " * 999 + "a", [False, True, False]),
        ("(" * 300 + "a" + ")" * 300, [True, False, False]),
        ("(a or b and " * 49 + "a" + ")" * 49, [True, False, False]),
        ("not (b and " * 49 + "not a" + ")" * 49, [True, False, False]),
    ],
)
def test_deep_conditions_are_read_and_matched(condition, fires, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = f"title: deep\n{SOURCE}detection:\n  a: {{F: x}}\n  b: {{G: 1}}\n"
    for _ in range(2):  # once read, once from the cache
        found = read(f"{text}  condition: {condition}\n", restrict=False)
        assert found.skipped == ()
        rule = found.sources[0].bind({"F": "string", "G": "int"}, ansi=True)
        program = compile_rules([rule])
        values = {"F": ["x", "y", None], "G": [1, 1, 1]}
        columns = [pa.array(values[name.strip("`")]) for name in program.columns]
        matched = Matcher(program, plan_of(program)).match(columns, n_rows=3)[0].rows.tolist()
        assert [row in matched for row in range(3)] == fires


def test_rules_in_json_that_are_nested_too_deeply_are_refused(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text('{"r": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(SourceError, match=r"cannot read rules from .*: it is nested too deeply"):
        load_rules(path, name="rules")


def test_what_people_write_is_read():
    names = [f"host{n:05}.example" for n in range(5_000)]
    text = (
        f"title: bad\n{SOURCE}detection:\n  a: {{F: &names [{', '.join(names)}]}}\n"
        "  b: {G: *names}\n  c: {H: *names}\n  condition: a or b or c\n"
    )
    found = read(text, cache=False)
    assert found.skipped == ()
    assert len(found.sources[0].condition.parts) == 3
    nested = f"title: bad\nauthor: {'[' * 40}x{']' * 40}\n{SOURCE}{DETECTION}"
    assert read(nested, cache=False).skipped == ()


@pytest.mark.parametrize("field", ["id", "title", "name", "level", "author"])
def test_numbers_too_large_for_a_text_spoil_no_other_rule(field):
    lines = [line for line in RULE.splitlines(keepends=True) if not line.startswith(f"{field}:")]
    for number in ("0x" + "f" * 900, "0x" + "f" * 9_000, ":".join(["59"] * 50_000), "9" * 5_000):
        found = read(f"{field}: {number}\n{''.join(lines)}{LAST}", cache=False)
        assert GOOD in [each.name for each in found.sources]


def test_documents_that_build_on_each_other_cannot_explode():
    shared = f"action: global\ndescription: {'x' * 100_000}\n{SOURCE}{DETECTION}"
    text = shared + "".join(f"---\naction: repeat\ntitle: t{n}\n" for n in range(500))
    found = read(text, cache=False)
    assert 0 < len(found.sources) < 100
    assert "shares with others expands the file to more than" in found.skipped[0].reason


def test_a_part_in_common_that_does_not_fit_is_one_rule_skipped():
    text = f"action: global\ndetection: {{a: {{F: 1}}}}\n---\ntitle: bad\n{SOURCE}detection: 5\n"
    found = read(f"{text}---\naction: reset\n{LAST}", cache=False)
    assert [each.name for each in found.sources] == [GOOD]
    assert len(found.skipped) == 1


DASHES = " ".join(f"-a{n}" for n in range(12))


@pytest.mark.parametrize(
    "key", ["F|windash", "F|windash|contains|all", "F|base64offset" + "|base64offset" * 20]
)
def test_modifiers_that_explode_are_refused(key):
    text = f"title: bad\n{SOURCE}detection: {{s: [[{{'{key}': ['{DASHES}']}}]], condition: s}}\n"
    assert "make" in refused(text)
    # What is said of another fault of the document asks pySigma for each test again.
    assert refused(text.replace("title: bad", "correlation: {type: nonsense}"))


def test_conditions_that_explode_are_refused():
    parts = ", ".join(f"s{n}: {{F: [a, b]}}" for n in range(500))
    often = " or ".join(["1 of s*"] * 500)
    text = f"title: bad\n{SOURCE}detection: {{{parts}, condition: {often}}}\n"
    assert "500,000 tests" in refused(text)


def test_a_pipeline_that_explodes_is_refused(tmp_path):
    path = tmp_path / "pipeline.yml"
    path.write_text(f"{bomb()}name: *a29\ntransformations: []\n")
    with pytest.raises(SourceError, match="aliases expand its file to more than"):
        read(RULE, path, cache=False)
