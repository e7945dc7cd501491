"""Runs a function in a process of its own: what is measured there starts from nothing.

``python -m benchmarks.harness.isolated module:function JSON`` calls the function with the arguments
and prints its result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TIMEOUT_S = 3_600
"""After this a child is given up (s)."""

MARK = "result: "
"""What the line with the result starts with: Spark and Java print lines of their own."""


def alone(
    function: str, *, environment: dict[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Call a function in a fresh Python process and return what it returns.

    Args:
        function: ``module:function``; it returns plain values.
        environment: variables that are set for it.
        **arguments: plain values.

    Raises:
        RuntimeError: it failed; the message ends with what it printed last.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.harness.isolated", function, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **(environment or {})},
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not results:
        msg = f"{function} exited with {done.returncode}: {done.stderr.strip()[-300:]}"
        raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(results[-1].removeprefix(MARK))
    return found


def peak_bytes(pid: int | str = "self") -> int:
    """Return the most memory that a process has held so far (bytes), 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0


def python_below(pid: int | str) -> list[int]:
    """Return the processes below one that run Python: Spark's workers among them."""
    found, pending = [], [int(pid)]
    while pending:
        at = pending.pop()
        try:
            tasks = Path(f"/proc/{at}/task").iterdir()
            children = [int(c) for t in tasks for c in (t / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            pending.append(child)
            name = Path(f"/proc/{child}/comm")
            if name.is_file() and name.read_text().startswith("python"):
                found.append(child)
    return found


def pin(core: int) -> None:
    """Let this process, and what it starts, run on one core only."""
    os.sched_setaffinity(0, {core})


def main() -> None:
    """Run what the command line says."""
    name, _, called = sys.argv[1].partition(":")
    result = getattr(import_module(name), called)(**json.loads(sys.argv[2]))
    print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
