"""Pathway's interval joins beside eddyline's, in an environment of their own.

Pathway is not among the packages of eddyline. ``EDDYLINE_PATHWAY_PYTHON`` names the Python of an
environment that has it; without that, one is made in the cache folder, if it can be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from benchmarks.harness.scenario import Measurement, Runs, Settings, skipped
from benchmarks.harness.timing import Times
from benchmarks.joins.chained import SPAN_US, joined_by_k
from benchmarks.joins.data import uniform_batches_v1
from benchmarks.joins.streams import answer_of, race, rate, told, written

PYTHON = "EDDYLINE_PATHWAY_PYTHON"

PATHWAY = "pathway==0.33.0"

CHILD = Path(__file__).with_name("pathway_child.py")

THREADS = 2

INSTALL_S, RUN_S = 600, 1_200
"""After this installing, or a run, is given up (s)."""


def environment() -> Path | str:
    """Return the Python of an environment that has pathway, or why there is none."""
    given = os.environ.get(PYTHON)
    if given is not None:
        return Path(given) if _has_pathway(Path(given)) else f"{PYTHON}={given} has no pathway"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "eddyline" / "benchmarks" / "pathway"
    python = folder / "bin" / "python"
    if _has_pathway(python):
        return python
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", PATHWAY],
    ):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{PATHWAY} cannot be installed here: {error}"
        if done.returncode:
            return f"{PATHWAY} cannot be installed here: {done.stderr.strip()[-200:]}"
    return python if _has_pathway(python) else f"{PATHWAY} does not run here"


def _has_pathway(python: Path) -> bool:
    if not python.is_file():
        return False
    done = subprocess.run(
        [str(python), "-c", "import pathway"], capture_output=True, timeout=RUN_S, check=False
    )
    return done.returncode == 0


def _write(batches: Sequence[Mapping[str, pa.Table]], folder: str) -> None:
    """Write each stream as one file, with whole numbers for times."""
    for name in batches[0]:
        table = pa.concat_tables([batch[name] for batch in batches])
        plain = {
            "n": table["id"],
            "ts": table["ts"].cast(pa.int64()),
            "k": table["k"],
            "v": table["v"],
        }
        csv.write_csv(pa.table(plain), f"{folder}/{name}.csv")


def _run(python: Path, folder: str, kind: str) -> dict[str, Any]:
    """Run a child; what it needs for itself (its start, its imports) is not timed.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [str(python), "-I", str(CHILD), folder, str(SPAN_US), kind],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={**os.environ, "PATHWAY_THREADS": str(THREADS)},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("result: ")]
    if not lines:
        msg = f"pathway exited with {done.returncode}: {done.stderr.strip()[-300:]}"
        raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("result: "))
    return found


def beside_pathway(settings: Settings) -> Measurement:
    """The rows of ``joins_chained_3``: pathway takes all at once, eddyline batch by batch."""
    python = environment()
    if isinstance(python, str):
        return skipped(python)
    n_batches, n_rows = settings.pick(10, 4), settings.pick(100_000, 10_000)
    batches = uniform_batches_v1(3, n_batches, n_rows, n_rows, SPAN_US)
    theirs: dict[str, list[dict[str, Any]]] = {"join": [], "read": []}
    with tempfile.TemporaryDirectory() as folder:
        _write(batches, folder)
        for kind in ("join", "read"):
            theirs[kind].append(_run(python, folder, kind))
        ours = race(written(joined_by_k(3), batches, {}), "eddyline", "no join")
        for kind in ("read", "join"):
            theirs[kind].append(_run(python, folder, kind))
    wanted, got = answer_of(ours["eddyline"]), answer_of(theirs["join"][0])
    assert wanted == got, f"pathway answers {got}, eddyline {wanted}"
    times = {
        kind: Times(tuple(each["seconds"] for each in found)) for kind, found in theirs.items()
    }
    its_rate = 3 * n_batches * n_rows / times["join"].median
    value = rate(ours, "eddyline") / its_rate
    note = (
        f"pathway {its_rate:,.0f} rows/s ({times['join']}, of which reading CSV "
        f"{times['read']}), {THREADS} threads; eddyline {rate(ours, 'eddyline'):,.0f} rows/s, "
        f"{told(ours, 'eddyline', 'no join')}; {ours['n_results']:,} results"
    )
    return Measurement(value, note, {"pathway": theirs, "eddyline": ours})


RUNS: Runs = {"joins_pathway": beside_pathway}
