"""The graph of the plan: where boxes stand, and that they show what the system stream has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eddyline.report.sections import Entity, Node, Section
from eddyline.report.system import rows_of
from eddyline.serve.graph import HEIGHT, graph_of
from eddyline.serve.runs import key_of
from tests.report.fakes import NODES, a_join_run, a_run
from tests.report.pages import EVIL
from tests.serve.fakes import FakeRun, SteeredRun

JOIN = replace(a_join_run(), nodes=NODES)


def boxes_of(view, plans=()):
    return {each.key: each for each in graph_of(view, view.sections, dict(plans)).boxes}


def test_rows_go_from_the_top_to_the_bottom_and_no_box_covers_another():
    graph = graph_of(JOIN, JOIN.sections, {})
    boxes = {each.key: each for each in graph.boxes}
    assert len(graph.lines) == sum(len(each.reads) for each in boxes.values())
    for each in boxes.values():
        assert all(boxes[key].y < each.y for key in each.reads)
        assert 0 <= each.x <= graph.width - each.width
        assert 0 <= each.y <= graph.height - HEIGHT
        beside = [other for other in boxes.values() if other.y == each.y and other is not each]
        assert all(abs(other.x - each.x) >= each.width for other in beside)
    sources = [boxes[key] for key in "023"]
    assert all(boxes["4-0"].y > each.y for each in sources)


def test_rows_of_a_join_pass_the_exchange_and_their_window():
    boxes = boxes_of(JOIN)
    join = boxes["4"]
    kinds = {key: (boxes[key].kind, boxes[key].name, boxes[key].reads) for key in join.reads}
    exchange = next(each for each in boxes.values() if each.kind == "exchange")
    assert set(exchange.reads) == {"1", "2", "3"}
    assert [each for each in kinds.values() if each[0] == "window"] == [
        ("window", name, (exchange.key,)) for name in ("o", "p", "geo")
    ]
    assert [each for each in kinds.values() if each[0] == "cache"] == [("cache", "o: p ⋈ geo", ())]
    assert dict(exchange.facts)["buckets"] == "4 × 2"
    assert boxes["result"].reads == ("5",)


def test_numbers_and_curves_are_those_of_the_system_stream():
    boxes = boxes_of(JOIN, {"pipeline o": "geo, then p"})
    rows = [row for batch in JOIN.history.batches for row in rows_of("q", batch)]
    for each in boxes.values():
        if each.kind != "window":
            continue
        lines = {line.name: line.values for figure in each.figures for line in figure.lines}
        expected = {
            name: tuple(r.value for r in rows if (r.entity, r.name) == (each.name, name))
            for name in ("n_kept", "n_bytes")
        }
        expected = {name: values for name, values in expected.items() if values}
        assert lines == expected
        assert each.number == f"{expected['n_kept'][-1]:,.0f} kept"
    join = {line.name for figure in boxes["4"].figures for line in figure.lines}
    assert {"join: n_results", "pipeline o: cost_ns", "p", "geo"} <= join
    assert ("plan of pipeline o", "geo, then p") in boxes["4"].facts
    assert boxes["3"].number == ""  # rows of a table do not arrive
    out = [row.value for row in rows if (row.entity, row.name) == ("batch", "n_kept")]
    assert boxes["result"].number == f"{out[-1]:,.0f} out"


def test_every_component_of_the_stream_is_in_a_box():
    for view in (JOIN, replace(a_run(), nodes=(*NODES[:1], replace(NODES[1], id="1")))):
        owned = {of for each in boxes_of(view).values() for of, _ in each.owns}
        rows = [row for batch in view.history.batches for row in rows_of("q", batch)]
        assert {row.component for row in rows} <= owned


def test_an_operator_that_nobody_knows_has_a_box_and_its_numbers():
    nodes = (
        Node("0", "stream", "s", "read s"),
        Node("1", "newest", "s", "newest s: x", (("0", "s"),)),
    )
    entity = Entity("tank", "large", "join", (("size", "2"), ("empty", "")))
    view = replace(JOIN, nodes=nodes, sections=(Section("x", entities=(entity,)),))
    boxes = boxes_of(view)
    assert boxes["1-0"].facts == (("size", "2"),)
    assert boxes["1"].reads == ("0", "1-0")
    assert any(line.name == "join: n_results" for f in boxes["1"].figures for line in f.lines)


def test_work_that_queries_share_is_told():
    *before, last = JOIN.history.batches
    history = replace(JOIN.history, batches=(*before, replace(last, kept_by={"a": 1, "me": 2})))
    boxes = boxes_of(replace(JOIN, query="me", history=history))
    assert {each.shared_with for each in boxes.values()} == {("a",), ()}
    assert boxes["4"].shared_with == ("a",)
    assert boxes["5"].shared_with == ()


def test_a_query_without_steps_or_batches_has_a_page(page):
    empty = replace(JOIN, history=replace(JOIN.history, batches=()))
    assert all(each.figures == () for each in boxes_of(empty).values())
    assert graph_of(a_run(), (), {}).boxes == ()
    for view in (a_run(), empty):
        run = FakeRun(view=view)
        assert page(run).get(f"/run/{key_of(run)}").status_code == 200


def test_each_box_leads_to_its_panel_and_texts_stay_texts(page):
    nodes = tuple(replace(each, text=f"{each.text} {EVIL[0]}") for each in NODES)
    run = FakeRun(view=replace(JOIN, nodes=nodes))
    text = page(run).get(f"/run/{key_of(run)}").text
    for each in boxes_of(JOIN).values():
        assert f'href="#entity-{each.key}"' in text
        assert f'id="entity-{each.key}"' in text
    assert EVIL[0] not in text


# -- options that a person changes ----------------------------------------------------------------

FORM = {"component": "filter s", "name": "sample_prob", "value": "0.25"}
SAME_SITE = {"origin": "http://127.0.0.1:8123"}


@pytest.fixture
def steered(page):
    run = SteeredRun()
    client, path = page(run, controls=True), f"/run/{key_of(run)}/adjust"
    assert client.get(path).status_code == 200
    return run, client, path


def test_an_option_is_changed_from_its_page(steered):
    run, client, path = steered
    assert "sample_prob" in client.get(path).text
    assert (
        client.post(path, data=FORM, headers=SAME_SITE, follow_redirects=False).status_code == 303
    )
    assert run.done == [("adjust", "filter s", "sample_prob", 0.25)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2", "must be a number in [0.0, 1.0], got 2"),
        ("a<b", "a value is a number"),
        ("0,5", "a value is a number"),
    ],
)
def test_a_value_that_is_not_possible_is_told_and_changes_nothing(steered, value, said):
    run, client, path = steered
    answer = client.post(path, data={**FORM, "value": value}, headers=SAME_SITE)
    assert answer.status_code == 409
    assert said in answer.text
    assert "Nothing was changed" in answer.text
    assert run.done == []


def test_other_sites_and_pages_without_controls_change_no_option(steered, page):
    run, client, path = steered
    assert (
        client.post(path, data=FORM, headers={"origin": "http://evil.example"}).status_code == 403
    )
    assert run.done == []
    looked = page(run)
    assert looked.post(path, data=FORM, headers=SAME_SITE).status_code in (404, 405)
    assert "Change options" not in looked.get(path.removesuffix("/adjust")).text
    assert run.done == []
