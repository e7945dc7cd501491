"""Ctrl-C in a terminal, and results that nobody wants any more: no traces, nothing left behind."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.spark.processes import ROOT

pytestmark = [
    pytest.mark.large("starts a JVM to interrupt"),
    pytest.mark.usefixtures("soon_started"),
]

NO_TRACES = ("Traceback", "StackOverflow", "BrokenPipe", "\tat ")

STREAM = """
import sys, time
import eddyline as el
import pyarrow.compute as pc

spark = el.session(master="local[2]")
rows = spark.range(200_000).selectExpr("id", "id % 10 AS k", "sha2(CAST(id AS STRING), 256) AS s")

@el.predicate("s", arrays="pandas")
def ends_in_a(s):
    print("predicate", file=sys.stderr, flush=True)
    time.sleep(SLEEP)
    return s.str.contains("a$")
"""


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}


class Terminal:
    """A process with a terminal of its own, in which keys can be pressed."""

    def __init__(self, *command: object) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(sys.executable, [sys.executable, *map(str, command)], environment())
        self.shown = ""

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def await_text(self, text: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            assert self._read(), self.shown

    def finish(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def running(self) -> list[str]:
        """Return what still runs of what it has started."""
        asked = ["ps", "-o", "stat=,comm=", "-s", str(self._pid)]
        listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        return [line for line in listed.splitlines() if not line.startswith("Z")]

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], 60.0)[0]:
            raise AssertionError(self.shown)
        try:
            read = os.read(self._terminal, 65536)
        except OSError:  # the process has closed it
            return False
        self.shown += read.decode(errors="replace")
        return read != b""


def script(folder, text, sleep=0.0):
    path = folder / "script.py"
    path.write_text(STREAM.replace("SLEEP", str(sleep)) + text)
    return path


@pytest.fixture
def rows(spark, tmp_path):
    place = tmp_path / "in"
    spark.range(50_000).selectExpr("id", "id % 10 AS k", "timestamp_seconds(id) AS ts").repartition(
        4
    ).write.parquet(str(place))
    return place


def test_ctrl_c_ends_watching_but_not_the_run(tmp_path):
    text = f"""
rows.repartition(4).write.parquet({str(tmp_path / "in")!r})
engine = el.Engine(spark)
stream = spark.readStream.schema(rows.schema).parquet({str(tmp_path / "in")!r})
engine.stream("rows", stream)
engine.function("ends_in_a", ends_in_a)
run = engine.query("SELECT id FROM rows WHERE ends_in_a(s)", name="few").start("memory")
print("started", flush=True)
run.watch()
print("is active:", run.isActive, flush=True)
run.stop()
print("stopped in", len(run.records), "batches:", run.isActive, run.streaming_query.exception())
"""
    terminal = Terminal(script(tmp_path, text, sleep=0.5))
    terminal.await_text("predicate")  # in the first batch
    terminal.press_ctrl_c()
    terminal.await_text("stopped in")
    assert terminal.finish() == 0
    assert "few: not watched any longer, but goes on" in terminal.shown
    assert "is active: True" in terminal.shown
    assert "stopped in 0 batches: False None" in terminal.shown
    assert not any(each in terminal.shown for each in NO_TRACES), terminal.shown


def test_ctrl_c_stops_the_command_in_the_first_batch_of_a_join(tmp_path, rows):
    (tmp_path / "slow.py").write_text(
        "import time, eddyline as el\n"
        "@el.predicate('k', arrays='numpy')\n"
        "def slow(k):\n    time.sleep(1)\n    return k > 2\n"
    )
    (tmp_path / "join.sql").write_text(
        f"""
        CREATE STREAM a WITH (format = 'parquet', path = '{rows}', time = 'ts');
        CREATE STREAM b WITH (format = 'parquet', path = '{rows}', time = 'ts');
        CREATE FUNCTION slow USING 'slow:slow';
        CREATE QUERY both WITH (sink = 'memory') AS
          SELECT a.id FROM a [ROWS 10], b [ROWS 10] WHERE a.id = b.id AND slow(a.k);
        """
    )
    terminal = Terminal("-m", "eddyline", "run", tmp_path / "join.sql", "--no-explain")
    terminal.await_text("waiting for the first batch")
    time.sleep(3.0)
    terminal.press_ctrl_c()
    assert terminal.finish() == 0
    assert "both: stopped by Ctrl-C" in terminal.shown
    assert "✔" not in terminal.shown
    assert not any(each in terminal.shown for each in NO_TRACES), terminal.shown


def test_ctrl_c_while_spark_starts_leaves_no_jvm(tmp_path):
    text = "import eddyline as el\nprint('starting', flush=True)\nel.session()\nprint('never')"
    path = tmp_path / "start.py"
    path.write_text(text)
    terminal = Terminal(path)
    terminal.await_text("starting")
    time.sleep(1.5)  # the JVM is on its way
    terminal.press_ctrl_c()
    assert terminal.finish() != 0
    assert "never" not in terminal.shown
    assert "\tat " not in terminal.shown
    deadline = time.monotonic() + 20.0
    while terminal.running() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not terminal.running()


def test_ctrl_c_after_the_context_has_started_cuts_off_no_call(tmp_path):
    text = """
import signal
from pyspark.sql import SparkSession
import eddyline as el

start = SparkSession.__init__

def pressed(self, *args, **kwargs):
    signal.raise_signal(signal.SIGINT)
    start(self, *args, **kwargs)
    print("was not cut off", flush=True)

SparkSession.__init__ = pressed
try:
    el.session()
except KeyboardInterrupt:
    print("interrupted")
"""
    path = tmp_path / "start.py"
    path.write_text(text)
    terminal = Terminal(path)
    assert terminal.finish() == 0
    assert "was not cut off" in terminal.shown
    assert "interrupted" in terminal.shown


def test_a_limit_leaves_no_trace_and_workers_print_again(tmp_path):
    text = """
keep = el.all_of("k > 2", ends_in_a)
for _ in range(3):
    rows.transform(keep).show(5)
    assert len(rows.transform(keep).limit(3).collect()) == 3
few = rows.limit(100).cache()
few.count()
few.transform(el.all_of(ends_in_a)).count()
print("by a worker that ran before:", file=sys.stderr, flush=True)
few.transform(el.all_of(ends_in_a)).count()
"""
    ran = subprocess.run(
        [sys.executable, script(tmp_path, text)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not any(each in ran.stderr for each in NO_TRACES), ran.stderr
    assert "predicate" in ran.stderr.split("by a worker that ran before:")[1]
