"""Draw the pictures of the docs anew, from a query that really runs: ``make pictures``.

A stream whose law changes half way goes through three predicates. Of its run, ``explain()`` and the
progress become SVG, report and page PNGs in light and dark by headless Chromium. The floor of MACD
is drawn from stored results. They are committed: a build of the site needs neither Spark nor a
browser.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.compute as pc
from playwright.sync_api import ViewportSize, sync_playwright
from rich.console import Console
from rich.text import Text

import eddyline as el
from eddyline.report.terminal import ProgressLine
from eddyline.serve.runs import key_of
from eddyline.spark.run.live import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser
    from rich.console import RenderableType

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
QUERY = """
    SELECT payload, dst_port FROM packets
    WHERE hexadecimal(payload) AND suspicious(payload, dst_port) AND proto = 'tcp'
"""
N_FILES, ROWS_OF_FILE = 12, 60_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = ViewportSize(width=1100, height=1500)
"""Of the part of a page that is seen (pixels)."""
DRAWN_MS = 3_000
"""Time for the charts to be drawn (ms); the live page never says that it is complete."""


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


FLOOR = {
    "rows by numpy": "rows, NumPy",
    "rows in a loop": "rows, one compiled pass",
    "fitting and asking": "segments, fitted and asked",
    "asking": "segments, asked",
    "bare sums": "floor: adding up the prices",
}
"""Bars of MACD by their names in the results."""


def macd_floor(results: Path) -> str:
    """Return bars for the time of MACD on a day of trades, from the stored results of models."""
    stored = json.loads(results.read_text("utf-8"))["results"]
    details = next(each for each in stored if each["id"] == "models_macd")["details"]
    ms = {label: median(details[name]) * 1e3 for name, label in FLOOR.items()}
    row, left, wide = 34, 210, 380
    height = 40 + row * len(ms)
    bars = "".join(
        f'<text x="{left - 10}" y="{57 + row * place}" text-anchor="end">{label}</text>'
        f'<rect x="{left}" y="{42 + row * place}" width="{wide * time / max(ms.values()):.1f}" '
        f'height="20" rx="2"/>'
        f'<text x="{left + 8 + wide * time / max(ms.values()):.1f}" y="{57 + row * place}">'
        f"{time:.1f} ms</text>"
        for place, (label, time) in enumerate(ms.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" role="img" '
        f'aria-label="Time of MACD over a day of trades: {escape(_told(ms))}">'
        "<style>text{font:14px sans-serif;fill:#1f2328}rect{fill:#3b7dd8}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#6aa5f0}}</style>"
        f'<text x="0" y="20" font-weight="bold">MACD over 1.16 million trades</text>{bars}</svg>\n'
    )


def _told(ms: dict[str, float]) -> str:
    return "; ".join(f"{label} {time:.1f} ms" for label, time in ms.items())


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser without a window.

    Raises:
        SystemExit: there is none.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit(f"no browser to take pictures with; install one of: {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


def photograph(opened: Browser, addresses: list[str], name: str) -> None:
    """Take a picture of the last of pages in light, and one in dark."""
    for colours in ("light", "dark"):
        page = opened.new_page(viewport=SIZE, color_scheme=colours)
        for address in addresses:
            page.goto(address)
        page.wait_for_timeout(DRAWN_MS)
        page.screenshot(path=PICTURES / f"{name}_{colours}.png")
        page.close()


def main() -> None:
    """Draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    results = ROOT / "benchmarks" / "results" / "models.json"
    (PICTURES / "macd_floor.svg").write_text(macd_floor(results), "utf-8")
    with tempfile.TemporaryDirectory() as place:
        engine, run = ran(el.session(), Path(place))
        texts = {"run.explain()": Text(run.explain(width=100)), "run.watch()": progress(run)}
        for title, renderable in texts.items():
            name = title.removeprefix("run.").removesuffix("()")
            (PICTURES / f"{name}.svg").write_text(drawn(renderable, title, 104), "utf-8")
        report = run.report(Path(place) / "report.html")
        with engine.serve() as server, browser() as opened:
            photograph(opened, [report.as_uri()], "report")
            (watched,) = runs_of(lambda: engine.groups).runs()
            # The first address has the token, for which it gives a cookie.
            run_page = f"{server.address}run/{key_of(watched)}"
            photograph(opened, [server.url, run_page], "page")
    for picture in sorted(PICTURES.iterdir()):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
