"""Runs a function in a process of its own: what is measured there starts from nothing.

``python -m benchmarks.harness.isolated module:function JSON`` calls the function with the arguments
and prints its result. The module needs Python's own packages only, as peers have environments of
their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness.processor import processes_below

TIMEOUT_S = 3_600
"""After this a child is given up (s)."""

MARK = "result: "
"""What the line with the result starts with: Spark and Java print lines of their own."""


def alone(
    function: str,
    *,
    environment: dict[str, str] | None = None,
    python: Path | str = sys.executable,
    **arguments: Any,
) -> dict[str, Any]:
    """Call a function in a fresh Python process and return what it returns.

    Args:
        function: ``module:function``; it returns plain values.
        environment: variables that are set for it.
        python: the Python that runs it.
        **arguments: plain values.

    Raises:
        RuntimeError: it failed; the message ends with the last cause that Java told, or with what
            it printed last.
    """
    done = subprocess.run(
        [str(python), "-m", "benchmarks.harness.isolated", function, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **(environment or {})},
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not results:
        msg = f"{function} exited with {done.returncode}: {_cause(done.stderr)}"
        raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(results[-1].removeprefix(MARK))
    return found


def _cause(errors: str) -> str:
    """Return the last cause in a stack trace of Java, or the end of other text."""
    causes = [line for line in errors.splitlines() if line.startswith("Caused by")]
    return (causes[-1] if causes else errors.strip())[-300:]


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
    names = {child: Path(f"/proc/{child}/comm") for child in processes_below(int(pid))}
    return [
        child
        for child, name in names.items()
        if name.is_file() and name.read_text().startswith("python")
    ]


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
