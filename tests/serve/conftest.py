"""The page of fake runs, asked as a browser would that has the token."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from eddyline.serve.app import Page, application
from eddyline.serve.guard import Guard
from tests.serve.fakes import TOKEN, FakeRuns

ADDRESS = "http://127.0.0.1:8123"


@pytest.fixture
def page():
    """Return a page of runs and a client that is let in: ``page(run, …)``."""
    clients = []

    def page(*runs, **how):
        return of(Page(FakeRuns(*runs), **how))

    def of(made, *, is_in=True):
        guard = Guard(TOKEN, "127.0.0.1", 8123)
        client = TestClient(application(made, guard), base_url=ADDRESS)
        client.made = made
        clients.append(client)
        if is_in:
            assert client.get("/", params={"token": TOKEN}).status_code == 200
        return client

    page.of = of
    yield page
    for each in clients:
        each.close()
