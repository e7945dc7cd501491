"""A process that runs pages one after the other, in one JVM: most of a page's time is to start it.

Each page has an empty folder, a ``__main__`` and a Spark context of its own. Commands run in the
process, as other tests start them, and ``make release`` runs those of the first pages so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TextIO

from tools import snippets

from tests.spark.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


SETTINGS = "--conf spark.sql.streaming.pollingDelay=100ms pyspark-shell"
"""Streams of a page that wait for files while the page goes on list them every 10 ms otherwise."""


class Outcome(NamedTuple):
    """How a page went."""

    is_whole: bool
    """Whether it ran to its end."""
    output: str
    errors: str


class PageProcess:
    """A process for pages, from its first one on; one that a page has ended is started anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, page: Path) -> Outcome:
        """Run the snippets of a page on what it takes as given."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._started()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{page}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            return Outcome(False, "", f"the process ended: {self._process.wait()}")
        return Outcome(*json.loads(answer))

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,  # relative paths start where the JVM was started
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "PYSPARK_SUBMIT_ARGS": SETTINGS,
            },
        )

    def close(self) -> None:
        """End the process, which stops its JVM."""
        if self._process is not None:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.wait()


def main() -> None:
    """Run the pages that are named on standard input; answer each with a line of JSON."""
    folder = Path.cwd()
    sys.path.insert(0, "")  # scripts import what stands beside them
    pages, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in pages:
        print(json.dumps(run_page(Path(line.strip()))), file=answers, flush=True)
        clear(folder)


def run_page(page: Path) -> Outcome:
    """Run a page in this process."""
    main_module = sys.modules["__main__"] = ModuleType("__main__")
    main_module.__dict__["_run"] = run_command
    is_whole = True
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        with to_file(1, output), to_file(2, errors):
            try:
                for name, text in snippets.parts(page):
                    exec(compile(text, name, "exec"), main_module.__dict__)
            except BaseException:  # noqa: BLE001 - also what ends a process
                traceback.print_exc()
                is_whole = False
        return Outcome(is_whole, read(output), read(errors))


def run_command(line: str) -> None:
    """Run a command of a page in the session of the page, if it has one."""
    from eddyline.cli import app  # noqa: PLC0415 - pages that have commands

    *words, mark, file = shlex.split(line, comments=True)
    with contextlib.ExitStack() as stack:
        if mark == ">":
            output = stack.enter_context(Path(file).open("w"))
            stack.enter_context(contextlib.redirect_stdout(output))
        else:
            words += mark, file
        assert not app(words[1:], standalone_mode=False), line


@contextlib.contextmanager
def to_file(descriptor: int, file: TextIO) -> Iterator[None]:
    """Let what this process prints go to a file meanwhile."""
    before = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(before, descriptor)
        os.close(before)


def read(file: TextIO) -> str:
    """Return all that was written to a file."""
    file.seek(0)
    return file.read()


def clear(folder: Path) -> None:
    """Forget a page: its runs, session, files and modules."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from eddyline.spark.session import stop_active  # noqa: PLC0415 - pages import it first

    if (active := SparkSession.getActiveSession()) is not None:
        for stream in active.streams.active:
            stream.stop()
    stop_active()
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
