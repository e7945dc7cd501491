"""Access to the server: checks of token, host and origin.

* The token comes once in the address; a cookie that scripts cannot read and that other sites cannot
  send replaces it. Tokens are compared in constant time.
* The name in ``Host`` must be an address, ``localhost`` or the name the server was bound to: a site
  cannot make its own name lead here (DNS rebinding).
* ``Origin`` and ``Sec-Fetch-Site``, where a browser sends them, must say that a page of this server
  asks; from elsewhere a person may only follow a link.
* Every answer forbids scripts, styles, images and connections but the server's own, frames, guesses
  of types, referrers elsewhere and storing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_STYLE = base64.b64encode(hashlib.sha256(b"").digest()).decode()
"""Of an empty style element: Plotly adds one, whose rules it then sets by script."""

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' 'sha256-{NO_STYLE}'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": forms would then be sent without the origin that is asked for.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Sent with every answer; one that names a header of these itself keeps its own."""


BEARER = "Bearer "
"""Before a token that a program sends in a header, such as Prometheus; pages of others cannot."""


_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
"""What ``Host`` may be: an address or a name, and a port."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in."""

    status: int
    why: str


class Guard:
    """Decides who is let in.

    Args:
        token: the secret.
        host: the address or name that the server was bound to.
        port: its port; cookies of servers on other ports have other names.
    """

    def __init__(self, token: str, host: str, port: int) -> None:
        self._token = token.encode()
        # Not the token itself: who sees a cookie has no address to open.
        self._session = hmac.new(self._token, b"eddyline page", hashlib.sha256).hexdigest()
        self._host = host.lower()
        self.cookie_name = f"eddyline_{port}"

    @property
    def cookie(self) -> str:
        """The cookie that replaces the token, as the value of ``Set-Cookie``."""
        return f"{self.cookie_name}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def has_token(self, text: str) -> bool:
        """Tell whether a text is the token."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token)

    def refusal(self, method: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
        """Return why a request is not let in, or None.

        Args:
            method: of the request.
            headers: of the request, by names in lower case.
            token: the one in the address, if there is one.
        """
        host = headers.get("host", "")
        if not self._is_own_name(host):
            return Refusal(421, "The server does not go by this name; open it by its address.")
        if not _is_from_here(method, headers, host):
            return Refusal(403, "Requests from pages of other servers are refused.")
        if token is not None:
            is_let_in = self.has_token(token) and method == "GET"
        elif headers.get("authorization", "").startswith(BEARER):
            is_let_in = self.has_token(headers["authorization"].removeprefix(BEARER))
        else:
            is_let_in = self._has_cookie(headers)
        if is_let_in:
            return None
        return Refusal(
            401 if token is None else 403,
            "Open the whole address that the server has told, with its token; each start has a "
            "token of its own, unless one was given.",
        )

    def _is_own_name(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        name = "" if match is None else (match["address"] or match["name"]).lower()
        return name in ("localhost", self._host) or _is_address(name)

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the cookie is among those sent; others are of any form, and pass by.

        They come from all servers of this machine, as cookies know no ports.
        """
        sent = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
        session = self._session.encode()
        return any(
            hmac.compare_digest(value.encode(), session)
            for name, _, value in sent
            if name == self.cookie_name
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_from_here(method: str, headers: Mapping[str, str], host: str) -> bool:
    """Tell whether a page of this server asks, or a person who opens one."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        return origin == f"http://{host}" and site in (None, "same-origin")
    if method not in ("GET", "HEAD"):
        return False
    is_opened = headers.get("sec-fetch-mode") == "navigate" and (
        headers.get("sec-fetch-dest") == "document"
    )
    return site in (None, "same-origin", "none") or is_opened


class Guarded:
    """An ASGI application behind a guard, which also sets the headers of every answer.

    Args:
        app: the application.
        guard: decides who is let in.
        refused: returns the text of a page that says why somebody is not let in.
    """

    def __init__(self, app: Any, guard: Guard, refused: Any) -> None:
        self._app = app
        self._guard = guard
        self._refused = refused

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        token = _token_of(scope["query_string"])
        refusal = self._guard.refusal(scope["method"], headers, token)
        answer = _with_headers(send)
        if refusal is not None:
            await _send_page(answer, refusal.status, self._refused(refusal.why))
        elif token is not None:
            # No redirect: a browser that came by a link from another site would not send the cookie
            # to where it leads. The page that opens itself anew does.
            await _send_page(answer, 200, OPENS, [(b"set-cookie", self._guard.cookie.encode())])
        else:
            await self._app(scope, receive, answer)


OPENS = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>eddyline</title>'
    '<meta http-equiv="refresh" content="0;url=/"><p><a href="/">Open the page</a>'
)
"""Leads to the page without the token in its address."""


def _token_of(query: bytes) -> str | None:
    """Return the token in the address, if there is one."""
    tokens = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("token")
    return None if tokens is None else tokens[0]


async def _send_page(send: Any, status: int, text: str, more: Any = ()) -> None:
    body = text.encode()
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"text/html; charset=utf-8")
    start = {"type": "http.response.start", "status": status, "headers": [length, kind, *more]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Any) -> Any:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            added = [header for header in more if header[0] not in names]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent
