"""Processes of their own that run queries, to be killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import eddyline as el

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]

JAVA = "JAVA_TOOL_OPTIONS"
"""The variable with options for every JVM that this process starts, and those that it starts."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
"""A JVM that lives for seconds only compiles fast rather than well, and warns of nothing."""


class Process:
    """A script in a process group of its own, with its workers and its JVM.

    Args:
        *command: of the interpreter: a file, or ``-m`` and a module, and arguments. It prints
            ``started`` once its queries run.
        java: options of its JVM; those of this process by default.
    """

    def __init__(self, *command: object, java: str | None = None) -> None:
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                **({} if java is None else {JAVA: java}),
            },
        )

    def await_start(self) -> None:
        """Wait until the queries run."""
        for line in self._process.stdout:
            if line.strip() == "started":
                return
        raise AssertionError(self._said())

    def check_runs(self) -> None:
        """Check that it has not ended yet."""
        assert self._process.poll() is None, self._said()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> str:
        """Kill the whole group at once; returns what it printed."""
        os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.communicate()[0]

    def finish(self, timeout_s: float = 900) -> str:
        """Wait until it has ended well; returns what it printed."""
        said, _ = self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, self._said()
        return said


def main(start: Callable[[Any, Path], Any]) -> None:
    """Run queries as a script, over the folder that it is given; says when they run and are done.

    Args:
        start: starts the queries of a session over the files of a folder, and returns their runs.
    """
    place = Path(sys.argv[1])
    session = el.session(
        {
            "spark.driver.memory": "1g",
            "spark.local.dir": str(place / "tmp"),
            "spark.sql.warehouse.dir": str(place / "wh"),
        },
        master="local[2]",
    )
    runs = start(session, place)
    print("started", flush=True)  # noqa: T201 - for the test
    for run in runs:
        run.await_termination()
        print("done", run.name, flush=True)  # noqa: T201
    session.stop()
