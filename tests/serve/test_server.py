"""The server itself: its port, its thread, its events."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time

import pytest

from eddyline.errors import OptionError, SourceError
from eddyline.serve import app
from eddyline.serve.guard import Guard
from eddyline.serve.runs import Failure, key_of
from eddyline.serve.server import serve
from tests.serve.fakes import TOKEN, FakeRun, FakeRuns

LONGEST_S = 10.0


@pytest.fixture
def server():
    """Return a server of runs, stopped at the end: ``server(run, …)``."""
    made = []

    def server(*runs, **how):
        made.append(serve(FakeRuns(*runs), token=TOKEN, **how))
        return made[-1]

    yield server
    for each in made:
        each.stop()


def get(server, path="/"):
    cookie = Guard(TOKEN, "127.0.0.1", server.port).cookie.partition(";")[0]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONGEST_S)
    connection.request("GET", path, headers={"cookie": cookie})
    return connection.getresponse()


def events(answer, n):
    """Return the next events of a stream: their kinds and contents."""
    found, kind = [], ""
    while len(found) < n:
        line = answer.readline().decode()
        assert line, "the stream has ended"
        name, _, value = line.strip().partition(": ")
        kind = value if name == "event" else kind
        if name == "data":
            found.append((kind, json.loads(value)))
    return found


def test_it_answers_until_it_is_stopped_and_leaves_no_thread(server):
    before = set(threading.enumerate())
    page = server(FakeRun())
    assert get(page).status == 200
    assert page.is_running
    stream = get(page, "/events")
    stream.readline()
    page.stop()
    page.stop()
    assert not page.is_running
    for each in set(threading.enumerate()) - before:
        each.join(LONGEST_S)  # a worker of the loop that has ended may take a moment longer
        assert not each.is_alive()
    with pytest.raises(ConnectionRefusedError):
        get(page)


def test_a_block_ends_it():
    with serve(FakeRuns(FakeRun()), token=TOKEN) as page:
        assert get(page).status == 200
        assert TOKEN in page.url
        assert TOKEN not in repr(page)
    assert not page.is_running


def test_it_listens_on_the_loopback_address_alone(server):
    page = server(FakeRun())
    assert page._listener.getsockname()[0] == "127.0.0.1"


def test_each_start_has_a_token_of_its_own():
    with serve(FakeRuns()) as one, serve(FakeRuns()) as other:
        assert one.url.partition("token=")[2] != other.url.partition("token=")[2]
        assert len(one.url.partition("token=")[2]) >= 32


def test_a_port_that_is_taken_is_a_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SourceError, match=rf"127.0.0.1:{port}: [^:(]*; .*give another port"):
            serve(FakeRuns(), port=port)


def test_an_address_of_another_machine_is_a_clear_error():
    with pytest.raises(SourceError, match=r"192\.0\.2\.1:0: .*give an address of this machine"):
        serve(FakeRuns(), host="192.0.2.1")  # an address of documentation (RFC 5737)


@pytest.mark.parametrize("port", [-1, 65_536, True, "80", None])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(OptionError, match="a port is a number"):
        serve(FakeRuns(), port=port)


@pytest.mark.parametrize("token", ["short", "a b c d e f g h i j k", "é" * 30, "<>" * 20])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(OptionError, match="a token is made of"):
        serve(FakeRuns(), token=token)


def test_a_batch_is_one_event(server):
    run, other = FakeRun(), FakeRun("other")
    stream = get(server(run, other), "/events")
    assert stream.getheader("content-type").startswith("text/event-stream")
    assert stream.readline() == b"retry: 1500\n"
    added = [run.add_batch(n_rows=n) for n in (1, 2, 3)]
    found = events(stream, 3)
    assert [kind for kind, _ in found] == ["batch"] * 3
    assert [each["batch"] for _, each in found] == [each.batch_id for each in added]
    assert {each["run"] for _, each in found} == {key_of(run)}
    assert found[-1][1]["cells"]["rows-of-batch"] == "3 rows"
    other.add_batch()
    assert events(stream, 1)[0][1]["run"] == key_of(other)


def test_a_page_of_one_run_hears_of_that_alone(server):
    run, other = FakeRun(), FakeRun("other")
    stream = get(server(run, other), f"/events?run={key_of(run)}")
    stream.readline()
    other.add_batch()
    run.add_batch()
    assert events(stream, 1)[0][1]["run"] == key_of(run)


def test_a_failure_is_an_event(server):
    run = FakeRun("fragile")
    stream = get(server(run), "/events")
    stream.readline()
    run.end(Failure("SourceError", "no disk"))
    assert events(stream, 1) == [("runs", {"failed": ["fragile"]})]


def test_it_works_beside_an_event_loop_that_runs():
    async def cell():
        with serve(FakeRuns(FakeRun()), token=TOKEN) as page:
            return await asyncio.to_thread(lambda: get(page).status)

    assert asyncio.run(cell()) == 200


def test_a_page_that_is_open_goes_on_after_a_restart_with_the_same_token():
    with serve(FakeRuns(FakeRun()), token=TOKEN) as first:
        assert get(first).status == 200
    with serve(FakeRuns(FakeRun()), token=TOKEN, port=first.port) as second:
        assert get(second).status == 200


def opened(server, said=b""):
    """Return a connection that has said something."""
    made = socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S)
    made.sendall(said)
    return made


@pytest.mark.parametrize("before", ["", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_who_does_not_end_a_request_is_not_waited_for(server, monkeypatch, before):
    monkeypatch.setattr(app, "PATIENCE_S", 0.2)
    half = opened(server(FakeRun()), before.encode())
    if before:
        assert b"401" in half.recv(10_000)
    half.sendall(b"GET / HT")
    found = b"-"
    while found:  # ends once the server has closed it, or in an error
        found = half.recv(10_000)
    half.close()


def test_streams_of_events_outlast_the_patience(server, monkeypatch):
    monkeypatch.setattr(app, "PATIENCE_S", 0.1)
    run = FakeRun()
    answer = get(server(run), "/events")
    time.sleep(0.3)
    run.add_batch()
    assert events(answer, 1)[0][0] == "batch"


def test_connections_are_so_many_at_most(server, monkeypatch):
    monkeypatch.setattr(app, "MOST_CONNECTIONS", 3)
    made = server(FakeRun())
    open_ones = [opened(made) for _ in range(3)]
    with opened(made) as further:
        assert further.recv(1) == b""
    open_ones.pop().close()
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:  # until the server has noticed that one is gone
        try:
            if get(made).status == 200:
                break
        except (http.client.HTTPException, OSError):
            time.sleep(0.01)
    else:
        pytest.fail("nobody is let in")
    for each in open_ones:
        each.close()
