"""What people read of a run of each query kind: explain, journal, report, metrics; without figures.

``python -m tests.spark.run.golden [kind …]`` writes the lines that ``test_golden.py`` looks for:
those that two runs have in common, as plans depend on time that is measured. A change of structure
leaves all of them as they are. A change of words shows as a change of the files.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.spark.session import session
from tests.spark.run.lives import KINDS, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "golden"
N_BATCHES = 4

_FIGURE = re.compile(r"(?<![\w#])-?[\d#][\d,.:#]*(e[-+]?\d+)?( ?(ns|µs|ms|s|min|kB|MB|B|%)\b)?")
_DRAWING = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def golden(kind: str, spark: SparkSession, folder: Path) -> str:
    """Run the queries of a kind over four batches in a folder, and return what people read."""
    write(folder, N_BATCHES)
    runs = KINDS[kind].start(spark, folder)
    for run in runs:
        run.await_termination(120)
    parts = []
    for run in runs:
        report = run.report(folder / "report.html").read_text("utf-8")
        parts += [
            f"== explain of {run.name}",
            without_figures(run.explain(width=100)),
            f"== journal of {run.name}",
            *sorted({_entry_line(entry) for entry in run.journal}),
            f"== report of {run.name}",
            without_figures(report_text(report)),
            f"== metrics of {run.name}",
            *sorted({metric.kind.name for metric in run.metrics()}),
        ]
    return "\n".join(parts) + "\n"


def report_text(page: str) -> str:
    """Return the words of a report, without styles, scripts and drawings."""
    text = html.unescape(_TAG.sub("\n", _DRAWING.sub("", page)))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def without_figures(text: str) -> str:
    """Return a text with each number as ``#`` and each run of blanks as one."""
    return re.sub(r"[ \t]+", " ", re.sub(r"[-─]{3,}", "---", _FIGURE.sub("#", text)))


def _entry_line(entry: Any) -> str:
    evidence = ", ".join(sorted(entry["evidence"]))
    return f"{entry['component']}: {entry['event']} ({evidence})"


def main() -> None:
    """Write the texts of the kinds that are named, or of all."""
    spark = session()
    FOLDER.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in sys.argv[1:] or KINDS:
            texts = []
            for _ in range(2):
                with tempfile.TemporaryDirectory() as folder:
                    texts.append(golden(kind, spark, Path(folder)).splitlines())
            again = set(texts[1])
            lines = [line for line in texts[0] if line in again]
            (FOLDER / f"{kind}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
