"""Fixtures of tests of sources."""

from tests.sources.broker import broker, own_broker

__all__ = ["broker", "own_broker"]
