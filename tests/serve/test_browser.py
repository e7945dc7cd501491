"""The page in a real browser; skipped, saying so, where there is no chromium.

A browser takes seconds for each page: `make test` runs those that touch most, `make test-all` all.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from playwright.sync_api import expect, sync_playwright

from eddyline.report.sections import Section, Text
from eddyline.runtime.journal import JournalEntry
from eddyline.serve import pages
from eddyline.serve.runs import Failure, key_of
from eddyline.serve.server import serve
from tests.report.fakes import NODES, a_join_run, a_run
from tests.report.pages import EVIL
from tests.serve.fakes import TOKEN, FakeRun, FakeRuns, RunOfRules, SteeredRun, a_long_run

WIDE, NARROW = 1600, 360
LONGEST_MS = 20_000


@pytest.fixture(scope="module")
def chromium():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        pytest.skip("no chromium was found; on Debian: apt-get install chromium")
    expect.set_options(timeout=LONGEST_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def _pages_are_made_soon(monkeypatch):
    """On a slow machine a page that may take half a percent of it is made once in minutes."""
    monkeypatch.setattr(pages, "SHARE", 1.0)


@pytest.fixture
def open_page(chromium):
    """Return a tab and a server of runs: ``open_page(run, …)``; what the tab complains of fails."""
    servers, contexts, wrong = [], [], []

    def open_page(*runs, width=WIDE, at="/", port=0, **how):
        options = {
            name: how.pop(name) for name in ("color_scheme", "reduced_motion") if name in how
        }
        server = serve(FakeRuns(*runs), token=TOKEN, port=port, **how)
        servers.append(server)
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(LONGEST_MS)
        tab.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
        tab.on("pageerror", lambda each: wrong.append(str(each)))
        tab.on("dialog", lambda each: wrong.append(f"dialog: {each.message}"))
        tab.on(
            "request",
            lambda each: None if each.url.startswith(server.address) else wrong.append(each.url),
        )
        tab.goto(server.url)
        tab.wait_for_selector("h1")
        assert "token" not in tab.url
        if at != "/":
            tab.goto(server.address.rstrip("/") + at)
        tab.wait_for_function("document.querySelector('h1') !== null")
        return tab, server

    open_page.wrong = wrong
    yield open_page
    for each in contexts:
        each.close()
    for each in servers:
        each.stop()
    assert wrong == []


def path_of(run):
    return f"/run/{key_of(run)}"


@pytest.mark.large
def test_numbers_follow_each_batch_and_the_rest_follows_them(open_page):
    run = FakeRun()
    tab, _ = open_page(run)
    cell = tab.locator("[data-cell=out]")
    expect(cell).to_have_text(f"{sum(b.n_kept for b in run.view.history.batches):,}")
    tab.get_by_role("link", name="attacks").click()
    expect(tab.locator("[data-cell=batch]")).to_have_text("29")
    tab.wait_for_selector(".figure .main-svg")
    entry = JournalEntry(30, "arrow", "order", ["a", "b"], ["b", "a"], {"n_tuples": 4711})
    history = run.view.history
    run.view = replace(run.view, history=replace(history, journal=(*history.journal, entry)))
    run.add_batch()
    expect(tab.locator("[data-cell=batch]")).to_have_text("30")
    expect(tab.locator(".line")).to_contain_text("after batch 30")


@pytest.mark.large
def test_by_keyboard_alone(open_page):
    run = FakeRun()
    tab, _ = open_page(run)
    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.activeElement.id === 'main'")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="attacks")).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert tab.evaluate(outline) == "solid"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#plan")
    summary = tab.locator(".line summary").first
    for _ in range(12):
        tab.keyboard.press("Tab")
        if summary.evaluate("each => each === document.activeElement"):
            break
    expect(summary).to_be_focused()
    tab.keyboard.press("Enter")
    opened = tab.locator(".line details").first
    expect(opened.locator(".change")).to_be_visible()
    run.add_batch()
    expect(tab.locator("[data-cell=batch]")).to_have_text("30")
    tab.wait_for_timeout(1_500)  # the whole page is made anew after a second
    expect(opened.locator(".change")).to_be_visible()
    expect(summary).to_be_focused()


@pytest.mark.large
@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (380, "light"), (1600, "light")])
def test_an_entity_of_the_graph_is_opened_by_keyboard(open_page, width, scheme):
    run = FakeRun(view=replace(a_join_run(), nodes=NODES))
    tab, _ = open_page(run, width=width, at=path_of(run), color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    expect(tab.locator(".entity:visible")).to_have_count(0)
    box, panel = tab.locator("#box-4-1"), tab.locator("#entity-4-1")
    for _ in range(40):
        tab.keyboard.press("Tab")
        if box.evaluate("each => each === document.activeElement"):
            break
    expect(box).to_be_focused()
    assert (
        tab.evaluate("getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth")
        == "3.5px"
    )
    tab.keyboard.press("Enter")
    expect(panel).to_be_visible()
    expect(panel).to_contain_text("RANGE 10 MINUTES")
    panel.locator(".figure .main-svg").first.wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    run.add_batch()
    expect(tab.locator("[data-cell=batch]")).to_have_text("12")
    tab.wait_for_timeout(1_500)  # the whole page is made anew after a second
    expect(panel).to_be_visible()
    tab.keyboard.press("Tab")
    expect(panel.get_by_role("link", name="close")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(panel).to_be_hidden()
    tab.locator("#box-5").click()
    expect(tab.locator("#entity-5")).to_be_visible()
    expect(panel).to_be_hidden()


@pytest.mark.large
def test_script_in_names_and_values_stays_text(open_page):
    entries = tuple(
        JournalEntry(1, each, each, [each], [f"{each} 2"], {each: each}) for each in EVIL
    )
    view = a_run(30)
    sections = (*view.sections, Section(EVIL[0], tuple(map(Text, EVIL))))
    figures = replace(view, sections=sections, settings={EVIL[0]: EVIL[2]}, text=EVIL[1])
    run = FakeRun(EVIL[0], replace(figures, history=replace(view.history, journal=entries)))
    tab, _ = open_page(run)
    tab.get_by_role("link", name=EVIL[0]).click()
    expect(tab.locator("h1")).to_have_text(EVIL[0])
    tab.wait_for_selector(".figure .main-svg")
    run.add_batch()
    expect(tab.locator("[data-cell=batch]")).to_have_text("30")
    run.end(Failure("SourceError", EVIL[2]))
    expect(tab.locator(".verdict")).to_contain_text(EVIL[2])
    assert tab.evaluate("document.querySelectorAll('#main img, #main script[src]').length") == 0


@pytest.mark.large
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_width_in_light_and_dark(open_page, width, scheme):
    run = FakeRun("a_name_without_a_space_" * 5, a_long_run(200))
    tab, _ = open_page(run, FakeRun(), width=width, color_scheme=scheme)
    paths = ("/", path_of(run), f"{path_of(run)}/journal", path_of(FakeRun()))
    for at in paths:
        tab.goto(tab.url.split("/", 3)[0] + "//" + tab.url.split("/", 3)[2] + at)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, at
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 246, 243)", "dark": "rgb(20, 20, 19)"}[scheme]


@pytest.mark.large
def test_nothing_moves_for_who_wants_that(open_page):
    tab, _ = open_page(FakeRun(), at=path_of(FakeRun()), reduced_motion="reduce")
    tab.wait_for_selector(".figure .main-svg")
    assert tab.evaluate("document.getAnimations().length") == 0


@pytest.mark.large
def test_a_page_outlives_its_server(open_page):
    run = FakeRun()
    tab, server = open_page(run, at=path_of(run))
    expect(tab.locator("[data-cell=batch]")).to_have_text("29")
    server.stop()
    expect(tab.locator("#connection")).to_contain_text("connection is lost")
    run.add_batch()
    again = serve(FakeRuns(run), token=TOKEN, port=server.port)
    try:
        expect(tab.locator("[data-cell=batch]")).to_have_text("30")
        expect(tab.locator("#connection")).to_have_text("")
    finally:
        again.stop()
    lost = [each for each in open_page.wrong if "ERR_" in each]
    assert lost == open_page.wrong
    open_page.wrong.clear()


@pytest.mark.large
def test_a_server_with_another_token_says_so(open_page):
    run = FakeRun()
    tab, server = open_page(run, at=path_of(run))
    server.stop()
    again = serve(FakeRuns(run), token=TOKEN[::-1], port=server.port)
    try:
        expect(tab.locator("#connection")).to_contain_text("another token")
    finally:
        again.stop()
    open_page.wrong.clear()


@pytest.mark.large
def test_a_query_that_fails_while_somebody_looks(open_page):
    run = FakeRun("fragile")
    tab, _ = open_page(run, FakeRun())
    run.end(Failure("SourceError", "the disk is full"))
    expect(tab.locator("#connection")).to_have_text("Failed: fragile")
    expect(tab.locator("#queries tbody tr").first).to_contain_text("the disk is full")


@pytest.mark.large
def test_a_query_is_found_by_a_part_of_its_name(open_page):
    tab, _ = open_page(*(FakeRun(f"query {n:02}") for n in range(50)))
    tab.get_by_label("Find").fill("Y 07")
    expect(tab.locator("[data-name]:visible")).to_have_count(1)


@pytest.mark.large
def test_a_hand_by_keyboard(open_page):
    run = SteeredRun()
    tab, _ = open_page(run, at=path_of(run), controls=True)
    tab.get_by_role("link", name="Pin the plan").press("Enter")
    tab.get_by_label("arrow").check()
    tab.get_by_role("button", name="Pin the plan").press("Enter")
    tab.wait_for_selector("#plan")
    assert run.done == [("pin", "arrow")]


@pytest.mark.large
def test_rules_by_keyboard_on_a_narrow_page(open_page):
    run = RunOfRules({"big": "n > 5", "s" * 90: "n < 2 AND " * 30 + "n = 1"})
    tab, _ = open_page(run, at=path_of(run), width=NARROW, controls=True)

    def fits():
        assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW

    tab.get_by_role("link", name="Change rules").press("Enter")
    tab.wait_for_selector(".rules")
    fits()
    tab.get_by_role("link", name="Replace big").press("Enter")
    tab.get_by_label("Condition").fill("n > 6 AND\n'<b>' = 'x'")
    tab.get_by_label("Condition").press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".sure")
    fits()
    tab.get_by_role("button", name="Replace the rule").press("Enter")
    tab.wait_for_selector(".rules")
    assert [(each.how, each.text) for each in run.done] == [("replace", "n > 6 AND\n'<b>' = 'x'")]
    tab.get_by_role("link", name="Add a rule").press("Enter")
    tab.get_by_label("Name").fill("n" * 90)
    tab.get_by_label("Condition").fill("m" * 200)
    tab.get_by_role("button", name="Check it").press("Enter")
    tab.wait_for_selector(".sure")
    fits()


@pytest.mark.large
def test_other_sites_get_nothing(chromium, open_page):
    run = FakeRun()
    tab, server = open_page(run)
    with serve(FakeRuns(), token=TOKEN[::-1]) as other:
        stranger = tab.context.new_page()
        stranger.goto(other.url)
        stranger.wait_for_selector("h1")
        asked = "address => fetch(address, {credentials: 'include'}).then(() => 'told', () => 'no')"
        assert stranger.evaluate(asked, f"{server.address}events") == "no"


@pytest.mark.large
@pytest.mark.soak
def test_a_page_that_is_open_for_long_does_not_grow(open_page):
    run = FakeRun()
    tab, _ = open_page(run, at=path_of(run))
    tools = tab.context.new_cdp_session(tab)
    tools.send("Performance.enable")

    def after(n):
        for _ in range(n):
            run.add_batch()
            tab.wait_for_timeout(150)
        tools.send("HeapProfiler.collectGarbage")
        told = tools.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in told}

    first, last = after(100), after(200)
    # A page that was replaced may not be collected yet; a leak would keep some thirty of them.
    assert last["Nodes"] <= 3 * first["Nodes"]
    assert last["JSEventListeners"] <= 3 * first["JSEventListeners"]
    assert last["JSHeapUsedSize"] <= 1.25 * first["JSHeapUsedSize"]
