"""The environment of Flink, a peer: a Python of its own that has ``apache-flink``.

``EDDYLINE_FLINK`` names that Python. Without the variable it is the one in ``.venv-flink`` at the
root of the repository, which ``python -m benchmarks install-flink`` makes. Flink pins old versions
of packages that eddyline needs too, so the two never share an environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

VARIABLE = "EDDYLINE_FLINK"
"""Environment variable that names the Python of an environment with Flink."""

PACKAGE = "apache-flink==2.3.0"

FOLDER = Path(__file__).resolve().parents[2] / ".venv-flink"

COMMAND = "python -m benchmarks install-flink"

VERSIONS = (3, 9), (3, 12)
"""Oldest and newest Python for which the package has wheels."""


def interpreter() -> Path:
    """Return the Python of Flink's environment, whether or not it exists."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else FOLDER / "bin" / "python"


def problem() -> str:
    """Return why Flink cannot run here, and the command that installs it; empty if it can."""
    python = interpreter()
    if not python.is_file() and os.environ.get(VARIABLE):
        advice = f"unset it, or install Flink by {COMMAND}"
        return f"{VARIABLE} names {python}, which is no file; {advice}"
    if not python.is_file():
        return f"no Flink is installed; install it by {COMMAND}"
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyflink') is None)"
    try:
        looked = subprocess.run([str(python), "-c", look], capture_output=True, check=False)
    except OSError as error:
        return f"{VARIABLE} names no Python ({error.strerror}); install Flink by {COMMAND}"
    return f"the Python of {VARIABLE} has no Flink; {COMMAND}" if looked.returncode else ""


def install() -> int:
    """Make the environment with Flink in it; returns the exit code of pip, or 2.

    The download has some 300 MB, the environment 850 MB.
    """
    oldest, newest = VERSIONS
    if not oldest <= sys.version_info[:2] <= newest:
        print(f"{PACKAGE} has no wheels for Python {sys.version_info[0]}.{sys.version_info[1]}")
        return 2
    venv.create(FOLDER, with_pip=True, clear=False)
    python = FOLDER / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", PACKAGE]
    return subprocess.run(command, check=False).returncode
