"""Who is let in."""

from __future__ import annotations

import pytest

from eddyline.serve.app import Page
from eddyline.serve.guard import Guard
from eddyline.serve.runs import key_of
from tests.serve.fakes import TOKEN, FakeRun, FakeRuns, RunOfRules

RUN = f"/run/{key_of(FakeRun())}"
PATHS = [
    "/",
    RUN,
    "/metrics",
    f"{RUN}/journal",
    "/events",
    "/static/page.js",
    "/favicon.ico",
    "/nothing",
]
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


@pytest.fixture
def stranger(page):
    return page.of(Page(FakeRuns(FakeRun())), is_in=False)


@pytest.mark.parametrize("path", PATHS)
def test_without_a_token_nothing_is_told(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert "attacks" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "é" * 20])
def test_a_wrong_token_is_refused(stranger, token):
    answer = stranger.get("/", params={"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_that_is_not_the_token(stranger):
    answer = stranger.get("/", params={"token": TOKEN})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {each.strip() for each in cookie.split(";")}
    assert TOKEN not in answer.text, "the address that follows has no token"
    assert stranger.get("/").status_code == 200


def test_a_program_sends_the_token_in_a_header(stranger):
    def asked(token, **more):
        sent = {"authorization": f"Bearer {token}", **more}
        return stranger.get("/metrics", headers=sent).status_code

    assert asked(TOKEN) == 200
    assert asked("x") == asked("") == 401
    assert asked(TOKEN, origin="http://evil.example") == 403


def test_a_cookie_of_another_server_or_of_no_sense_is_refused(stranger):
    other = Guard("another token 12345", "127.0.0.1", 8123)
    for value in (other.cookie.partition(";")[0], "eddyline_8123=", 'eddyline_8123="é', "a=b"):
        sent = {"cookie": value.encode("latin-1")}
        assert stranger.get("/", headers=sent).status_code == 401


@pytest.mark.parametrize("other", ['x={"a": 1}', "a[b]=1", "alone", "é=1", 'x="open', "="])
def test_cookies_that_other_servers_of_this_machine_have_set_shut_nobody_out(stranger, other):
    own = Guard(TOKEN, "127.0.0.1", 8123).cookie.partition(";")[0]
    for sent in (f"{other}; {own}", f"{own}; {other}", f"eddyline_8123=old; {own}"):
        answer = stranger.get("/", headers={"cookie": sent.encode("latin-1")})
        assert answer.status_code == 200, sent


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8123", 200),
        ("localhost:9000", 200),
        ("[::1]:8123", 200),
        ("10.1.2.3:8123", 200),
        ("evil.example", 421),
        ("evil.example:8123", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("", 421),
        ("[", 421),
        ("[::1", 421),
        ("127.0.0.1\u00b8:80", 421),
        ("127.0.0.1:8123,evil.example", 421),
        ("localhost.", 421),
    ],
)
def test_a_name_that_leads_here_is_no_address(page, host, status):
    client = page(FakeRun())
    assert client.get("/", headers={"host": host.encode("latin-1")}).status_code == status


def test_the_name_that_was_bound_is_an_address():
    guard = Guard(TOKEN, "Box.local", 1)
    assert guard.refusal("GET", {"host": "box.local:1"}, TOKEN) is None
    assert guard.refusal("GET", {"host": "box.locals:1"}, TOKEN).status == 421


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"origin": "http://127.0.0.1:8123"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8124"}, 403),
        ({"origin": "https://127.0.0.1:8123"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        (
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            200,
        ),
        (
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "iframe",
            },
            403,
        ),
    ],
)
def test_pages_of_others_ask_in_vain(page, sent, status):
    assert page(FakeRun()).get("/", headers=sent).status_code == status


@pytest.mark.parametrize("path", [each for each in PATHS if each != "/events"])
def test_every_answer_is_shut_in(page, path):
    answer = page(FakeRun()).get(path)
    for name, value in HEADERS.items():
        if not (name == "cache-control" and path.startswith("/static")):
            assert answer.headers[name] == value
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_refusal_is_shut_in_too(stranger):
    answer = stranger.get("/")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


HERE = {"origin": "http://127.0.0.1:8123"}


@pytest.mark.parametrize(
    "name", ["pin", "adapt", "stop", "rules/add", "rules/replace", "rules/remove"]
)
def test_a_hand_needs_to_be_switched_on_and_to_come_from_here(page, name):
    run = RunOfRules({"big": "n > 5"})
    path = f"/run/{key_of(run)}/{name}"
    fields = {"name": "big", "text": "n > 1", "mark": run.rules().rule("big").mark, "sure": "yes"}

    def status(client, headers=None, **more):
        return client.post(path, data=fields, headers=headers, **more).status_code

    assert status(page(run), HERE) == 404
    client = page(run, controls=True)
    assert status(client) == 403, "no page of this server asks"
    assert status(client, {"origin": "http://evil.example"}) == 403
    assert status(client, {**HERE, "sec-fetch-site": "cross-site"}) == 403
    client.cookies.clear()
    assert status(client, HERE) == 401
    assert status(client, HERE, params={"token": TOKEN}) == 403
    assert run.done == []
