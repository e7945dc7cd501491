"""Rules that a person changes on the page, of fake runs."""

from __future__ import annotations

import html

import pytest

from eddyline.runtime.by_hand import RuleChange
from eddyline.serve.app import MAX_RULES
from eddyline.serve.runs import key_of
from tests.report.pages import EVIL, check_nothing_runs, elements_of
from tests.serve.fakes import FakeRun, RunOfRules, SteeredRun
from tests.serve.test_guard import HERE

RULES = {"big": "n > 5", "small": "n < 2\n  OR n IS NULL"}


@pytest.fixture
def ruled(page):
    """Return a run with two rules, a client, and the address of its rules."""
    run = RunOfRules(RULES)
    return run, page(run, controls=True), f"/run/{key_of(run)}/rules"


def send(client, path, **fields):
    return client.post(path, data=fields, headers=HERE, follow_redirects=False)


def fields_of(text):
    """Return what a form would send without any typing."""
    found = [attrs for tag, attrs in elements_of(text) if tag == "input"]
    return {each["name"]: each.get("value", "") for each in found if each.get("type") == "hidden"}


def test_rules_are_led_to_only_where_they_can_be_changed(page):
    for run, how, is_there in (
        (RunOfRules(RULES), {"controls": True}, True),
        (RunOfRules(RULES), {}, False),
        (SteeredRun(), {"controls": True}, False),
        (FakeRun(), {"controls": True}, False),
    ):
        client = page(run, **how)
        path = f"/run/{key_of(run)}"
        assert (f'href="{path}/rules"' in client.get(path).text) is is_there
        assert client.get(f"{path}/rules").status_code == (200 if is_there else 404)


def test_the_list_has_what_is_known_of_each_rule(ruled):
    _, client, path = ruled
    text = client.get(path).text
    for part in ("2 rules", "n &gt; 5", "high", ">7 ", "1 rule added", f"{path}/remove?name=big"):
        assert part in text


def test_a_part_of_the_name_finds_rules_and_many_are_not_all_shown(page):
    run = RunOfRules({f"rule {at}": "n > 1" for at in range(250)})
    client = page(run, controls=True)
    path = f"/run/{key_of(run)}/rules"
    text = client.get(path).text
    assert text.count('<th scope="row">') == MAX_RULES
    assert f"{250 - MAX_RULES} are left out" in text
    text = client.get(path, params={"part": " RULE 24 "}).text
    assert text.count('<th scope="row">') == 11
    assert "11 of 250 have RULE 24 in the name" in text


def test_a_rule_that_is_added_is_shown_before_it_is_there(ruled):
    run, client, path = ruled
    asked = {"name": " new ", "text": "a\r\nAND b ", "level": "low"}
    answer = send(client, f"{path}/add", **asked)
    assert answer.status_code == 200
    assert "Unlike a plan" in answer.text
    assert run.done == []
    sure = fields_of(answer.text)
    assert sure == {"name": "new", "text": "a\nAND b", "level": "low", "mark": "", "sure": "yes"}
    answer = send(client, f"{path}/add", **sure)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert run.done == [RuleChange("add", "new", "a\nAND b", "low")]


def test_a_replacement_shows_the_text_before_and_after(ruled):
    run, client, path = ruled
    form = client.get(f"{path}/replace", params={"name": "small"}).text
    assert "\nn &lt; 2\n  OR n IS NULL</textarea>" in form
    text = send(client, f"{path}/replace", **{**fields_of(form), "text": "n < 1"}).text
    at = [text.index(html.escape(each)) for each in ("n < 2\n  OR n IS NULL", "n < 1")]
    assert at == sorted(at)
    assert "true for 7 of 100 rows" in text
    assert send(client, f"{path}/replace", **fields_of(text)).status_code == 303
    mark = run.rules().rule("small").mark
    assert run.done == [RuleChange("replace", "small", "n < 1", mark=mark)]


def test_a_removal_is_asked_for_twice(ruled):
    run, client, path = ruled
    text = client.get(f"{path}/remove", params={"name": "big"}).text
    assert "n &gt; 5" in text
    assert run.done == []
    assert send(client, f"{path}/remove", **fields_of(text)).status_code == 303
    assert [(each.how, each.name) for each in run.done] == [("remove", "big")]


@pytest.mark.parametrize("sure", [{}, {"sure": "yes"}])
@pytest.mark.parametrize("how", ["add", "replace"])
def test_a_broken_rule_is_told_with_its_text_and_changes_nothing(ruled, how, sure):
    run, client, path = ruled
    mark = run.rules().rule("big").mark
    answer = send(client, f"{path}/{how}", name="big", text="zzz > <1>", mark=mark, **sure)
    assert answer.status_code == 409
    assert "Nothing was changed" in answer.text
    assert "unknown column &#39;zzz&#39;\n" in answer.text
    assert "\nzzz &gt; &lt;1&gt;</textarea>" in answer.text
    assert run.done == []


def test_what_somebody_else_has_changed_meanwhile_is_shown_anew(ruled):
    run, client, path = ruled
    for how in ("replace", "remove"):
        sure = {"name": "big", "text": "n > 7", "mark": run.rules().rule("big").mark, "sure": "yes"}
        run.of_set.texts["big"] += " + 1"
        answer = send(client, f"{path}/{how}", **sure)
        assert answer.status_code == 409
        assert "another one than was shown" in answer.text
        assert "n &gt; 5 + 1" in answer.text
        assert fields_of(answer.text)["mark"] == run.rules().rule("big").mark
    assert run.done == []


def test_where_files_decide_there_are_no_forms(page):
    run = RunOfRules(RULES, follows="<rules>")
    client = page(run, controls=True)
    path = f"/run/{key_of(run)}/rules"
    text = client.get(path).text
    assert "follow &lt;rules&gt;" in text
    assert "/rules/" not in text
    for how in ("add", "replace?name=big", "remove?name=big"):
        assert client.get(f"{path}/{how}").status_code == 409


def test_what_is_not_there_is_told(ruled):
    run, client, path = ruled
    assert client.get(f"{path}/replace", params={"name": "none"}).status_code == 409
    assert send(client, f"{path}/remove", name="none", sure="yes").status_code == 409
    assert send(client, f"{path}/add", name="x", text="x" * 300_000).status_code == 413
    assert client.get("/run/0/rules").status_code == 404
    run.end()
    assert "has ended" in client.get(path).text
    assert send(client, f"{path}/add", name="x", text="n > 1", sure="yes").status_code == 409
    assert run.done == []


def test_texts_are_escaped(page):
    rules = dict(zip(EVIL, reversed(EVIL), strict=True))
    run = RunOfRules(rules)
    client = page(run, controls=True)
    path = f"/run/{key_of(run)}/rules"
    texts = [client.get(path, params={"part": part}).text for part in ("", *EVIL)]
    for name in rules:
        asked = {"name": name, "mark": run.rules().rule(name).mark}
        texts += [
            client.get(f"{path}/{how}", params={"name": name}).text for how in ("replace", "remove")
        ]
        for text in (*EVIL, f"zzz {EVIL[0]}"):
            texts.append(send(client, f"{path}/replace", text=text, **asked).text)
            texts.append(send(client, f"{path}/add", text=text, name=name, level=name).text)
    for text in texts:
        found = check_nothing_runs(text)
        assert {attrs.get("src", "").split("?")[0] for tag, attrs in found if tag == "script"} == {
            "/static/page.js"
        }
