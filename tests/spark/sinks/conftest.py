"""Fixtures of tests of sinks that run Spark."""

from tests.sources.broker import broker, own_broker

__all__ = ["broker", "own_broker"]
