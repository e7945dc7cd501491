"""Whether there is a Java that Spark can run on.

Needs nothing but Python, so that ``make`` can ask before anything is installed:
``python src/eddyline/spark/java.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MIN_JAVA = 17
"""Oldest Java that Spark 4 runs on."""


def problem() -> str | None:
    """Return the fault of the Java that Spark would run on, in one line, or None."""
    java, version = in_use()
    if version is not None and version >= MIN_JAVA:
        return None
    if version is not None:
        fault = f"{java} is Java {version}"
    elif home := os.environ.get("JAVA_HOME"):
        fault = f"JAVA_HOME is {home}, which has no working bin/java"
    else:
        fault = "none was found"
    return (
        f"Spark needs Java {MIN_JAVA} or newer, {fault}; install one (Debian and Ubuntu: "
        f"'apt-get install openjdk-{MIN_JAVA}-jre-headless') or point JAVA_HOME to it"
    )


def in_use() -> tuple[str | None, int | None]:
    """Return the Java that Spark would run on, and its major version; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return java, _version(java) if java else None


def _version(java: str) -> int | None:
    """Return the major version of a Java, or None if it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', shown.stderr + shown.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


if __name__ == "__main__":
    sys.exit(problem())
