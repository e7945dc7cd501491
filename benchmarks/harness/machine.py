"""What a result needs to be read later: the machine, the versions, the commit."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("eddyline", "pyspark", "pyarrow", "numpy", "pandas", "duckdb", "polars")
"""Packages whose versions are recorded."""


MEASURED = ("src", "benchmarks", ":!benchmarks/results")
"""What a result depends on: whether these files are as in the commit is recorded."""


def machine() -> dict[str, Any]:
    """Return the machine block of a result."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", *MEASURED)),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),  # of the last quarter of an hour of the run
        "processor": _processor(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _git(*arguments: str) -> str:
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, cwd=root
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (ValueError, OSError):
        return None
