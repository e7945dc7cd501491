"""Connections of the server: so many at most, and none is kept that asks for nothing.

They are open files of a process that runs queries, so that nobody may take all of them, whether let
in or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

MOST = 400
"""Connections at a time; of more, the newest are closed."""

PATIENCE_S = 10.0
"""Longest wait for a whole request, from its first byte or the connection on (s)."""


class BoundedProtocol(H11Protocol):
    """A connection that is closed where a request takes too long to come."""

    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a connection."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take in what has come of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        if not self._is_waiting:
            self._stop_watching()
        elif self._ends is None:
            self._ends = self.loop.call_later(PATIENCE_S, self._end)

    @property
    def _is_waiting(self) -> bool:
        """Whether no whole request is being answered."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete

    def _stop_watching(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _end(self) -> None:
        self._ends = None
        if self._is_waiting:
            self.transport.close()
