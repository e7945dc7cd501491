"""What scenarios need that may not be there: a Java for Spark, and real data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from eddyline.errors import SourceError


def data_folder() -> Path:
    """Return the folder with real data sets: ``EDDYLINE_DATA``, or beside the repository."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("EDDYLINE_DATA", default))


def missing(needs: Iterable[str]) -> str:
    """Return why a scenario with these needs cannot run; nothing if it can."""
    from eddyline.spark.session import check_java  # noqa: PLC0415 - the others start sooner

    for need in needs:
        if need != "spark" and not (data_folder() / need).is_file():
            return f"no {need} at {data_folder()}; set EDDYLINE_DATA to the folder above"
        if need == "spark":
            try:
                check_java()
            except SourceError as error:
                return error.message
    return ""
