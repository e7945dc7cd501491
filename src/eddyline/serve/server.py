"""Server of the page, on the loopback address.

The server runs in a thread with an event loop of its own.
"""

from __future__ import annotations

import errno
import secrets
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict

from eddyline.errors import OptionError, SourceError
from eddyline.registry import package
from eddyline.serve.guard import Guard
from eddyline.serve.pages import NEEDS

if TYPE_CHECKING:
    from eddyline.serve.runs import RunSource

LOOPBACK = "127.0.0.1"

LEAST_TOKEN = 16
"""Characters that a given token has at least."""

START_WAIT_S = 10.0
"""Longest wait for the server to answer (s)."""

STOP_WAIT_S = 5.0
"""Longest wait for its thread to end (s)."""


class How(TypedDict, total=False):
    """How a page is served; see ``serve``."""

    host: str
    token: str | None
    values: bool
    controls: bool


class Server:
    """The page of some runs, served until it is stopped; made by ``serve``.

    Use it as a context manager, or call ``stop``. Open ``url`` in a browser.
    """

    def __init__(
        self,
        source: RunSource,
        listener: socket.socket,
        guard: Guard,
        token: str,
        *,
        values: bool,
        controls: bool,
    ) -> None:
        uvicorn = package("uvicorn", NEEDS)
        package("starlette", NEEDS)
        package("jinja2", NEEDS)
        package("plotly.offline", NEEDS)
        # These need the packages.
        from eddyline.serve.app import (  # noqa: PLC0415
            BoundedProtocol,
            Page,
            application,
        )

        host, self.port = listener.getsockname()[:2]
        self.host = f"[{host}]" if ":" in host else host
        self._token = token
        self._page = Page(source, values=values, controls=controls)
        config = uvicorn.Config(
            application(self._page, guard),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="on",
            http=BoundedProtocol,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._listener = listener
        self._server = uvicorn.Server(config)
        serve_pages = partial(self._server.run, sockets=[listener])
        self._thread = threading.Thread(target=serve_pages, name="eddyline page", daemon=True)
        self._thread.start()
        self._await_start()

    @property
    def url(self) -> str:
        """The address to open once, with the token in it; keep it as you keep a password."""
        return f"{self.address}?token={self._token}"

    @property
    def address(self) -> str:
        """The address without the token."""
        return f"http://{self.host}:{self.port}/"

    @property
    def is_running(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive() and not self._page.closing.is_set()

    def wait(self) -> None:
        """Wait until the server is stopped, or Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        """Stop serving; the runs go on. Stopping again does nothing."""
        self._page.closing.set()
        self._server.should_exit = True
        self._thread.join(STOP_WAIT_S)
        self._listener.close()

    def _await_start(self) -> None:
        ended = threading.Event()
        for _ in range(round(START_WAIT_S / 0.02)):
            if self._server.started or not self._thread.is_alive():
                break
            ended.wait(0.02)
        if not self._server.started:
            self.stop()
            msg = f"the page did not start to answer on port {self.port}; give another port"
            raise SourceError(msg, port=self.port)

    def __repr__(self) -> str:
        """Say where it is, without the token."""
        return f"<page at {self.address}: {'running' if self.is_running else 'stopped'}>"

    def __enter__(self) -> Self:
        """Return the server, which is stopped when the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.stop()


def serve(
    source: RunSource,
    *,
    port: int = 0,
    host: str = LOOPBACK,
    token: str | None = None,
    values: bool = False,
    controls: bool = False,
) -> Server:
    """Serve the page of some runs.

    Args:
        source: knows the runs.
        port: to listen on; 0 takes a free one.
        host: address to listen on; any other than the loopback address lets other machines ask,
            without encryption.
        token: the secret of the address; a new one at each start if omitted. With one of your own a
            page that is open goes on after a restart.
        values: whether values of rows are shown, such as names of groups and classes of rows.
        controls: whether the page has buttons that pin plans, let them adapt, and stop runs.

    Raises:
        OptionError: the port or the token is none.
        SourceError: the port is taken, or the address is not one of this machine.
        PluginError: the extra ``serve`` is not installed.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65_536:
        msg = f"a port is a number from 0 (a free one) to 65535, got {port!r}"
        raise OptionError(msg, port=port)
    if token is not None and (
        len(token) < LEAST_TOKEN or not token.isascii() or not token.isalnum()
    ):
        msg = f"a token is made of at least {LEAST_TOKEN} letters and digits; omit it for a new one"
        raise OptionError(msg)
    secret = token or secrets.token_hex(24)
    listener = _listening(host, port)
    try:
        guard = Guard(secret, host, listener.getsockname()[1])
        return Server(source, listener, guard, secret, values=values, controls=controls)
    except BaseException:
        listener.close()
        raise


def _listening(host: str, port: int) -> Any:
    """Return a socket that listens.

    Raises:
        SourceError: the port is taken, or the address is not one of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        # Python adds the address to the reason, in brackets.
        why = (error.strerror or str(error)).partition(" (while")[0]
        msg = f"the page cannot listen on {host}:{port}: {why}; {_advice(error)}"
        raise SourceError(msg, host=host, port=port) from error


def _advice(error: OSError) -> str:
    """Say what to do about an address that nothing can listen on."""
    if error.errno == errno.EADDRINUSE:
        return "stop what listens there, or give another port (0: a free one)"
    if error.errno == errno.EACCES:
        return "give a port from 1024 on (0: a free one)"
    return "give an address of this machine as host: 127.0.0.1, or 0.0.0.0 for all of them"
