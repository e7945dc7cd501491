"""Draw the pictures of the docs anew, from a query that really runs: ``make pictures``.

A stream whose law changes half way goes through three predicates. Of its run, ``explain()`` and the
progress become SVG, report and page PNGs in light and dark by headless Chromium. They are
committed: a build of the site needs neither Spark nor a browser.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

import eddyline as el
from eddyline.serve.source import key_of
from eddyline.spark.run.live import runs_of
from eddyline.watch.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from rich.console import RenderableType

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
QUERY = """
    SELECT payload, dst_port FROM packets
    WHERE hexadecimal(payload) AND suspicious(payload, dst_port) AND proto = 'tcp'
"""
N_FILES, ROWS_OF_FILE = 12, 60_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1100, 1500)
"""Pixels of a picture of a page."""
DARK, LIGHT = 0, 1
"""What Chromium calls the colours that a reader prefers."""


@el.predicate("payload", "dst_port")
def suspicious(payload: pa.Array, dst_port: pa.Array) -> pa.Array:
    """Keep what asks for pages of administrators on low ports."""
    return pc.and_(pc.match_substring_regex(payload, "admin|passwd"), pc.less(dst_port, 1024))


@el.predicate("payload")
def hexadecimal(payload: pa.Array) -> pa.Array:
    """Keep what ends with a hash."""
    return pc.match_substring_regex(payload, r"[0-9a-f]{64}$")


def ran(spark: Any, folder: Path) -> tuple[el.Engine, Any]:
    """Return an engine, and the run of its query over files that it has read to the end."""
    for number in range(N_FILES):
        is_early = number < N_FILES // 2
        admins, hashes = (2, 90) if is_early else (90, 2)
        packets = spark.range(ROWS_OF_FILE).selectExpr(
            "IF(id % 2 = 0, 'tcp', 'udp') AS proto",
            f"concat('GET /', IF(id % 97 < {admins}, 'admin', 'index'), '?', "
            f"IF(id % 101 < {hashes}, sha2(CAST(id AS STRING), 256), 'q')) AS payload",
            "CAST(id % 1000 AS INT) AS dst_port",
        )
        packets.coalesce(1).write.mode("append").parquet(str(folder / "in"))
    engine = el.Engine(spark)
    stream = spark.readStream.schema(packets.schema).option("maxFilesPerTrigger", 1)
    engine.stream("packets", stream.parquet(str(folder / "in")))
    engine.function("suspicious", suspicious)
    engine.function("hexadecimal", hexadecimal)
    run = engine.query(QUERY, name="attacks").start("memory", trigger="available_now")
    run.await_termination()
    return engine, run


def drawn(renderable: RenderableType, title: str, width: int) -> str:
    """Return what a terminal shows, as SVG that asks for no fonts from elsewhere."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(renderable)
        svg = console.export_svg(title=title, unique_id=title.partition("(")[0].replace(".", "-"))
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def progress(run: Any) -> RenderableType:
    """Return what ``run.watch()`` showed at the end."""
    line = ProgressLine(run.name, quiet=True)
    for record in run.records:
        line.update(record)
    return line._drawing()  # what is drawn live, once: a recording would hold every redraw


def photograph(address: str, picture: Path, colours: int) -> None:
    """Take a picture of a page, as it is some seconds after it was opened.

    Raises:
        SystemExit: there is no browser.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser to take pictures with; install one of: {', '.join(BROWSERS)}")
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        f"--window-size={SIZE[0]},{SIZE[1]}",
        f"--blink-settings=preferredColorScheme={colours}",
        "--timeout=5000",  # milliseconds, for the charts to be drawn; the live page never ends
        f"--screenshot={picture}",
    ]
    subprocess.run([browser, *options, address], check=True, capture_output=True)


def main() -> None:
    """Draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        engine, run = ran(el.session(), Path(place))
        texts = {"run.explain()": Text(run.explain(width=100)), "run.watch()": progress(run)}
        for title, renderable in texts.items():
            name = title.removeprefix("run.").removesuffix("()")
            (PICTURES / f"{name}.svg").write_text(drawn(renderable, title, 104), "utf-8")
        report = run.report(Path(place) / "report.html")
        with engine.serve() as server:
            (watched,) = runs_of(lambda: engine.groups).runs()
            page = server.url.replace("?", f"run/{key_of(watched)}?")
            for name, colours in (("light", LIGHT), ("dark", DARK)):
                photograph(report.as_uri(), PICTURES / f"report_{name}.png", colours)
                photograph(page, PICTURES / f"page_{name}.png", colours)
    for picture in sorted(PICTURES.iterdir()):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
