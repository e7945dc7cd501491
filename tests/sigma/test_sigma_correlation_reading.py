"""Reading correlations: what refers to what, conditions, and what does not run and why."""

from __future__ import annotations

import pytest

from eddyline.errors import QueryError
from eddyline.query.correlations import Reference
from eddyline.sigma import read

ID = "AAAAAAAA-0000-4000-8000-000000000000"
RULES = f"""\
title: Failed
id: {ID}
name: failed
logsource: {{product: any}}
detection: {{s: {{kind: f}}, condition: s}}
---
title: Succeeded
name: ok
logsource: {{product: any}}
detection: {{s: {{kind: o}}, condition: s}}
---
"""
HEAD = "title: Brute force\nname: brute\nlevel: high\n"


def section(**given):
    """Return a correlation with some of its parts given."""
    parts = {
        "type": "event_count",
        "rules": "[failed]",
        "timespan": "5m",
        "condition": "{gte: 10}",
        **given,
    }
    lines = "".join(
        f"  {key.replace('_', '-')}: {value}\n" for key, value in parts.items() if value
    )
    return f"correlation:\n{lines}"


def one(text=RULES, head=HEAD, **given):
    """Return the only correlation of the rules."""
    found = read(f"{text}{head}{section(**given)}", cache=False)
    assert not found.skipped, found.skipped
    (correlation,) = found.correlations
    return correlation


def reason(text=RULES, head=HEAD, **given):
    """Return why the correlation does not run; all rules do."""
    found = read(f"{text}{head}{section(**given)}", cache=False)
    assert (found.correlations, len(found.sources)) == ((), 2)
    (skipped,) = found.skipped
    assert (skipped.name, skipped.title) == ("brute_force", "Brute force")
    return skipped.reason


def test_rules_are_found_by_name_and_id_in_any_case():
    names = (ID.lower(), "succeeded")
    assert one(rules="[failed, ok]").refers_to == names
    assert one(rules=f"['{ID}', ok]").refers_to == names
    assert one(rules=f"['{ID.lower()}', ok]").refers_to == names
    assert one(rules="ok").refers_to == names[1:]


def test_everything_that_is_known_of_a_correlation_is_kept():
    head = HEAD + "id: my-id\nstatus: test\ntags: [attack.t1110]\nauthor: me\n"
    made = one(head=head, group_by="[User, Host, User]", condition="{gte: 10, lt: 20}")
    assert made.name == "my-id"
    assert {**made.info, "path": None, "problems": None} == {
        "title": "Brute force",
        "level": "high",
        "status": "test",
        "tags": ("attack.t1110",),
        "author": "me",
        "description": None,
        "falsepositives": (),
        "references": (),
        "date": None,
        "type": "event_count",
        "rules": (ID.lower(),),
        "group_by": ("User", "Host"),
        "timespan": "5m",
        "condition": ">= 10 and < 20",
        "path": None,
        "problems": None,
    }
    assert (made.length, made.tests) == (300_000_000, (("gte", 10), ("lt", 20)))
    assert made.generate is False
    assert one(generate="true").generate is True


@pytest.mark.parametrize(
    ("timespan", "seconds"),
    [
        ("1s", 1),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("10000y", 315_569_520_000),
    ],
)
def test_timespans(timespan, seconds):
    assert one(timespan=timespan).length == seconds * 1_000_000


@pytest.mark.parametrize(
    ("kind", "condition", "kept", "fields", "percentile"),
    [
        ("event_count", "{eq: 3}", "event_count", (), 0),
        ("value_count", "{field: User, gt: 3}", "value_count", ("User",), 0),
        ("value_count", "{field: [User, Host], gt: 3}", "value_count", ("User", "Host"), 0),
        ("value_sum", "{field: n, lte: 3}", "value_sum", ("n",), 0),
        ("value_avg", "{field: n, neq: 3}", "value_avg", ("n",), 0),
        ("value_median", "{field: n, gte: 3}", "value_percentile", ("n",), 50),
        (
            "value_percentile",
            "{field: n, gte: 3, percentile: 95}",
            "value_percentile",
            ("n",),
            95,
        ),
    ],
)
def test_kinds_and_their_values(kind, condition, kept, fields, percentile):
    made = one(type=kind, condition=condition)
    assert (made.kind, made.fields, made.percentile) == (kept, fields, percentile)
    assert made.info["type"] == kind


def test_temporal_ones_ask_for_all_their_rules():
    made = one(type="temporal", rules="[failed, ok]", condition="")
    assert (made.kind, made.tests) == ("temporal", (("gte", 2),))
    made = one(type="temporal", rules="[failed, ok]", condition="{gte: 1}")
    assert made.tests == (("gte", 1),)


def test_boolean_conditions_name_rules():
    made = one(type="temporal", rules="", condition="failed and not ok or ok")
    assert (made.refers_to, made.tests) == ((ID.lower(), "succeeded"), ())
    assert made.program == (0, 1, -3, -1, 1, -2)
    made = one(type="temporal_ordered", rules="", condition="ok and failed")
    assert (made.refers_to, made.tests) == (("succeeded", ID.lower()), (("gte", 2),))
    assert made.program == ()


def test_values_are_columns_or_those_of_the_correlation_below():
    above = f"---\ntitle: Above\n{section(rules='[brute, ok]', group_by='[who, Host]')}"
    aliases = "  aliases: {who: {ok: Account, brute: User}}\n"
    found = read(f"{RULES}{HEAD}{section(group_by='[User]')}{above}{aliases}", cache=False)
    inner, outer = found.correlations
    columns = {"User": "string", "account": "bigint", "Host": "string"}
    bound = outer.bind(columns, {inner.name: inner})
    assert bound.references == (
        Reference("brute_force", (0, "`Host`")),
        Reference("succeeded", ("CAST(`account` AS STRING)", "`Host`")),
    )
    assert (
        bound.text == "above: event_count >= 10 of brute_force, succeeded in 5 MINUTES by who, Host"
    )
    with pytest.raises(QueryError, match=r"correlation above .*: group-by field 'Account' \(alias"):
        outer.bind({"User": "string", "Host": "string"}, {inner.name: inner})
    with pytest.raises(QueryError, match=r"field 'User' is of type array<string>"):
        inner.bind({"User": "array<string>"}, {})


@pytest.mark.parametrize(
    ("given", "why", "line"),
    [
        ({"type": "event_cound"}, "'event_cound' is no valid Sigma correlation type", 16),
        ({"timespan": "5x"}, "Timespan '5x' is invalid", 18),
        ({"timespan": "10001y"}, "timespan '10001y' is too long; the longest time is", 18),
        ({"timespan": f"{'9' * 4000}d"}, "is too long; the longest time is 3652500 DAYS", 18),
        ({"timespan": ""}, "without timespan", 15),
        ({"condition": ""}, "without condition", 15),
        ({"condition": "{gte: 1.5}"}, "1.5 is not a whole number", 19),
        ({"condition": "{gte: 99999999999999999999}"}, "beyond the numbers", 19),
        ({"condition": "{field: x}"}, "must have exactly one condition item", 19),
        ({"type": "value_count"}, "without field reference", 15),
        ({"type": "value_percentile", "condition": "{field: n, gt: 1}"}, "'percentile' from", 19),
        ({"type": "value_sum", "condition": "{field: [n, m], gt: 1}"}, "of one field", 19),
        ({"rules": "[faild]"}, "did you mean 'failed'", 15),
        ({"rules": "[]"}, "it names no rules", 15),
        ({"rules": "[brute]"}, "it refers to itself", 15),
        ({"type": "temporal", "rules": "[ok, failed, ok]", "condition": ""}, "'ok' twice", 15),
        ({"type": "temporal_ordered", "rules": "[ok, ok]", "condition": ""}, "'ok' twice", 15),
        ({"type": "temporal_ordered", "rules": "", "condition": "ok or failed"}, "order", 18),
        ({"aliases": "{x: {nobody: y}}"}, "rule that is not there", 15),
    ],
)
def test_a_correlation_that_does_not_run_is_listed_with_its_line(given, why, line):
    said = reason(**given)
    assert why in said
    assert said.startswith(f"line {line}: ")


def test_what_refers_to_what_does_not_run_does_not_either():
    above = f"---\ntitle: Above\nname: above\n{section(rules='[brute]')}"
    top = f"---\ntitle: Top\n{section(rules='[above]')}"
    found = read(f"{RULES}{HEAD}{section(rules='[gone]')}{above}{top}", cache=False)
    assert found.correlations == ()
    reasons = {each.name: each.reason.partition(": ")[2] for each in found.skipped}
    assert reasons["above"] == "it refers to 'brute_force', which does not run"
    assert reasons["top"] == "it refers to 'above', which does not run"
    text = RULES.replace("kind: o", "kind|no: o")
    found = read(f"{text}{HEAD}{section(rules='[ok]')}", cache=False)
    assert found.skipped[1].reason.endswith("it refers to 'ok', which does not run")


def test_circles_are_no_correlations():
    a = f"---\ntitle: A\nname: a\n{section(rules='[b]')}"
    b = f"---\ntitle: B\nname: b\n{section(rules='[failed, a]')}"
    found = read(RULES.removesuffix("---\n") + a + b, cache=False)
    assert found.correlations == ()
    assert [each.reason.partition(": ")[2] for each in found.skipped] == [
        "it refers to itself, by 'b'",
        "it refers to itself, by 'a'",
    ]


def test_a_name_is_looked_for_in_the_own_file_first(tmp_path):
    (tmp_path / "a.yml").write_text(RULES + HEAD + section())
    other = RULES.replace(ID, "b").replace("Failed", "Other").replace("Succeeded", "More")
    (tmp_path / "b.yml").write_text(other)
    (tmp_path / "c.yml").write_text("title: Else\n" + section(rules="[failed]"))
    (tmp_path / "d.yml").write_text("title: By id\n" + section(rules="[b]"))
    found = read(tmp_path, cache=False)
    assert [(each.name, each.refers_to) for each in found.correlations] == [
        ("brute_force", (ID.lower(),)),
        ("by_id", ("b",)),
    ]
    (skipped,) = found.skipped
    assert "c.yml:2: it refers to 'failed', and there are several" in skipped.reason


def test_names_are_unique_among_rules_and_correlations():
    text = RULES.replace("title: Failed", "title: Brute force").replace(f"id: {ID}\n", "")
    found = read(f"{text}{HEAD}{section()}", cache=False)
    assert [each.name for each in found.sources] == ["brute_force", "succeeded"]
    assert [each.name for each in found.correlations] == ["brute_force#2"]
    twice = read(f"{RULES}{HEAD}{section()}---\n{HEAD}{section()}", cache=False)
    assert len(twice.correlations) == 1
    assert "the same rule as in" in twice.skipped[0].reason


def test_what_rules_of_a_file_share_is_no_matter_of_correlations():
    shared = "action: global\nlevel: low\nlogsource: {product: any}\n---\n"
    found = read(f"{shared}{RULES}{HEAD}{section()}", cache=False)
    assert [each.info["level"] for each in found.sources] == ["low", "low"]
    assert found.correlations[0].info["level"] == "high"


def test_pipelines_rename_fields_of_correlations(tmp_path):
    pipeline = tmp_path / "p.yml"
    pipeline.write_text(
        "name: p\npriority: 1\ntransformations:\n"
        "- id: t\n  type: field_name_mapping\n  mapping: {User: actor.user, n: bytes}\n"
        "  rule_conditions:\n  - {type: logsource, product: any}\n"
    )
    aliases = "{who: {failed: User}}"
    given = {"type": "value_sum", "condition": "{field: n, gt: 1}", "aliases": aliases}
    text = f"{RULES}{HEAD}{section(**given, group_by='[User, who]')}"
    (made,) = read(text, pipeline, cache=False).correlations
    assert (made.group_by, made.fields) == (("actor.user", "who"), ("bytes",))
    assert made.aliases == {"who": {ID.lower(): "actor.user"}}


def test_correlations_are_kept_in_the_cache():
    text = f"{RULES}{HEAD}{section(group_by='[User]', aliases='{x: {ok: y}}')}"
    first = read(text).correlations
    again = read(text).correlations
    assert first == again
    assert first[0] is not again[0]
