"""What the pages show."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest

from eddyline.errors import PlanError, PredicateError, SourceError
from eddyline.report.clock import ClockRecord
from eddyline.report.formatting import IN_FORCE, Wording
from eddyline.report.sections import Column, RunView, Section, Table, Text
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Backlog, BatchRecord, History, OrderRecord
from eddyline.serve.runs import Failure, key_of
from tests.report.fakes import a_run
from tests.report.pages import EVIL, check_nothing_runs, elements_of
from tests.serve.fakes import FakeRun, SteeredRun, a_long_run
from tests.serve.test_guard import HERE


def path_of(run):
    return f"/run/{key_of(run)}"


def shown(page, run, **how):
    answer = page(run, **how).get(path_of(run))
    assert answer.status_code == 200
    return answer.text


def test_the_list_leads_to_every_query(page):
    runs = [FakeRun(f"query {n}") for n in range(3)]
    text = page(*runs).get("/").text
    for each in runs:
        assert f'href="{path_of(each)}">{each.name}</a>' in text


def test_a_query_shows_how_it_is_its_plan_and_what_changed(page):
    run = FakeRun()
    text = shown(page, run)
    for part in ("running", "Plan now", "What changed", "Speed", "Order in force", "sample_prob"):
        assert part in text
    last = run.view.history.batches[-1]
    assert f'data-cell="batch">{last.batch_id}<' in text
    assert "× less" in text, "cost as written against now"


@pytest.mark.parametrize("n_lines", [1, 8, 9, 400])
def test_the_text_of_a_query_stands_on_top_and_only_its_start_if_it_is_long(page, n_lines):
    lines = [f"line {at} <b>" for at in range(n_lines)]
    text = shown(page, FakeRun(view=replace(a_run(n_batches=3), text="\n".join(lines))))
    head = text[: text.index('id="tiles"')]
    assert head.index("<h1>") < head.index("line 0 &lt;b&gt;")
    assert f"all {n_lines} lines" in head or n_lines <= 8
    assert ("<details" in head) == (n_lines > 8)
    assert text.count(f"line {n_lines - 1} &lt;b&gt;") == 1, "the end of the text stands once"


def a_run_after(*records, waits=None):
    """Return a run after one batch with those records."""
    history = History((BatchRecord(0, 10, 1, 0.5, 1_700_000_100.0, records),))
    run = FakeRun(view=RunView("q", "SELECT 1", history=history))
    run.waits = waits or Backlog(0)
    return run


def cell_of(text, name):
    return re.search(rf'data-cell="{name}">([^<]*)<', text)[1]


NOON = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("records", "lag"),
    [
        ((ClockRecord(0, reached=(NOON, NOON - 90_000_000)),), "1 min 30 s"),
        ((ClockRecord(0, reached=(NOON, NOON)),), "0 s"),
        ((ClockRecord(0, reached=(NOON, None)),), "-"),
        ((ClockRecord(0),), "-"),
        ((), "-"),
        (
            (
                ClockRecord(0, reached=(NOON, NOON - 5_000_000)),
                ClockRecord(0, "other", reached=(NOON - 1_000_000, NOON - 60_000_000)),
            ),
            "1 min",
        ),
        (
            (ClockRecord(0, reached=(NOON, NOON)), ClockRecord(0, "b", reached=(NOON, None))),
            "-",
        ),
    ],
)
def test_a_query_shows_how_far_its_results_are_behind(page, records, lag):
    run = a_run_after(*records)
    client = page(run)
    for path in ("/", path_of(run)):
        text = client.get(path).text
        assert cell_of(text, "lag") == lag
        assert ("a stream has had no row" in text or "uses no event time" in text) == (lag == "-")
    assert ('data-of="event-at" data-at="1700000000.000"' in text) == any(
        each.reached[0] for each in records
    )


@pytest.mark.parametrize(
    ("waits", "shown_as", "beside"),
    [
        (Backlog(0), "0", "as of the newest batch"),
        (Backlog(1_234, is_estimate=True, n_files=3), "~1,234", "3 files"),
        (Backlog(n_files=1, why="no <file> was read"), "-", "1 file"),
    ],
)
def test_a_query_shows_how_much_input_waits(page, waits, shown_as, beside):
    run = a_run_after(waits=waits)
    client = page(run)
    for path in ("/", path_of(run)):
        text = client.get(path).text
        assert cell_of(text, "backlog") == shown_as
        assert ('title="no &lt;file&gt; was read"' in text) == bool(waits.why)
    assert cell_of(text, "backlog-of") == beside


def test_the_backlog_of_a_query_that_waits_grows_on_its_page(page):
    run = a_run_after(waits=Backlog(5))
    client = page(run)
    assert cell_of(client.get(path_of(run)).text, "backlog") == "5"
    run.waits = Backlog(7_000)
    client.made.following.look_back(key_of(run))._backlog_due = 0.0
    assert cell_of(client.get(path_of(run)).text, "backlog") == "7,000"


def test_a_query_that_has_ended_has_no_backlog(page):
    run = a_run_after(waits=Backlog(5))
    run.end()
    text = shown(page, run)
    assert cell_of(text, "backlog") == "-"
    assert "the query does not run" in text


def test_a_query_without_a_text_says_so(page):
    text = shown(page, FakeRun(view=replace(a_run(n_batches=3), text="")))
    assert "The query has no text: it was made of rules." in text


def test_a_decision_says_its_evidence_in_a_sentence(page):
    evidence = {
        "filter": "a<b",
        "better_filter": "port",
        "drop_frac": 0.0,
        "better_drop_frac": 0.39,
    }
    entry = JournalEntry(0, "native", "order", ["a<b", "port"], ["port", "a<b"], evidence)
    run = FakeRun(view=replace(a_run(n_batches=3), history=History(journal=(entry,))))
    client = page(run)
    for path in (path_of(run), f"{path_of(run)}/journal"):
        text = client.get(path).text
        said = "Of the newest rows that reached it, a&lt;b dropped 0 %, port 39 %: port goes first."
        assert said in text
        assert "better drop frac: 0.39" in text, "the evidence stands beneath"


def test_a_decision_tells_what_it_brought(page):
    def batches(start, end, seconds):
        return [BatchRecord(at, 1000, 1, seconds if at else 60.0) for at in range(start, end)]

    journal = (
        JournalEntry(4, "arrow", "order", ["a", "b"], ["b", "a"], {"n_tuples": 7}),
        JournalEntry(9, "arrow", "order", ["b", "a"], ["a", "b"]),
    )
    history = History((*batches(0, 5, 2.0), *batches(5, 10, 0.5)), journal)
    text = shown(page, FakeRun(view=RunView("q", "SELECT 1", history=history)))
    assert (
        "A row took 2 ms before (4 batches of 2 s) and 500 µs after (5 of 500 ms): 4 × less."
        in text
    )
    assert "No batch to compare with has run yet." in text
    assert "n tuples: 7" in text


def test_the_plan_in_force_stands_in_the_words_of_its_operator(page):
    order = OrderRecord("arrow", ("a", "b"), (1, 0), (0.5, 0.5), 1.0, 2.0)
    words = {("arrow", IN_FORCE): Wording(lambda plan: f"first of all {plan[0]}")}
    view = RunView(
        "q",
        "SELECT 1",
        sections=(Section("", wordings=words),),
        history=History((BatchRecord(0, 10, 1, 0.5, 0.0, (order, ClockRecord(3))),)),
    )
    run = SteeredRun(view=view)
    client = page(run, controls=True)
    text = client.get(path_of(run)).text
    assert "first of all b" in text
    assert "first of all a" in client.get(f"{path_of(run)}/pin").text
    assert "clock" not in text, "it has no plan, no cost and no state"


def test_texts_are_escaped_everywhere(page):
    name = EVIL[0]
    entries = (JournalEntry(1, EVIL[1], EVIL[2], [EVIL[3]], [EVIL[4]], {EVIL[0]: EVIL[5]}),)
    sections = (
        Section(EVIL[0], (Text(EVIL[1]), Table((Column(EVIL[2]),), ((EVIL[4],),), EVIL[5]))),
    )
    view = RunView(
        name,
        EVIL[1],
        (EVIL[2],),
        replace(a_run(5).history, journal=entries),
        sections,
        {EVIL[3]: EVIL[4]},
    )
    run = FakeRun(name, view, place=EVIL[0])
    run.end(Failure("SourceError", EVIL[2]))
    client = page(run)
    for path in ("/", path_of(run), f"{path_of(run)}/journal"):
        text = client.get(path).text
        found = check_nothing_runs(text)
        assert not [attrs for _, attrs in found if "style" in attrs], "no inline style"
        scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, flags=re.DOTALL)
        assert all(not code or "application/json" in attrs for attrs, code in scripts)
        assert not re.search(r"<(script|img|b)[^>]*>alert|<img|onclick='alert", text)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_pages_load_only_from_their_server(page):
    run = FakeRun()
    client = page(run)
    for path in ("/", path_of(run)):
        for _, attrs in elements_of(client.get(path).text):
            for name in {"src", "href", "action"} & attrs.keys():
                assert attrs[name].startswith(("/", "#", "?")), attrs
                assert not attrs[name].startswith("//")


def test_the_files_of_pages_are_there(page):
    run = FakeRun()
    client = page(run)
    names = re.findall(r'"(/static/[^"]+)"', client.get(path_of(run)).text)
    assert len(set(names)) == 6
    for each in names:
        answer = client.get(each)
        assert answer.status_code == 200
        assert answer.content
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404


@pytest.mark.parametrize("path", ["/nowhere", "/run", "/run/abc", "/run/abc/pins"])
def test_an_address_without_a_page_says_so_and_leads_back(page, path):
    answer = page(FakeRun()).get(path)
    assert answer.status_code == 404
    assert "There is nothing at this address" in answer.text
    assert 'href="/"' in answer.text


def test_a_failed_query_comes_first_and_tells_why(page):
    failed = FakeRun("z")
    failed.end(Failure.from_error(SourceError("the disk is full")))
    text = page(FakeRun("a"), failed).get("/").text
    assert "1 failed" in text
    assert "the disk is full" in text
    assert text.index(path_of(failed)) < text.index(path_of(FakeRun("a")))
    assert "the disk is full" in shown(page, failed)


def test_values_of_rows_are_hidden_unless_asked_for(page):
    secret = "4711-secret"
    sections = (
        Section("groups", (Text(secret),), shows_values=True),
        Section(
            "routes",
            (Table((Column("rows", shows_values=True), Column("n", "count")), ((secret, 7),)),),
        ),
    )
    run = FakeRun(view=replace(a_run(5), sections=sections))
    run.end(
        Failure.from_error(
            PredicateError(f"predicate 'f' raised ValueError: {secret} on the row 1")
        )
    )
    text = shown(page, run)
    assert secret not in text
    assert "predicate f" in text
    assert "hidden" in text
    assert shown(page, run, values=True).count(secret) == 3


def test_errors_of_spark_tell_their_condition_alone(page):
    run = FakeRun()
    run.end(Failure("StreamingQueryException", "[DIVIDE_BY_ZERO] the row 4711"))
    text = shown(page, run)
    assert "DIVIDE_BY_ZERO" in text
    assert "4711" not in text


def test_fifty_queries_are_listed_quickly(page):
    runs = [FakeRun(f"query {n:02}") for n in range(50)]
    client = page(*runs)
    client.get("/")
    started, worked = time.perf_counter(), time.process_time()
    text = client.get("/").text
    assert time.process_time() - worked < 1.0
    assert time.perf_counter() - started < 10.0, "it waits for something"
    assert text.count('data-name="query') == 50


def test_of_very_many_queries_the_list_says_what_it_leaves_out(page):
    runs = [FakeRun(f"q{n}", RunView(f"q{n}", "")) for n in range(250)]
    text = page(*runs).get("/").text
    assert text.count("data-name=") == 200
    assert "Shown are 200 of 250." in text


def test_ten_thousand_decisions_are_in_pages(page):
    run = FakeRun(view=a_long_run(10_000))
    client = page(run)
    started, worked = time.perf_counter(), time.process_time()
    text = client.get(path_of(run)).text
    assert time.process_time() - worked < 2.0
    assert time.perf_counter() - started < 20.0, "it waits for something"
    assert "The newest 12 of 10,000 decisions" in text
    assert len(text) < 500_000
    first = client.get(f"{path_of(run)}/journal").text
    assert first.count("<details>") == 100
    assert "page 1 of 100" in first
    last = client.get(f"{path_of(run)}/journal", params={"page": 100}).text
    assert 'id="decision-1"' in last
    assert "Older" not in last


@pytest.mark.parametrize("number", ["0", "101", "-1", "x", "1e3", "99999999999", "²"])
def test_a_page_that_is_not_there(page, number):
    run = FakeRun(view=a_long_run(10_000))
    answer = page(run).get(f"{path_of(run)}/journal", params={"page": number})
    assert answer.status_code == 404


def test_decisions_of_tasks_are_apart(page):
    entries = (
        JournalEntry(1, "arrow", "order", ["a"], ["b"], {"partition": 3}),
        JournalEntry(1, "arrow", "stale"),
    )
    run = FakeRun(view=replace(a_run(5), history=replace(a_run(5).history, journal=entries)))
    client = page(run)
    of_driver = client.get(f"{path_of(run)}/journal").text
    of_tasks = client.get(f"{path_of(run)}/journal", params={"of": "tasks"}).text
    assert ("let go" in of_driver, "let go" in of_tasks) == (True, False)
    assert ("partition: 3" in of_driver, "partition: 3" in of_tasks) == (False, True)


def test_a_page_that_has_not_changed_is_not_sent_again(page):
    run = FakeRun()
    client = page(run)
    first = client.get(path_of(run))
    again = client.get(path_of(run), headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_what_looking_costs_is_bounded(page):
    run = FakeRun()
    client = page(run)
    clock = [100.0]
    client.made.following._clock = client.made.pages.views.clock = lambda: clock[0]
    client.made.pages.views.spent = lambda: clock[0] / 50  # making a view takes no time at all here
    for _ in range(20):
        client.get(path_of(run))
    assert run.n_views == 1, "nothing has happened since"
    run.add_batch()
    clock[0] += 0.5
    assert float(client.get(path_of(run)).headers["eddyline-wait"]) > 0
    assert run.n_views == 1, "it is too early"
    clock[0] += 0.6
    assert "eddyline-wait" not in client.get(path_of(run)).headers
    assert run.n_views == 2


def test_a_dear_view_is_made_seldom(page):
    run = FakeRun()
    client = page(run)
    clock, spent = [100.0], [0.0]
    views = client.made.pages.views
    client.made.following._clock = views.clock = lambda: clock[0]

    def used():
        spent[0] += 0.5
        return spent[0]

    views.spent = used
    client.get(path_of(run))
    run.add_batch()
    clock[0] += 30.0
    client.get(path_of(run))
    assert run.n_views == 1
    clock[0] += 300.0
    client.get(path_of(run))
    assert run.n_views == 2


def test_a_run_before_its_first_batch(page):
    text = shown(page, FakeRun(view=RunView("q", "SELECT 1", ("read s",))))
    assert "It waits for its first batch." in text
    assert "read s" in text


def test_figures_are_data_that_no_text_leaves(page):
    view = a_run(5)
    run = FakeRun(view=replace(view, sections=()))
    data = re.search(r'id="figures">(.*?)</script>', shown(page, run), flags=re.DOTALL)[1]
    assert json.loads(data).keys() == {"figure-0"}


def test_a_view_that_a_batch_changes_meanwhile_is_made_again(page):
    class Busy(FakeRun):
        def run_view(self):
            found = super().run_view()
            if self.n_views < 3:
                msg = "dictionary changed size during iteration"
                raise RuntimeError(msg)
            return found

    run = Busy()
    assert "Plan now" in shown(page, run)
    assert run.n_views == 3


def test_a_run_without_words_is_told_apart_from_the_others(page):
    class Broken(FakeRun):
        def run_view(self):
            msg = "secret 4711"
            raise KeyError(msg)

        def records_after(self, batch_id):
            raise KeyError(batch_id)

    client = page(Broken("a"), FakeRun("b"))
    client.get(path_of(FakeRun("b")))
    text = client.get("/").text
    assert text.count("data-name=") == 2
    with pytest.raises(KeyError):  # the client raises it again; browsers get the page
        client.get(path_of(FakeRun("a")))


# -- a person's hand ----------------------------------------------------------------------------


def test_hands_are_there_only_where_they_work(page):
    run = SteeredRun()
    assert "Pin the plan" not in shown(page, run)
    assert "Pin the plan" not in shown(page, FakeRun(), controls=True)
    assert "Pin the plan" in shown(page, run, controls=True)
    run.end()
    assert "Pin the plan" not in shown(page, run, controls=True)


def test_a_hand_says_what_it_would_do_before_it_does(page):
    run = SteeredRun()
    client = page(run, controls=True)
    text = client.get(f"{path_of(run)}/pin").text
    assert "whatever the evidence says" in text
    assert 'value="arrow"' in text
    assert run.done == []


@pytest.mark.parametrize(
    ("name", "sent", "done"),
    [
        ("pin", {"component": "arrow"}, ("pin", "arrow")),
        ("pin", {"component": ""}, ("pin", None)),
        ("adapt", {}, ("adapt", None)),
        ("stop", {}, ("stop",)),
    ],
)
def test_a_hand_does_what_it_says(page, name, sent, done):
    run = SteeredRun()
    client = page(run, controls=True)
    client.get(path_of(run))
    answer = client.post(f"{path_of(run)}/{name}", data=sent, headers=HERE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, path_of(run))
    assert run.done == [done]


def test_what_is_not_possible_is_told(page):
    class Fixed(SteeredRun):
        def adapt(self, component):
            msg = "adaptation is switched off"
            raise PlanError(msg)

    run = Fixed()
    client = page(run, controls=True)
    client.get("/")
    answer = client.post(f"{path_of(run)}/adapt", headers=HERE)
    assert answer.status_code == 409
    assert "adaptation is switched off" in answer.text
    long = client.post(f"{path_of(run)}/pin", data={"component": "x" * 20_000}, headers=HERE)
    assert long.status_code == 413


def test_names_in_another_encoding_are_shown_as_far_as_they_can_be(page):
    run = FakeRun("caf\udce9", place="/data/caf\udce9")
    client = page(run)
    assert "caf?" in client.get("/").text or "caf\ufffd" in client.get("/").text
    assert client.get(f"/run/{key_of(run)}").status_code == 200
