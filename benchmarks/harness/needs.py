"""What scenarios need that may not be there: a Java, packages, real data sets, peers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import flink
from eddyline.spark import java


def data_folder() -> Path:
    """Return the folder with real data sets: ``EDDYLINE_DATA``, or beside the repository."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("EDDYLINE_DATA", default))


def missing(needs: Iterable[str]) -> str:
    """Return why a scenario with these needs cannot run; nothing if it can."""
    for need in needs:
        if need == "spark":
            why = java.problem()
            if why:
                return why
        elif need == "flink":
            why = flink.problem()
            if why:
                return why
        elif "/" in need:
            if not (data_folder() / need).is_file():
                return f"no {need} at {data_folder()}; set EDDYLINE_DATA to the folder above"
        elif find_spec(need) is None:
            return f"no package {need}; pip install {need}"
    return ""
