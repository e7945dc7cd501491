"""Costs are those of the work, not of the company it has on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from eddyline.stats import work_clock
from eddyline.stats.work_clock import work_ns

COUNTED = pytest.mark.skipif(
    not work_clock._COUNTS.exists(), reason="this system does not count time in the queue"
)
VALUES = np.random.default_rng(1).random(100_000)


def compute():
    values = VALUES
    for _ in range(20):
        values = np.sqrt(values * values + 1.0)


def timed(clock, work):
    started = clock()
    work()
    return clock() - started


def median(work, n=15):
    return float(np.median([timed(work_ns, work) for _ in range(n)]))


@pytest.fixture
def busy_cores():
    """Two processes a core that do nothing but compute."""
    n = 2 * (os.cpu_count() or 1)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    time.sleep(0.3)
    yield
    for each in others:
        each.kill()
        each.wait()


def test_readings_ascend():
    readings = [work_ns() for _ in range(5_000)]
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_waiting_counts_as_the_time_that_passes():
    assert 0.9 < timed(work_ns, lambda: time.sleep(0.05)) / 50e6 < 3.0


@COUNTED
def test_time_without_a_core_does_not_count(busy_cores):
    work, passed = [], []
    for _ in range(30):
        started = time.perf_counter_ns()
        cpu = time.thread_time_ns()
        work.append(timed(work_ns, compute) / (time.thread_time_ns() - cpu))
        passed.append(time.perf_counter_ns() - started)
    assert 0.9 < np.median(work) < 1.1
    assert timed(work_ns, lambda: time.sleep(0.05)) > 45e6, "who waits is charged, still"


@COUNTED
def test_each_thread_has_its_own():
    found = {}
    both = threading.Barrier(2)

    def count(name):
        found[name] = timed(work_ns, compute), work_clock._of_thread.counts.fileno()
        both.wait()  # a thread that ended gives its file's number back

    work_ns()
    threads = [threading.Thread(target=count, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    own = work_clock._of_thread.counts.fileno()
    assert all(taken > 0 for taken, _ in found.values())
    assert len({own, *(file for _, file in found.values())}) == 3


@COUNTED
def test_a_forked_process_opens_its_own():
    work_ns()
    code = (
        "import os, sys, time; from eddyline.stats import work_clock as c\n"
        "c.work_ns(); before = c._of_thread.counts\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    c.work_ns(); os._exit(0 if c._of_thread.counts is not before else 1)\n"
        "sys.exit(os.waitpid(pid, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_time_counts_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(work_clock, "_COUNTS", tmp_path / "none")
    monkeypatch.setattr(work_clock, "_of_thread", threading.local())
    assert timed(work_ns, lambda: time.sleep(0.01)) >= 10e6
    short = tmp_path / "schedstat"
    short.write_text("0\n")
    monkeypatch.setattr(work_clock, "_COUNTS", short)
    monkeypatch.setattr(work_clock, "_of_thread", threading.local())
    assert timed(work_ns, lambda: time.sleep(0.01)) >= 10e6
