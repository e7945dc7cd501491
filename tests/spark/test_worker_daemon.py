"""Workers are forked with all that tasks import, and otherwise as ``pyspark.daemon`` forks them."""

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``parents``.

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.serializers import UTF8Deserializer, read_int, write_with_length
from pyspark.sql.functions import arrow_udf

from eddyline.spark import session as sessions
from eddyline.spark import worker_daemon

pytestmark = pytest.mark.spark

SECRET = "secret"
SOON_S = 60

PROBE = """
import gc, json, os, signal, sys, time

def main(infile, outfile):
    loaded = list(sys.modules)  # before numpy, if it is not there
    import numpy
    alarm = signal.getsignal(signal.SIGALRM)
    # What the worker forks has nothing to do with the daemon.
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        if os.fork() == 0:
            os._exit(signal.getsignal(signal.SIGALRM) != signal.SIG_IGN)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    said = {
        "loaded": loaded, "frozen": gc.get_freeze_count(), "number": numpy.random.rand(),
        "threads": len(os.listdir("/proc/self/task")), "alarm": alarm == signal.SIG_DFL,
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "forked": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
    }
    text = json.dumps(said).encode()
    outfile.write(len(text).to_bytes(4, "big") + text)
    outfile.flush()
    sys.exit(1)  # such a worker is not used again
"""
"""Stands for ``pyspark.worker``: tells of its process."""

RUN = "import eddyline.spark.worker_daemon as d; d.IDLE_S = {idle_s}; d.FIRST += {more}; d.run()"
SOON_IDLE_S = 0.05
"""After which a daemon imports what tasks of all operators need, which takes seconds."""


class Daemon:
    """A daemon as Spark starts it."""

    def __init__(self, folder, more=(), idle_s=SOON_S):
        (folder / "pyspark_probe.py").write_text(PROBE)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            "OMP_NUM_THREADS": "1",  # as Spark does
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN.format(more=more, idle_s=idle_s), "pyspark_probe"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = read_int(self.process.stdout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()  # by which Spark ends it
        assert self.process.wait(SOON_S) == 1  # as pyspark's own
        self.process.stdout.close()

    @property
    def module(self):
        """The module that runs; ``-c`` is ours."""
        words = Path(f"/proc/{self.process.pid}/cmdline").read_text().split("\0")
        return words[2] if words[1] == "-m" else "ours"

    def connected(self):
        """Return a file of a new worker, with its process."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SOON_S) as sock:
            file = sock.makefile("rwb")
        return file, read_int(file)

    def worker(self):
        """Return what a new worker tells of its process."""
        file, _ = self.connected()
        with file:
            write_with_length(SECRET.encode(), file)
            file.flush()
            assert UTF8Deserializer().loads(file) == "ok"
            return json.loads(UTF8Deserializer().loads(file))

    def loaded_worker(self):
        """Return what a worker tells when the daemon has loaded what tasks import."""
        until = time.monotonic() + SOON_S
        while "numba" not in (said := self.worker())["loaded"]:
            assert time.monotonic() < until
            time.sleep(0.2)  # it loads when no worker was asked for in a while
        return said


@pytest.mark.large("imports what tasks of all operators need")
def test_workers_have_loaded_what_tasks_import_and_are_otherwise_new(tmp_path):
    with Daemon(tmp_path, idle_s=SOON_IDLE_S) as daemon:
        first = daemon.worker()
        assert {*worker_daemon.FIRST} <= {*first["loaded"]}
        said = [daemon.loaded_worker(), daemon.worker()]
    for each in said:
        assert {*worker_daemon.LATER} <= {*each["loaded"]}
        assert each["frozen"] > 100_000  # the modules
        assert (each["threads"], each["alarm"], each["timer"], each["forked"]) == (1, True, 0, 0)
    assert len({each["number"] for each in [first, *said]}) == 3


@pytest.mark.large
def test_what_a_query_needs_is_there_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv(worker_daemon.LOADS, "eddyline.state.grid,eddyline.spark.aggregates.task")
    with Daemon(tmp_path) as daemon:
        said = daemon.worker()
    assert {"eddyline.spark.aggregates.task", "eddyline.state.grid", "numba"} <= {*said["loaded"]}
    assert "eddyline.spark.models.task" not in said["loaded"]
    assert said["frozen"] > 100_000
    assert (said["threads"], said["alarm"], said["timer"], said["forked"]) == (1, True, 0, 0)


@pytest.mark.parametrize("module", ["not_there", "odd"])
def test_what_a_query_needs_may_fail(tmp_path, monkeypatch, module):
    (tmp_path / "odd.py").write_text("print('hello', flush=True); raise RuntimeError")
    monkeypatch.setenv(worker_daemon.LOADS, module)
    with Daemon(tmp_path) as daemon:
        assert "pyarrow" in daemon.worker()["loaded"]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("print('hello', flush=True); import os; os.write(1, b'from C')", "ours"),
        ("import threading, time; threading.Thread(target=time.sleep, args=[9]).start()", None),
        ("raise RuntimeError", None),
        ("import not_there", None),
    ],
)
def test_where_imports_fail_or_start_threads_it_is_pysparks_own(tmp_path, source, module):
    (tmp_path / "odd.py").write_text(source)
    with Daemon(tmp_path, ("odd",)) as daemon:
        assert daemon.module == (module or "pyspark.daemon")
        assert ("pyarrow" in daemon.worker()["loaded"]) == (module is not None)


@pytest.mark.large
def test_what_tasks_import_may_fail(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "no such machine")
    (tmp_path / "pandas.py").write_text("raise RuntimeError")
    with Daemon(tmp_path, idle_s=SOON_IDLE_S) as daemon:
        for _ in range(3):
            assert "eddyline.spark.joins.task" not in daemon.worker()["loaded"]
            time.sleep(0.2)


def is_ignored(number, process):
    """Return whether a process ignores a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.large
def test_workers_end_with_it(tmp_path):
    with Daemon(tmp_path) as daemon:
        file, worker = daemon.connected()
        until = time.monotonic() + SOON_S
        while is_ignored(signal.SIGHUP, worker):  # as its daemon does, until it has begun
            assert time.monotonic() < until
            time.sleep(0.01)
    with file:
        assert file.read() == b""
    with Daemon(tmp_path) as daemon:
        file, worker = daemon.connected()
        with file:
            daemon.process.stdin.write(worker.to_bytes(4, "big"))  # Spark gives a worker up
            daemon.process.stdin.flush()
            assert file.read() == b""
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(SOON_S) == 1


def test_the_local_session_uses_it(spark):
    def parents(ids: pa.Array) -> pa.Array:
        line = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        return pa.array([line] * len(ids))

    rows = spark.range(1).select(arrow_udf(parents, "string")("id")).collect()
    assert "eddyline.spark.worker_daemon" in rows[0][0].split("\0")


def test_only_where_workers_find_this_package(monkeypatch, tmp_path):
    assert sessions._is_found_by(sys.executable)
    assert not sessions._is_found_by(str(tmp_path / "no_python"))
    (tmp_path / "eddyline.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not sessions._is_found_by(sys.executable)
