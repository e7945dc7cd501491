"""Runs that are stopped together: all of them, whatever one of them does."""

from __future__ import annotations

import signal
import threading

import pytest

from eddyline.spark.run.running_query import stop_runs

pytestmark = pytest.mark.timeout(60)


class FakeRun:
    group = None

    def __init__(self, name, *, error=None, waits_for=None):
        self.name, self.isActive = name, True
        self._error, self._waits_for = error, waits_for
        self.stopped = threading.Event()

    def stop(self, *, why=None):
        if self._waits_for is not None:
            self._waits_for.wait(30)
        if self._error is not None:
            raise self._error
        self.isActive = False
        self.stopped.set()


class GoneRun(FakeRun):
    @property
    def isActive(self):
        msg = "the session was stopped"
        raise RuntimeError(msg)

    @isActive.setter
    def isActive(self, value):
        pass


def test_a_run_that_cannot_be_stopped_does_not_hide_the_others():
    bad = FakeRun("bad", error=TimeoutError("it takes too long"))
    runs = [FakeRun("first"), bad, GoneRun("gone"), FakeRun("last")]
    with pytest.raises(TimeoutError, match="too long"):
        stop_runs(runs)
    assert [runs[0].isActive, runs[3].isActive] == [False, False]


def test_runs_are_stopped_at_once_and_waited_for():
    gate = threading.Event()
    first = FakeRun("first", waits_for=gate)
    second = FakeRun("second")
    waiting = threading.Thread(target=stop_runs, args=([first, second],))
    waiting.start()
    assert second.stopped.wait(30), "it does not wait for the first"
    assert waiting.is_alive()
    gate.set()
    waiting.join(30)
    assert first.stopped.is_set()
    stop_runs([first, second])


def test_ctrl_c_ends_the_wait_and_the_runs_stop_nevertheless():
    gate = threading.Event()
    runs = [FakeRun("first", waits_for=gate), FakeRun("second", waits_for=gate)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            stop_runs(runs)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    gate.set()
    assert all(each.stopped.wait(30) for each in runs)
